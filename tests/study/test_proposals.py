"""The next trial is a start trial, one queued by hand, or one with params from the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from opened_studies import BRANCHES, RANGE, Opened, changed, completed, failed
from optuna.storages import RDBStorage
from optuna.trial import TrialState as OptunaState
from studies import small_settings

from sweeper.settings.space import as_scalar
from sweeper.study.study import Study
from sweeper.trials import LearnedTrial


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_the_same_seed_proposes_the_same_params_also_after_a_restart(
    begin: Any, sampler: str
) -> None:
    scores = [0.1, 0.7, 0.3]
    options = {"name": sampler, **({"n_startup_trials": 2} if sampler == "tpe" else {})}
    whole, broken, other = (begin(sampler=options, seed=seed) for seed in (3, 3, 4))
    expected = [record.params for record in whole.run(*scores)]
    first = [record.params for record in broken.run(*scores[:2])]
    assert first + [record.params for record in broken.again().run(*scores[2:])] == expected
    assert other.ask().params not in expected
    assert len({params["x"] for params in expected}) == len(expected)


def test_proposed_values_have_the_type_and_the_steps_of_the_search_space(begin: Any) -> None:
    opened = begin(
        {
            "i": {"low": 1, "high": 9, "step": 4},
            "f": {"low": 0.0, "high": 0.9, "step": 0.3},
            "l": {"low": 1e-4, "high": 1.0, "log": True},
            "c": [None, True, 2, "three"],
        }
    )
    for record in [opened.ask() for _ in range(3)]:
        opened.settings.search_space.check_params(record.params)
        assert set(record.params) == {"i", "f", "l", "c"}


#: Values that Optuna cannot store. Some of them would be equal as text.
LISTS: dict[str, Any] = {
    "layers": [[], [32], [64, 64], [64.0, 64], "[32]", "json:[32]", 32],
    "deep": {"low": 1, "high": 3, "when": {"layers": [[64, 64], [32]]}},
    "augment": [{"flip": True, "crop": None}, {"flip": 1, "crop": [2, {"pad": "ä"}]}],
}


@pytest.mark.parametrize("sampler", ["random", {"name": "tpe", "n_startup_trials": 4}])
def test_lists_and_mappings_are_choices_for_every_sampler(begin: Any, sampler: Any) -> None:
    opened = begin(LISTS, sampler=sampler, trials=100)
    records = opened.run(*(number / 8 for number in range(8)))
    for record in records:
        opened.settings.search_space.check_params(record.params)
        is_deep = repr(record.params["layers"]) in ("[64, 64]", "[32]")
        assert ("deep" in record.params) == is_deep
    again = opened.again()
    assert again.study.records() == records
    types = [[type(part) for part in r.params["augment"].values()] for r in records]
    assert {str(kinds) for kinds in types} <= {str([bool, type(None)]), str([int, list])}
    kept = {repr(frozen.params["layers"]) for frozen in opened.optunas()}
    assert kept <= {repr(as_scalar(layers)) for layers in LISTS["layers"]}
    assert len(kept) > 1
    again.ask()


def test_params_that_are_lists_can_be_queued_by_the_parameters_file_and_by_hand(begin: Any) -> None:
    space = {"layers": [[32], [64, 64], "[32]"], "lr": {"low": 0.0, "high": 1.0}}
    opened = begin(space, start=[{"layers": "[32]"}, {"layers": [32], "lr": 0.5}])
    by_hand = Study.load(opened.storage.url, opened.settings.name)
    by_hand.enqueue({"layers": [64, 64], "lr": 0.25})
    asked = [opened.ask() for _ in range(3)]
    assert [r.params["layers"] for r in asked] == [[64, 64], "[32]", [32]]
    opened.study.tell(asked[0].number, failed())
    by_hand = Study.load(opened.storage.url, opened.settings.name)
    by_hand.enqueue(asked[0].params, again=asked[0])
    assert opened.ask().params == asked[0].params
    assert opened.again().ask().params == asked[1].params


def test_a_conditional_param_is_proposed_only_if_its_condition_holds(begin: Any) -> None:
    opened = begin(BRANCHES)
    records = [opened.ask() for _ in range(5)]
    for record in records:
        assert ("momentum" in record.params) == (record.params["optimizer"] == "sgd")
    assert {record.params["optimizer"] for record in records} == {"sgd", "adam"}
    assert [frozen.params for frozen in opened.optunas()] == [r.params for r in records]


@pytest.mark.parametrize(
    ("sampler", "space", "start", "n_trials"),
    [
        ("grid", {"a": [1, 2], "b": [1, 2]}, [{"a": 2, "b": 1}], 4),
        ("grid", {"b": {"low": 0.0, "high": 0.2, "step": 0.1}, "a": [1]}, [{"a": 1}], 3),
        ("brute_force", {"o": ["s", "a"], "m": {"low": 1, "high": 3, "when": {"o": "s"}}}, [], 4),
    ],
)
def test_an_exhaustive_sampler_ends_when_it_has_tried_every_combination_once(
    begin: Any, sampler: str, space: Mapping[str, Any], start: list[Any], n_trials: int
) -> None:
    opened = begin(space, sampler=sampler, start=start, trials=50)
    tried = [opened.ask().params for _ in range(2)]  # two slots at once
    opened.study.tell(1, completed())
    opened.study.tell(0, failed())
    opened = opened.again()
    while (record := opened.next()) is not None:
        tried.append(record.params)
        opened.study.tell(record.number, completed())
    assert len(tried) == n_trials
    assert len({tuple(sorted(params.items())) for params in tried}) == n_trials


GRID = {"a": {"low": 1, "high": 2}, "b": [1, 2]}


def tried_by(opened: Opened) -> list[tuple[Any, Any]]:
    """Run all trials that are left. Return their params `a` and `b`, in order."""
    tried = []
    while (record := opened.next()) is not None:
        tried.append((record.params["a"], record.params["b"]))
        opened.study.tell(record.number, completed())
    return tried


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_grid_ends_when_each_combination_has_run_even_if_one_was_also_queued_separately(
    begin: Any, by_hand: bool
) -> None:
    twice = {"a": 1, "b": 1}
    opened = begin(GRID, sampler="grid", trials=20, start=[] if by_hand else [twice, twice])
    if by_hand:
        opened.study.enqueue(twice)
    tried = tried_by(opened)
    assert sorted({*tried}) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert len(tried) == 4 + (not by_hand)


@pytest.mark.parametrize("sampler", ["grid", "brute_force"])
@pytest.mark.parametrize(
    ("space", "left"),
    [
        ({"b": [1, 2], "a": {"low": 1, "high": 2}}, 2),  # the lines were swapped
        ({"a": {"low": 1, "high": 4}, "b": [1, 2]}, 6),
        ({"a": {"low": 2, "high": 3}, "b": [1, 2]}, 3),
        ({**GRID, "c": [5, 6]}, 8),
    ],
)
def test_a_grid_continues_with_the_present_space_and_runs_no_combination_twice(
    begin: Any, sampler: str, space: Any, left: int
) -> None:
    opened = begin(GRID, sampler=sampler, trials=20, start=[{"a": 1, "b": 1}, {"a": 2, "b": 1}])
    before = [(r.params["a"], r.params["b"]) for r in opened.run(0.5, 0.5)]
    study = {"sampler": sampler, "trials": 20}
    tried = tried_by(Opened(opened.storage, changed(opened, space=space, study=study)))
    assert len(tried) == left
    assert "c" in space or not {*tried}.intersection(before)


def test_qmc_proposes_values_in_the_added_part_of_a_widened_range(begin: Any) -> None:
    opened = begin(sampler="qmc")
    opened.run(*5 * [0.5])
    space, study = {"x": {"low": 0.0, "high": 8.0}}, {"sampler": "qmc", "trials": 100}
    wider = Opened(opened.storage, changed(opened, space=space, study=study))
    values = [float(str(record.params["x"])) for record in wider.run(*8 * [0.5])]
    assert max(values) > 4


def test_qmc_continues_its_sequence_in_a_study_that_began_with_a_fixed_order(begin: Any) -> None:
    opened = begin(sampler="qmc")
    opened.study.keep_order(1)
    opened.run(*4 * [0.5])
    records = opened.again().run(*4 * [0.5])
    assert len({record.params["x"] for record in [*opened.study.records(), *records]}) == 8


@pytest.mark.parametrize("low", [0.0, 0.6])
def test_proposals_stay_in_a_narrowed_range_although_earlier_trials_are_outside_of_it(
    begin: Any, low: float
) -> None:
    opened = begin(sampler="tpe")
    learned = [[LearnedTrial(params={"x": x}, score=x) for x in (0.5, 0.7)]]
    opened.study.queue_first(opened.settings, learned)
    space, study = {"x": {"low": low, "high": 1.0}}, {"sampler": "tpe"}
    narrower = Opened(opened.storage, changed(opened, space=space, study=study))
    narrower.study.queue_first(narrower.settings)
    assert all(float(str(record.params["x"])) >= low for record in narrower.run(0.5, 0.5))


def test_start_trials_come_first_in_order_and_may_lack_params(begin: Any) -> None:
    start: list[dict[str, Any]] = [
        {"optimizer": "sgd", "momentum": 0.9},
        {"optimizer": "adam"},
        {"momentum": 0.85},
    ]
    opened = begin(BRANCHES, start=start)
    first, second, third, fourth = (opened.ask() for _ in range(4))
    assert first.params == start[0]
    assert second.params == start[1]
    assert third.params.get("momentum", 0.85) == 0.85
    assert [record.number for record in (first, second, third, fourth)] == [0, 1, 2, 3]


def test_a_trial_queued_by_hand_with_values_that_the_space_no_longer_allows_does_not_run(
    begin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    space = {"o": ["a", [8]], "x": {"low": 0.0, "high": 1.0}, "y": [1, 2]}
    opened = begin(space)
    opened.study.enqueue({"o": [8], "x": 0.9, "y": 2})
    opened.study.enqueue({"x": 0.25})
    smaller = {"o": ["b", "c"], "x": {"low": 0.0, "high": 0.5}, "y": [1, 2]}
    opened = Opened(opened.storage, changed(opened, space=smaller))
    opened.study.queue_first(opened.settings)
    record = opened.ask()
    assert (record.number, record.params["x"]) == (1, 0.25)
    assert "trial 0000 was queued with {o: [8], x: 0.9, y: 2}, which is outside" in caplog.text


@pytest.mark.parametrize("params", [{"o": "gone"}, {"x": 7.5}, {"x": "a word"}])
def test_a_trial_that_another_process_queues_with_values_outside_of_the_space_does_not_run(
    begin: Any, params: dict[str, Any]
) -> None:
    opened = begin({"o": ["a", "b"], "x": {"low": 0.0, "high": 1.0}}, sampler="random")
    optuna.load_study(study_name=opened.study.name, storage=opened.storage).enqueue_trial(params)
    record = opened.ask()
    assert record.number == 1
    assert 0.0 <= float(str(record.params["x"])) <= 1.0


@pytest.mark.parametrize("calls", [1, 2])
def test_a_trial_that_optuna_left_running_runs_first_in_the_first_sweep_and_in_later_ones(
    tmp_path: Path, calls: int
) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(study_name="left", storage=url, direction="maximize").ask()
    settings = small_settings("left", study={"trials": 2})
    for _ in range(calls - 1):
        Study.open(url, settings).close()
    opened = Opened(RDBStorage(url), settings)
    assert opened.ask().number == 0


def test_a_start_trial_with_another_value_of_a_param_named_fold_is_queued(begin: Any) -> None:
    space = {"fold": [0, 1, 2], "x": {"low": 0.0, "high": 1.0}}
    opened = begin(space, start=[{"fold": 0, "x": 0.5}])
    opened.run(0.5)
    settings = changed(opened, space=space, start=[{"fold": 2, "x": 0.5}])
    opened = Opened(opened.storage, settings)
    opened.study.queue_first(settings)
    assert opened.ask().params == {"fold": 2, "x": 0.5}


@pytest.mark.parametrize(
    "now",
    [
        {"space": {"x": {"low": 0.0, "high": 0.5}, "y": [[1], [2]]}},
        {"space": {"x": {"low": 0.0, "high": 1.0}}},
        {"space": {"y": [[1], [2]]}, "fixed": {"x": 0.5, "seed": 7}},
        {"space": {"x": {"low": 0.0, "high": 1.0}, "y": [[1], [2]], "z": [1, 2]}},
        {"space": {"z": [1, 2]}, "repeat": {"fold": 2}},
    ],
    ids=["narrower", "left", "fixed", "added", "others"],
)
def test_a_retry_has_exactly_the_params_and_the_seed_of_its_trial_whatever_has_changed(
    begin: Any, now: dict[str, Any]
) -> None:
    opened = begin({"x": {"low": 0.0, "high": 1.0}, "y": [[1], [2]]}, start=[{"x": 0.9}])
    first = opened.study.tell(opened.ask().number, failed())
    opened = Opened(opened.storage, changed(opened, **now))
    opened.study.enqueue(first.params, again=first)
    again = opened.ask()
    assert (again.params, again.seed, again.retry_of) == (first.params, first.seed, 0)
    assert opened.optunas()[1].params == opened.optunas()[0].params
    assert opened.again().ask().params == first.params  # the sweep was killed


def test_a_start_trial_that_is_added_to_the_file_of_a_begun_study_is_queued_once(
    begin: Any,
) -> None:
    opened = begin(start=[{"x": 0.125}])
    opened.study.note_facts(settings=opened.settings.as_mapping)
    opened.run(0.5)
    settings = changed(opened, start=[{"x": 0.125}, {"x": 0.25}])
    for _ in range(2):  # the first sweep is killed before it has stored its settings
        more = Opened(opened.storage, settings)
        more.study.queue_first(settings)
    assert [record.params["x"] for record in more.run(0.5)] == [0.25]
    assert more.ask().params["x"] not in (0.125, 0.25)


def test_a_start_trial_removed_from_the_file_before_it_ran_is_dropped_until_it_is_added_again(
    begin: Any,
) -> None:
    wrong, right = {"x": 0.75}, {"x": 0.25}
    opened = begin(start=[{"x": 0.125}, wrong])
    opened.study.enqueue({"x": 0.125})  # by hand
    opened.study.note_facts(settings=opened.settings.as_mapping)
    for start in ([{"x": 0.125}, right], [right], [right, wrong]):
        settings = changed(opened, start=start)
        opened = Opened(opened.storage, settings)
        opened.study.queue_first(settings)
        opened.study.note_facts(settings=settings.as_mapping)
    ran = [record.params["x"] for record in opened.run(0.5, 0.5, 0.5)]
    assert ran == [0.125, 0.25, 0.75]
    assert [record.number for record in opened.study.records()] == [2, 3, 4]


def test_a_start_trial_removed_from_the_file_together_with_one_of_its_params_is_dropped(
    begin: Any,
) -> None:
    opened = begin({**RANGE, "old": [1, 2]}, start=[{"x": 0.125, "old": 2}, {"x": 0.25}])
    opened.study.note_facts(settings=opened.settings.as_mapping)
    settings = changed(opened, start=[{"x": 0.25}])
    opened = Opened(opened.storage, settings)
    opened.study.queue_first(settings)
    assert opened.ask().params == {"x": 0.25}
    assert opened.ask().params["x"] != 0.125


def test_a_start_trial_dropped_by_a_command_that_then_fails_runs_if_the_file_has_it_again(
    begin: Any,
) -> None:
    opened = begin(start=[{"x": 0.125}, {"x": 0.25}])
    opened.study.note_facts(settings=opened.settings.as_mapping)
    for start in ([{"x": 0.125}], [{"x": 0.125}, {"x": 0.25}]):
        settings = changed(opened, start=start)
        opened = Opened(opened.storage, settings)
        opened.study.queue_first(settings)  # The call ends before it stores its settings.
    assert [record.params["x"] for record in opened.run(0.5, 0.5)] == [0.125, 0.25]
    assert opened.ask().params["x"] not in (0.125, 0.25)


@pytest.mark.parametrize(("trials", "is_said"), [(1, True), (2, False)])
def test_a_warning_names_the_option_trials_if_an_added_start_trial_exceeds_the_planned_number(
    begin: Any, caplog: pytest.LogCaptureFixture, trials: int, is_said: bool
) -> None:
    opened = begin(trials=1)
    opened.run(0.5)
    settings = changed(opened, start=[{"x": 0.25}], study={"trials": trials})
    Opened(opened.storage, settings).study.queue_first(settings)
    assert ("--trials 2" in caplog.text) == is_said


def test_start_trials_are_queued_once_and_count_as_planned_trials(begin: Any) -> None:
    opened = begin(start=[{"x": 0.125}, {"x": 0.25}], trials=2)
    opened.run(0.5)
    opened = opened.again()
    assert opened.ask().params == {"x": 0.25}
    assert opened.next() is None


def test_a_proposal_that_was_prepared_ahead_becomes_the_next_trial(begin: Any) -> None:
    opened = begin(trials=3)
    opened.study.prepare(opened.samplers)
    opened.study.prepare(opened.samplers)
    assert opened.optunas() == []  # the trial is not in the storage before it runs
    assert [opened.ask().number for _ in range(3)] == [0, 1, 2]
    opened.study.prepare(opened.samplers)
    assert opened.next() is None


def by_hand(opened: Opened, **params: float) -> int:
    """Queue a trial as another process does."""
    return Study.load(opened.storage.url, opened.settings.name).enqueue(params)


def test_a_trial_queued_by_hand_comes_next_and_in_addition_to_the_others(begin: Any) -> None:
    opened = begin(start=[{"x": 0.125}, {"x": 0.25}], trials=2)
    assert by_hand(opened, x=0.75) == 2
    assert by_hand(opened, x=0.5) == 3
    asked = [opened.ask() for _ in range(4)]
    assert [record.params["x"] for record in asked] == [0.75, 0.5, 0.125, 0.25]
    assert [record.number for record in asked] == [2, 3, 0, 1]
    assert opened.next() is None


def test_a_trial_queued_by_hand_runs_in_a_study_that_has_all_its_trials(begin: Any) -> None:
    opened = begin(trials=1)
    opened.run(0.5)
    assert opened.next() is None
    by_hand(opened, x=0.75)
    assert opened.ask().params == {"x": 0.75}
    assert opened.next() is None
    assert opened.again().ask().number == 1  # its end was not stored, so it is run again
    assert opened.again(trials=2).ask().number == 1


def test_a_trial_queued_by_hand_gets_the_number_of_a_prepared_proposal_which_gets_the_next_one(
    begin: Any,
) -> None:
    opened = begin(trials=3)
    opened.study.prepare(opened.samplers)
    assert by_hand(opened, x=0.75) == 0
    assert opened.ask().params == {"x": 0.75}
    opened.study.prepare(opened.samplers)
    assert [opened.ask().number for _ in range(3)] == [1, 2, 3]
    assert opened.next() is None
    assert len(opened.optunas()) == 4


def test_a_proposal_whose_number_another_process_has_just_used_fails_in_optuna_and_does_not_run(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = begin(trials=2)
    propose = opened.study._queue.next
    taken: list[int] = []

    def propose_slowly(*asked: Any) -> Any:
        proposal = propose(*asked)
        if not taken:
            taken.append(by_hand(opened, x=0.75))
        return proposal

    with monkeypatch.context() as patch:
        patch.setattr(opened.study._queue, "next", propose_slowly)
        first = opened.ask()
    assert (taken, first.number, first.params) == ([0], 0, {"x": 0.75})
    assert [trial.state for trial in opened.optunas()] == [OptunaState.RUNNING, OptunaState.FAIL]
    others = [opened.ask().number for _ in range(2)]
    assert others == [2, 3]  # all trials that the study plans
    assert opened.next() is None
    for study in (opened.study, opened.again().study):
        assert [record.number for record in study.records()] == [0, 2, 3]


def test_the_trial_with_the_lowest_number_is_the_best_of_equal_trials(begin: Any) -> None:
    opened = begin(trials=4)
    numbers = [opened.ask().number for _ in range(4)]
    for number, score in zip(reversed(numbers), (0.25, 0.5, 0.5, 0.125), strict=True):
        opened.study.tell(number, completed(score))
    for study in (opened.study, opened.again().study):
        assert [record.number for record in study.best()] == [1]
