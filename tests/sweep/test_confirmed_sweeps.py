"""Sweeps confirm their best trials: they run these again on fresh seeds.

The study and the MLflow store are real, and functions replace kernels.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from studies import assert_says, mlflow_runs, sweep_of

import sweeper
from sweeper import Sweep, SweepResult
from sweeper.control.lookup import find_study
from sweeper.control.status import look
from sweeper.errors import BrokenError, StoppedError, StudyError, TrackingError
from sweeper.settings.addresses import Address
from sweeper.sweep.resume_checks import refuse_another_search
from sweeper.testing import write_notebook
from sweeper.trials import (
    Reason,
    RunningTrial,
    StopCause,
    StudyPaths,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)

pytestmark = pytest.mark.slow  # MLflow is imported

SPACE = {"x": [0.1, 0.2, 0.3, 0.4]}
#: Difference between the search score and the true score of each trial of the search.
LUCK = {0.1: 0.5, 0.2: 0.0, 0.3: 0.1, 0.4: 0.0}
CONFIRM = {"best": 3, "seeds": 4}


def is_confirming(spec: TrialSpec) -> bool:
    return spec.study.endswith("-confirm")


def noisy(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    """Return the score x, plus `LUCK` in the search, or plus a little noise on fresh seeds."""
    x = float(str(spec.params["x"]))
    noise = random.Random(spec.seed).gauss(0.0, 0.01)
    score = x + (noise if is_confirming(spec) else LUCK[x])
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": score}, duration_s=0.01)


@pytest.fixture(scope="module")
def make_sweep(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Sweep]:
    folder = tmp_path_factory.mktemp("confirmed")

    def make(
        name: str,
        run_trial: Any = noisy,
        *,
        confirm: Any = CONFIRM,
        template: str = "{study}.{run_id}",
        **changes: Any,
    ) -> Sweep:
        changes["study"] = {"sampler": "grid", "trials": 4, **changes.get("study", {})}
        changes |= {} if confirm is None else {"confirm": confirm}
        notebook = write_notebook(folder / "nb.ipynb", "val = x", parameters="x = 0.5\nseed = 0")
        how: dict[str, Any] = {"output": f"out/{template}.ipynb", "jobs": 2, "space": SPACE}
        return sweep_of(notebook, name, run_trial, **{**how, **changes})

    return make


Make = Callable[..., Sweep]


@pytest.fixture(scope="module")
def done(make_sweep: Make) -> SweepResult:
    return make_sweep("done").run()


def best_x(result: SweepResult) -> object:
    return result.best[0].params["x"]


def runs_of(sweep: Sweep) -> list[TrialRecord]:
    """Return the trials of the confirming study, which the sweep has opened last."""
    return list(find_study(str(sweep.plan.paths.folder), storage=None).study.records())


def test_a_confirmed_sweeps_best_trial_has_the_best_mean_on_fresh_seeds_not_the_luckiest_score(
    done: SweepResult,
) -> None:
    assert best_x(done) == 0.4
    data = json.loads(json.dumps(done.to_json(), allow_nan=False))
    assert data["best"]["won_by"] == "confirmed_mean"
    assert data["best"]["confirmed"]["mean"] == pytest.approx(0.4, abs=0.03)
    assert (data["counts"]["completed"], len(data["trials"])) == (4, 4)
    assert data["confirmation"]["missing"] == 0
    runs = [run for one in data["confirmation"]["ranking"] for run in one["runs"]]
    assert len({run["run_id"] for run in runs}) == 12
    assert len({run["seed"] for run in runs}) == 4, "not all trials have the same seeds"
    assert data["confirmation"]["page"].endswith("done-confirm/index.html")


def test_the_confirming_study_has_records_notebooks_and_runs_in_mlflow(
    done: SweepResult, make_sweep: Make
) -> None:
    paths = make_sweep("done").plan.paths.following("confirm")
    existing = find_study(str(paths.folder), storage=None)
    result, snapshot = look(existing)
    assert snapshot.counts["completed"] == 12
    assert [record.params["x"] for record in result.best] == [0.4]
    assert all(record.notebook.name.startswith("done-confirm.") for record in result.records)
    assert len(mlflow_runs(done.tracking_uri, "done-confirm")) == 12
    assert "winner" in (paths.page_files / "study.js").read_text()


def test_a_later_command_reads_the_same_confirmed_winner(
    done: SweepResult, make_sweep: Make
) -> None:
    folder = make_sweep("done").plan.paths.folder
    result, _ = look(find_study(str(folder), storage=None))
    assert result.to_json()["best"] == done.to_json()["best"]
    study = sweeper.load(folder)
    assert isinstance(study.best, TrialRecord)
    assert study.best.params["x"] == 0.4
    assert study.confirmation is not None
    assert "by a mean of" in repr(study) and "fresh seeds" in repr(study)


def test_a_sweep_of_a_complete_search_runs_the_missing_confirmations(make_sweep: Make) -> None:
    before = make_sweep("later", confirm=None).run()
    assert best_x(before) == 0.1
    assert "confirmed" not in before.to_json()["best"]
    sweep = make_sweep("later")
    assert best_x(sweep.run()) == 0.4
    first = runs_of(sweep)
    make_sweep("later").run()
    assert runs_of(sweep) == first, "a repeated sweep has run more"
    make_sweep("later", confirm={"best": 3, "seeds": 5}).run()
    assert len(runs_of(sweep)) == 15
    without = make_sweep("later", confirm=None).run()
    assert best_x(without) == 0.4, "the winner is forgotten without `confirm`"


def test_a_search_and_its_confirmation_can_be_in_one_storage(
    make_sweep: Make, tmp_path: Path
) -> None:
    options = {"storage": f"sqlite:///{tmp_path}/both.db"}
    assert best_x(make_sweep("both", options=options, template="b.{run_id}").run()) == 0.4
    existing = find_study("both", storage=options["storage"])
    assert existing.best(existing.confirmation())[0].params["x"] == 0.4
    confirming = find_study("both-confirm", storage=options["storage"])
    assert confirming.study.records()[0].notebook.name == "b.confirm-0000.ipynb"


def test_failed_runs_on_fresh_seeds_cannot_win_and_may_end_the_sweep(make_sweep: Make) -> None:
    def fails(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if is_confirming(spec):
            raise ValueError("not on this seed")
        return noisy(spec, running)

    result = make_sweep("failing", fails, jobs=1, study={"stop_after_failures": 3}).run()
    assert "3 failed trials in a row" in str(result.stopped_by)
    assert best_x(result) == 0.1
    data = result.to_json()
    assert (data["best"]["won_by"], data["counts"]["failed"]) == ("search_score", 0)
    assert data["confirmation"]["missing"] == 12 - 3


def test_a_stop_during_confirmation_ends_the_sweep_without_a_winner(
    make_sweep: Make,
) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if spec.number < 2 or not is_confirming(spec):
            return noisy(spec, running)
        sweep.stop("--timeout", now=True)
        return TrialOutcome(state=TrialState.STOPPED, reason=Reason.INTERRUPTED)

    sweep = make_sweep("short", run, jobs=1)
    result = sweep.run()
    assert result.stopped_by == "--timeout"
    assert best_x(result) == 0.1
    assert result.confirmation is not None
    assert result.confirmation.n_missing == 10
    resumed = make_sweep("short")
    assert best_x(resumed.run()) == 0.4
    assert [record.number for record in runs_of(resumed)] == [*range(12)], "nothing ran twice"


def test_a_stop_while_the_confirmation_waits_for_workers_ends_the_sweep(make_sweep: Make) -> None:
    def waits(_: object, is_stopped: Callable[[], bool]) -> NoReturn:
        sweep.stop("Ctrl-C")
        assert is_stopped()
        raise StoppedError

    sweep = make_sweep("waiting")
    sweep.plan = replace(sweep.plan, make_executor=waits)
    result = sweep.run()
    assert (result.stopped_by, result.stop_cause) == ("Ctrl-C", StopCause.ASKED)
    assert result.not_confirmed is None
    assert best_x(result) == 0.1


def test_the_confirmation_left_by_a_removed_study_is_not_used_for_a_new_study_of_its_name(
    make_sweep: Make,
) -> None:
    sweep = make_sweep("removed")
    paths = sweep.plan.paths
    sweep.run()
    runs = runs_of(sweep)
    shutil.rmtree(paths.folder)
    for notebook in paths.written_run_ids().values():
        notebook.unlink()
    new = make_sweep("removed", confirm=None).run()
    assert (best_x(new), new.confirmation) == (0.1, None)
    result = make_sweep("removed").run()
    assert (best_x(result), result.confirmation) == (0.1, None)
    assert result.not_confirmed is not None
    named = ("'removed-confirm'", "remove ", "out/removed-confirm", "*.ipynb")
    assert_says(result.not_confirmed, *named)
    assert runs_of(sweep) == runs, "a call that is refused leaves the study as it was"


def test_the_error_about_a_confirmation_left_by_a_removed_study_names_its_remote_copy(
    tmp_path: Path,
) -> None:
    paths = StudyPaths.parse(str(tmp_path / "{run_id}.ipynb"), study="s-confirm")
    study: Any = SimpleNamespace(
        name="s-confirm",
        facts=SimpleNamespace(confirms=object()),
        repeats_trials_of=lambda _: False,
    )
    plan: Any = SimpleNamespace(
        confirming=SimpleNamespace(of="new"),
        paths=paths,
        storage_url=Address.of_file(paths.storage),
        remote=SimpleNamespace(display_url="s3://bucket/s-confirm"),
    )
    with pytest.raises(StudyError) as refused:
        refuse_another_search(study, plan)
    assert_says(str(refused.value), "remove its copy in s3://bucket/s-confirm, ", "s-confirm and ")


def test_the_winner_on_fresh_seeds_is_the_answer_even_if_mlflow_is_unavailable_at_the_end(
    make_sweep: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def is_away(_: object) -> NoReturn:
        raise TrackingError("the server does not answer", "start it first")

    monkeypatch.setattr("sweeper.sweep.confirming.check_reachable", is_away)
    result = make_sweep("away").run()
    assert best_x(result) == 0.4
    assert result.not_confirmed is None
    assert_says(caplog.text, "MLflow does not show the final answer: the server does not answer")


def test_a_search_returns_its_result_if_its_best_trials_cannot_be_confirmed(
    make_sweep: Make,
) -> None:
    sweep = make_sweep("refused")
    in_the_way = sweep.plan.paths.following("confirm").notebook("0000")
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("mine")
    result = sweep.run()
    assert result.counts["completed"] == 4
    assert result.not_confirmed is not None
    assert "is in the way" in result.not_confirmed
    page = make_sweep("refused").plan.paths.page_files / "study.js"
    assert '"is_running":false' in page.read_text()


def test_a_search_whose_narrowed_space_fits_none_of_its_trials_ends_without_a_confirmation(
    make_sweep: Make,
) -> None:
    def run(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        return TrialOutcome(
            state=TrialState.COMPLETED, scores={"val": float(str(spec.params["x"]))}
        )

    how: dict[str, Any] = {"study": {"sampler": "random"}, "options": {"allow_changes": True}}
    make_sweep("narrowed", run, confirm=None, space={"x": {"low": 0.1, "high": 0.4}}, **how).run()
    narrowed = make_sweep("narrowed", run, space={"x": {"low": 0.5, "high": 0.6}}, **how)
    result = narrowed.run()
    assert result.not_confirmed is not None
    assert_says(result.not_confirmed, "no longer fits any trial", "restore its `space`")
    assert result.is_failure
    page = narrowed.plan.paths.page_files / "study.js"
    assert '"is_running":false' in page.read_text()


def test_the_page_of_a_search_ends_as_not_running_if_its_confirmation_loses_its_storage(
    make_sweep: Make,
) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if is_confirming(spec):
            paths.following("confirm").storage.unlink(missing_ok=True)
        return noisy(spec, running)

    sweep = make_sweep("lost", run)
    paths = sweep.plan.paths
    with pytest.raises(BrokenError):
        sweep.run()
    assert '"is_running":false' in (paths.page_files / "study.js").read_text()


def test_while_the_best_trials_are_confirmed_page_and_status_suggest_no_next_step(
    make_sweep: Make,
) -> None:
    seen: list[Any] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if is_confirming(spec) and not seen:
            insights = look(find_study(str(paths.folder), storage=None))[0].insights
            seen.append((insights, page.read_text()))
        return noisy(spec, running)

    sweep = make_sweep("watched", run, jobs=1)
    paths = sweep.plan.paths
    page = paths.page_files / "study.js"
    sweep.run()
    ((insights, text),) = seen
    assert insights is not None
    assert insights.best is not None
    assert not insights.actions
    assert '"is_running":true' in text
    assert '"actions":[]' in text
    assert '"is_running":false' in page.read_text()


def test_a_search_that_was_stopped_runs_no_confirmation(make_sweep: Make) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        sweep.stop("Ctrl-C")
        return noisy(spec, running)

    sweep = make_sweep("stopped", run, jobs=1)
    assert sweep.run().confirmation is None


def test_the_search_and_its_confirmation_share_one_budget(make_sweep: Make) -> None:
    cost = {"price_per_hour": 3600.0, "budget": 1000.0}
    sweep = make_sweep("paid", jobs=1, cost=cost)
    result = sweep.run()
    left, paid = sweep.plan.settings.cost, result.cost
    assert left is not None
    assert left.budget is not None
    assert paid is not None
    assert 0 < 1000.0 - left.budget < paid
