"""Sweeps that confirm their best trials, with a real study and MLflow store and without kernels."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from studies import small_settings

import sweeper
from sweeper import Sweep, SweepResult
from sweeper.control.lookup import find_study
from sweeper.control.status import look
from sweeper.notebook_api.messages import Point
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import (
    Event,
    Observer,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)

pytestmark = pytest.mark.slow  # MLflow is imported

SPACE = {"x": [0.1, 0.2, 0.3, 0.4]}
#: By how much each trial of the search is luckier than it is good.
LUCK = {0.1: 0.5, 0.2: 0.0, 0.3: 0.1, 0.4: 0.0}
CONFIRM = {"best": 3, "seeds": 4}


def noisy(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    """The true score is x; the search sees luck on top of it, and fresh seeds a little noise."""
    x = float(str(spec.params["x"]))
    noise = random.Random(spec.seed).gauss(0.0, 0.01)
    score = x + (LUCK[x] if spec.confirms is None else noise)
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": score}, duration_s=0.01)


@pytest.fixture(scope="module")
def make_sweep(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Sweep]:
    folder = tmp_path_factory.mktemp("confirmed")

    def make(
        name: str,
        run_trial: Any = noisy,
        *,
        trials: int = 4,
        jobs: int = 2,
        observer: Observer | None = None,
        timeout_s: float | None = None,
        confirm: Any = CONFIRM,
        **changes: Any,
    ) -> Sweep:
        study = {"sampler": "grid", "trials": trials, **changes.pop("study", {})}
        changes |= {} if confirm is None else {"confirm": confirm}
        return Sweep.from_settings(
            small_settings(name, **{"space": SPACE, **changes, "study": study}),
            notebook=write_notebook(folder / "nb.ipynb", "val = x", parameters="x = 0.5\nseed = 0"),
            output=f"{folder}/out/{{study}}.{{run_id}}.ipynb",
            executor=lambda _: InlineExecutor(run_trial, jobs=jobs),
            observer=observer,
            timeout_s=timeout_s,
        )

    return make


Make = Callable[..., Sweep]


@pytest.fixture(scope="module")
def done(make_sweep: Make) -> SweepResult:
    return make_sweep("done").run()


def best_x(result: SweepResult) -> object:
    return result.best[0].params["x"]


def test_the_winner_of_the_fresh_seeds_is_the_best_and_not_the_luckiest(done: SweepResult) -> None:
    assert best_x(done) == 0.4
    data = json.loads(json.dumps(done.to_json(), allow_nan=False))
    assert data["best"]["won_by"] == "confirmed_mean"
    assert data["best"]["confirmed"]["mean"] == pytest.approx(0.4, abs=0.03)
    assert data["counts"]["completed"] == 4
    assert len(data["trials"]) == 4 + 12
    assert data["confirmation"]["missing"] == 0


def test_mlflow_marks_the_runs_and_has_the_means_of_those_that_they_confirm(
    done: SweepResult,
) -> None:
    client = MlflowClient(done.tracking_uri)
    runs = {run.info.run_name: run.data for run in client.search_runs([done.experiment_id])}
    assert len(runs) == 16
    confirming = {name for name, run in runs.items() if "sweeper.confirms" in run.tags}
    assert confirming == {r.run_id for r in done.records if r.confirms is not None}
    (winner,) = done.best
    data = runs[winner.run_id]
    assert data.metrics["sweeper.confirmed_mean"] == pytest.approx(0.4, abs=0.03)
    assert data.metrics["sweeper.confirmed_low"] < 0.4 < data.metrics["sweeper.confirmed_high"]
    assert (data.tags["sweeper.confirmed_rank"], data.tags["sweeper.confirmed_seeds"]) == ("1", "4")
    search_only = client.search_runs([done.experiment_id], "tags.`sweeper.confirms` IS NULL")
    assert {run.info.run_name for run in search_only} == runs.keys() - confirming


def test_a_study_that_is_looked_at_later_has_the_same_winner(
    done: SweepResult, make_sweep: Make
) -> None:
    folder = make_sweep("done").plan.paths.folder
    result, snapshot = look(find_study(str(folder), storage=None), None)
    assert result.to_json()["best"] == done.to_json()["best"]
    assert snapshot.counts["completed"] == 4
    study = sweeper.load(folder)
    assert isinstance(study.best, TrialRecord)
    assert study.best.params["x"] == 0.4
    assert study.confirmation is not None
    assert study.confirmation.winner is not None
    frame = study.dataframe()
    assert frame["confirms"].isna().sum() == 4
    assert len(frame) == 16
    assert "over fresh seeds" in repr(study)
    assert study._repr_html_().count("<tr") == 2 + 4, "two lines of names, and the search"


def test_a_call_for_a_study_that_is_done_runs_the_confirmations_only(make_sweep: Make) -> None:
    before = make_sweep("later", confirm=None).run()
    assert best_x(before) == 0.1
    assert "confirmed" not in before.to_json()["best"]
    after = make_sweep("later").run()
    assert best_x(after) == 0.4
    assert len(after.records) == 16
    again = make_sweep("later").run()
    assert len(again.records) == 16, "nothing is left to do"
    more = make_sweep("later", confirm={"best": 3, "seeds": 5}).run()
    assert len(more.records) == 19
    without = make_sweep("later", confirm=None).run()
    assert best_x(without) == 0.4, "what is known stays known"


def test_the_pruner_neither_cuts_the_runs_nor_learns_from_them(make_sweep: Make) -> None:
    reported: list[int] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        running.publish(Point(step=0, metrics={"val": -100.0}))
        if spec.confirms is not None:
            reported.append(spec.number)
        return noisy(spec, running)

    pruner = {"name": "threshold", "lower": -1000.0}
    sweep = make_sweep("pruned", run, study={"pruner": pruner}, jobs=1)
    result = sweep.run()
    assert len(reported) == 12
    study = find_study(str(sweep.plan.paths.folder), storage=None).opened()
    values = {t.number: t.intermediate_values for t in study._trials()}
    assert not any(values[number] for number in reported)
    assert result.counts["pruned"] == 0


def test_failed_runs_leave_fewer_seeds_and_end_a_sweep_like_other_trials(make_sweep: Make) -> None:
    def fails(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if spec.confirms is not None:
            raise ValueError("not on this seed")
        return noisy(spec, running)

    result = make_sweep("failing", fails, jobs=1, study={"stop_after_failures": 3}).run()
    assert "3 failed trials in a row" in str(result.stopped_by)
    assert best_x(result) == 0.1
    data = result.to_json()
    assert (data["best"]["won_by"], data["counts"]["failed"]) == ("search_score", 0)
    assert data["confirmation"]["missing"] == 12 - 3


def test_when_the_time_is_over_the_result_says_how_many_runs_are_missing(make_sweep: Make) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if len(ended) < 6:
            return noisy(spec, running)
        sweep.stop("--timeout", now=True)
        return TrialOutcome(state=TrialState.STOPPED, reason=Reason.INTERRUPTED)

    ended: list[str] = []

    def observe(event: Event, record: TrialRecord | None) -> None:
        if event is Event.TRIAL_ENDED and record is not None:
            ended.append(record.run_id)

    sweep = make_sweep("short", run, jobs=1, observer=observe)
    result = sweep.run()
    assert result.confirmation is not None
    assert 0 < result.confirmation.n_missing < 12
    assert result.stopped_by == "--timeout"
    resumed = make_sweep("short").run()
    assert resumed.confirmation is not None
    assert resumed.confirmation.n_missing == 0
    assert len(resumed.records) == 16, "the interrupted run has kept its number"


def test_what_is_left_counts_the_runs_to_come(make_sweep: Make) -> None:
    seen: list[tuple[int, int]] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        seen.append((spec.number, running.trials_left))
        return noisy(spec, running)

    make_sweep("left", run, jobs=1).run()
    assert seen == [(number, 15 - number) for number in range(16)]


def test_the_checkpoints_of_those_that_may_win_stay_until_one_has(make_sweep: Make) -> None:
    left: list[int] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        left.append(len(list(spec.checkpoint_dir.parent.glob("*"))))
        spec.checkpoint_dir.mkdir(parents=True)
        (spec.checkpoint_dir / "000001.ckpt").write_bytes(b"x")
        return noisy(spec, running)

    sweep = make_sweep("kept", run, jobs=1, checkpoints={"completed": "best"})
    result = sweep.run()
    assert left[4] == 3, "the best three of four"
    kept = [Path(path).name for path in sweep.plan.paths.all_checkpoints.iterdir()]
    assert kept == [result.best[0].run_id]


def test_files_of_others_are_found_where_the_runs_will_be_written(make_sweep: Make) -> None:
    sweep = make_sweep("taken")
    in_the_way = sweep.plan.paths.notebook("0015")
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    in_the_way.write_text("{}")
    with pytest.raises(sweeper.SweepError, match=r"taken\.0015\.ipynb is in the way"):
        sweep.run()
