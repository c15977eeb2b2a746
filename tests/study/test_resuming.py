"""A study is resumed after its sweep was stopped or killed, or with other settings."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
import pytest
from opened_studies import (
    BRANCHES,
    COMPLETED,
    RUNNING,
    STOPPED,
    Opened,
    changed,
    completed,
    counts_of,
    failed,
    stopped,
)
from optuna.trial import TrialState as OptunaState
from studies import note_in

from sweeper.errors import StudyError
from sweeper.study.study import Study
from sweeper.testing import write_notebook
from sweeper.trials import GpuUse, Notice, Reason, TrialRecord


def test_earlier_trials_of_a_resumed_study_count_towards_its_number_of_trials(begin: Any) -> None:
    opened = begin(trials=2)
    opened.run(0.5)
    opened.study.tell(opened.ask().number, failed())
    assert opened.again().next() is None
    more = opened.again(trials=3)
    assert [record.number for record in more.run(0.5)] == [2]
    assert more.next() is None


def test_a_trial_that_has_ended_cannot_be_marked_as_running(begin: Any) -> None:
    opened = begin(trials=2)
    ended = opened.study.tell(opened.ask().number, completed(0.5))
    assert opened.study.note_state(ended.number, RUNNING) == ended
    assert counts_of(opened.again().study) == Counter({COMPLETED: 1})


def test_trials_left_running_or_stopped_are_run_again_first(begin: Any) -> None:
    opened = begin(BRANCHES, trials=4)
    left = [opened.ask() for _ in range(3)]
    opened.study.tell(left[0].number, stopped())
    opened.study.tell(left[1].number, completed())
    opened = opened.again()
    assert counts_of(opened.study) == Counter({STOPPED: 1, COMPLETED: 1, RUNNING: 1})
    again = [opened.ask(), opened.ask()]
    for before, now in zip((left[0], left[2]), again, strict=True):
        assert (now.number, now.params, now.seed) == (before.number, before.params, before.seed)
        assert (now.attempt, now.state, now.notebook) == (2, RUNNING, before.notebook)
        assert now.message == ""
        opened.study.tell(now.number, completed())
    assert opened.ask().number == 3
    assert opened.next() is None


def test_an_interrupted_trial_keeps_its_params_even_if_the_space_has_changed(
    begin: Any,
) -> None:
    opened = begin()
    before = opened.ask()
    space = {"x": {"low": 5.0, "high": 6.0}, "y": [1, 2]}
    assert Opened(opened.storage, changed(opened, space=space)).ask().params == before.params


@pytest.mark.parametrize(
    "now",
    [
        {"repeat": {"seeds": 2}},
        {"repeat": {"fold": 2}},
        {"study": {"seed": 8}},
        {"fixed": {"seed": 42}},
    ],
)
def test_an_interrupted_trial_keeps_its_seed_although_changed_settings_give_others_new_seeds(
    begin: Any, now: dict[str, Any]
) -> None:
    opened = begin()
    before = opened.ask()
    again = Opened(opened.storage, changed(opened, **now)).ask()
    assert (again.attempt, again.seed, again.params) == (2, before.seed, before.params)


def test_each_interruption_of_a_trial_adds_one_attempt(begin: Any) -> None:
    opened = begin(trials=1)
    attempts = []
    for _ in range(3):
        attempts.append(opened.ask().attempt)
        opened = opened.again()
    assert attempts == [1, 2, 3]
    assert len(opened.optunas()) == 1


def test_a_stopped_trial_is_not_run_again_by_the_same_sweep(begin: Any) -> None:
    opened = begin(trials=1)
    opened.study.tell(opened.ask().number, stopped())
    assert opened.next() is None


def kill_between_the_writes(opened: Opened, score: float) -> TrialRecord:
    """Store a trial's end in its record but not in Optuna's state, as a kill within `tell` does."""
    number = opened.ask().number
    opened.study.tell(number, completed(score))
    record = opened.study.records()[number]
    trial_id = opened.optunas()[number]._trial_id
    with closing(sqlite3.connect(opened.storage.url.removeprefix("sqlite:///"))) as connection:
        undo = "UPDATE trials SET state = 'RUNNING', datetime_complete = NULL WHERE trial_id = ?"
        connection.execute(undo, (trial_id,))
        connection.execute("DELETE FROM trial_values WHERE trial_id = ?", (trial_id,))
        connection.commit()
    frozen = opened.optunas()[number]
    assert (frozen.state, frozen.values) == (OptunaState.RUNNING, None)
    return record


def test_a_trials_end_that_is_only_in_its_record_is_written_to_optuna_when_the_study_resumes(
    begin: Any,
) -> None:
    opened = begin(trials=1)
    record = kill_between_the_writes(opened, 0.75)
    loaded = Study.load(opened.storage.url, opened.settings.name)  # only for reading
    assert (loaded.records(), loaded.best()) == ([record], [])
    opened = opened.again()
    assert opened.next() is None
    assert opened.study.best() == [record]
    (frozen,) = opened.optunas()
    assert (frozen.state, frozen.values) == (OptunaState.COMPLETE, [0.75])


def test_ends_that_a_kill_left_only_in_a_record_or_notebook_are_stored_before_a_sweep_resumes(
    begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened = begin(trials=3)
    opened.run(0.5)
    by_record, by_notebook = kill_between_the_writes(opened, 0.75), opened.ask()
    ended = {"state": "completed", "attempt": 1, "scores": {"acc": 0.9}}
    notebook = write_notebook(by_notebook.notebook, "1")
    note_in(notebook, study_id=opened.study.study_id, **ended)
    loaded = Study.load(opened.storage.url, opened.settings.name)
    first, second = loaded.mark_interrupted()
    assert (first, second.number, second.scores) == (by_record, 2, {"acc": 0.9})
    assert loaded.best() == [second]
    assert loaded.mark_interrupted() == []


def test_a_trial_that_was_killed_before_it_had_params_keeps_its_number(begin: Any) -> None:
    opened = begin(start=[{"x": 0.125}], trials=2)
    plain = optuna.load_study(study_name=opened.settings.name, storage=opened.storage)
    plain.ask()  # its process is killed before it writes a record
    opened = opened.again()
    assert opened.study.records() == []
    record = opened.ask()
    assert (record.number, record.attempt, record.params) == (0, 1, {"x": 0.125})
    assert opened.ask().number == 1
    assert opened.next() is None


def test_trials_of_a_killed_sweep_can_be_marked_as_stopped_without_running_them(begin: Any) -> None:
    opened = begin()
    running = opened.ask()
    loaded = Study.load(opened.storage.url, opened.settings.name)
    (marked,) = loaded.mark_interrupted()
    assert (marked.number, marked.state) == (running.number, STOPPED)
    assert (marked.reason, marked.message) == (Reason.INTERRUPTED, "the sweep was killed")
    assert loaded.mark_interrupted() == []
    assert counts_of(loaded) == Counter({STOPPED: 1})
    assert opened.again().ask().number == running.number


def test_a_trials_end_that_is_only_in_its_notebook_is_stored_with_all_its_data(
    begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened = begin(trials=1)
    record = opened.ask()
    use = GpuUse(peak_bytes=8, busy_share=0.5)
    ended = {"state": "completed", "attempt": 1, "scores": {"acc": 0.5}, "duration_s": 2.0}
    ended |= {"gpu": asdict(use), "notices": {"not_replicable": ["put_"]}}
    note_in(write_notebook(record.notebook, "1"), study_id=opened.study.study_id, **ended)
    opened = opened.again()
    assert opened.next() is None
    (corrected,) = opened.study.best()
    assert (corrected.scores, corrected.gpu) == ({"acc": 0.5}, use)
    assert corrected.notices == {Notice.NOT_REPLICABLE: ("put_",)}


def test_settings_with_other_objectives_than_those_of_the_study_are_refused(begin: Any) -> None:
    opened = begin()
    fewer_or_more = ({"loss": "maximize"}, {"acc": "maximize", "loss": "minimize"})
    for objective in ({"acc": "minimize"}, *fewer_or_more):
        with pytest.raises(StudyError) as raised:
            Study.open(opened.storage, changed(opened, objective=objective))
        for fragment in (opened.settings.name, "acc: maximize", "--study", "-o"):
            assert fragment in str(raised.value)


def test_a_dimension_of_another_type_is_refused_if_a_trial_has_used_it(begin: Any) -> None:
    opened = begin()
    others = [[0.0, 1.0], {"low": 0, "high": 1}, {"low": 0.1, "high": 1.0, "log": True}]
    Study.open(opened.storage, changed(opened, space={"x": others[0]}))
    opened.ask()
    for other in others:
        with pytest.raises(StudyError, match=rf"{opened.settings.name}.*in which x was .*--study"):
            Study.open(opened.storage, changed(opened, space={"x": other}))


def test_the_error_about_a_changed_dimension_quotes_the_old_and_new_one_as_yaml(begin: Any) -> None:
    before = {
        "a": [[32], [64, 64], {"x": True}, "[32]"],
        "b": {"low": 1, "high": 8, "log": True},
        "c": {"low": 0.0, "high": 1.0},
    }
    opened = begin(before)
    opened.ask()
    now: list[tuple[str, Any, list[str]]] = [
        ("a", [[32]], ["{choices: [[32], [64, 64], {x: true}, '[32]']}", "{choices: [[32]]}"]),
        ("b", [1, 2], ["{log: true, step: 1, low: 1, high: 8}", "{choices: [1, 2]}"]),
        ("c", [1, 2], ["{low: 0.0, high: 1.0}", "{choices: [1, 2]}"]),
    ]
    for name, other, words in now:
        with pytest.raises(StudyError) as raised:
            Study.open(opened.storage, changed(opened, space={**before, name: other}))
        assert f"in which {name} was {words[0]}, now it is {words[1]}" in str(raised.value)


def test_a_range_may_be_changed_and_a_dimension_may_be_added(begin: Any) -> None:
    opened = begin()
    opened.ask()
    space = {"x": {"low": 5.0, "high": 6.0}, "y": [1, 2]}
    opened.study.tell(0, completed())
    params: Any = Opened(opened.storage, changed(opened, space=space)).ask().params
    assert params.keys() == {"x", "y"}
    assert params["x"] >= 5.0
