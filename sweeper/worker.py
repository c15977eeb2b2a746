"""Run one try at one trial, from a spec to an outcome; a failure is an outcome too."""

from __future__ import annotations

import datetime
import errno
import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import kernels
from .devices import Devices, StoppedWaiting
from .kernels import Ending, Kernel, KernelPool, KernelResult, SharedRun
from .notebook import ExecutedNotebook, ResearchNotebook, read_metadata
from .reporting import TRIAL_VARIABLE, Channel, Point, StopReason, encode_float
from .scraping import PrintedScores, scrape, variables_to_read
from .settings import Settings
from .trials import Params, Reason, TrialOutcome, TrialSpec, TrialState, Value, attempt_path

_log = logging.getLogger(__name__)

#: A disk that is full, or has become read-only.
_NOWHERE_TO_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

#: How much longer than before a trial may take that proves that leading cells can be shared.
_PROOF_FACTOR, _PROOF_SLACK_S = 3.0, 60.0
#: Cells that took less are as well run again: to show what they said costs about as much.
_LITTLE_S = 0.05
#: A trial that fails sooner, before any has come to its end in a forked kernel, is tried in a
#: started one: what a fork cannot do, such as to use CUDA that was initialised before, fails early.
_EARLY_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Everything that all trials of a sweep have in common on the machine that runs them.

    Attributes:
        trials_left: how many trials have not begun yet, as far as is known.
    """

    notebook: ResearchNotebook
    settings: Settings
    devices: Devices
    pool: KernelPool
    trials_left: Callable[[], int]
    _first: list[tuple[TrialSpec, TrialOutcome]] = field(default_factory=list)

    def run_trial(self, spec: TrialSpec, channel: Channel) -> TrialOutcome:
        """Run one trial to its end, whatever that is. Raises nothing."""
        started_s = _own_time_s(channel)
        try:
            self._prove_sharing(channel)
            started_s = _own_time_s(channel)
            outcome = self._run(spec, channel)
        except OSError as error:
            message = f"{spec.notebook}: {error.strerror or error}"
            # Not the trial's fault, and the next one would fare no better.
            is_ours = error.errno in _NOWHERE_TO_WRITE
            state = TrialState.STOPPED if is_ours else TrialState.FAILED
            outcome = TrialOutcome(state=state, reason=Reason.FILE, message=message)
        except Exception as error:  # noqa: BLE001  a defect of ours must cost one trial, not the sweep
            _log.exception("trial %s", spec.run_id)
            outcome = _failed(Reason.INTERNAL, f"{type(error).__name__}: {error}")
        return replace(outcome, duration_s=_own_time_s(channel) - started_s)

    def _run(self, spec: TrialSpec, channel: Channel) -> TrialOutcome:
        if (there := _whose(spec.notebook)) not in (None, spec.study_id):
            message = f"{spec.notebook} appeared meanwhile and was not written by this study"
            return _failed(Reason.FILE, message)
        if there is not None and spec.attempt > 1:
            os.replace(spec.notebook, attempt_path(spec.notebook, spec.attempt - 1))
        started_s = _own_time_s(channel)
        file = self._file(spec)
        try:
            file, outcome = self._try(file, spec, channel)
        except OSError:
            raise  # most likely the file itself cannot be written
        except Exception as error:  # noqa: BLE001  as in run_trial, and the file says so too
            _log.exception("trial %s", spec.run_id)
            outcome = _failed(Reason.INTERNAL, f"{type(error).__name__}: {error}")
        outcome = replace(outcome, duration_s=_own_time_s(channel) - started_s)
        file.finish(outcome)
        file.write()
        return outcome

    def _try(
        self, file: ExecutedNotebook, spec: TrialSpec, channel: Channel
    ) -> tuple[ExecutedNotebook, TrialOutcome]:
        """Execute the notebook; and again, where it may have been the kernel that failed."""
        started_s = _own_time_s(channel)
        limit_s = self.settings.limits.trial
        result = self._execute(file, spec, channel, limit_s=limit_s, write=file.write)
        took_s = _own_time_s(channel) - started_s
        outcome = self._judge(file, result, channel)
        if outcome.state is TrialState.FAILED and self._doubts(result, took_s):
            failed, is_fork_doubted = outcome, self._doubts_fork(result, took_s)
            file, result, outcome = self._run_fresh(spec, channel)
            if is_fork_doubted:
                self._compare(spec, failed, outcome)
        elif outcome.state is TrialState.COMPLETED and result.is_warm:
            self.pool.trust(True)
        if outcome.state is TrialState.COMPLETED and not result.shared_cells:
            took_s = _own_time_s(channel) - started_s
            self._first.append((spec, replace(outcome, duration_s=took_s)))
            del self._first[1:]
        return file, outcome

    def _execute(
        self,
        file: ExecutedNotebook,
        spec: TrialSpec,
        channel: Channel,
        *,
        limit_s: float | None,
        write: Callable[[], None],
        take: Callable[[Mapping[str, str]], Kernel] | None = None,
    ) -> KernelResult:
        """Run the notebook's cells, with the trial's lease on a device.

        Args:
            limit_s: how long that may take from the lease on, in seconds.
        """
        # The device is free again when the kernel has really gone, after the slot has moved on.
        held = ExitStack()
        try:
            lease = held.enter_context(self.devices.lease(channel))
        except StoppedWaiting:
            return KernelResult(ending=Ending.STOPPED)
        file.metadata["started_at"] = _now()

        def write_running() -> None:
            file.metadata["pid"] = channel.pid  # for who looks on from elsewhere
            write()

        def on_point(point: Point) -> None:
            file.record(point)
            channel.publish(point)

        def on_printed(point: Point) -> None:
            file.record(point, printed=True)
            if not file.metadata["series"].keys() & point.metrics.keys():
                channel.publish(point)  # what is reported counts more

        with _closed_on_error(held), channel.limited(limit_s):
            result = kernels.execute(
                file.node,
                pool=self.pool,
                more_to_come=take is None and self.trials_left() > 0,
                take=take,
                own_params=self._own_params(spec),
                env={**self._env(spec), **lease.env},
                on_gone=held.close,
                write=write_running,
                channel=channel,
                on_point=on_point,
                printed=PrintedScores(self.settings.scores, on_printed),
                variables=variables_to_read(self.settings.scores, self.settings.objective),
                cell_output_bytes=self.settings.limits.cell_output,
                grace_s=self.settings.limits.grace,
            )
        file.metadata.pop("pid", None)
        file.keep_earlier_series()
        file.metadata["variables"] = {k: encode_float(v) for k, v in result.variables.items()}
        file.metadata["kernel"] = "warm" if result.is_warm else "cold"
        if result.shared_cells:
            file.metadata["shared_cells"] = result.shared_cells
        if result.exit_code is not None:
            file.metadata["exit_code"] = result.exit_code
        return result

    def _doubts(self, result: KernelResult, took_s: float) -> bool:
        """Whether a trial may have failed because of its kernel, and by chance."""
        is_lost = result.is_orphan or result.ending is Ending.NOT_STARTED
        return is_lost or self._doubts_fork(result, took_s)

    def _doubts_fork(self, result: KernelResult, took_s: float) -> bool:
        """Whether a trial may have failed because its kernel was forked."""
        is_forked = result.is_warm and not result.is_orphan
        return is_forked and self.pool.is_in_doubt and took_s < _EARLY_S

    def _run_fresh(
        self, spec: TrialSpec, channel: Channel
    ) -> tuple[ExecutedNotebook, KernelResult, TrialOutcome]:
        """Run a trial again, in a kernel that is started."""
        file = self._file(spec)
        quiet = Channel(lambda _: None)  # its points were published once
        with channel.passed_on(quiet):
            result = self._execute(
                file,
                spec,
                quiet,
                limit_s=self.settings.limits.trial,
                write=file.write,
                take=self.pool.take_fresh,
            )
            return file, result, self._judge(file, result, quiet)

    def _compare(self, spec: TrialSpec, forked: TrialOutcome, fresh: TrialOutcome) -> None:
        """Fork no more kernels when a trial fails in those only."""
        if fresh.state is TrialState.STOPPED:
            return
        self.pool.trust(fresh.state is TrialState.FAILED)
        if fresh.state is not TrialState.FAILED:
            _log.warning(
                "kernels are started anew from now on: trial %s failed in a forked one (%s), and "
                "not in one that was started",
                spec.run_id,
                forked.message,
            )

    def _own_params(self, spec: TrialSpec) -> Params:
        """What is injected in this trial, and is not the same in all of them."""
        given: dict[str, Value] = {"seed": spec.seed, "run_id": spec.run_id}
        wanted = {name: value for name, value in given.items() if self.notebook.assigns(name)}
        told = {**wanted, **spec.params}
        return {name: value for name, value in told.items() if name not in spec.fixed}

    def _file(self, spec: TrialSpec) -> ExecutedNotebook:
        node = kernels.inject(
            self.notebook.fresh_copy(self.pool.name),
            {**self._own_params(spec), **spec.fixed},
            kernel_name=self.pool.name,
            language=kernels.language_of(self.pool.name),
        )
        return ExecutedNotebook(node, spec, started_at=_now())

    def _prove_sharing(self, channel: Channel) -> None:
        """Once in a sweep: run a trial again after the shared cells, and compare its scores.

        Args:
            channel: of the trial that this slot was to run, and runs next.
        """
        shared = self.pool.claim_proof() if self._first else None
        if shared is None:
            return
        try:
            is_proven = self._is_proven(shared, channel)
        except Exception:  # noqa: BLE001  a trial must not fail for what only saves time
            _log.exception("shared cells")
            is_proven = False
        self.pool.settle_sharing(is_proven)

    def _is_proven(self, shared: SharedRun, channel: Channel) -> bool:
        spec, outcome = self._first[0]
        saved_s = shared.duration_s * self.trials_left()
        is_little = shared.duration_s < _LITTLE_S
        if is_little or saved_s <= outcome.duration_s - shared.duration_s:
            _log.info("sharing %d cells would save less than it takes", len(shared.cells))
            return False
        proving = Channel(lambda _: None)
        limit_s = _PROOF_FACTOR * outcome.duration_s + _PROOF_SLACK_S
        with tempfile.TemporaryDirectory() as folder, channel.passed_on(proving):
            # Its checkpoints are not for this one to go on from.
            spec = replace(spec, checkpoint_dir=Path(folder) / "checkpoints")
            file = self._file(spec)
            result = self._execute(
                file,
                spec,
                proving,
                limit_s=limit_s,
                write=_unseen,
                take=lambda _: self.pool.take_after(shared),
            )
            again = self._judge(file, result, proving)
        difference = _difference(outcome, again, list(self.settings.objective))
        if difference and again.state is not TrialState.STOPPED:
            _log.warning(
                "leading cells are not shared, every trial runs all its cells: trial %s gave %s "
                "(as a notebook does, too, whose random numbers are not seeded)",
                spec.run_id,
                difference,
            )
        return not difference

    def _env(self, spec: TrialSpec) -> Mapping[str, str]:
        told = {
            "number": spec.number,
            "run_id": spec.run_id,
            "params": dict(spec.params),
            "seed": spec.seed,
            "attempt": spec.attempt,
            "folder": str(spec.checkpoint_dir),
        }
        return {TRIAL_VARIABLE: json.dumps(told)}

    def _judge(
        self, file: ExecutedNotebook, result: KernelResult, channel: Channel
    ) -> TrialOutcome:
        """What the end of the execution and the scraped scores mean for the trial."""
        file.node.metadata["sweeper"] = file.metadata
        objectives = self.settings.objective
        scraped = scrape(file.node, sources=self.settings.scores, objectives=objectives)
        if result.ending is Ending.FINISHED:
            outcome = self._judge_scores(scraped.scores)
        else:
            outcome = _ended_early(result, channel, self.settings.limits.trial)
        return replace(outcome, scores=scraped.scores, series=scraped.series)

    def _judge_scores(self, scores: Mapping[str, float]) -> TrialOutcome:
        for name in self.settings.objective:
            if name not in scores:
                found = ", ".join(scores) or "no score at all"
                return _failed(
                    Reason.NO_SCORE,
                    f"the notebook ran to its end and never gave {name} (found: {found}); report "
                    f"it, name a variable or pattern under scores, or assign a variable {name}",
                )
            if not math.isfinite(scores[name]):
                return _failed(Reason.NOT_FINITE, f"{name} is {scores[name]}")
        return TrialOutcome(state=TrialState.COMPLETED)


def _ended_early(result: KernelResult, channel: Channel, limit_s: float | None) -> TrialOutcome:
    if result.ending is Ending.STOPPED:
        if channel.stop_reason is StopReason.TIME_LIMIT:
            limit = "its limit" if limit_s is None else f"limits.trial ({limit_s:g} s)"
            return _failed(Reason.TIME_LIMIT, f"ran longer than {limit}")
        if channel.stop_reason is StopReason.PRUNED:
            return TrialOutcome(
                state=TrialState.PRUNED, reason=Reason.PRUNED, message=channel.message
            )
        if channel.stop_reason is StopReason.BY_HAND:
            return TrialOutcome(
                state=TrialState.STOPPED, reason=Reason.BY_HAND, message=channel.message
            )
        return TrialOutcome(
            state=TrialState.STOPPED, reason=Reason.INTERRUPTED, message="the sweep was stopped"
        )
    said = f"; it said: {result.stderr_tail}" if result.stderr_tail else ""
    if result.ending is Ending.NOT_STARTED:
        return _failed(Reason.KERNEL_START, f"the kernel did not start: {result.error}{said}")
    if result.ending is Ending.KERNEL_DIED:
        return _failed(Reason.KERNEL_DIED, f"the kernel died: {_death(result.exit_code)}{said}")
    return _failed(Reason.CELL_ERROR, result.error)


def _difference(before: TrialOutcome, after: TrialOutcome, objectives: list[str]) -> str:
    """How the objectives of two tries at a trial differ, in words; empty when they are equal."""
    if after.state is not TrialState.COMPLETED:
        return f"{after.state} after the shared cells: {after.message}"
    for name in objectives:
        one, other = before.scores[name], after.scores[name]
        if one.hex() != other.hex():
            return f"{name} {one!r}, and {other!r} after the shared cells"
        if repr(before.series.get(name)) != repr(after.series.get(name)):
            return f"another series of {name} after the shared cells"
    return ""


def _unseen() -> None:
    """Writes nothing."""


def _death(exit_code: int | None) -> str:
    if exit_code is None:
        return "exit code unknown"
    if exit_code == -9:
        return "killed by signal 9, often for want of memory"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _failed(reason: Reason, message: str) -> TrialOutcome:
    return TrialOutcome(state=TrialState.FAILED, reason=reason, message=message)


def _whose(path: Path) -> str | None:
    """The id of the study that wrote a file; empty when it is not a study's; None when free."""
    if not path.exists():
        return None
    return str((read_metadata(path) or {}).get("study_id", ""))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _own_time_s(channel: Channel) -> float:
    """A clock that stands still while the trial waits for a device."""
    return time.monotonic() - channel.waited_s


@contextmanager
def _closed_on_error(held: ExitStack) -> Iterator[None]:
    """Give back at once what would otherwise wait for the end of a kernel that never was."""
    try:
        yield
    except BaseException:
        held.close()
        raise
