"""Define the calls of a notebook about its trial: `report`, `score`, `trial`, `should_stop`."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from .disks import insist
from .display import Reporter
from .messages import (
    HANDLES_STOP,
    RAISING,
    REPORTS_VARIABLE,
    STOP_VARIABLE,
    STOPPING,
    TRIAL_VARIABLE,
    Point,
    StopReason,
    send,
)


@dataclass(frozen=True)
class TrialInfo:
    """The trial that this notebook runs as, or default values for a notebook that is run by hand.

    Attributes:
        number: Trial number in the study, from 0.
        run_id: The number with four digits or more, as in `0007`. `"by-hand"` outside of a sweep.
        params: Swept parameters of this trial. Empty outside of a sweep.
        seed: Seed of the trial, for `seed_everything` and `seeded_loader`.
        attempt: Number of the attempt, from 1. It grows each time the trial is run again after an
            interruption.
        folder: Path of `checkpoint_dir`, as text.
        artifact_folder: Path of `artifact_dir`, as text.
    """

    number: int = 0
    run_id: str = "by-hand"
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    attempt: int = 1
    folder: str = os.path.join("checkpoints", "by-hand")
    artifact_folder: str = os.path.join("artifacts", "by-hand")

    @property
    def checkpoint_dir(self) -> Path:
        """Folder of the trial's checkpoints, the same in all attempts. It is made at first use.

        If this folder contains any file when an attempt begins, the attempt counts as resumed: the
        artifacts and scores of the earlier attempts are kept.
        """
        return _made(self.folder)

    @property
    def artifact_dir(self) -> Path:
        """Folder of the trial's artifacts, for libraries that write files there themselves.

        When the trial ends, each file and folder in it is an artifact, as if `save_artifact` had
        saved it. The folder is made at first use.
        """
        return _made(self.artifact_folder)


def _made(folder: str) -> Path:
    path = Path(folder)
    insist(lambda: path.mkdir(parents=True, exist_ok=True))
    return path


class TrialPruned(Exception):
    """Raised by `report` in a trial that the pruner ends early. Do not catch it.

    A function of a library raises it, too, if the values that it logs count as reports.

    `finally` blocks run. A pruned trial does not count as failed.
    """


class TrialStopped(Exception):
    """Raised by `report` in a trial that is stopped, alone or with its sweep. Do not catch it.

    A function of a library raises it, too, if the values that it logs count as reports.

    `finally` blocks run, and may save a checkpoint. If the trial was stopped with its sweep, the
    next sweep of the study runs it again. A trial that you stopped alone is not run again.
    """


_Call = TypeVar("_Call", bound=Callable[..., None])


def _says_what_is_missing(report: _Call) -> _Call:
    """Decorate `report`, so that the error of a call without a step shows how to write the call."""

    @functools.wraps(report)
    def with_step(*step: Any, **metrics: Any) -> None:
        if not step and "step" not in metrics:
            values = [f"{name}=…" for name in metrics]
            right = ", ".join(["step=…", *values])
            given = ", ".join(values)
            raise TypeError(
                f"report({given}): the step is missing; write sweeper.report({right}) with a whole "
                f"number that increases, or sweeper.score({given}) for a final value"
            )
        report(*step, **metrics)

    return cast("_Call", with_step)


def trial() -> TrialInfo:
    """Return the trial that this notebook runs as.

    In a notebook that is run by hand, return default values: number 0, no params, seed 0, attempt
    1, checkpoints in `./checkpoints/by-hand`, artifacts in `./artifacts/by-hand`.
    """
    return TrialInfo(**json.loads(os.environ.get(TRIAL_VARIABLE, "{}")))


@_says_what_is_missing
def report(step: int, **metrics: Any) -> None:
    """Report the values of one step while the notebook runs. Each metric becomes a series.

    Args:
        step: Integer that increases, usually the epoch.
        **metrics: Values that `float()` accepts: numbers, numpy scalars, tensors with one element.
            NaN and infinities are reported as they are.

    Raises:
        TypeError: The step is missing or not an integer, or a metric is not a number.
        TrialPruned: The pruner ends this trial early.
        TrialStopped: This trial or the sweep is being stopped, for example because its machine is
            reclaimed, and the notebook has not called `should_stop`.
    """
    whole = _floats("report", {"step": step})["step"]
    if not whole.is_integer() or whole != step:
        raise TypeError(f"report(step=…): expected a whole number, got {step!r}")
    _reporter.send(Point(step=int(whole), metrics=_floats("report", metrics)))
    _end_if_asked()


def observed(point: Point) -> None:
    """Send the sweep a point (values at one step) that a library has logged.

    In a notebook that is run by hand, do nothing.

    Raises:
        TrialPruned: The pruner ends the trial early.
        TrialStopped: The trial or its sweep is being stopped, and the notebook has not called
            `should_stop`.
    """
    path = os.environ.get(REPORTS_VARIABLE)
    if path is not None and send(path, point.encode()):
        _end_if_asked()


def _end_if_asked() -> None:
    """Raise an exception if the sweep has asked the trial to end.

    Raises:
        TrialPruned: The pruner ends the trial early.
        TrialStopped: The trial or its sweep is being stopped, and the notebook has not called
            `should_stop`.
    """
    request = _stop_request()
    if request is None:
        return
    is_pruned = request["kind"] == StopReason.PRUNED
    if HANDLES_STOP in _announced and not is_pruned:
        return  # The notebook will ask `should_stop`, and save its state before it ends.
    # This message makes the sweep wait for the notebook's `finally` blocks, before the sweep
    # interrupts the kernel.
    _announce(RAISING, is_new=True)
    raise (TrialPruned if is_pruned else TrialStopped)(request["message"])


def should_stop() -> bool:
    """Return whether the trial should save its state and leave its training loop.

    True when the sweep is being stopped by Ctrl-C, SIGTERM, or its time limit, or when a user stops
    this trial. A trial that calls this function is interrupted only after about half of the grace
    time (`limits.grace`), and its `report` raises no `TrialStopped`. When this function has
    returned True, no later cell runs. Always False in a trial that is pruned, and in a notebook
    that is run by hand.
    """
    _announce(HANDLES_STOP)
    request = _stop_request()
    if request is None or request["kind"] == StopReason.PRUNED:
        return False
    _announce(STOPPING)
    return True


def _stop_request() -> dict[str, str] | None:
    """Read the sweep's request that this trial should stop.

    Returns:
        `kind`, a value of `StopReason`, and `message`, the reason for people. None if the trial may
        continue.
    """
    stop_file = os.environ.get(STOP_VARIABLE)
    if stop_file is None or not Path(stop_file).exists():
        return None
    request: dict[str, str] = json.loads(Path(stop_file).read_text(encoding="utf-8"))
    return request


def _announce(fact: str, *, is_new: bool = False) -> None:
    """Tell the sweep a fact about this notebook, if the notebook runs in a sweep.

    Args:
        fact: Key of the message, such as `STOPPING`.
        is_new: Whether to send the message even if this process has already sent it.
    """
    path = os.environ.get(REPORTS_VARIABLE)
    if path is None or (fact in _announced and not is_new):
        return
    if send(path, {fact: True}):
        _announced.add(fact)


def score(**metrics: Any) -> None:
    """State final values of scores. They count instead of reported values of the same names.

    A metric that is only reported needs no call: its final value is computed from its reports.

    Args:
        **metrics: Final values by name. `float()` must accept each value.

    Raises:
        TypeError: A value is not a number.
    """
    _reporter.send(Point(step=None, metrics=_floats("score", metrics)))


def _floats(call: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    floats = {}
    for name, value in metrics.items():
        try:
            floats[name] = float(value)
        # torch raises a RuntimeError for a tensor with several values.
        except (TypeError, ValueError, OverflowError, RuntimeError):
            text = repr(value) if len(repr(value)) <= 60 else f"a {type(value).__name__}"
            raise TypeError(f"{call}({name}=…): expected one number, got {text}") from None
    return floats


_reporter = Reporter()
#: Keys of the messages, such as `STOPPING`, that this process has already sent to the sweep.
_announced: set[str] = set()
