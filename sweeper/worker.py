"""Run one try at one trial, from a spec to an outcome; a failure is an outcome too."""

from __future__ import annotations

import datetime
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from . import kernels
from .devices import Devices
from .kernels import Ending, KernelPool, KernelResult
from .notebook import ExecutedNotebook, ResearchNotebook, read_metadata
from .reporting import TRIAL_VARIABLE, Channel, Point, StopReason, encode_float
from .scraping import scrape, variables_to_read
from .settings import Settings
from .trials import Reason, TrialOutcome, TrialSpec, TrialState, Value

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Everything that all trials of a sweep have in common on the machine that runs them.

    Attributes:
        has_more: whether another trial will follow on this one's slot, as far as is known.
    """

    notebook: ResearchNotebook
    settings: Settings
    devices: Devices
    pool: KernelPool
    has_more: Callable[[], bool]

    def run_trial(self, spec: TrialSpec, channel: Channel) -> TrialOutcome:
        """Run one trial to its end, whatever that is. Raises nothing."""
        started = time.monotonic()
        try:
            outcome = self._run(spec, channel)
        except OSError as error:
            outcome = _failed(Reason.FILE, f"{spec.notebook}: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001  a defect of ours must cost one trial, not the sweep
            _log.exception("trial %s", spec.run_id)
            outcome = _failed(Reason.INTERNAL, f"{type(error).__name__}: {error}")
        return replace(outcome, duration_s=time.monotonic() - started)

    def _run(self, spec: TrialSpec, channel: Channel) -> TrialOutcome:
        if (there := _whose(spec.notebook)) not in (None, spec.study_id):
            message = f"{spec.notebook} appeared meanwhile and was not written by this study"
            return _failed(Reason.FILE, message)
        started = time.monotonic()
        file = self._prepare(spec, attempt_of=there)
        # The device is free again when the kernel has really gone, after the slot has moved on.
        held = ExitStack()
        lease = held.enter_context(self.devices.lease())

        def on_point(point: Point) -> None:
            file.record(point)
            channel.publish(point)

        with _time_limit(self.settings.limits.trial, channel), _closed_on_error(held):
            result = kernels.execute(
                file.node,
                pool=self.pool,
                more_to_come=self.has_more(),
                env={**self._env(spec), **lease.env},
                on_gone=held.close,
                write=file.write,
                channel=channel,
                on_point=on_point,
                variables=variables_to_read(self.settings.scores, self.settings.objective),
                cell_output_bytes=self.settings.limits.cell_output,
            )
        file.metadata["variables"] = {k: encode_float(v) for k, v in result.variables.items()}
        file.metadata["kernel"] = "warm" if result.is_warm else "cold"
        if result.exit_code is not None:
            file.metadata["exit_code"] = result.exit_code
        outcome = self._judge(file, result, channel)
        file.finish(replace(outcome, duration_s=time.monotonic() - started))
        file.write()
        return outcome

    def _prepare(self, spec: TrialSpec, *, attempt_of: str | None) -> ExecutedNotebook:
        if attempt_of is not None and spec.attempt > 1:
            kept = spec.notebook.with_suffix(f".attempt{spec.attempt - 1}.ipynb")
            os.replace(spec.notebook, kept)
        given: dict[str, Value] = {"seed": spec.seed, "run_id": spec.run_id}
        wanted = {name: value for name, value in given.items() if self.notebook.assigns(name)}
        node = kernels.inject(
            self.notebook.fresh_copy(),
            {**wanted, **spec.fixed, **spec.params},
            kernel_name=self.pool.name,
            language=kernels.language_of(self.pool.name),
        )
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        return ExecutedNotebook(node, spec, started_at=now)

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
            return _failed(Reason.TIME_LIMIT, f"ran longer than limits.trial ({limit_s:g} s)")
        if channel.stop_reason is StopReason.PRUNED:
            return TrialOutcome(
                state=TrialState.PRUNED, reason=Reason.PRUNED, message=channel.message
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


@contextmanager
def _closed_on_error(held: ExitStack) -> Iterator[None]:
    """Give back at once what would otherwise wait for the end of a kernel that never was."""
    try:
        yield
    except BaseException:
        held.close()
        raise


@contextmanager
def _time_limit(limit_s: float | None, channel: Channel) -> Iterator[None]:
    if limit_s is None:
        yield
        return
    timer = threading.Timer(limit_s, channel.stop, args=[StopReason.TIME_LIMIT])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
