"""Cores of a trial's own: no other trial of the machine that has such cores runs on them."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...settings.machines import Resources
from ...trials import RunningTrial
from .capacity import usable_cores
from .ledger import Claim, HeldClaim, Ledger, StoppedWaiting, Turn, closed_for

_log = logging.getLogger(__name__)

#: How long a trial waits before other sweeps of the machine let it go first.
_PATIENCE_S = 60.0
#: How often to look at the cores that other sweeps have.
_LOOK_S = 0.2
#: What a trial that has long waited for cores claims, so that others let it go first.
_ANY_CORE = "cores"


class CoreSets:
    """Gives each trial cores of its own, and lets it wait where too few are free.

    Safe to use from several threads.

    Args:
        per_trial: how many cores each trial gets.
        cores: the numbers of those to choose from, neighbours beside each other.
        ledger: the claims of all sweeps of the machine.
        patience_s: how long a trial waits before other sweeps of the machine let it go first.
    """

    def __init__(
        self,
        per_trial: int,
        cores: Sequence[int],
        *,
        ledger: Ledger | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._per_trial = per_trial
        self._cores = list(cores)
        self._ledger = ledger or Ledger()
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._has_warned = False

    @classmethod
    def find(cls, resources: Resources, *, workers: int, jobs: int = 1) -> CoreSets | None:
        """The cores that the trials of a parameters file get; None where they share all.

        Args:
            workers: of a trial's DataLoaders.
            jobs: trials at once; a warning says how many of them have to wait.
        """
        if resources.pin_cpus == "off":
            return None
        per_trial = resources.threads + workers
        if why := why_not(per_trial):
            _log.warning("resources.pin_cpus: auto: trials share all cores: %s", why)
            return None
        cores = neighbouring_cores()
        if jobs * per_trial > len(cores):
            _log.warning(
                "resources.pin_cpus: auto: %d cores carry %d trials with %d of their own; the "
                "others of -j %d wait",
                len(cores),
                len(cores) // per_trial,
                per_trial,
                jobs,
            )
        return cls(per_trial, cores)

    @property
    def per_trial(self) -> int:
        """How many cores each trial gets."""
        return self._per_trial

    @contextmanager
    def lease(self, running: RunningTrial) -> Iterator[Sequence[int]]:
        """The cores of a trial until the end of the block.

        Args:
            running: a stop of it ends the wait, which does not count as the trial's own time.

        Yields:
            their numbers; none where the claims of this machine cannot be read or written.

        Raises:
            StoppedWaiting: the trial was stopped while it had to wait.
        """
        try:
            held = self._wait(running)
        except OSError as error:
            if not self._has_warned:
                _log.warning("trials are not pinned to cores: %s", error)
            self._has_warned, held = True, {}
        try:
            yield sorted(held)
        finally:
            with self._changed:
                for claim in held.values():
                    claim.release()
                self._changed.notify_all()

    def _wait(self, running: RunningTrial) -> dict[int, HeldClaim]:
        since_s, turn = time.monotonic(), Turn(self._patience_s)
        running.on_stop(self._wake)
        try:
            with running.waiting(), self._changed:
                while not (held := self._take(turn, since_s)):
                    if running.stop_reason is not None:
                        raise StoppedWaiting
                    self._changed.wait(_LOOK_S)
                return held
        finally:
            turn.end()
            running.on_stop(None)

    def _take(self, turn: Turn, since_s: float) -> dict[int, HeldClaim]:
        """Claim as many cores as a trial gets; none where too few are free."""
        with self._ledger.gate():
            claims = self._ledger.claims()
            taken = {claim.device for claim in claims}
            free = [core for core in self._cores if _device(core) not in taken]
            if len(free) < self._per_trial or _ANY_CORE in closed_for(since_s, claims):
                turn.ask(self._ledger, _ANY_CORE, since_s=since_s)
                return {}
            with contextlib.ExitStack() as undo:
                held = {}
                for core in free[: self._per_trial]:
                    held[core] = self._ledger.add(Claim(device=_device(core)))
                    undo.callback(held[core].release)
                undo.pop_all()
                return held

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def why_not(per_trial: int) -> str:
    """Why trials cannot have cores of their own here; empty if they can."""
    if not hasattr(os, "sched_setaffinity"):
        return f"{sys.platform} does not let a process choose its cores"
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(0))
    except OSError as error:
        return f"this system does not let a process choose its cores ({error.strerror})"
    n_cores, n_usable = len(os.sched_getaffinity(0)), usable_cores()
    if n_usable < n_cores:
        return (
            f"a quota allows this container the time of {n_usable} of {n_cores} cores, but none of "
            "its own; give it cores with --cpuset-cpus"
        )
    if per_trial > n_cores:
        return f"a trial needs {per_trial} cores, and there are {n_cores}"
    return ""


def neighbouring_cores(root: Path = Path("/")) -> list[int]:
    """The cores that this process may run on; those of one chip, and of one core of it, together.

    Args:
        root: of the file system that describes the cores.
    """
    return sorted(os.sched_getaffinity(0), key=lambda core: (*_place(core, root), core))


def _place(core: int, root: Path) -> tuple[int, int]:
    folder = root / f"sys/devices/system/cpu/cpu{core}/topology"
    try:
        chip = int((folder / "physical_package_id").read_text())
        return chip, int((folder / "core_id").read_text())
    except (OSError, ValueError):
        return 0, core


def _device(core: int) -> str:
    return f"core {core}"
