"""The most memory of a GPU that trials took, and what that lets expect of another trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from ...trials import Params

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: What is added to what trials with the same params took, and to what others let expect.
SAME, OTHER = 1.02, 1.1
#: A fit that is no further from any trial predicts as well as trials with the same params do; what
#: is added is then so many times its largest error, and at least so much.
_CLOSE, _ERRORS, _LEAST = 0.01, 2.0, 0.005
#: By how much more memory a trial may take where a param that is no number has another value.
_CATEGORY = 1.5
#: How many trials a fit takes for each number that it finds, where it does not meet all of them.
_TRIALS_PER_COEFFICIENT = 2
#: How many rows a table of trials has room for at first; it doubles when it is full.
_ROOM = 64

#: The params of a trial, and the most memory that it took.
Taken = tuple[Params, int]


class Taking(NamedTuple):
    """A trial that runs.

    Attributes:
        n_bytes: the most memory that it should take, from what it was seen to take.
        may_grow: the part of that by which it may still grow.
    """

    params: Params
    n_bytes: float
    may_grow: float = 0.0

    @property
    def grown_bytes(self) -> float:
        """The most memory that it may take."""
        return (1 + self.may_grow) * self.n_bytes


class TakenMemory:
    """What trials took at most; a prediction from thousands of them takes milliseconds.

    Not safe to use from several threads at once.

    Args:
        taken: of trials that are known at first.
    """

    def __init__(self, taken: Sequence[Taken] = ()) -> None:
        self._taken: list[Taken] = []
        #: The most that trials with the same params took.
        self._same: dict[str, int] = {}
        self._names: set[tuple[str, ...]] = set()
        #: Those of numbers with fractions, which are learning rates and the like.
        self._fractions: set[tuple[str, ...]] = set()
        self._tables: dict[bool, _Table] = {}
        #: What the trials let expect of others, and from how many of them that was found.
        self._fit: tuple[int, _Fit | None] = 0, None
        #: The most that any of the trials took, in bytes; 0 where there is none.
        self.most_bytes = 0
        for params, n_bytes in taken:
            self.add(params, n_bytes)

    def __len__(self) -> int:
        """How many trials are known."""
        return len(self._taken)

    def add(self, params: Params, n_bytes: int) -> None:
        """Learn what a trial took at most."""
        self._taken.append((params, n_bytes))
        key = _key(params)
        self._same[key] = max(self._same.get(key, 0), n_bytes)
        self._names.update(_names(params))
        self._fractions.update((name,) for name, it in params.items() if isinstance(it, float))
        self.most_bytes = max(self.most_bytes, n_bytes)

    def expected_bytes(self, params: Params, running: Sequence[Taking] = ()) -> int | None:
        """The most memory that a trial should take; None where nothing is known.

        Args:
            params: of the trial.
            running: trials that count as long as too few have ended for a fit.
        """
        fit = self._fitted()
        same = self._same.get(_key(params))
        if same is not None:
            return round(min(SAME, SAME if fit is None else fit.factor) * same)
        fitted = None if fit is None else fit.expected_bytes(params)
        if fitted is not None:
            return round(fitted)
        known = [*(Taking(*taken) for taken in self._taken), *running]
        if not known:
            return None
        of_same = [one.grown_bytes for one in running if one.params == params]
        if of_same:
            return round(SAME * max(of_same))
        grown = OTHER * min(
            *(one.grown_bytes * _growth(one.params, params) for one in known),
            *_below(params, known),
            math.inf,
        )
        so_far = [(one.params, round(one.n_bytes)) for one in known]
        if running and (fit := TakenMemory(so_far)._fitted()) is not None:
            may_grow = max(one.may_grow for one in running)
            fitted = fit.expected_bytes(params, least=SAME * (1 + may_grow))
        return round(grown if fitted is None else min(grown, fitted))

    def _fitted(self) -> _Fit | None:
        """What the trials let expect of others; None for too few of them.

        Three trials are enough for a line that meets them, if fractions move no memory.
        """
        n_trials, fit = self._fit
        if n_trials != len(self._taken):
            fit = self._fitted_by(self._names - self._fractions, meets_all=True)
            if fit is None:
                fit = self._fitted_by(self._names, meets_all=False)
            self._fit = len(self._taken), fit
        return fit

    def _fitted_by(self, names: Set[tuple[str, ...]], *, meets_all: bool) -> _Fit | None:
        """A linear fit of some columns; None for too few trials.

        Args:
            meets_all: whether it has to be close to all trials, of which there may then be fewer:
                one more than the numbers that it finds, no two with the same columns. Without any
                column, three trials that take the same are enough.
        """
        n_coefficients, n_trials = len(names) + 1, len(self._taken)
        is_of_few = n_trials < _TRIALS_PER_COEFFICIENT * n_coefficients
        if n_trials <= n_coefficients or (is_of_few and not meets_all):
            return None
        import numpy as np  # a sweep without a GPU does without it

        columns = sorted(names)
        table = self._tables.get(meets_all)
        if table is None or table.names != columns:
            table = self._tables[meets_all] = _Table(columns)
        rows, peaks = table.filled(self._taken)
        coefficients, _, rank, _ = np.linalg.lstsq(rows, peaks, rcond=None)
        errors = peaks - rows @ coefficients
        error = float(np.max(np.abs(errors))) / max(float(np.min(peaks)), 1.0)
        if meets_all and (error > _CLOSE or rank < n_coefficients):
            return None  # also where sizes have only changed together
        n_distinct = len(np.unique(rows, axis=0)) if columns else n_trials - 1
        if meets_all and n_distinct <= n_coefficients:
            return None
        return _Fit(
            known=frozenset(self._names),
            names=columns,
            coefficients=coefficients.tolist(),
            shortfall_bytes=max(float(np.max(errors)), 0.0),
            factor=1 + max(_LEAST, _ERRORS * error) if error <= _CLOSE else OTHER,
            bounds=(rows.min(axis=0).tolist(), rows.max(axis=0).tolist()) if is_of_few else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """What a linear fit lets expect.

    Attributes:
        known: the columns that trials had, with those that the fit leaves out.
        names: of its columns.
        coefficients: the first for the trial itself, then one per column.
        shortfall_bytes: by how much a trial took more than the fit gives, at most.
        factor: what is added to a prediction, which is a factor.
        bounds: the least and the most of each column, beyond which a fit of few trials is less
            certain; None for one of many.
    """

    known: frozenset[tuple[str, ...]]
    names: Sequence[tuple[str, ...]]
    coefficients: Sequence[float]
    shortfall_bytes: float
    factor: float
    bounds: tuple[Sequence[float], Sequence[float]] | None

    def expected_bytes(self, params: Params, *, least: float = 1.0) -> float | None:
        """What a trial should take at most; None with a value that no trial had.

        Args:
            least: the least factor.
        """
        if not _names(params) <= self.known:
            return None
        row, factor = _row(params, self.names), max(least, self.factor)
        if self.bounds is not None and not all(
            low <= it <= high for it, low, high in zip(row, *self.bounds, strict=True)
        ):
            factor = max(factor, OTHER)
        expected = sum(it * number for it, number in zip(row, self.coefficients, strict=True))
        return factor * max(expected + self.shortfall_bytes, 0.0)


class _Table:
    """Trials as rows of numbers; only those that it does not have yet are worked out.

    Args:
        names: of the columns; see `_row`.
    """

    def __init__(self, names: list[tuple[str, ...]]) -> None:
        import numpy as np

        self.names = names
        self._n_rows = 0
        self._rows = np.empty((_ROOM, len(names) + 1))
        self._peaks = np.empty(_ROOM)

    def filled(self, taken: Sequence[Taken]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The rows, and what each trial took.

        Args:
            taken: all trials, those of the last call first.
        """
        import numpy as np

        while len(self._peaks) < len(taken):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._peaks = np.concatenate([self._peaks, np.empty_like(self._peaks)])
        for number in range(self._n_rows, len(taken)):
            params, n_bytes = taken[number]
            self._rows[number], self._peaks[number] = _row(params, self.names), n_bytes
        self._n_rows = len(taken)
        return self._rows[: self._n_rows], self._peaks[: self._n_rows]


