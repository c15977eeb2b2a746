"""Whether fewer trials at once on a GPU would get more done, from how fast each one steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....trials import RunningTrial

#: By how much more fewer trials have to get done before they are preferred.
_GAIN = 1.08
#: A trial that steps no slower than this in company does not suffer from it.
_UNHINDERED = 0.9
#: How many steps a measurement takes, and how many measurements a decision.
_STEPS, _EVIDENCE = 5, 2
#: How much of a trial's time a probe may take at most.
_PROBE_SHARE = 0.1
#: After so many trials the question is asked anew: their mix may have changed.
_TRIALS_UNTIL_ANEW = 100


@dataclass(slots=True)
class _Stretch:
    """Steps of a trial with the same number of trials on its GPU.

    Attributes:
        steps: made in earlier stretches of this kind, in `time_s` seconds.
        first: when the first step of this one ended, and how many there had been; None before.
    """

    steps: int = 0
    time_s: float = 0.0
    first: tuple[float, int] | None = None
    last: tuple[float, int] = (0.0, 0)

    def note(self, running: RunningTrial) -> None:
        at = (running.stepped_at_s, running.steps)
        if self.first is None:
            self.first = self.last = at
        elif at[1] > self.last[1]:
            self.last = at

    def close(self) -> None:
        self.steps, self.time_s, self.first = *self.total, None

    @property
    def total(self) -> tuple[int, float]:
        if self.first is None:
            return self.steps, self.time_s
        return (
            self.steps + self.last[1] - self.first[1],
            self.time_s + self.last[0] - self.first[0],
        )


@dataclass(slots=True)
class _Trial:
    """A trial on the GPU, with its steps by the number of trials there.

    Attributes:
        steps_before: how many steps it had made when that number changed.
    """

    running: RunningTrial
    began_s: float
    n_trials: int = 0
    steps_before: int = 0
    stretches: dict[int, _Stretch] = field(default_factory=dict)

    def look(self, n_trials: int) -> None:
        """Count its steps to those with so many trials on the GPU."""
        if n_trials != self.n_trials:
            if self.n_trials in self.stretches:
                self.stretches[self.n_trials].close()
            self.n_trials, self.steps_before = n_trials, self.running.steps
        if self.running.steps > self.steps_before:  # a step within which it changed counts nowhere
            self.stretches.setdefault(n_trials, _Stretch()).note(self.running)

    def rate(self, n_trials: int, *, least_s: float) -> float | None:
        """Steps per second with so many trials on the GPU; None if that is not known well."""
        steps, time_s = self.stretches.get(n_trials, _Stretch()).total
        return steps / time_s if steps >= _STEPS and time_s >= least_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """A GPU kept at one trial fewer than it had, to see how much faster those step."""

    n_trials: int
    until_s: float


class Pace:
    """Finds how many trials at once get most done on one GPU, by comparing each with itself.

    When a trial ends that was one of n, the next one may have to wait until the others have shown
    how fast they step as n - 1; then it joins them. Where fewer get clearly more done, no more run
    at once from then on. Trials that do not slow each other down are never held back, nor are
    trials without steps, or such as are short for this.

    Args:
        window_s: how long a trial has to be watched in the same company.
    """

    def __init__(self, *, window_s: float) -> None:
        self._window_s = window_s
        self._trials: dict[RunningTrial, _Trial] = {}
        #: How much more n - 1 trials got done than n, by n: a figure for each trial that shows it.
        self._gains: dict[int, list[float]] = {}
        self._refuted: set[int] = set()
        self._limit: int | None = None
        self._probe: _Probe | None = None
        self._n_ended = 0
        #: What users should know; empty where nothing is held back.
        self.finding = ""

    def look(self, running: Sequence[RunningTrial], now_s: float) -> None:
        """Count the steps of all trials that are on the GPU at `now_s`, on the monotonic clock."""
        for one in running:
            self._trials.setdefault(one, _Trial(one, now_s)).look(len(running))
        probe = self._probe
        self._judge(len(running) if probe is None else probe.n_trials)
        if probe is not None and (now_s > probe.until_s or self._has_measured(probe.n_trials - 1)):
            self._probe = None

    def ended(self, running: RunningTrial, n_trials: int, now_s: float) -> None:
        """A trial has left the GPU, on which there were `n_trials` with it."""
        trial = self._trials.pop(running, None)
        self._n_ended += 1
        if self._n_ended > _TRIALS_UNTIL_ANEW:
            self._gains, self._refuted, self._limit, self._n_ended = {}, set(), None, 0
        if trial is None:
            return
        for several in (n_trials, n_trials + 1):  # while a slot was kept empty, it was one of fewer
            gain = self._gain(trial, several) if several > 1 else None
            if gain is not None:
                self._gains.setdefault(several, []).append(gain)
        if n_trials < 2 or n_trials in self._refuted:
            return
        allowed_s = _PROBE_SHARE * (now_s - trial.began_s)
        rate = trial.rate(n_trials, least_s=self._window_s)
        if rate is not None and max(self._window_s, _STEPS / rate) <= allowed_s:
            self._probe = self._probe or _Probe(n_trials=n_trials, until_s=now_s + 2 * allowed_s)

    @property
    def limit(self) -> float:
        """How many trials may be on the GPU now; infinite where memory alone decides."""
        limits = [self._limit] if self._limit is not None else []
        if self._probe is not None:
            limits.append(self._probe.n_trials - 1)
        return min(limits, default=math.inf)

    def _has_measured(self, n_trials: int) -> bool:
        """Whether all trials on the GPU have been watched as so many."""
        rates = [t.rate(n_trials, least_s=self._window_s) for t in self._trials.values()]
        return len(rates) >= n_trials and None not in rates

    def _judge(self, n_trials: int) -> None:
        """Compare what trials did as n with what they did as n - 1, once for each trial."""
        if n_trials < 2 or n_trials in self._refuted:
            return
        if any(self._is_unhindered(trial, n_trials) for trial in self._trials.values()):
            # A trial that so many others do not slow down is not slowed down by fewer.
            self._refuted.update(range(2, n_trials + 1))
            return
        gains = [g for t in self._trials.values() if (g := self._gain(t, n_trials)) is not None]
        known = [*self._gains.get(n_trials, []), *gains]
        if len(known) < _EVIDENCE or not gains:
            return
        gain = statistics.fmean(known)
        if gain >= _GAIN and min(known) > 1.0:
            self._limit = n_trials - 1
            self.finding = (
                f"at most {n_trials - 1} trials share a GPU: {n_trials} at once got "
                f"{1 - 1 / gain:.0%} less done, although their memory fits (-j {n_trials} has them "
                "run all the same)"
            )
        else:
            self._refuted.add(n_trials)

    def _is_unhindered(self, trial: _Trial, n_trials: int) -> bool:
        """Whether a trial that was alone on the GPU for a while is as fast in company."""
        alone = trial.rate(1, least_s=0.0)
        now = trial.rate(n_trials, least_s=self._window_s)
        return alone is not None and now is not None and now > _UNHINDERED * alone

    def _gain(self, trial: _Trial, n_trials: int) -> float | None:
        fewer = trial.rate(n_trials - 1, least_s=self._window_s)
        more = trial.rate(n_trials, least_s=self._window_s)
        return None if fewer is None or more is None else (n_trials - 1) * fewer / (n_trials * more)
