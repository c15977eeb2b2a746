"""Whether fewer trials at once on a GPU would get more done, from how fast each one steps."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ....trials import RunningTrial

#: How many times as much n - 1 trials have to get done as n before n - 1 run, and still fewer ones.
#: These need less, because the number half way runs then: where each further trial adds less than
#: the one before it, that number gets at least as much done as the mean of the two compared.
_GAIN, _GAIN_OF_SEVERAL = 1.08, 1.05
#: A trial that steps no slower than this in company does not suffer from it.
_UNHINDERED = 0.9
#: How many steps a measurement takes, and how many measurements a decision.
_STEPS, _EVIDENCE = 5, 2
#: A trial that alone keeps the GPU busy for so much of the time may suffer from company.
_BUSY = 0.5
#: For how many windows a sweep begins with two trials at most, to see how fast those step.
_PAIR_WINDOWS = 3
#: How busy the first trial keeps the GPU is the mean of so many of the latest readings at most.
_MOST_READINGS = 10
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
        """Count its steps as made with so many trials on the GPU; with 0, they are not counted."""
        if n_trials != self.n_trials:
            if self.n_trials in self.stretches:
                self.stretches[self.n_trials].close()
            self.n_trials, self.steps_before = n_trials, self.running.steps
        # A step within which the number changed counts nowhere.
        if n_trials and self.running.steps > self.steps_before:
            self.stretches.setdefault(n_trials, _Stretch()).note(self.running)

    @property
    def to_first_step_s(self) -> float:
        """How long it took to its first step, if it was alone then."""
        alone = self.stretches.get(1, _Stretch()).first
        return 0.0 if alone is None else alone[0] - self.began_s

    def rate(self, n_trials: int, *, least_s: float, least_steps: int = _STEPS) -> float | None:
        """Steps per second with so many trials on the GPU; None if that is not known well."""
        steps, time_s = self.stretches.get(n_trials, _Stretch()).total
        return steps / time_s if steps >= least_steps and time_s >= least_s else None

    def gain(self, fewer: int, more: int, *, least_s: float) -> float | None:
        """How many times as much `fewer` trials get done as `more`, by this one's own steps.

        None where it has not been watched for long enough as both.
        """
        as_fewer, as_more = (self.rate(n, least_s=least_s) for n in (fewer, more))
        return None if as_fewer is None or as_more is None else fewer * as_fewer / (more * as_more)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """A GPU kept at one trial fewer than it had, to see how much faster those step."""

    n_trials: int
    until_s: float


class _Opening:
    """The beginning of a sweep: whether its first two trials are watched before others join them.

    They are where the first one keeps the GPU busy, so that little is lost meanwhile, and steps
    fast enough for a measurement.

    Attributes:
        pair_until_s: for how long at most; None where others join at once.
    """

    def __init__(self, window_s: float) -> None:
        self._most_s = _PAIR_WINDOWS * window_s
        self._busy_shares: deque[float] = deque(maxlen=_MOST_READINGS)
        self.pair_until_s: float | None = None

    def look(self, first: _Trial, now_s: float, busy_share: float | None) -> None:
        """Look at the first trial, as long as it is alone."""
        rate = first.rate(1, least_s=0.0, least_steps=1)
        if rate is None or busy_share is None:
            return
        self._busy_shares.append(busy_share)
        is_busy = statistics.fmean(self._busy_shares) >= _BUSY
        if is_busy and _STEPS / rate <= self._most_s:
            self.pair_until_s = now_s + first.to_first_step_s + self._most_s
        else:
            self.pair_until_s = None

    def is_over(self, n_trials: int, now_s: float) -> bool:
        """Whether two are not watched any more, or never are."""
        if n_trials < 2:
            return False
        return n_trials > 2 or self.pair_until_s is None or now_s > self.pair_until_s


class Pace:
    """Finds how many trials at once get most done on one GPU, by comparing each with itself.

    The first trial of a sweep is alone for a while. If it keeps the GPU busy, a second one joins
    it, and others wait until these two have shown how fast they step: two are the fewest that share
    a GPU, so that any number of trials can be compared with them from then on. When a trial ends
    that was one of n, the next one may have to wait until the others have shown how fast they step
    as n - 1; then it joins them. Where fewer get clearly more done, no more run at once from then
    on. Trials that do not slow each other down are never held back, nor are trials without steps,
    or such as are short for this.

    Args:
        window_s: how long a trial has to be watched in the same company.
    """

    def __init__(self, *, window_s: float) -> None:
        self._window_s = window_s
        self._trials: dict[RunningTrial, _Trial] = {}
        #: How much more the first number of trials got done than the second: a figure for each
        #: trial that shows it.
        self._gains: dict[tuple[int, int], list[float]] = {}
        self._refuted: set[int] = set()
        self._limit: int | None = None
        self._opening: _Opening | None = _Opening(window_s)
        self._probe: _Probe | None = None
        self._n_ended = 0
        #: What users should know; empty where nothing is held back.
        self.finding = ""

    def look(
        self, running: Sequence[RunningTrial], now_s: float, *, busy_share: float | None = None
    ) -> None:
        """Count the steps of all trials that are on the GPU at `now_s`, on the monotonic clock.

        Args:
            busy_share: of the time since the last call, in which the GPU worked; None if unknown.
        """
        for one in running:
            # Company that has not made a step yet may not use the GPU yet.
            is_complete = all(other.steps for other in running if other is not one)
            trial = self._trials.setdefault(one, _Trial(one, now_s))
            trial.look(len(running) if is_complete else 0)
        if self._opening is not None:
            if len(running) == 1:
                self._opening.look(self._trials[running[0]], now_s, busy_share)
            elif self._opening.is_over(len(running), now_s) or self._has_measured(2):
                self._opening = None
        probe = self._probe
        self._judge(len(running) if probe is None else probe.n_trials)
        if probe is not None and (now_s > probe.until_s or self._has_measured(probe.n_trials - 1)):
            self._probe = None

    def ended(self, running: RunningTrial, n_trials: int, now_s: float) -> None:
        """A trial has left the GPU, on which there were `n_trials` with it."""
        trial = self._trials.pop(running, None)
        self._opening = None
        self._n_ended += 1
        if self._n_ended > _TRIALS_UNTIL_ANEW:
            self._gains, self._refuted, self._limit, self._n_ended = {}, set(), None, 0
        if trial is None:
            return
        for several in (n_trials, n_trials + 1):  # while a slot was kept empty, it was one of fewer
            for fewer, gain in self._gains_over(trial, several):
                self._gains.setdefault((fewer, several), []).append(gain)
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
        if self._opening is not None and self._opening.pair_until_s is not None:
            limits.append(2)
        if self._probe is not None:
            limits.append(self._probe.n_trials - 1)
        return min(limits, default=math.inf)

    def _has_measured(self, n_trials: int) -> bool:
        """Whether all trials on the GPU have been watched as so many."""
        rates = [t.rate(n_trials, least_s=self._window_s) for t in self._trials.values()]
        return len(rates) >= n_trials and None not in rates

    def _judge(self, n_trials: int) -> None:
        """Compare what trials did as n with what they did as fewer, once for each trial."""
        is_over = self._limit is not None and n_trials > self._limit
        if n_trials < 2 or is_over or n_trials in self._refuted:
            return
        if any(self._is_unhindered(trial, n_trials) for trial in self._trials.values()):
            # A trial that so many others do not slow down is not slowed down by fewer.
            self._refuted.update(range(2, n_trials + 1))
            return
        now: dict[int, list[float]] = {}
        for trial in self._trials.values():
            for fewer, gain in self._gains_over(trial, n_trials):
                now.setdefault(fewer, []).append(gain)
        for fewer, gains in sorted(now.items(), reverse=True):
            known = [*self._gains.get((fewer, n_trials), []), *gains]
            if len(known) < _EVIDENCE:
                continue
            gain = statistics.fmean(known)
            least = _GAIN if fewer == n_trials - 1 else _GAIN_OF_SEVERAL
            if gain >= least and min(known) > 1.0:
                self._hold_back(fewer, n_trials, gain)
                return
            if fewer == n_trials - 1:
                self._refuted.add(n_trials)
                return

    def _hold_back(self, fewer: int, n_trials: int, gain: float) -> None:
        """Lower the limit, because so many fewer trials got `gain` times as much done as n."""
        self._limit = (fewer + n_trials) // 2
        self.finding = (
            f"at most {self._limit} trials share a GPU: {n_trials} at once got "
            f"{1 - 1 / gain:.0%} less done than {fewer}, although their memory fits "
            f"(-j {n_trials} has them run all the same)"
        )

    def _gains_over(self, trial: _Trial, n_trials: int) -> Iterator[tuple[int, float]]:
        """The gain over n trials of every smaller number in which this trial has been watched."""
        for fewer in trial.stretches:
            if fewer < n_trials:
                gain = trial.gain(fewer, n_trials, least_s=self._window_s)
                if gain is not None:
                    yield fewer, gain

    def _is_unhindered(self, trial: _Trial, n_trials: int) -> bool:
        """Whether a trial that was alone on the GPU for a while is as fast in company."""
        alone = trial.rate(1, least_s=0.0)
        now = trial.rate(n_trials, least_s=self._window_s)
        return alone is not None and now is not None and now > _UNHINDERED * alone
