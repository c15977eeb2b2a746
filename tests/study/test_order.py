"""With `study.order: fixed`, params do not depend on which trials end first, or on kills."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from opened_studies import FAILED, STOPPED, Opened, completed, failed, stopped

from sweeper.study.study import Study
from sweeper.trials import Params, Reason, TrialOutcome, TrialRecord

#: Samplers whose proposals depend on earlier trials after a few trials.
SAMPLERS: dict[str, dict[str, Any]] = {
    "random": {},
    "tpe": {"n_startup_trials": 4},
    "gp": {"n_startup_trials": 4, "deterministic_objective": True},
    "nsga2": {"population_size": 4},
    "cmaes": {"n_startup_trials": 2, "popsize": 4},
    "qmc": {"scramble": True},
    "brute_force": {},
}
SPACE = {
    "x": {"low": 0.0, "high": 1.0, "step": 0.01},
    "y": {"low": 0.0, "high": 1.0, "step": 0.01},
}
Table = list[tuple[int, Params, Any, str]]


def score(params: Params) -> float:
    x, y = float(str(params["x"])), float(str(params["y"]))
    return -((x - 0.3) ** 2) - (y - 0.7) ** 2


class Slots:
    """Runs trials in slots. Trials take random times of a simulated clock, so tests do not wait.

    Args:
        seed: Seed of the times.
        jobs: Number of slots at first.
        order: Whether the order is fixed.
        ends: Returns the outcome of a trial that does not complete. None for all others.
    """

    def __init__(
        self,
        opened: Opened,
        *,
        seed: int,
        jobs: int = 4,
        order: bool = True,
        ends: Callable[[TrialRecord], TrialOutcome | None] = lambda _: None,
    ) -> None:
        self.opened = opened
        self.rng = random.Random(seed)
        self.jobs = jobs
        self.is_fixed = order
        self.ends = ends
        self.running: list[tuple[float, int, TrialRecord]] = []
        self.now = 0.0
        self.most = 0
        self.begin()

    def begin(self) -> None:
        if self.is_fixed:
            self.opened.study.keep_order(self.jobs)

    def kill(self, jobs: int) -> None:
        """Forget the running trials, and reopen the study with this number of slots."""
        self.opened, self.running, self.jobs = self.opened.again(), [], jobs
        self.begin()

    def run(self, until: int = 10**9) -> None:
        """Run until the study has all its trials, or until this number of them has ended."""
        while True:
            while len(self.running) < self.jobs and (record := self.opened.next()) is not None:
                ends_s = self.now + self.rng.lognormvariate(0.0, 1.0)
                heapq.heappush(self.running, (ends_s, record.number, record))
                if self.rng.random() < 0.5:  # the proposal was prepared in time
                    self.opened.study.prepare(self.opened.samplers)
            self.most = max(self.most, len(self.running))
            n_ended = sum(record.is_final for record in self.opened.study.records())
            if not self.running or n_ended >= until:
                return
            self.now, number, record = heapq.heappop(self.running)
            outcome = self.ends(record) or completed(score(record.params))
            ended = self.opened.study.tell(number, outcome)
            if not ended.is_final:
                self.opened.study.queue_again(ended)

    def table(self) -> Table:
        records = self.opened.study.records()
        return [(r.number, r.params, dict(r.scores), r.state.value) for r in records]


@pytest.fixture
def make(begin: Any) -> Callable[..., Slots]:
    def make(sampler: str = "tpe", *, trials: int = 20, start: Any = (), **how: Any) -> Slots:
        named = {"name": sampler, **SAMPLERS[sampler]}
        opened = begin(SPACE, sampler=named, trials=trials, seed=7, start=start)
        return Slots(opened, **{"seed": 0, **how})

    return make


Make = Callable[..., Slots]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_with_a_fixed_order_neither_end_times_nor_kills_nor_new_slots_change_the_proposals(
    make: Make, sampler: str
) -> None:
    if sampler == "cmaes":
        pytest.importorskip("cmaes")
    trials = 10 if sampler == "gp" else 20  # the Gaussian process takes almost 1 s per trial
    whole, broken = (make(sampler, seed=seed, trials=trials) for seed in (1, 2))
    whole.run()
    for share, jobs in ((0.2, 4), (0.5, 2), (0.8, 7)):
        broken.run(until=int(share * trials))
        broken.kill(jobs)
    broken.run()
    assert len(whole.table()) == trials
    assert whole.table() == broken.table()
    assert len({str(params) for _, params, _, _ in whole.table()}) > trials / 2


def test_with_one_slot_a_fixed_order_proposes_the_same_params_as_a_free_one(make: Make) -> None:
    fixed, free = make(jobs=1, trials=12), make(jobs=1, trials=12, order=False)
    fixed.run()
    free.run()
    assert fixed.table() == free.table()


def test_a_study_with_a_fixed_order_keeps_the_number_of_slots_with_which_it_began(
    make: Make,
) -> None:
    slots = make(jobs=4)
    assert slots.opened.study.facts.lag == 4
    slots.run(until=5)
    slots.kill(jobs=16)
    assert slots.opened.study.keep_order(16) == 4
    slots.run()
    assert slots.most == 4


def ends_badly(record: TrialRecord) -> TrialOutcome | None:
    """Return the end of a trial that fails, is stopped or loses its worker. None for others."""
    if record.number in (2, 9):
        return failed()
    if record.number == 5:
        return TrialOutcome(state=STOPPED, reason=Reason.BY_HAND, message="stopped")
    if record.number == 12:
        return TrialOutcome(state=FAILED, reason=Reason.OUT_OF_MEMORY, is_infeasible=True)
    if record.number in (1, 15) and record.attempt == 1:
        return TrialOutcome(state=STOPPED, reason=Reason.WORKER_LOST)
    return None


def test_trials_that_fail_or_run_again_do_not_block_the_fixed_order(make: Make) -> None:
    tables = []
    for seed in (1, 2):
        slots = make(seed=seed, ends=ends_badly)
        slots.run(until=8)
        slots.kill(jobs=4)
        slots.run()
        assert len(slots.table()) == 20
        assert "running" not in {state for *_, state in slots.table()}
        tables.append(slots.table())
    assert tables[0] == tables[1]


def test_start_trials_come_first_and_a_kill_changes_none_of_their_proposed_params(
    make: Make,
) -> None:
    start = [{"x": 0.25}, {"y": 0.5}, {"x": 0.75, "y": 0.75}]
    tables = []
    for seed in (1, 2):
        slots = make(seed=seed, jobs=2, trials=12, start=start)
        slots.run(until=1)
        slots.kill(jobs=2)
        slots.run()
        tables.append(slots.table())
    assert tables[0] == tables[1]
    assert [tables[0][n][1].items() >= params.items() for n, params in enumerate(start)] == [1] * 3


def test_a_trial_killed_before_it_had_params_keeps_its_turn_and_gets_the_same_params(
    make: Make,
) -> None:
    start = [{"x": n / 10} for n in range(8)]
    whole = make(jobs=2, trials=12, start=start)
    whole.run()
    killed = make(jobs=2, trials=12, start=start)
    killed.run(until=3)
    killed.opened = killed.opened.again()
    plain = optuna.load_study(study_name=killed.opened.settings.name, storage=killed.opened.storage)
    plain.ask()  # a queued trial begins, and its process is killed before it writes a record
    killed.kill(jobs=2)
    killed.run()
    assert killed.table() == whole.table()


def test_a_trial_queued_by_hand_gets_the_next_number_and_others_continue(make: Make) -> None:
    slots = make(trials=12, start=[{"x": n / 10} for n in range(6)])
    slots.run(until=1)
    by_hand = Study.load(slots.opened.storage.url, slots.opened.settings.name)
    assert by_hand.enqueue({"x": 0.99, "y": 0.99}) == 6
    slots.run()
    assert len(slots.table()) == 13
    assert slots.table()[6][1] == {"x": 0.99, "y": 0.99}
    by_hand.enqueue({"x": 0.98, "y": 0.98})
    slots.run()
    assert slots.table()[13][1]["x"] == 0.98


def test_a_trial_queued_by_hand_runs_although_start_trials_beyond_the_planned_number_are_queued(
    make: Make,
) -> None:
    slots = make(jobs=1, trials=1, start=[{"x": 0.1}, {"x": 0.2}, {"x": 0.3}])
    slots.run()
    Study.load(slots.opened.storage.url, slots.opened.settings.name).enqueue({"x": 0.5})
    slots.run()
    assert [number for number, *_ in slots.table()] == [0, 3]


def test_with_a_fixed_order_a_trial_waits_only_for_one_earlier_trial_that_its_proposal_uses(
    make: Make,
) -> None:
    study, next_trial = (slots := make(jobs=3)).opened.study, slots.opened.next
    first, second, third = (slots.opened.ask() for _ in range(3))
    waits: list[str] = []

    def wait() -> bool:
        waits.append("waits")
        study.tell(first.number, completed())
        return True

    assert next_trial() is None, "trial 3 considers the end of trial 0"
    study.tell(third.number, completed())
    study.tell(second.number, stopped())
    assert next_trial() is None
    record = study.ask(slots.opened.samplers, lambda n: Path(f"{n}"), wait)
    assert record is not None
    assert (record.number, waits) == (3, ["waits"])


def test_with_a_fixed_order_the_sampler_sees_the_latest_trials_as_running_even_if_they_have_ended(
    make: Make,
) -> None:
    slots = make("random", jobs=3, trials=6)
    seen: list[list[tuple[str, Any]]] = []

    class Looks(optuna.samplers.RandomSampler):
        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            trials = study.get_trials(deepcopy=False)
            seen.append([(t.state.name, t.values) for t in trials])
            return {}

    slots.opened.samplers.make = lambda number, index: Looks(seed=number)  # type: ignore[method-assign]
    records = [slots.opened.ask() for _ in range(3)]
    infeasible = TrialOutcome(state=FAILED, reason=Reason.OUT_OF_MEMORY, is_infeasible=True)
    slots.opened.study.tell(records[1].number, infeasible)
    slots.opened.study.tell(records[2].number, completed(0.5))
    slots.opened.study.tell(records[0].number, completed(0.25))
    for _ in range(2):
        slots.opened.ask()
    running = ("RUNNING", None)
    assert seen[3] == [("COMPLETE", [0.25]), running, running, running]
    ended = [("COMPLETE", [0.25]), ("FAIL", None)]
    assert seen[4] == [*ended, running, running, running]
