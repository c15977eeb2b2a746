"""The notebook's end: `report`, `score`, `trial`, `should_stop`, `on_stop`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .display import Reporter
from .messages import (
    HANDLES_STOP,
    REPORTS_VARIABLE,
    STOP_VARIABLE,
    STOPPING,
    TRIAL_VARIABLE,
    Point,
    StopReason,
    send,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInfo:
    """The trial that this notebook runs as; a stand-in when it is run by hand.

    Attributes:
        number: the trial's number in its study, from 0.
        run_id: the same with four digits; `"by-hand"` outside a sweep.
        params: the swept parameters of this trial; empty by hand.
        seed: the trial's own seed, to give to `seed_everything` and `seeded_loader`.
        attempt: 1, and one more each time that the trial is run again after an interruption.
    """

    number: int
    run_id: str
    params: Mapping[str, Any]
    seed: int
    attempt: int
    folder: str

    @property
    def checkpoint_dir(self) -> Path:
        """A folder of this trial's own, for all its attempts; made when first asked for."""
        path = Path(self.folder)
        path.mkdir(parents=True, exist_ok=True)
        return path


class TrialPruned(Exception):
    """Raised by `report` in a trial that is not worth going on with; let it pass.

    `finally` blocks run; the trial is pruned, which is no failure.
    """


class TrialStopped(Exception):
    """Raised by `report` in a trial that is being stopped with its sweep; let it pass.

    `finally` blocks run, and callbacks given to `on_stop` have been called. The trial is run again
    by the next sweep.
    """


def trial() -> TrialInfo:
    """Which trial this notebook runs as.

    By hand: number 0, no params, seed 0, attempt 1, checkpoints in `./checkpoints/by-hand`.
    """
    told = os.environ.get(TRIAL_VARIABLE)
    if told is None:
        return TrialInfo(
            number=0,
            run_id="by-hand",
            params={},
            seed=0,
            attempt=1,
            folder=os.path.join("checkpoints", "by-hand"),
        )
    return TrialInfo(**json.loads(told))


def report(step: int, /, **metrics: Any) -> None:
    """Report one point of each series, while the notebook runs.

    Args:
        step: a whole number, usually the epoch; increasing.
        **metrics: anything that `float()` takes: numbers, numpy scalars, tensors of one element.
            NaN and infinities are passed on as they are.

    Raises:
        TypeError: the step is no whole number, or a metric is no number.
        TrialPruned: the sweep has decided that this trial is hopeless.
        TrialStopped: the sweep is being stopped, as when the machine is taken away.
    """
    whole = _floats("report", {"step": step})["step"]
    if not whole.is_integer() or whole != step:
        raise TypeError(f"report(step=…): expected a whole number, got {step!r}")
    _reporter.send(Point(step=int(whole), metrics=_floats("report", metrics)))
    asked = _asked_to_stop()
    if asked is None:
        return
    if asked["kind"] == StopReason.PRUNED:
        raise TrialPruned(asked["message"])
    _stopper.call()
    raise TrialStopped(asked["message"])


def should_stop() -> bool:
    """Whether the trial should save what it needs to go on later, and leave its training loop.

    True once the sweep is being stopped: by Ctrl-C, SIGTERM, a time limit of the sweep, or the
    machine's preemption notice. A trial that asks has the grace time (`limits.grace`) until it is
    interrupted; the cells after this one do not run. By hand always False.
    """
    _stopper.listen()
    asked = _asked_to_stop()
    if asked is None or asked["kind"] == StopReason.PRUNED:
        return False
    _stopper.obey()
    return True


def on_stop(callback: Callable[[], object]) -> None:
    """Have something done before the trial is stopped, such as to save a checkpoint.

    It is called by the next `report`, in its thread, where nothing is half done; then `report`
    raises `TrialStopped`. Until then the trial has the grace time, as with `should_stop`.
    By hand it is never called.
    """
    _stopper.add(callback)


def _asked_to_stop() -> dict[str, str] | None:
    """What the sweep asks for; None as long as the trial may go on."""
    stop_file = os.environ.get(STOP_VARIABLE)
    if stop_file is None or not Path(stop_file).exists():
        return None
    asked: dict[str, str] = json.loads(Path(stop_file).read_text(encoding="utf-8"))
    return asked


class _Stopper:
    """Tells the sweep that this notebook can end by itself."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], object]] = []
        self._told: set[str] = set()

    def add(self, callback: Callable[[], object]) -> None:
        self._callbacks.append(callback)
        self.listen()

    def listen(self) -> None:
        self._tell(HANDLES_STOP)

    def obey(self) -> None:
        self._tell(STOPPING)

    def call(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _tell(self, what: str) -> None:
        path = os.environ.get(REPORTS_VARIABLE)
        if path is not None and what not in self._told and send(path, json.dumps({what: True})):
            self._told.add(what)


def score(**metrics: Any) -> None:
    """State final values, where they are not simply the last ones reported.

    Raises:
        TypeError: a value is no number.
    """
    _reporter.send(Point(step=None, metrics=_floats("score", metrics)))


def _floats(call: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    floats = {}
    for name, value in metrics.items():
        try:
            floats[name] = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # the last one is torch's
            shown = repr(value) if len(repr(value)) <= 60 else f"a {type(value).__name__}"
            raise TypeError(f"{call}({name}=…): expected one number, got {shown}") from None
    return floats


_reporter = Reporter()
_stopper = _Stopper()
