"""Write trials to MLflow: one experiment for each study, one run for each trial.

Each call waits for MLflow. Writing a trial's start or end twice changes nothing, so it is written
again after an interruption.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..trials import GpuUse, TrialRecord, TrialState
from .artifacts import Artifacts, stage_tags
from .batches import Batches
from .files import log_ahead, wait_for_disk_once
from .messages import Series, Store, Tell, TimedPoint
from .opening import NOTE_TAG, open_experiment, usable, without_repetition
from .points import LoggedPoints
from .values import RUN_ID_TAG, STUDY_ID_TAG, as_params, as_tags, legal, metric

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

_log = logging.getLogger(__name__)

_STATUS = {
    TrialState.COMPLETED: "FINISHED",
    TrialState.PRUNED: "FINISHED",
    TrialState.FAILED: "FAILED",
    TrialState.STOPPED: "KILLED",
}
_ATTEMPT = "sweeper.attempt"
#: Tags that are not removed when a later attempt at the trial ends: they are the same in all
#: attempts, or are written after the end.
_LASTING = (STUDY_ID_TAG, RUN_ID_TAG, _ATTEMPT)
_PARENT = "mlflow.parentRunId"  # MLflow's own tag for nested runs.


class RunWriter:
    """Writes the runs of one study.

    Attributes:
        experiment_id: MLflow's id of the study's experiment.
        runs: MLflow's ids of the study's runs, by the run ids of the trials.
        attempts: Number (as text) of the attempt that a run shows, by the run ids of the trials.
            Only runs that had ended when the store was opened are included. The text is empty if
            the run's end was not written completely. Runs that a user has deleted are included, so
            that they are not created again.

    Args:
        client: MLflow's client.
        experiment_id: MLflow's id of the study's experiment.
        store: The store.
        tell: Called before each file is logged, with the file's size as an `Upload`.
    """

    def __init__(
        self,
        client: MlflowClient,
        experiment_id: str,
        store: Store,
        tell: Tell,
    ) -> None:
        self.experiment_id = experiment_id
        self._client, self._store = client, store
        self._batches = Batches(client)
        self._points = LoggedPoints(client, self._batches)
        self._artifacts = Artifacts(client, experiment_id, store, tell)
        self.runs: dict[str, str] = {}
        newest = {_run_id_of(run): run for run in self._search(is_deleted=True)}
        for run in self._search():
            self.runs[_run_id_of(run)] = str(run.info.run_id)
            newest[_run_id_of(run)] = run
        self.attempts = {
            run_id: str(run.data.tags.get(_ATTEMPT, ""))
            for run_id, run in newest.items()
            if run.info.status != "RUNNING"
        }

    @classmethod
    def open(cls, store: Store, tell: Tell = lambda _: None) -> RunWriter:
        """Open the experiment of a study. Create it, and a store in a file, if it does not exist.

        Raises:
            TrackingError: The server does not answer, or the store cannot be opened.
        """
        with usable(store.address):
            client, experiment_id = open_experiment(store)
            if store.is_embedded:
                log_ahead(store.paths.tracking)
                wait_for_disk_once(store.address.full)
            return cls(client, experiment_id, store, tell)

    # --- calls about one trial -----------------------------------------------------------------
    #
    # All these methods can raise any exception: MLflow's stores have their own exceptions.

    def start(self, record: TrialRecord, described: Mapping[str, str]) -> str:
        """Write that a trial has begun. Create its run, if MLflow does not have it.

        Args:
            record: The trial.
            described: Params of the trial as text, as `run_params` returns them.

        Returns:
            MLflow's id of the run.
        """
        mlflow_id, is_new = self._run_of(record)
        if not is_new:
            self._client.update_run(mlflow_id, status="RUNNING")
            self._client.set_tag(mlflow_id, "sweeper.state", str(record.state))
            self._points.begin(mlflow_id, is_new=False)
        self._batches.log(mlflow_id, params=as_params(described))
        return mlflow_id

    def log(self, run_id: str, points: Sequence[TimedPoint]) -> None:
        """Write points of a running trial, without the points that its run already has.

        If MLflow has no run of the trial yet, this does nothing. All points are then written with
        the trial's end.
        """
        if run_id in self.runs:
            self._points.log(self.runs[run_id], points)

    def end(
        self,
        record: TrialRecord,
        described: Mapping[str, str],
        series: Series,
        tags: Mapping[str, str],
        at_ms: int,
        reported: Sequence[TimedPoint] = (),
    ) -> str:
        """Write that a trial has ended, and everything that its run lacks, except files.

        MLflow may have no run of the trial yet, because short trials are written in one call.

        Args:
            record: The trial.
            described: Params of the trial as text, as for `start`.
            series: All points of the trial. Points that its run lacks are written.
            tags: Tags of the run, in addition to those that are made from the record.
            at_ms: Time at which the trial ended, in milliseconds since 1970.
            reported: Points that the trial has reported since the last call of `log`.

        Returns:
            MLflow's id of the run.
        """
        mlflow_id, is_new = self._run_of(record)
        if not is_new and self._points.has_others(mlflow_id, series, final=record.scores):
            names = [*described, *series, *record.scores]
            mlflow_id, is_new = self._replaced_run(mlflow_id, record, names), True
        if not is_new and not self._points.has_all_names(mlflow_id, series):
            self._points.begin(mlflow_id, is_new=False)
        self._points.log(mlflow_id, [*reported, *_timed(series, at_ms)])
        metrics = self._final_metrics(mlflow_id, record, at_ms + 1)
        self._points.end(mlflow_id)
        run_tags = as_tags({**tags, **_tags_of(record), **stage_tags(record)})
        self._batches.log(
            mlflow_id,
            metrics=metrics,
            params=as_params(described),
            tags=run_tags,
        )
        ended_ms = max(at_ms, _start_ms(record))  # The clock may have been set back meanwhile.
        self._client.set_terminated(mlflow_id, status=_STATUS[record.state], end_time=ended_ms)
        if record.attempt > 1:
            self._remove_tags_except(mlflow_id, {*_LASTING, *(tag.key for tag in run_tags)})
        return mlflow_id

    def files(self, record: TrialRecord) -> None:
        """Log the files of a trial whose end is written, then write the number of its attempt.

        The files come last, so that the run has its values and its status even if the files cannot
        be logged, or take longer than the sweep has time for. If the number of the attempt is
        missing in the run, the next sweep logs the files.
        """
        mlflow_id = self.runs[record.run_id]
        note = self._artifacts.log(mlflow_id, record)
        tags = {NOTE_TAG: note, _ATTEMPT: str(record.attempt)}
        self._batches.log(mlflow_id, tags=as_tags(tags))

    def describe(self, line: str) -> None:
        """Write a line of Markdown above the runs in MLflow's UI, before the note of the sweep."""
        note = f"{line}\n\n{self._store.note or ''}".strip()
        self._client.set_experiment_tag(self.experiment_id, NOTE_TAG, note)

    def kill_running(self) -> None:
        """Mark all running runs as killed. Call this only if no sweep of the study is alive."""
        for run_id, mlflow_id in self.runs.items():
            if run_id not in self.attempts:
                self._client.set_tag(mlflow_id, "sweeper.state", str(TrialState.STOPPED))
                self._client.set_terminated(mlflow_id, status="KILLED")
        self.end_nested()

    def end_nested(self) -> None:
        """End the nested runs that notebooks have left open. Their trials have ended.

        This is done once for each sweep, because it takes longer to look in MLflow for open runs
        than to write a short trial.
        """
        wanted = f"attributes.status = 'RUNNING' and tags.`{_PARENT}` != ''"
        for nested in reversed(self._client.search_runs([self.experiment_id], wanted)):
            # MLflow lists the newest runs first, and a parent is older than its nested runs. So the
            # reversed list ends each parent before its nested runs, which get the parent's status.
            parent = self._client.get_run(nested.data.tags[_PARENT])
            self._client.set_terminated(nested.info.run_id, status=parent.info.status)

    def set_others_aside(self, run_ids: Collection[str]) -> None:
        """Rename the runs of the study that belong to none of the given trials.

        The renamed runs no longer count as trials of the study, because new trials get their
        numbers.

        Args:
            run_ids: Run ids of all trials that the study has.
        """
        others = sorted(self.runs.keys() - set(run_ids))
        for run_id in others:
            self._set_aside(
                run_id,
                name=f"{run_id}.other",
                note="The study was resumed from outputs that do not have this trial.",
            )
        if others:
            _log.warning(
                "MLflow has runs of trials that this study does not have: %s. They were renamed to "
                "%s.other and so on, because new trials get the same numbers",
                others[0] if len(others) == 1 else f"{others[0]} to {others[-1]}",
                others[0],
            )

    # --- parts of these calls --------------------------------------------------------------------

    def _replaced_run(self, mlflow_id: str, record: TrialRecord, names: Iterable[str]) -> str:
        """Create a new run of a trial, because its run has points of an earlier attempt.

        MLflow cannot remove points. If the notebook itself has logged to the earlier run, that run
        is renamed, and nested in the new one. Otherwise, the earlier run is deleted.

        Args:
            mlflow_id: MLflow's id of the earlier run.
            record: The trial.
            names: Names of the params, series and scores that the sweep writes.

        Returns:
            MLflow's id of the new run.
        """
        is_kept = self._has_of_notebook(mlflow_id, record, names)
        if is_kept:
            self._set_aside(
                record.run_id,
                name=f"{record.run_id}.attempt{record.attempt - 1}",
                note=f"Attempt {record.attempt} of trial {record.run_id} has other results, "
                "which are in the run above this one. This run keeps what the notebook has logged "
                "itself.",
            )
        else:
            self._client.set_terminated(mlflow_id, status="KILLED")
            self._client.delete_run(mlflow_id)
            self._forget(record.run_id)
        new_id, _ = self._run_of(record)
        if is_kept:
            self._client.set_tag(mlflow_id, _PARENT, new_id)
        return new_id

    def _final_metrics(self, mlflow_id: str, record: TrialRecord, at_ms: int) -> list[Metric]:
        """Return the final scores that are not the newest values of their series.

        MLflow's table of runs shows the newest value at the last step of a series. So each of these
        scores is a further value at the last step, with a later time.
        """
        metrics: list[Metric] = []
        if not record.is_final:
            return metrics
        for name, value in record.scores.items():
            step, newest = self._points.newest(mlflow_id, name)
            made = metric(name, value, step, at_ms)
            if newest != value and made is not None:
                metrics.append(made)
        return metrics

    def _search(self, wanted: str = "", *, is_deleted: bool = False) -> list[Run]:
        """Return the runs of the study, without the runs of an earlier study of the same name.

        Args:
            wanted: Filter in MLflow's query language. Empty for all runs.
            is_deleted: Whether to return only runs that were deleted, instead of all others.
        """
        from mlflow.entities import ViewType

        view = ViewType.DELETED_ONLY if is_deleted else ViewType.ACTIVE_ONLY
        runs: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs(
                [self.experiment_id], wanted, view, max_results=1000, page_token=token
            )
            runs += [run for run in page if run.data.tags.get(STUDY_ID_TAG) == self._store.study_id]
            token = page.token
            if not token:
                return runs

    def _run_of(self, record: TrialRecord) -> tuple[str, bool]:
        """Return MLflow's id of a trial's run, and whether this call has created the run.

        A server may have created the run for an earlier call whose answer was lost. So this method
        first searches for the run. MLflow's client repeats the search while the server is
        unavailable, but not the call that then creates the run.
        """
        run_id = record.run_id
        if run_id not in self.runs and self._store.address.is_http:
            for run in self._search(f"tags.`{RUN_ID_TAG}` = '{run_id}'"):
                self.runs[run_id] = str(run.info.run_id)
        if run_id not in self.runs:
            with without_repetition():
                created = self._client.create_run(
                    self.experiment_id,
                    start_time=_start_ms(record),
                    run_name=run_id,
                    tags={
                        RUN_ID_TAG: run_id,
                        "sweeper.state": str(record.state),
                        STUDY_ID_TAG: self._store.study_id,
                        "mlflow.user": os.environ.get("USER") or str(os.getuid()),
                        "mlflow.source.type": "NOTEBOOK",
                        "mlflow.source.name": record.notebook.name,
                    },
                )
            mlflow_id = self.runs[run_id] = str(created.info.run_id)
            self._points.begin(mlflow_id, is_new=True)
            self._artifacts.begin(mlflow_id, str(created.info.artifact_uri))
            return mlflow_id, True
        return self.runs[run_id], False

    def _remove_tags_except(self, mlflow_id: str, kept: Collection[str]) -> None:
        """Remove tags of a run that begin with `sweeper.`.

        For example, an earlier attempt has left the reason why it was stopped.

        Args:
            mlflow_id: MLflow's id of the run.
            kept: Names of the tags that are not removed.
        """
        for name in self._client.get_run(mlflow_id).data.tags:
            if name.startswith("sweeper.") and name not in kept:
                self._client.delete_tag(mlflow_id, name)

    def _has_of_notebook(self, mlflow_id: str, record: TrialRecord, names: Iterable[str]) -> bool:
        """Return whether a trial's notebook has itself logged to the trial's run.

        Runs that the notebook has nested in the trial's run count, too.

        Args:
            mlflow_id: MLflow's id of the run.
            record: The trial.
            names: Names of the params, series and scores that the sweep writes. Values with other
                names are the notebook's.
        """
        data = self._client.get_run(mlflow_id).data
        ours = {*map(legal, names)}
        others = {*data.params, *data.metrics} - ours
        others |= {tag for tag in data.tags if not tag.startswith(("sweeper.", "mlflow."))}
        logged = {file.path for file in self._client.list_artifacts(mlflow_id)}
        others |= logged - self._artifacts.names_of(record)
        nested = f"tags.`{_PARENT}` = '{mlflow_id}'"
        return bool(others or self._client.search_runs([self.experiment_id], nested, max_results=1))

    def _set_aside(self, run_id: str, *, name: str, note: str) -> None:
        """Rename a run, and remove the study's id from its tags.

        MLflow keeps the run, but it no longer counts as a trial of the study.

        Args:
            run_id: Run id of the trial that had the run.
            name: The run's new name.
            note: Text for MLflow's page of the run.
        """
        mlflow_id = self.runs[run_id]
        tags = {STUDY_ID_TAG: "", NOTE_TAG: note}
        if self._client.get_run(mlflow_id).info.status == "RUNNING":
            tags["sweeper.state"] = str(TrialState.STOPPED)
            self._client.set_terminated(mlflow_id, status="KILLED")
        self._client.update_run(mlflow_id, name=name)
        self._batches.log(mlflow_id, tags=as_tags(tags))
        self._forget(run_id)

    def _forget(self, run_id: str) -> None:
        self._points.end(self.runs.pop(run_id))


