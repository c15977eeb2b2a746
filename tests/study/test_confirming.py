"""Trials that confirm the best ones: real Optuna, which sees none of their scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opened_studies import (
    COMPLETED,
    RANGE,
    STOPPED,
    Opened,
    completed,
    failed,
    notebook_of,
    stopped,
)
from optuna.samplers import BaseSampler
from optuna.trial import TrialState as OptunaState

from sweeper.settings import Settings
from sweeper.study import SamplerFactory, StoredStudy
from sweeper.study.samplers import CONFIRMS
from sweeper.trials import Reason, TrialOutcome, TrialRecord

CONFIRM = {"best": 2, "seeds": 2}
Begin = Callable[..., Opened]


@pytest.fixture
def begin_confirming(begin: Any) -> Begin:
    """Opens a study that confirms its best trials; some parts can differ."""

    def opened(confirm: Any = CONFIRM, **study: Any) -> Opened:
        made: Opened = begin(RANGE, **{"trials": 3, **study})
        made.settings = with_confirm(made.settings, confirm)
        return made

    return opened


def with_confirm(settings: Settings, confirm: Any) -> Settings:
    return Settings.from_mapping({**settings.as_mapping, "confirm": confirm})


def confirm_all(opened: Opened) -> list[TrialRecord]:
    """Run what is left; later runs have better scores, which must not matter to anybody."""
    done = []
    while (record := opened.next()) is not None:
        done.append(opened.study.tell(record.number, completed(10.0 + record.number)))
    return done


def test_after_the_search_the_best_trials_run_again_as_trials_of_their_own(
    begin_confirming: Begin,
) -> None:
    opened = begin_confirming()
    search = opened.run(0.1, 0.3, 0.2)
    runs = confirm_all(opened)
    assert [(r.number, r.confirms, r.repetition) for r in runs] == [
        (3, 1, 1),
        (4, 2, 1),
        (5, 1, 2),
        (6, 2, 2),
    ]
    assert [r.params for r in runs] == [search[n].params for n in (1, 2, 1, 2)]
    assert runs[0].seed == runs[1].seed != runs[2].seed == runs[3].seed
    assert not {r.seed for r in runs} & {r.seed for r in search}, "fresh seeds"
    assert all(r.state is COMPLETED for r in runs)


def test_optuna_keeps_them_as_failed_trials_without_a_score(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    search = opened.run(0.1, 0.3, 0.2)
    confirm_all(opened)
    theirs = [trial for trial in opened.optunas() if CONFIRMS in trial.user_attrs]
    assert len(theirs) == 4
    assert {(t.state, t.values and tuple(t.values)) for t in theirs} == {(OptunaState.FAIL, None)}
    assert [t.params for t in theirs[:2]] == [dict(search[n].params) for n in (1, 2)]
    assert [r.number for r in opened.study.best()] == [1]
    assert [r.number for r in opened.again().study.best()] == [1]


def test_a_reader_without_optuna_has_the_same_best_trial(
    begin_confirming: Begin, storage: Any
) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3, 0.2)
    confirm_all(opened)
    studies = StoredStudy.all_in(Path(storage.engine.url.database))
    assert studies is not None
    (found,) = [study for study in studies if study.name == opened.settings.name]
    assert [r.number for r in found.best()] == [1]
    assert [r.confirms for r in found.records()] == [None, None, None, 1, 2, 1, 2]


class Shifted(SamplerFactory):
    """Makes the samplers of trials with smaller numbers: seeds are made of the numbers."""

    by = 0

    def make(self, number: int) -> BaseSampler:
        return super().make(number - self.by)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "order"),
    [("tpe", "free"), ("tpe", "fixed"), ("gp", "free"), ("qmc", "fixed"), ("brute_force", "free")],
)
def test_a_search_that_goes_on_proposes_what_it_would_without_them(
    begin: Any, sampler: str, order: str
) -> None:
    space = {"x": {"low": 0.0, "high": 1.0, "step": 0.05}}
    options = {"n_startup_trials": 3} if sampler in ("tpe", "gp") else {}
    study = {"trials": 5, "sampler": {"name": sampler, **options}, "order": order}
    proposed = []
    for confirm in (None, CONFIRM):
        opened = begin(space, **study)
        if confirm is not None:
            opened.settings = with_confirm(opened.settings, confirm)
        if order == "fixed":
            opened.study.keep_order(1)
        opened.run(0.1, 0.3, 0.2, 0.5, 0.0)
        n_runs = len(confirm_all(opened))
        further = opened.again(trials=7)
        further.samplers = Shifted(further.settings)
        further.samplers.by = n_runs
        if order == "fixed":
            further.study.keep_order(1)
        proposed.append([(r.number - n_runs, r.params) for r in further.run(0.1, 0.2)])
    without, with_them = proposed
    assert with_them == without


def test_a_sampler_sees_neither_running_nor_ended_ones(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3, 0.2)
    ended, running = opened.ask(), opened.ask()
    opened.study.tell(ended.number, completed(5.0))
    assert running.confirms == 2
    seen = opened.study._queue._seen(opened.study._mirror, 9)
    trials = seen.get_all_trials(opened.study._study._study_id)
    assert [trial.number for trial in trials] == [0, 1, 2]


def test_a_trial_of_the_search_that_runs_is_waited_for(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3)
    last = opened.ask()
    waits = []

    def wait() -> bool:
        waits.append(1)
        opened.study.tell(last.number, completed(0.9))
        return True

    run = opened.study.ask(opened.settings, opened.samplers, notebook_of, wait)
    assert waits == [1]
    assert run is not None
    assert run.confirms == last.number, "the last trial is the best"


def test_a_sweep_that_is_stopped_meanwhile_confirms_nothing(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3)
    opened.ask()
    assert opened.study.ask(opened.settings, opened.samplers, notebook_of, lambda: False) is None


def test_after_a_kill_the_same_run_comes_again_and_nothing_twice(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3, 0.2)
    first, second = opened.ask(), opened.ask()
    opened.study.tell(first.number, completed(0.5))
    again = opened.again()
    resumed = again.ask()
    assert (resumed.number, resumed.seed, resumed.params) == (
        second.number,
        second.seed,
        second.params,
    )
    assert (resumed.confirms, resumed.repetition, resumed.attempt) == (2, 1, 2)
    again.study.tell(resumed.number, completed(0.5))
    assert [(r.confirms, r.repetition) for r in confirm_all(again)] == [(1, 2), (2, 2)]
    assert again.next() is None


def test_a_run_that_was_stopped_with_its_sweep_goes_on(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3, 0.2)
    run = opened.ask()
    assert opened.study.tell(run.number, stopped()).state is STOPPED
    assert opened.again().ask().number == run.number


def test_seeds_stay_although_the_seed_of_the_study_changes(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3, 0.2)
    first = opened.ask()
    opened.study.tell(first.number, completed())
    study = {**opened.settings.as_mapping["study"], "seed": 99}
    changed = Opened(
        opened.storage, Settings.from_mapping({**opened.settings.as_mapping, "study": study})
    )
    second = changed.ask()
    assert (second.confirms, second.repetition, second.seed) == (2, 1, first.seed)


def test_runs_that_exist_are_used_again_when_the_search_goes_on(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3, 0.2)
    confirm_all(opened)
    further = opened.again(trials=4)
    assert [r.number for r in further.run(0.25)] == [7]
    assert [(r.confirms, r.repetition) for r in confirm_all(further)] == [(7, 1), (7, 2)]


def test_more_seeds_add_runs_and_nothing_else(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3, 0.2)
    before = confirm_all(opened)
    more = Opened(opened.storage, with_confirm(opened.settings, {"best": 2, "seeds": 3}))
    runs = confirm_all(more)
    assert [(r.confirms, r.repetition) for r in runs] == [(1, 3), (2, 3)]
    assert not {r.seed for r in runs} & {r.seed for r in before}


def test_failed_trials_and_infeasible_runs_are_nothing_to_the_sampler(
    begin_confirming: Begin,
) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3)
    opened.study.tell(opened.ask().number, failed())
    runs = []
    while (run := opened.next()) is not None:
        does_not_fit = TrialOutcome(
            state=failed().state, reason=Reason.OUT_OF_MEMORY, is_infeasible=True
        )
        runs.append(opened.study.tell(run.number, does_not_fit))
    assert [(r.confirms, r.repetition) for r in runs] == [(1, 1), (0, 1), (1, 2), (0, 2)]
    constraints = [t for t in opened.optunas() if "constraints:memory" in t.system_attrs]
    assert constraints == []


def test_a_failed_run_can_be_retried_and_stays_one(begin_confirming: Begin) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3, 0.2)
    run = opened.study.tell(opened.ask().number, failed())
    opened.study.enqueue(run.params, again=run)
    again = opened.ask()
    assert (again.confirms, again.repetition, again.seed) == (1, 1, run.seed)
    assert again.retry_of == run.number
    opened.study.tell(again.number, completed(9.0))
    assert [r.number for r in opened.study.best()] == [1]


def test_a_trial_by_hand_comes_first_and_may_change_who_is_confirmed(
    begin_confirming: Begin,
) -> None:
    opened = begin_confirming()
    opened.run(0.1, 0.3, 0.2)
    assert opened.ask().confirms == 1
    opened.study.enqueue({"x": 0.5})
    by_hand = opened.ask()
    assert by_hand.confirms is None
    opened.study.tell(by_hand.number, completed(0.9))
    assert opened.ask().confirms == by_hand.number


def test_a_study_without_completed_trials_has_nothing_to_confirm(begin_confirming: Begin) -> None:
    opened = begin_confirming(trials=1)
    opened.study.tell(opened.ask().number, failed())
    assert opened.next() is None


def test_a_study_that_confirms_nothing_stores_what_it_did_before(begin: Any) -> None:
    opened = begin(RANGE, trials=1)
    opened.run(0.5)
    (trial,) = opened.optunas()
    assert not {"confirms", "repetition"} & trial.user_attrs["sweeper"].keys()
    assert trial.user_attrs.keys() == {"sweeper"}
