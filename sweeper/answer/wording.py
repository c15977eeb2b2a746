"""Put the answer of a study into sentences, which terminal, page, `--json` and Jupyter show.

A sentence is made of clauses. A clause names the facts that it needs in the syntax of `str.format`,
each with the name of its format. A clause is left out if one of its facts is missing. Where clauses
are in a tuple, the sentence gets the first one whose facts are all known.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from string import Formatter
from typing import Any

from ..settings.units import duration
from ..trials import (
    Ablate,
    Confirm,
    Correct,
    Insights,
    LeaveOut,
    Mattered,
    Mean,
    MoreSeeds,
    MoreTrials,
    Resume,
    Sentence,
    Widen,
    short_text,
    some_of,
)

#: A sentence names at most this number of trials, reasons and actions (chosen): the last lines of a
#: sweep fit into a window of 80 columns.
_MOST_NAMES, _MOST_ACTIONS = 3, 2
#: A sentence quotes at most this number of characters of an error message (chosen).
_LONGEST = 60
#: Numbers of significant digits: `_OF_A_SCORE` for scores, `_DIGITS` for all others (chosen).
_OF_A_SCORE, _DIGITS = 4, 3
#: With fewer completed trials than this, the answer does not say which params mattered (chosen).
_EARLY = 30
#: If the shares of all params that the answer does not name are below one of these limits, the
#: answer states the limit (chosen).
_SMALL_SHARES = (0.05, 0.1)

#: A clause, or several clauses of which the sentence gets the first one whose facts are known.
_Clauses = str | tuple[str, ...]

_BEST: Sequence[_Clauses] = (
    (
        "{best.run_id}  {best.scores:name}={best.mean:interval}, mean of {best.mean.runs} "
        "{best.mean.by}",
        "{best.run_id}  {best.scores:scores}, not confirmed",
        "Pareto-optimal trials: {best.size}; {best.ends:ends}",
        "no trial has completed",
    ),
    "; the noise is about ±{best.noise:two} (95 %), and {best.n_within:others} within it",
    " ({best.mean.search_score:score} in the search)",
    "; cannot be told apart from {best.mean.alike:names}",
    "; the same score: {best.same_score:names}",
)
_PARAMS = ("{best.params:params}",)
_MATTERED = (
    "{groups:groups}",
    "; {others:rest}",
    "; {pair:pair} act together: the best value of each depends on the other",
)
_TOO_EARLY = ("too early to say: {trials} trials",)
_ONLY_NOISE = ("no param stands out from the noise in {trials} trials",)
_WHERE = ("the best {region.trials} of {region.of} trials have {region.parts:tried}",)
_FAILED = (
    "{failures.failed} of {failures.ended} trials: {failures.groups:reasons}",
    "; the {failures.region.trials} {failures.groups[0].reason} have {failures.region.parts:parts},"
    " where {failures.region.trials} of {failures.region.inside} trials failed",
)
_TIME = (
    (
        "{spent.shortest_s:duration} to {spent.longest_s:duration} per trial, depending mostly on "
        "{spent.driver}, median {spent.median_s:duration}; ",
        "{spent.shortest_s:duration} to {spent.longest_s:duration} per trial, "
        "median {spent.median_s:duration}; ",
        "{spent.median_s:duration} per trial (median); ",
    ),
    "{spent.trial_s:duration} for all trials together",
    "; cost {spent.cost:money}",
    ", {spent.cost_per_trial} per completed trial",
    "; {best.cheaper.run_id} has {best.scores:name}={best.cheaper.score:score} in "
    "{best.cheaper.time_share:%} of the time of {best.run_id}",
)
_ACTIONS: Mapping[type, _Clauses] = {
    Resume: (
        "with a `cost.budget` above {budget:money}, the command of this sweep runs the trials that "
        "are left: {left}",
        "the command of this sweep runs the trials that are left: {left}",
    ),
    Correct: "correct the error of {run_id}, and give the command of this sweep again",
    LeaveOut: (
        "begin another study without {region.parts:parts}, where {region.trials} of "
        "{region.inside} trials failed (with `learn_from: [{study}]`)",
        "leave {region.parts:parts} out of the space, where {region.trials} of {region.inside} "
        "trials failed (with `--allow-changes --trials {trials}`)",
        "leave {region.parts:parts} out of the space, where {region.trials} of {region.inside} "
        "trials failed (with `--allow-changes`)",
    ),
    Widen: "try {param} {end:side} {value}, where the best trials end (with "
    "`--allow-changes --trials {trials}`)",
    Confirm: "the command of this sweep with `--confirm {best}` runs the best {best} again on "
    "{seeds} fresh seeds each, and shows what was luck",
    MoreSeeds: "the command of this sweep with `--confirm {best} --seeds {seeds}` may tell them "
    "apart",
    MoreTrials: "the command of this sweep with `--trials {trials}` shows more of what matters",
    Ablate: "`notebook_hpo.py ablate {study}` measures what each of its values improves",
}
_REASON = ("{count} {reason} ({first}: {message:message})",)
_PART: Sequence[_Clauses] = (("{param}={ends:range}", "{param}={values:choices}"),)
_TRIED = (*_PART, " (tried: {tried:range})")
#: Words after a group of params whose order of importance is not known, by the size of the group.
_ORDERS = {1: "", 2: ", in this order or the other"}


def sentences_of(found: Insights) -> list[Sentence]:
    """Return the sentences of an answer, each with its topic."""
    actions = [_say((_ACTIONS[type(action)],), action) for action in found.actions]
    said = [
        ("best", _say(_BEST, found)),
        ("params", _say(_PARAMS, found)),
        *(("mattered", _mattered(each, found)) for each in found.mattered),
        ("where", _say(_WHERE, found)),
        ("failed", _say(_FAILED, found)),
        ("time", _say(_TIME, found)),
        ("next", "; ".join(actions[:_MOST_ACTIONS])),
    ]
    return [Sentence(topic, text) for topic, text in said if text]


def _mattered(mattered: Mattered, found: Insights) -> str:
    about = f"for {mattered.objective}: " if len(found.mattered) > 1 else ""
    nothing = _TOO_EARLY if mattered.trials < _EARLY else _ONLY_NOISE
    return about + (_say(_MATTERED, mattered) or _say(nothing, mattered))


class _MissingError(AttributeError):
    """A fact that a clause needs is missing."""


class _Sayer(Formatter):
    """Formatter of clauses. `{best.mean:score}` is `best.mean` of an object, in the format `score`.

    The formats are in `_FORMATS`. A fact that is None or empty raises an error, so that the clause
    is left out.
    """

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        return getattr(args[0], key)

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None or value in ((), [], {}):
            raise _MissingError
        return _FORMATS[format_spec](value)


def _say(clauses: Sequence[_Clauses], facts: object) -> str:
    """Join the clauses whose facts an object has. Empty if it has those of no clause."""
    said = ""
    for alternatives in clauses:
        for clause in (alternatives,) if isinstance(alternatives, str) else alternatives:
            with suppress(AttributeError):  # A fact, or the object that would have it, is missing.
                said += _Sayer().vformat(clause, (facts,), {})
                break
    return said.removeprefix("; ")


def _text(value: Any) -> str:
    return short_text(value, _DIGITS)


def _score(value: float) -> str:
    return short_text(value, _OF_A_SCORE)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _interval(mean: Mean) -> str:
    """Return a mean and half of its interval as text, such as `0.912 ± 0.014`.

    Half of the interval has two significant digits, and the mean has as many decimals.
    """
    half = float(f"{mean.half_interval or 0:.2g}")
    if not half:
        return _score(mean.mean)
    if not 1e-3 <= max(abs(mean.mean), half) < 1e5:
        return f"{_text(mean.mean)} ± {short_text(half, 2)}"
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{mean.mean:.{decimals}f} ± {half:.{decimals}f}"


def _joined(separator: str, values: Sequence[Any]) -> str:
    return separator.join(dict.fromkeys(map(_text, values)))


def _named(format_value: Callable[[Any], str], values: Mapping[str, Any]) -> str:
    """Return values with their names: `lr=0.01, width=64`."""
    return ", ".join(f"{name}={format_value(value)}" for name, value in values.items())


def _each(clauses: Sequence[_Clauses], things: Sequence[object]) -> list[str]:
    return [_say(clauses, thing) for thing in things]


def _ends(ends: Mapping[str, tuple[str, Mapping[str, float]]]) -> str:
    """Name the best trial in each objective."""
    scores = partial(_named, _score)
    return "; ".join(
        f"{run_id} has the best {name} ({scores(s)})" for name, (run_id, s) in ends.items()
    )


def _groups(groups: Sequence[Mapping[str, float]]) -> str:
    """Return params with their shares. Within a group, their order is not known."""
    orders = [_ORDERS.get(len(group), ", in any order") for group in groups]
    named = [
        ", ".join(f"{param} {_percent(share)}" for param, share in group.items())
        for group in groups
    ]
    return ", then ".join(map(operator.add, named, orders))


def _others(share: float) -> str:
    """Return a clause that says how little the other params matter."""
    limit = next((limit for limit in _SMALL_SHARES if share < limit), None)
    return f"all others below {_percent(limit)}" if limit else "no other stands out from the noise"


def _n_others(count: int) -> str:
    """Return how many other trials there are, as subject and verb: `2 other trials are`."""
    few = {0: "no other trial is", 1: "one other trial is"}
    return few.get(count, f"{count} other trials are")


def _cut(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "": _text,
    "score": _score,
    "%": _percent,
    "money": "{:.2f}".format,
    "duration": duration,
    "interval": _interval,
    "range": partial(_joined, " to "),
    "choices": partial(_joined, " or "),
    "pair": partial(_joined, " and "),
    "params": partial(_named, _text),
    "scores": partial(_named, _score),
    "name": lambda scores: ", ".join(scores),
    "names": partial(some_of, most=_MOST_NAMES),
    "parts": lambda parts: " and ".join(_each(_PART, parts)),
    "tried": lambda parts: " and ".join(_each(_TRIED, parts)),
    "reasons": lambda groups: some_of(_each(_REASON, groups), _MOST_NAMES),
    "ends": _ends,
    "groups": _groups,
    "rest": _others,
    "others": _n_others,
    "two": lambda value: short_text(value, 2),
    "message": _cut,
    "side": {"low": "below", "high": "above"}.__getitem__,
}
