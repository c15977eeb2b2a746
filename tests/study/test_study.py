"""The study over a real storage: which trial is next, how it ended, how a killed one continues."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState as OptunaState

from sweeper.errors import SettingsError, StudyError
from sweeper.settings import Settings
from sweeper.settings.space import as_scalar
from sweeper.study import SamplerFactory, Study, make_pruner, tpe
from sweeper.study.samplers import derived_seed, suggest
from sweeper.study.tpe import SamplerMemory, SteadyTPE
from sweeper.trials import Reason, TrialOutcome, TrialRecord, TrialState, run_id_of

COMPLETED, FAILED = TrialState.COMPLETED, TrialState.FAILED
RUNNING, STOPPED = TrialState.RUNNING, TrialState.STOPPED

RANGE = {"x": {"low": 0.0, "high": 1.0}}
BRANCHES = {
    "optimizer": ["sgd", "adam"],
    "momentum": {"low": 0.8, "high": 0.99, "when": {"optimizer": "sgd"}},
}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> RDBStorage:
    """One SQLite file for all tests, because creating its tables takes most of a second.

    The object itself caches no trials, so a study that is opened again reads them from the file.
    """
    return RDBStorage(f"sqlite:///{tmp_path_factory.mktemp('storage') / 'study.db'}")


@dataclass
class Opened:
    """A study as one process opens it, with the settings of that process."""

    storage: RDBStorage
    settings: Settings

    def __post_init__(self) -> None:
        self.study = Study.open(self.storage, self.settings)
        self.samplers = SamplerFactory(self.settings)

    def again(self, *, trials: int | None = None) -> Opened:
        """The study as the next process opens it after this one was killed."""
        return Opened(self.storage, self.settings.with_overrides(trials=trials))

    def ask(self) -> TrialRecord:
        record = self.next()
        assert record is not None
        return record

    def next(self) -> TrialRecord | None:
        return self.study.ask(self.settings, self.samplers, notebook_of)

    def run(self, *scores: float) -> list[TrialRecord]:
        """Ask for and complete a trial for each of these scores."""
        return [self.study.tell(self.ask().number, completed(score)) for score in scores]

    def optunas(self) -> list[optuna.trial.FrozenTrial]:
        """The trials as Optuna reads them from the storage."""
        return optuna.load_study(study_name=self.settings.name, storage=self.storage).trials


@pytest.fixture
def begin(storage: RDBStorage, request: pytest.FixtureRequest) -> Any:
    """Opens a study of the test's own, with these parts of a parameters file."""
    begun = []

    def begin(
        space: Mapping[str, Any] = RANGE,
        *,
        objective: Mapping[str, Any] | None = None,
        start: list[Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        **study: Any,
    ) -> Opened:
        begun.append(1)
        name = f"{abs(hash(request.node.nodeid))} {len(begun)}"
        content = {
            "study": {"sampler": "random", "name": name, **study},
            "objective": objective or {"acc": "maximize"},
            "space": space,
            "start": start or [],
            "fixed": fixed or {},
        }
        return Opened(storage, Settings.from_mapping(content))

    return begin


def notebook_of(number: int) -> Path:
    return Path("out") / f"{run_id_of(number)}.ipynb"


def completed(score: float = 0.5, **scores: float) -> TrialOutcome:
    return TrialOutcome(state=COMPLETED, scores={"acc": score, **scores}, duration_s=1.5)


def failed(**scores: float) -> TrialOutcome:
    return TrialOutcome(state=FAILED, reason=Reason.CELL_ERROR, message="1/0", scores=scores)


def stopped() -> TrialOutcome:
    return TrialOutcome(state=STOPPED, reason=Reason.INTERRUPTED, message="the sweep was stopped")


# --- asking and telling --------------------------------------------------------------------------


def test_a_study_gives_as_many_trials_as_it_should_have(begin: Any) -> None:
    opened = begin(trials=2)
    asked = [opened.ask() for _ in range(2)]
    assert [record.number for record in asked] == [0, 1]
    assert {record.state for record in asked} == {RUNNING}
    assert {record.attempt for record in asked} == {1}
    assert [record.notebook for record in asked] == [notebook_of(n) for n in range(2)]
    assert opened.next() is None


def test_every_trial_has_a_seed_of_its_own_that_depends_on_the_studys(begin: Any) -> None:
    first, same, other = (begin(seed=seed) for seed in (1, 1, 2))
    seeds = [[opened.ask().seed for _ in range(2)] for opened in (first, same, other)]
    assert seeds[0] == seeds[1]
    assert len({*seeds[0], *seeds[2]}) == 4
    assert all(0 <= seed < 2**31 for seed in seeds[0])


def test_the_end_of_a_trial_is_stored_whole(begin: Any) -> None:
    opened = begin()
    asked = opened.ask()
    record = opened.study.tell(asked.number, completed(0.25, loss=1e-300))
    assert record.scores == {"acc": 0.25, "loss": 1e-300}
    assert (record.state, record.reason, record.duration_s) == (COMPLETED, None, 1.5)
    assert (record.params, record.seed) == (asked.params, asked.seed)
    assert Study.open(opened.storage.url, opened.settings).records() == [record]
    (frozen,) = opened.optunas()
    assert (frozen.state, frozen.values) == (OptunaState.COMPLETE, [0.25])
    assert frozen.params == asked.params


def test_trials_are_counted_by_their_state(begin: Any) -> None:
    opened = begin()
    for outcome in (completed(), failed(), stopped()):
        opened.study.tell(opened.ask().number, outcome)
    opened.ask()
    expected = Counter({COMPLETED: 1, FAILED: 1, STOPPED: 1, RUNNING: 1})
    assert opened.study.counts() == expected
    assert opened.again().study.counts() == expected


def test_a_failed_trial_has_no_value_and_is_not_run_again(begin: Any) -> None:
    opened = begin(trials=1)
    record = opened.study.tell(opened.ask().number, failed(acc=0.5))
    assert (record.reason, record.message) == (Reason.CELL_ERROR, "1/0")
    assert record.scores == {"acc": 0.5}
    (frozen,) = opened.optunas()
    assert (frozen.state, frozen.values) == (OptunaState.FAIL, None)
    assert opened.again().next() is None


def test_a_score_that_is_not_finite_is_stored_in_the_record_and_is_never_optunas_value(
    begin: Any,
) -> None:
    opened = begin()
    for score in (math.nan, -math.inf):
        outcome = TrialOutcome(state=FAILED, reason=Reason.NOT_FINITE, scores={"acc": score})
        opened.study.tell(opened.ask().number, outcome)
    records = opened.again().study.records()
    assert [str(record.scores["acc"]) for record in records] == ["nan", "-inf"]
    assert [frozen.values for frozen in opened.optunas()] == [None, None]
    assert opened.study.best() == []


def test_the_best_trial_depends_on_the_direction(begin: Any) -> None:
    for direction, number, unreached in (("maximize", 1, 9.0), ("minimize", 2, -9.0)):
        opened = begin(objective={"acc": direction})
        opened.study.tell(opened.ask().number, failed(acc=unreached))
        opened.run(0.9, 0.1)
        assert [record.number for record in opened.study.best()] == [number]


def test_of_several_objectives_all_pareto_optimal_trials_are_best(begin: Any) -> None:
    opened = begin(objective={"acc": "maximize", "loss": "minimize"})
    for acc, loss in ((0.9, 0.5), (0.5, 0.1), (0.9, 0.4)):
        opened.study.tell(opened.ask().number, completed(acc, loss=loss))
    assert [record.number for record in opened.study.best()] == [1, 2]
    assert opened.optunas()[0].values == [0.9, 0.5]


# --- proposals -----------------------------------------------------------------------------------


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


def test_values_are_of_the_kind_and_on_the_steps_that_the_space_says(begin: Any) -> None:
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


#: Values that Optuna cannot store, some of which would be equal as text.
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


def test_lists_can_be_asked_for_by_the_file_and_by_hand(begin: Any) -> None:
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


def test_every_combination_of_lists_is_tried_once(begin: Any) -> None:
    opened = begin({"a": [[1], [1.0], [True]], "b": [[], {}]}, sampler="grid", trials=50)
    tried = []
    while (record := opened.next()) is not None:
        tried.append(repr(record.params))
        opened.study.tell(record.number, completed())
    assert len({*tried}) == len(tried) == 6


def test_a_parameter_outside_its_branch_is_not_there(begin: Any) -> None:
    opened = begin(BRANCHES)
    records = [opened.ask() for _ in range(5)]
    for record in records:
        assert ("momentum" in record.params) == (record.params["optimizer"] == "sgd")
    assert {record.params["optimizer"] for record in records} == {"sgd", "adam"}
    assert [frozen.params for frozen in opened.optunas()] == [r.params for r in records]


def test_a_branch_of_a_fixed_parent_is_always_there(begin: Any) -> None:
    opened = begin({"momentum": BRANCHES["momentum"]}, fixed={"optimizer": "sgd"})
    assert opened.ask().params.keys() == {"momentum"}


@pytest.mark.parametrize(
    ("sampler", "space", "start", "n_trials"),
    [
        ("grid", {"a": [1, 2], "b": [1, 2]}, [{"a": 2, "b": 1}], 4),
        ("grid", {"b": {"low": 0.0, "high": 0.2, "step": 0.1}, "a": [1]}, [{"a": 1}], 3),
        ("brute_force", {"o": ["s", "a"], "m": {"low": 1, "high": 3, "when": {"o": "s"}}}, [], 4),
    ],
)
def test_an_exhaustive_sampler_tries_every_combination_once_and_ends(
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


def test_an_exhaustive_sampler_stops_early_where_fewer_trials_are_wanted(begin: Any) -> None:
    opened = begin({"a": [1, 2, 3]}, sampler="grid", trials=2)
    opened.run(0.5, 0.5)
    assert opened.next() is None


def test_start_trials_come_first_in_their_order_and_may_be_partial(begin: Any) -> None:
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


def test_the_sampler_replaces_a_queued_value_that_the_space_no_longer_allows(
    begin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    space = {"o": ["a", [8]], "x": {"low": 0.0, "high": 1.0}, "y": [1, 2]}
    opened = begin(space, start=[{"o": [8], "x": 0.9, "y": 2}])
    smaller = {"o": ["b", "c"], "x": {"low": 0.0, "high": 0.5}, "y": [1, 2]}
    record = Opened(opened.storage, changed(opened, space=smaller)).ask()
    assert record.params["o"] in ("b", "c")
    assert isinstance(record.params["x"], float) and record.params["x"] <= 0.5
    assert record.params["y"] == 2
    assert "trial 0000 was queued with {o: [8], x: 0.9}, which the space" in caplog.text


def test_start_trials_are_queued_once_and_count(begin: Any) -> None:
    opened = begin(start=[{"x": 0.125}, {"x": 0.25}], trials=2)
    opened.run(0.5)
    opened = opened.again()
    assert opened.ask().params == {"x": 0.25}
    assert opened.next() is None


def test_more_start_trials_than_trials_are_cut_off(begin: Any) -> None:
    opened = begin(start=[{"x": 0.125}, {"x": 0.25}], trials=1)
    assert opened.ask().params == {"x": 0.125}
    assert opened.next() is None


MIXED = {**RANGE, "k": [1, 2], "n": {"low": 1, "high": 1}}


@pytest.mark.slow  # 90 proposals, each by two
@pytest.mark.parametrize("space", [RANGE, MIXED, BRANCHES])
def test_tpe_proposes_what_optunas_own_does(begin: Any, space: Mapping[str, Any]) -> None:
    opened = begin(space, sampler="tpe", trials=30)
    plain = optuna.create_study(direction="maximize")
    for number in range(30):
        asked = opened.ask()
        seed = derived_seed(opened.settings.study.seed, "sampler", number)
        plain.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = plain.ask()
        assert asked.params == suggest(trial, opened.settings.search_space)
        score = sum(v for v in asked.params.values() if isinstance(v, int | float))
        opened.study.tell(asked.number, completed(score))
        plain.tell(trial, score)


def finished(number: int, x: float, *, pruned: bool = False) -> optuna.trial.FrozenTrial:
    return optuna.trial.create_trial(
        params={"x": x},
        distributions={"x": optuna.distributions.FloatDistribution(0.0, 1.0)},
        value=None if pruned else (x - 0.3) ** 2 + number % 7 * 1e-3,
        state=optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE,
        intermediate_values={1: x} if pruned else {},
    )


def weighed(trials: list[optuna.trial.FrozenTrial], direction: Any, **options: Any) -> list[int]:
    """How many trials TPE counts among the best, and how many others it weighs."""
    counts: list[int] = []

    def weights(count: int) -> Any:
        counts.append(count)
        return np.ones(count)

    sampler = SteadyTPE(SamplerMemory(is_joint=True), seed=1, weights=weights, **options)
    study = optuna.create_study(direction=direction, sampler=sampler)
    study.add_trials(trials)
    study.ask().suggest_float("x", 0.0, 1.0)
    return sorted(counts)


@pytest.mark.slow  # thousands of trials
# `weights` is the simplest way to count the trials, as long as Optuna has that option.
@pytest.mark.filterwarnings("ignore:`weights` has been deprecated:FutureWarning")
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_of_very_many_trials_tpe_weighs_the_best_and_some_of_the_others(direction: str) -> None:
    few = [finished(n, n / 900) for n in range(900)]
    assert weighed(few, direction) == [25, 900 - 25]
    many = [finished(n, n * 7 % 4000 / 4000) for n in range(4000)]
    best, others = weighed(many, direction)
    assert best == 25
    assert 1900 < others <= 2000
    assert weighed(many, direction, n_startup_trials=2100) == [25, 4000 - 25]


@pytest.mark.slow  # likewise
def test_tpe_proposes_nearly_the_same_from_a_sample_as_from_all_trials() -> None:
    proposed = []
    for weighed_at_most in (tpe.WEIGHED, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tpe, "WEIGHED", weighed_at_most)
            sampler = SteadyTPE(SamplerMemory(is_joint=True), seed=1)
            study = optuna.create_study(sampler=sampler)
            study.add_trials([finished(n, n * 7 % 4000 / 4000) for n in range(4000)])
            asked = [study.ask().suggest_float("x", 0.0, 1.0) for _ in range(20)]
            proposed.append(asked)
    assert proposed[0] == pytest.approx(proposed[1], abs=0.05)
    assert all(abs(x - 0.3) < 0.1 for x in proposed[0])


@pytest.mark.slow  # likewise
@pytest.mark.filterwarnings("ignore:`weights` has been deprecated:FutureWarning")
def test_where_most_were_pruned_tpe_weighs_all_of_them() -> None:
    trials = [finished(n, n / 2500, pruned=n % 150 > 0) for n in range(2500)]
    assert weighed(trials, "minimize") == [25, 2500 - 25]


# --- proposals ahead, and trials by hand ---------------------------------------------------------


def test_a_proposal_made_ahead_is_the_next_trial(begin: Any) -> None:
    opened = begin(trials=3)
    opened.study.prepare(opened.settings, opened.samplers)
    opened.study.prepare(opened.settings, opened.samplers)
    assert opened.optunas() == []  # the storage does not have it before it runs
    assert [opened.ask().number for _ in range(3)] == [0, 1, 2]
    opened.study.prepare(opened.settings, opened.samplers)
    assert opened.next() is None


def test_a_proposal_made_ahead_equals_one_made_on_demand(begin: Any) -> None:
    ahead, later = begin(seed=5), begin(seed=5)
    ahead.study.prepare(ahead.settings, ahead.samplers)
    assert ahead.ask().params == later.ask().params


def test_a_proposal_ahead_does_not_count_as_a_trial(begin: Any) -> None:
    opened = begin(trials=1)
    opened.study.prepare(opened.settings, opened.samplers)
    assert opened.study.records() == []
    opened = opened.again()
    assert opened.ask().number == 0


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


def test_a_trial_queued_by_hand_takes_the_number_of_a_proposal_made_ahead(begin: Any) -> None:
    opened = begin(trials=3)
    opened.study.prepare(opened.settings, opened.samplers)
    assert by_hand(opened, x=0.75) == 0
    assert opened.ask().params == {"x": 0.75}
    opened.study.prepare(opened.settings, opened.samplers)
    assert [opened.ask().number for _ in range(3)] == [1, 2, 3]
    assert opened.next() is None
    assert len(opened.optunas()) == 4


def test_the_sampler_chooses_the_params_that_a_queued_trial_leaves_open(begin: Any) -> None:
    opened = begin(BRANCHES)
    by_hand(opened, momentum=0.9)
    assert opened.ask().params.get("momentum", 0.9) == 0.9


def test_a_trial_that_was_stopped_by_hand_is_final(begin: Any) -> None:
    opened = begin(trials=1)
    ended = TrialOutcome(state=STOPPED, reason=Reason.BY_HAND, message="stopped")
    opened.study.tell(opened.ask().number, ended)
    assert [trial.state for trial in opened.optunas()] == [OptunaState.FAIL]
    assert opened.again().next() is None


# --- resuming after a sweep was stopped or killed ------------------------------------------------


def test_a_resumed_study_counts_its_earlier_trials(begin: Any) -> None:
    opened = begin(trials=2)
    opened.run(0.5)
    opened.study.tell(opened.ask().number, failed())
    assert opened.again().next() is None
    more = opened.again(trials=3)
    assert [record.number for record in more.run(0.5)] == [2]
    assert more.next() is None


def test_trials_left_running_or_stopped_are_run_again_first(begin: Any) -> None:
    opened = begin(BRANCHES, trials=4)
    left = [opened.ask() for _ in range(3)]
    opened.study.tell(left[0].number, stopped())
    opened.study.tell(left[1].number, completed())
    opened = opened.again()
    assert opened.study.counts() == Counter({STOPPED: 1, COMPLETED: 1, RUNNING: 1})
    again = [opened.ask(), opened.ask()]
    for before, now in zip((left[0], left[2]), again, strict=True):
        assert (now.number, now.params, now.seed) == (before.number, before.params, before.seed)
        assert (now.attempt, now.state, now.notebook) == (2, RUNNING, before.notebook)
        assert now.message == ""
        opened.study.tell(now.number, completed())
    assert opened.ask().number == 3
    assert opened.next() is None


def test_an_interrupted_trial_is_run_again_with_its_params_though_the_space_has_changed(
    begin: Any,
) -> None:
    opened = begin()
    before = opened.ask()
    space = {"x": {"low": 5.0, "high": 6.0}, "y": [1, 2]}
    assert Opened(opened.storage, changed(opened, space=space)).ask().params == before.params


def test_each_interruption_is_one_attempt_more(begin: Any) -> None:
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
    """As a kill between the two writes of `tell` leaves it: our record, but not Optuna's state."""
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


def test_a_trial_whose_record_states_an_end_gets_optunas_state_and_is_not_run_again(
    begin: Any,
) -> None:
    opened = begin(trials=1)
    record = kill_between_the_writes(opened, 0.75)
    loaded = Study.load(opened.storage.url, opened.settings.name)  # only for reading
    assert (loaded.records(), loaded.best()) == ([record], [])
    assert loaded.mark_interrupted() == []
    opened = opened.again()
    assert opened.next() is None
    assert opened.study.best() == [record]
    (frozen,) = opened.optunas()
    assert (frozen.state, frozen.values) == (OptunaState.COMPLETE, [0.75])


def test_a_trial_that_was_killed_before_it_had_params_keeps_its_number(begin: Any) -> None:
    opened = begin(start=[{"x": 0.125}], trials=2)
    plain = optuna.load_study(study_name=opened.settings.name, storage=opened.storage)
    plain.ask()  # and the process is killed before it writes a record
    opened = opened.again()
    assert opened.study.records() == []
    record = opened.ask()
    assert (record.number, record.attempt, record.params) == (0, 1, {"x": 0.125})
    assert opened.ask().number == 1
    assert opened.next() is None


def test_trials_of_a_killed_sweep_can_be_marked_without_running_them(begin: Any) -> None:
    opened = begin()
    running = opened.ask()
    loaded = Study.load(opened.storage.url, opened.settings.name)
    (marked,) = loaded.mark_interrupted()
    assert (marked.number, marked.state) == (running.number, STOPPED)
    assert (marked.reason, marked.message) == (Reason.INTERRUPTED, "the sweep was killed")
    assert loaded.mark_interrupted() == []
    assert loaded.counts() == Counter({STOPPED: 1})
    assert opened.again().ask().number == running.number


# --- settings that do not fit --------------------------------------------------------------------


def changed(opened: Opened, **parts: Any) -> Settings:
    content: dict[str, Any] = {
        "study": {"name": opened.settings.name, "sampler": "random"},
        "objective": {"acc": "maximize"},
        "space": RANGE,
    }
    return Settings.from_mapping({**content, **parts})


def test_a_study_with_other_objectives_is_refused(begin: Any) -> None:
    opened = begin()
    fewer_or_more = ({"loss": "maximize"}, {"acc": "maximize", "loss": "minimize"})
    for objective in ({"acc": "minimize"}, *fewer_or_more):
        with pytest.raises(StudyError) as raised:
            Study.open(opened.storage, changed(opened, objective=objective))
        for fragment in (opened.settings.name, "acc: maximize", "--study", "-o"):
            assert fragment in str(raised.value)


def test_a_dimension_of_another_kind_is_refused_once_a_trial_has_used_it(begin: Any) -> None:
    opened = begin()
    others = [[0.0, 1.0], {"low": 0, "high": 1}, {"low": 0.1, "high": 1.0, "log": True}]
    Study.open(opened.storage, changed(opened, space={"x": others[0]}))
    opened.ask()
    for other in others:
        with pytest.raises(StudyError, match=rf"{opened.settings.name}.*in which x was .*--study"):
            Study.open(opened.storage, changed(opened, space={"x": other}))


def test_the_refusal_of_a_changed_dimension_quotes_both_as_in_the_file(begin: Any) -> None:
    before = {"a": [[32], [64, 64], {"x": True}, "[32]"], "b": {"low": 1, "high": 8, "log": True}}
    opened = begin(before)
    opened.ask()
    now: list[tuple[str, Any, list[str]]] = [
        ("a", [[32]], ["{choices: [[32], [64, 64], {x: true}, '[32]']}", "{choices: [[32]]}"]),
        ("b", [1, 2], ["{log: true, step: 1, low: 1, high: 8}", "{choices: [1, 2]}"]),
    ]
    for name, other, words in now:
        with pytest.raises(StudyError) as raised:
            Study.open(opened.storage, changed(opened, space={**before, name: other}))
        assert f"in which {name} was {words[0]}, now it is {words[1]}" in str(raised.value)


def test_a_range_may_be_moved_and_a_dimension_added(begin: Any) -> None:
    opened = begin()
    opened.ask()
    space = {"x": {"low": 5.0, "high": 6.0}, "y": [1, 2]}
    opened.study.tell(0, completed())
    params: Any = Opened(opened.storage, changed(opened, space=space)).ask().params
    assert params.keys() == {"x", "y"}
    assert params["x"] >= 5.0


@pytest.mark.parametrize("url", ["nowhere", "sqlite:////no/such/folder/study.db", "nosuch://x/y"])
def test_a_storage_that_cannot_be_opened_is_refused_with_its_url(url: str) -> None:
    with pytest.raises(StudyError) as raised:
        Study.names(url)
    assert f"--storage {url}: cannot be opened" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_study_that_does_not_exist_cannot_be_loaded(storage: RDBStorage) -> None:
    with pytest.raises(StudyError, match="there is no study 'nobody'"):
        Study.load(storage.url, "nobody")


def test_only_our_own_studies_are_listed(begin: Any) -> None:
    opened = begin()
    optuna.create_study(study_name=opened.settings.name + " foreign", storage=opened.storage)
    names = Study.names(opened.storage.url)
    assert opened.settings.name in names
    assert opened.settings.name + " foreign" not in names


def test_facts_add_up_and_last(begin: Any) -> None:
    opened = begin()
    study_id = opened.study.study_id
    opened.study.note_facts(template="a", tracking_uri="b")
    opened.study.note_facts(template="c")
    facts = opened.again().study.facts
    assert (facts["template"], facts["tracking_uri"], facts["id"]) == ("c", "b", study_id)
    assert begin().study.study_id != study_id


# --- samplers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "space", "message"),
    [
        ({"sampler": "grid"}, RANGE, "grid needs a finite space, and x is continuous"),
        ({"sampler": "brute_force"}, BRANCHES, "momentum is continuous; give it a step"),
        (
            {"sampler": {"name": "tpe", "n_startup_trial": 3}},
            RANGE,
            "tpe has no option 'n_startup_trial'; did you mean 'n_startup_trials'?",
        ),
        ({"sampler": {"name": "tpe", "seed": 3}}, RANGE, "tpe has no option 'seed'"),
        ({"sampler": {"name": "nsga2", "population_size": 1}}, RANGE, "nsga2: "),
        (
            {"sampler": "gp"},
            {"n": {"low": 0, "high": 2**31}, "k": {"low": 0.0, "high": 1.0, "step": 0.1}},
            "gp looks at every value of a range with steps, and n has more than 10,000,000",
        ),
        ({"sampler": "grid"}, {"n": {"low": 1, "high": 10**9}}, "widen the steps, or take tpe"),
    ],
)
def test_a_sampler_that_does_not_suit_is_refused_before_anything_runs(
    study: Any, space: Any, message: str
) -> None:
    content = {"study": study, "objective": {"acc": "maximize"}, "space": space}
    with pytest.raises(SettingsError) as raised:
        SamplerFactory(Settings.from_mapping(content))
    assert str(raised.value).startswith("settings: study.sampler: ")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("trials", "space", "name"),
    [
        (250, RANGE, "gp"),
        (251, RANGE, "tpe"),
        (20, BRANCHES, "tpe"),
        (20, {"shuffle_seed": {"low": 0, "high": 2**31 - 1}}, "tpe"),  # 16 GB a proposal
        (20, {"n": {"low": 1, "high": 10_000_000}}, "gp"),
    ],
)
def test_auto_suits_the_space_and_the_number_of_trials(trials: int, space: Any, name: str) -> None:
    content = {"study": {"trials": trials}, "objective": {"acc": "maximize"}, "space": space}
    assert SamplerFactory(Settings.from_mapping(content)).name == name


@pytest.mark.parametrize(
    "name", ["median", "percentile", "hyperband", "asha", "patient", "wilcoxon"]
)
def test_every_pruner_can_be_made(name: str) -> None:
    make_pruner(pruned_by(name))


def pruned_by(pruner: Any, **changes: Any) -> Settings:
    data = {"objective": {"val": "maximize"}, "space": {"x": [1, 2]}, **changes}
    return Settings.from_mapping({**data, "study": {"pruner": pruner}})


def test_a_pruner_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"no option 'n_warmup'.*n_warmup_steps"):
        make_pruner(pruned_by({"name": "median", "n_warmup": 3}))
    with pytest.raises(SettingsError, match="threshold"):
        make_pruner(pruned_by("threshold"))
    with pytest.raises(SettingsError, match="single objective"):
        make_pruner(pruned_by("median", objective={"a": "maximize", "b": "minimize"}))
