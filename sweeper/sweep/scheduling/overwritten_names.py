"""Find swept names that the notebook itself assigns again, so that the trial's value is lost.

Such a name has the same value at the end of trials that were given different values. Files that
trials overwrite are found by `execution/notebook_files.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ...notebook_code.cell_code import parse_or_none, plain_python
from ...notebook_code.rebinding import has_schedule
from ...trials import Params, TrialOutcome, TrialSpec, TrialState, Value, value_text

#: At most this number of trials is compared. If the notebook overwrites a name, the first two
#: trials already show it.
_MOST_TRIALS = 20
#: Functions and magics that can assign names without showing them in the code.
_HIDING_CALLS = ("exec", "globals", "locals", "vars")
_HIDING_MAGICS = ("load", "prun", "pylab", "run", "store", "time")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTrial:
    """The values of a completed trial.

    Attributes:
        run_id: Run id of the trial.
        given: Swept values that the trial was given.
        ended: Values of the names after the last cell, as far as they could be read.
    """

    run_id: str
    given: Params
    ended: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwritten:
    """A name that ended with the same value in two trials that were given different values.

    Attributes:
        name: The name.
        given: The two values that the trials were given.
        run_ids: Run ids of the two trials.
        ended: The value that both ended with.
        suspects: Places in the notebook that may assign the name.
    """

    name: str
    given: tuple[Value, Value]
    run_ids: tuple[str, str]
    ended: Value
    suspects: Sequence[str]

    def __str__(self) -> str:
        values = " and ".join(
            f"{value_text(value)} (trial {run_id})"
            for value, run_id in zip(self.given, self.run_ids, strict=True)
        )
        where = f", perhaps in {self.suspects[0]}" if self.suspects else ""
        return (
            f"{self.name} was overwritten: two trials got {values}, and ended with "
            f"{value_text(self.ended)}; the notebook assigns {self.name} another value{where}"
        )


def overwritten(
    trials: Sequence[EndedTrial], code: Callable[[], Sequence[str]]
) -> Overwritten | None:
    """Find a name that ended with the same value in two trials that were given different values.

    In a correct notebook, two kinds of names can end in this way. They are left out: names whose
    new value depends on their old one, such as a counter or a schedule, and lists and dicts, which
    may be changed in place.

    Args:
        trials: The completed trials in the order in which they ended.
        code: Returns the sources of the notebook's code cells.

    Returns:
        The first such name, or None.
    """
    for earlier, later in combinations(trials, 2):
        for name, value in later.given.items():
            if _ended_alike(name, earlier, later) and not has_schedule(code(), name):
                return Overwritten(
                    name=name,
                    given=(earlier.given[name], value),
                    run_ids=(earlier.run_id, later.run_id),
                    ended=later.ended[name],
                    suspects=list(_suspects(code())),
                )
    return None


def _ended_alike(name: str, one: EndedTrial, other: EndedTrial) -> bool:
    """Return whether a name ended with one value in two trials that were given different values.

    Return False if a given value is a list or a dict, or if one of the values is not known.
    """
    for trial in (one, other):
        if name not in trial.given or name not in trial.ended:
            return False
        if isinstance(trial.given[name], list | dict):
            return False
    was_given_equal = repr(one.given[name]) == repr(other.given[name])
    return not was_given_equal and repr(one.ended[name]) == repr(other.ended[name])


def _suspects(code: Sequence[str]) -> Iterator[str]:
    """Yield where the notebook has a statement that may assign any name, such as `exec` or `%run`.

    Each is a text with the cell, the line and the statement.
    """
    for number, source in enumerate(code, start=1):
        tree = parse_or_none(plain_python(source))
        for node in () if tree is None else ast.walk(tree):
            match node:
                case ast.ImportFrom(module=module, names=[ast.alias(name="*")]):
                    statement = f"from {module} import *"
                case ast.Call(func=ast.Name(id=called)) if called in _HIDING_CALLS:
                    statement = called
                case ast.Call(
                    func=ast.Attribute(attr="run_line_magic"), args=[ast.Constant(magic), *_]
                ) if magic in _HIDING_MAGICS:
                    statement = f"%{magic}"
                case _:
                    continue
            yield f"code cell {number}, line {node.lineno} ({statement})"


class OverwrittenNamesRule:
    """Watches the trials of a sweep for names that the notebook overwrites.

    Args:
        code: Returns the sources of the notebook's code cells.
        is_allowed: Whether the sweep continues even if a name is overwritten.

    Attributes:
        remarks: Overwritten names that were found and allowed, in words.
    """

    def __init__(self, code: Callable[[], Sequence[str]], *, is_allowed: bool) -> None:
        self._code = code
        self._is_allowed = is_allowed
        self._trials: list[EndedTrial] = []
        self.remarks: list[str] = []

    def consider(self, spec: TrialSpec, outcome: TrialOutcome) -> str | None:
        """Compare a trial that has ended with earlier trials, to find a name that is overwritten.

        Args:
            spec: Spec of the trial.
            outcome: Outcome of the trial.

        Returns:
            Why the sweep should stop, in words. None if it should continue.
        """
        if outcome.state is not TrialState.COMPLETED or not outcome.values_at_end:
            return None
        if self.remarks or len(self._trials) >= _MOST_TRIALS:
            return None
        self._trials.append(
            EndedTrial(run_id=spec.run_id, given=spec.params, ended=outcome.values_at_end)
        )
        found = overwritten(self._trials, self._code)
        if found is None:
            return None
        if self._is_allowed:
            self.remarks.append(str(found))
            return None
        return f"{found}; remove that assignment, or continue with --allow-changes"
