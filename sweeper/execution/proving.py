"""Run the reference trial again in forked kernels, before other trials may have one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..kernels import KernelOrigin, KernelPool, Reference, Run, Verdict, judge
from ..kernels.forking.origins import SWITCH_OFF
from ..trials import RunningTrial

_log = logging.getLogger(__name__)

#: A slot that waits for a forked kernel looks this often.
_POLL_S = 0.02
_FORKED = KernelOrigin(is_forked=True)
_STARTED = KernelOrigin(reason="a second run in a started kernel")

#: Runs a reference trial once more: what it came to; why it failed; None where that shows nothing.
Repeat = Callable[[Reference, RunningTrial, KernelOrigin], Run | str | None]


def prove_forking(
    pool: KernelPool, running: RunningTrial, repeat: Repeat, *, trials_waiting: int
) -> None:
    """Prove that kernels may be forked, where that is due before the next trial, or wait for it.

    Args:
        running: the trial that the caller runs next; a stop of it ends the proof.
        trials_waiting: how many others wait for their places.
    """
    while running.stop_reason is None and pool.waits:
        running.waits_for = "the imports and the proof of forked kernels"
        time.sleep(_POLL_S)
    running.waits_for = ""
    trials_left = running.trials_left + 1 + trials_waiting
    reference = pool.policy.claim(pool.fork_server.available, trials_left=trials_left)
    if reference is None:
        return
    verdict, started_s = None, time.monotonic()
    try:
        verdict = _prove(reference, running, repeat)
    except Exception as error:  # noqa: BLE001  what only saves time must not fail a trial
        _log.exception("proof of forked kernels")
        verdict = Verdict(proof=None, finding=f"{type(error).__name__}: {error}")
    finally:
        pool.policy.settle(verdict)
    _log.info("proof: trial %s, %.2f s", reference.spec.run_id, time.monotonic() - started_s)


def _prove(reference: Reference, running: RunningTrial, repeat: Repeat) -> Verdict | None:
    """Run the trial in two forked kernels, and in a started one where they differ."""
    forked: list[Run] = []
    while len(forked) < 2 and not any(map(reference.run.difference, forked)):
        run = repeat(reference, running, _FORKED)
        if isinstance(run, str):
            found = f"trial {reference.spec.run_id}, run again in a forked kernel, failed there: "
            return Verdict(proof=None, finding=f"{found}{run}; {SWITCH_OFF}")
        if run is None:
            return None
        forked.append(run)
    again = None
    if any(map(reference.run.difference, forked)):
        again = repeat(reference, running, _STARTED)
        if again is None:
            return None
    return judge(reference, forked, again)