def _run_id_of(run: Run) -> str:
    """Return the run id of the trial that an MLflow run shows, from its tag.

    The run's name is used only if the tag is missing, because users may rename runs.
    """
    return str(run.data.tags.get(RUN_ID_TAG, run.info.run_name))


def _timed(series: Series, at_ms: int) -> list[TimedPoint]:
    """Return the points of all series, each with a time in milliseconds before `at_ms`.

    In each series, the times increase, because MLflow shows the later one of two points with the
    same step.
    """
    points: list[TimedPoint] = []
    for name, scraped in series.items():
        begin_ms = at_ms - len(scraped)
        for index, (step, value) in enumerate(scraped):
            points.append((name, step, value, begin_ms + index))
    return points


def _tags_of(record: TrialRecord) -> dict[str, str]:
    """Return the tags that are made from the record of a trial that has ended."""
    tags = {
        f"sweeper.infinite.{legal(name)}": str(value)
        for name, value in record.scores.items()
        if math.isinf(value)
    }
    tags["sweeper.state"] = str(record.state)
    tags["sweeper.seed"] = str(record.seed)
    tags["sweeper.duration_s"] = f"{record.duration_s:.3f}"
    if record.gpu is not None:
        tags |= _gpu_tags(record.gpu)
    if record.reason is not None:
        tags["sweeper.reason"] = str(record.reason)
        tags["sweeper.message"] = record.message
    if record.is_infeasible:
        tags["sweeper.infeasible"] = "true"
    if record.host:
        tags["sweeper.host"] = record.host
    for notice, names in record.notices.items():
        tags[f"sweeper.{notice}"] = ", ".join(names)
    return tags


def _gpu_tags(gpu: GpuUse) -> dict[str, str]:
    tags = {}
    if gpu.peak_bytes is not None:
        tags["sweeper.gpu_peak_gb"] = f"{gpu.peak_bytes / 1e9:.2f}"
    if gpu.busy_share is not None:
        tags["sweeper.gpu_busy_percent"] = f"{100 * gpu.busy_share:.1f}"
    return tags


def _start_ms(record: TrialRecord) -> int:
    return int(record.started_at_s * 1000)
