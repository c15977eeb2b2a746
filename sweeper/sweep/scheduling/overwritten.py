"""Find swept names that the notebook gives another value than the trial's, by how they end."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...notebooks.cell_code import parse_or_none, plain_python
from ...notebooks.rebinding import has_schedule
from ...trials import Params, TrialOutcome, TrialSpec, TrialState, Value, value_text

#: So many trials are compared: a name that is overwritten is seen in the first two.
_MOST_TRIALS = 20
#: Functions and magics with which code assigns names that are not in it.
_HIDING_CALLS = ("exec", "globals", "locals", "vars")
_HIDING_MAGICS = ("load", "prun", "pylab", "run", "store", "time")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTrial:
    """A completed trial.

    Attributes:
        given: Swept values that the trial got.
        ended: Values that the names had after the last cell, as far as they could be read.
    """

    run_id: str
    given: Params
    ended: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwritten:
    """A name that ended alike in two trials that were given different values of it.

    Attributes:
        given: The two values.
        run_ids: The two trials.
        ended: Value that both ended with.
        suspects: Places in the notebook that may assign it.
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
    """Find a name that ended with the same value in two trials that got different ones.

    A name whose new values the notebook works out from its own, such as a counter or a schedule,
    may end so. So may a list or a dict, which a notebook can change in place.

    Args:
        code: Returns the sources of the notebook's code cells.
    """
    for later, trial in enumerate(trials):
        for earlier in trials[:later]:
            known = [name for name in trial.given if name in earlier.given]
            for name in known:
                if name not in trial.ended or name not in earlier.ended:
                    continue
                if _is_alike(name, earlier, trial) and not has_schedule(code(), name):
                    return Overwritten(
                        name=name,
                        given=(earlier.given[name], trial.given[name]),
                        run_ids=(earlier.run_id, trial.run_id),
                        ended=trial.ended[name],
                        suspects=[*_suspects(code())],
                    )
    return None


def _is_alike(name: str, one: EndedTrial, other: EndedTrial) -> bool:
    given = (one.given[name], other.given[name])
    if any(isinstance(value, list | dict) for value in given):
        return False
    return repr(given[0]) != repr(given[1]) and repr(one.ended[name]) == repr(other.ended[name])


def _suspects(code: Sequence[str]) -> Iterator[str]:
    """The statements that may assign names which the code does not show."""
    for number, source in enumerate(code, start=1):
        for node in ast.walk(parse_or_none(plain_python(source)) or ast.Module([], [])):
            match node:
                case ast.ImportFrom(module=module, names=[ast.alias(name="*")]):
                    yield f"code cell {number}, line {node.lineno} (from {module} import *)"
                case ast.Call(func=ast.Name(id=called)) if called in _HIDING_CALLS:
                    yield f"code cell {number}, line {node.lineno} ({called})"
                case ast.Call(
                    func=ast.Attribute(attr="run_line_magic"), args=[ast.Constant(magic), *_]
                ) if magic in _HIDING_MAGICS:
                    yield f"code cell {number}, line {node.lineno} (%{magic})"


class OverwrittenRule:
    """Watches the trials of a sweep for names that the notebook overwrites.

    Args:
        code: Returns the sources of the notebook's code cells.
        is_allowed: Whether the sweep is to continue all the same.

    Attributes:
        remarks: What was found and allowed.
    """

    def __init__(self, code: Callable[[], Sequence[str]], *, is_allowed: bool) -> None:
        self._code = code
        self._is_allowed = is_allowed
        self._trials: list[EndedTrial] = []
        self.remarks: list[str] = []

    def consider(self, spec: TrialSpec, outcome: TrialOutcome) -> str | None:
        """Return why the sweep is worth nothing, once a trial has ended; None if it may be."""
        is_compared = outcome.state is TrialState.COMPLETED and outcome.values_at_end
        if not is_compared or self.remarks or len(self._trials) >= _MOST_TRIALS:
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
        return f"{found}; remove that, or continue with --allow-changes"
