"""Stopping, queueing and retrying from another terminal, on a study that no kernel runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opened_studies import asked, opened_in

from sweeper import Settings
from sweeper.control import steering
from sweeper.control.lookup import ExistingStudy, find_study
from sweeper.errors import SettingsError, StudyError
from sweeper.study_folder.ownership import held_folder
from sweeper.study_folder.requests import ALL
from sweeper.trials import Reason, StudyPaths, TrialOutcome, TrialRecord, TrialState

SETTINGS = Settings.from_mapping(
    {
        "objective": {"val": "maximize"},
        "space": {
            "kind": ["a", "b"],
            "x": {"low": 0.0, "high": 1.0},
            "only_a": {"low": 0.0, "high": 1.0, "when": {"kind": "a"}},
        },
        "start": [{"kind": "a", "x": 0.5, "only_a": 0.25}],
        "fixed": {"epochs": 3},
        "study": {"name": "steered", "sampler": "random"},
    }
)
FAILED = TrialOutcome(state=TrialState.FAILED, reason=Reason.CELL_ERROR, message="1/0")
COMPLETED = TrialOutcome(state=TrialState.COMPLETED, scores={"val": 1.0})


class Sweep:
    """A sweep without kernels: asks for trials, ends them, and holds the study's folder."""

    def __init__(self, folder: Path) -> None:
        self.paths = StudyPaths.parse(str(folder / "out" / "{run_id}.ipynb"), study="steered")
        facts = {"tracking_uri": "http://127.0.0.1:1", "settings": SETTINGS.as_mapping}
        self.study = opened_in(self.paths, SETTINGS, **facts)

    def ask(self) -> TrialRecord:
        return asked(self.study, SETTINGS, self.paths)

    def existing(self) -> ExistingStudy:
        """The study as another terminal finds it."""
        return find_study(str(self.paths.folder), storage=None)


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Sweep]:
    sweep = Sweep(tmp_path)
    yield sweep
    sweep.study.close()


def test_a_study_that_is_not_swept_cannot_be_stopped(sweep: Sweep) -> None:
    with pytest.raises(StudyError, match="is not being swept, so there is nothing to stop"):
        steering.stop(sweep.existing(), [], running_finish=False)


def test_a_trial_that_does_not_run_cannot_be_stopped(sweep: Sweep) -> None:
    running, ended = sweep.ask(), sweep.ask()
    sweep.study.tell(ended.number, COMPLETED)
    with held_folder(sweep.paths):
        with pytest.raises(StudyError, match=f"trial 0001 does not run; running: {running.run_id}"):
            steering.stop(sweep.existing(), [ended.run_id], running_finish=False)
        with pytest.raises(StudyError, match="has no trial 0007; it has 0000 to 0001"):
            steering.stop(sweep.existing(), ["0007"], running_finish=False)


def test_a_request_that_cannot_be_left_says_what_else_stops_the_sweep(sweep: Sweep) -> None:
    sweep.paths.requests.write_text("")  # where a folder should be
    with (
        held_folder(sweep.paths),
        pytest.raises(StudyError, match=r"cannot be written: .*; call this as the user of the"),
    ):
        steering.stop(sweep.existing(), [], running_finish=False)


def test_a_sweep_that_does_not_stop_in_time_is_reported(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "_PATIENCE_S", 0.3)
    with (
        held_folder(sweep.paths),
        pytest.raises(StudyError, match=r"process \d+ on .* was asked to stop, and has not within"),
    ):
        steering.stop(sweep.existing(), [], running_finish=False)
    assert [file.name for file in sweep.paths.requests.iterdir()] == [ALL]


def test_a_queued_trial_has_the_params_that_are_stated_and_those_of_another_trial(
    sweep: Sweep,
) -> None:
    sweep.ask()
    existing = sweep.existing()
    assert steering.enqueue(existing, {"x": 0.75}, like=None)[1] == {"x": 0.75}
    like = steering.enqueue(existing, {"x": 0.125}, like="0000")[1]
    assert like == {"kind": "a", "x": 0.125, "only_a": 0.25}
    other_branch = steering.enqueue(existing, {"kind": "b"}, like="0000")[1]
    assert other_branch == {"kind": "b", "x": 0.5}
    assert sweep.ask().params["x"] == 0.75


def test_wrong_params_are_not_queued(sweep: Sweep) -> None:
    existing = sweep.existing()
    for params, message in (
        ({}, "nothing to try; give NAME=VALUE, or --like RUN_ID"),
        ({"x": 2.0}, "x: 2.0 is outside the space"),
        ({"z": 2.0}, "'z' is not in the space"),
        ({"epochs": 4}, "epochs is fixed to 3 in this study"),
    ):
        with pytest.raises(SettingsError, match=message):
            steering.enqueue(existing, params, like=None)
    with pytest.raises(StudyError, match="has no trial 0000; it has none yet"):
        steering.enqueue(existing, {}, like="0000")


def test_failed_trials_are_retried_once_with_their_params_and_seed(sweep: Sweep) -> None:
    failed, completed = sweep.ask(), sweep.ask()
    sweep.study.tell(failed.number, FAILED)
    sweep.study.tell(completed.number, COMPLETED)
    assert steering.retry(sweep.existing(), ["0000", "0000"]) == [("0000", "0002")]
    assert steering.retry(sweep.existing(), []) == []
    again = sweep.ask()
    assert (again.params, again.seed, again.retry_of) == (failed.params, failed.seed, 0)
    sweep.study.tell(again.number, FAILED)
    assert steering.retry(sweep.existing(), []) == [("0002", "0003")]
    with pytest.raises(StudyError, match="trial 0001 is completed, and only failed or stopped"):
        steering.retry(sweep.existing(), ["0001"])
