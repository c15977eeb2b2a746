"""The most memory of a GPU that trials took, and what that lets expect of another trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..trials import Params

#: A trial is expected to take a tenth more than the trials before it let expect.
SPREAD = 1.1
#: Sizes explain the peaks where a line through them is nowhere off by more than 2 % of the largest.
_CLOSE = 0.02


class PeakMemory:
    """The peaks of trials that have ended. Not safe to use from several threads at once."""

    def __init__(self) -> None:
        self._taken: list[tuple[Params, int]] = []

    def __bool__(self) -> bool:
        """Whether any trial has ended."""
        return bool(self._taken)

    def add(self, params: Params, peak_bytes: int) -> None:
        """Learn what a trial took at most."""
        self._taken.append((params, peak_bytes))

    def expected_bytes(self, params: Params, running: Sequence[int] = ()) -> int | None:
        """What another trial may take; None where nothing is known.

        Where the sizes among the params (whole numbers, such as a batch or a width) explain the
        peaks, a line through them counts, else the largest trial so far; in both cases a tenth
        more.

        Args:
            running: the peaks of trials that have not ended and have shown theirs.
        """
        peaks = [*running, *(peak_bytes for _, peak_bytes in self._taken)]
        if not peaks:
            return None
        fitted = self._fitted_bytes(params)
        return round(SPREAD * (max(peaks) if fitted is None else max(fitted, min(peaks))))

    def _fitted_bytes(self, params: Params) -> float | None:
        """What a linear fit of the sizes says; None where it does not meet the peaks."""
        taken = self._taken
        named = {name for known, _ in taken for name, value in known.items() if _is_size(value)}
        names = sorted(n for n in named if len({repr(known.get(n)) for known, _ in taken}) > 1)
        if not names:
            return None
        import numpy as np  # a sweep without a GPU does without it

        rows = np.array([_row(known, names) for known, _ in taken])
        peaks = np.array([peak_bytes for _, peak_bytes in taken], dtype=float)
        coefficients, _, rank, _ = np.linalg.lstsq(rows, peaks, rcond=None)
        error = float(np.max(np.abs(peaks - rows @ coefficients)))
        is_met_by_any_line = rank <= len(names) or len(np.unique(rows, axis=0)) < len(names) + 2
        if is_met_by_any_line or error > _CLOSE * float(peaks.max()):
            return None
        return float(np.dot(_row(params, names), coefficients))


def _row(params: Mapping[str, object], names: Sequence[str]) -> list[float]:
    """A trial as numbers: 1, then each of its sizes; 0 for one that it does not have."""
    sizes = (params.get(name) for name in names)
    return [1.0, *(float(size) if isinstance(size, int) else 0.0 for size in sizes)]


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