def _key(params: Params) -> str:
    """The same for trials with the same params."""
    return repr(sorted(params.items()))


def _names(params: Params) -> set[tuple[str, ...]]:
    """The columns of a trial: its params, with the value where that is no number."""
    return {(name, *_category(value)) for name, value in params.items()}


def _growth(before: Params, now: Params) -> float:
    """How much more memory a trial takes at most: whole numbers count in proportion.

    They are sizes of batches and layers; numbers with fractions are learning rates and the like.
    """
    factor = 1.0
    for name in before.keys() | now.keys():
        old, new = before.get(name), now.get(name)
        if _is_size(old) and _is_size(new):
            factor *= max(1.0, new / old)
        elif old != new and not (isinstance(old, float) and isinstance(new, float | int)):
            factor *= _CATEGORY
    return factor


def _below(params: Params, known: Sequence[Taking]) -> Iterator[float]:
    """What a trial takes at most that is smaller than two others by one size, and else like them.

    Memory is taken to grow no faster than with the square of a size, as with the width of a layer
    or the length of a sequence. Of all such curves through two sizes, the one that grows by the
    square alone is the highest below both.
    """
    for name, now in params.items():
        if not _is_size(now):
            continue
        sizes = [
            (size, one)
            for one in known
            if _is_alike_but(name, one.params, params) and _is_size(size := one.params[name])
        ]
        if not sizes:
            continue
        nearest, smaller = min(sizes, key=lambda it: (it[0], -it[1].grown_bytes))
        per_square = min(
            (
                (larger.n_bytes - smaller.n_bytes) / (size**2 - nearest**2)
                for size, larger in sizes
                if size > nearest
            ),
            default=0.0,
        )
        at_zero = smaller.grown_bytes - per_square * nearest**2
        if now < nearest and per_square > 0 and at_zero >= 0:
            yield at_zero + per_square * now**2


def _is_alike_but(name: str, some: Params, others: Params) -> bool:
    """Whether two trials differ in one param only, and in numbers with fractions."""
    return some.keys() == others.keys() and all(
        isinstance(value, float) or some[other] == value
        for other, value in others.items()
        if other != name
    )


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _row(params: Mapping[str, object], names: Sequence[tuple[str, ...]]) -> list[float]:
    """A trial as numbers: 1, each number as it is, each other value as 1 where the trial has it."""
    row = [1.0]
    for name, *category in names:
        value = params.get(name)
        if category:
            row.append(float([*_category(value)] == category))
        else:
            row.append(float(value) if isinstance(value, int | float) else 0.0)
    return row


def _category(value: object) -> tuple[str, ...]:
    """Empty for a number, else the value as text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return () if is_number else (repr(value),)
