"""Put the answer of a study into sentences, which terminal, page, `--json` and Jupyter show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..settings.units import duration
from ..trials import (
    Ablate,
    Action,
    Confirm,
    Correct,
    FailureGroup,
    Failures,
    Front,
    Insights,
    Mattered,
    Mean,
    MoreSeeds,
    MoreTrials,
    NumberRange,
    Region,
    Resume,
    Sentence,
    Spent,
    ValueSet,
    Widen,
    Winner,
    clipped,
    short_text,
    some_of,
)

#: A sentence names at most `_MOST_NAMES` trials or reasons, or `_MOST_ACTIONS` actions (both
#: chosen). So the last lines of a sweep stay short in a window of 80 columns.
_MOST_NAMES, _MOST_ACTIONS = 3, 2
#: A sentence quotes at most this number of characters of an error message (chosen).
_LONGEST = 60
#: Numbers of significant digits: `_OF_A_SCORE` for scores, `_OF_A_NOISE` for their noise, `_DIGITS`
#: for all others (chosen).
_OF_A_SCORE, _OF_A_NOISE, _DIGITS = 4, 2, 3
#: If no param stands out from the noise, and fewer trials than this have completed, the answer says
#: that it is too early to tell (chosen).
_EARLY = 30
#: If the shares of all params that the answer does not name are below one of these limits, the
#: answer states the limit (chosen).
_SMALL_SHARES = (0.05, 0.1)


def sentences_of(found: Insights) -> list[Sentence]:
    """Return the answer of a study as sentences, each with its topic."""
    said = [Sentence("best", _best(found.best))]
    if isinstance(found.best, Winner):
        said.append(Sentence("params", _named(found.best.params, _DIGITS)))
    for mattered in found.mattered:
        about = f"for {mattered.objective}: " if len(found.mattered) > 1 else ""
        said.append(Sentence("mattered", about + _mattered(mattered)))
    if found.region is not None:
        said.append(Sentence("where", _where(found.region)))
    if found.failures is not None:
        said.append(Sentence("failed", _failed(found.failures)))
    said.append(Sentence("time", _time(found.spent, found.best)))
    actions = [_action(action) for action in found.actions[:_MOST_ACTIONS]]
    said.append(Sentence("next", "; ".join(actions)))
    return [sentence for sentence in said if sentence.text]


def _best(best: Winner | Front | None) -> str:
    if best is None:
        return "no trial has completed"
    if isinstance(best, Front):
        ends = [
            f"{run_id} has the best {name} ({_named(scores, _OF_A_SCORE)})"
            for name, (run_id, scores) in best.ends.items()
        ]
        return "; ".join([f"Pareto-optimal trials: {best.size}", *ends])
    if best.mean is not None:
        return _confirmed(best, best.mean)
    text = f"{best.run_id}  {_named(best.scores, _OF_A_SCORE)}, not confirmed"
    if best.noise is not None and best.n_within is not None:
        noise = short_text(best.noise, _OF_A_NOISE)
        text += f"; the noise is about ±{noise} (95 %), and {_n_others(best.n_within)} within it"
    if best.same_score:
        text += f"; the same score: {some_of(best.same_score, _MOST_NAMES)}"
    return text


def _confirmed(best: Winner, mean: Mean) -> str:
    text = f"{best.run_id}  {_objective(best)}={_interval(mean)}, mean of {mean.runs} {mean.by}"
    if mean.search_score is not None:
        text += f" ({short_text(mean.search_score, _OF_A_SCORE)} in the search)"
    if mean.alike:
        text += f"; cannot be told apart from {some_of(mean.alike, _MOST_NAMES)}"
    return text


def _objective(best: Winner) -> str:
    (name,) = best.scores
    return name


def _interval(mean: Mean) -> str:
    """Return a mean and half of its interval as text, such as `0.912 ± 0.014`.

    Half of the interval has two significant digits, and the mean has as many decimals.
    """
    half = float(f"{mean.half_interval or 0:.2g}")
    if not half:
        return short_text(mean.mean, _OF_A_SCORE)
    if not 1e-3 <= max(abs(mean.mean), half) < 1e5:
        return f"{short_text(mean.mean, _DIGITS)} ± {short_text(half, 2)}"
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{mean.mean:.{decimals}f} ± {half:.{decimals}f}"


def _n_others(count: int) -> str:
    """Return how many other trials there are, as subject and verb: `2 other trials are`."""
    few = {0: "no other trial is", 1: "one other trial is"}
    return few.get(count, f"{count} other trials are")


def _mattered(mattered: Mattered) -> str:
    parts = []
    if mattered.groups:
        parts.append(", then ".join(map(_group, mattered.groups)))
    if mattered.others is not None:
        parts.append(_others(mattered.others))
    if mattered.pair is not None:
        pair = " and ".join(mattered.pair)
        parts.append(f"{pair} act together: the best value of each depends on the other")
    if parts:
        return "; ".join(parts)
    if mattered.trials < _EARLY:
        return f"too early to say: {mattered.trials} trials"
    return f"no param stands out from the noise in {mattered.trials} trials"


def _group(shares: Mapping[str, float]) -> str:
    """Return params of similar importance with their shares in percent, such as `lr 40 %`.

    If there are several, the text adds that their order is not known.
    """
    text = ", ".join(f"{param} {_percent(share)}" for param, share in shares.items())
    if len(shares) == 1:
        return text
    order = "in this order or the other" if len(shares) == 2 else "in any order"
    return f"{text}, {order}"


def _others(share: float) -> str:
    """Return a clause about the params that the answer does not name: how little they matter.

    Args:
        share: Largest share of the variance that one of these params explains.
    """
    for limit in _SMALL_SHARES:
        if share < limit:
            return f"all others below {_percent(limit)}"
    return "no other stands out from the noise"


def _where(region: Region) -> str:
    parts = [
        f"{_part(part)} (tried: {_range(part.tried)})"
        if isinstance(part, NumberRange)
        else _part(part)
        for part in region.parts
    ]
    return f"the best {region.trials} of {region.of} trials have {' and '.join(parts)}"


def _failed(failures: Failures) -> str:
    groups = [_failure_group(group) for group in failures.groups]
    text = f"{failures.failed} of {failures.ended} trials: {some_of(groups, _MOST_NAMES)}"
    if failures.region is None:
        return text
    region, reason = failures.region, failures.groups[0].reason
    parts = " and ".join(map(_part, region.parts))
    return (
        f"{text}; the {region.trials} {reason} have {parts}, where {region.trials} of "
        f"{region.inside} trials failed"
    )


def _failure_group(group: FailureGroup) -> str:
    message = clipped(group.message, _LONGEST)
    return f"{group.count} {group.reason} ({group.first}: {message})"


def _time(spent: Spent, best: Winner | Front | None) -> str:
    parts = []
    if spent.median_s is not None:
        parts.append(_time_per_trial(spent, duration(spent.median_s)))
    if spent.trial_s is not None:
        parts.append(f"{duration(spent.trial_s)} for all trials together")
    if spent.cost is not None:
        cost = f"cost {spent.cost:.2f}"
        if spent.cost_per_trial is not None:
            cost += f", {short_text(spent.cost_per_trial, _DIGITS)} per completed trial"
        parts.append(cost)
    if isinstance(best, Winner) and best.cheaper is not None:
        cheaper = best.cheaper
        score = short_text(cheaper.score, _OF_A_SCORE)
        parts.append(
            f"{cheaper.run_id} has {_objective(best)}={score} in {_percent(cheaper.time_share)} of "
            f"the time of {best.run_id}"
        )
    return "; ".join(parts)


def _time_per_trial(spent: Spent, median: str) -> str:
    if spent.shortest_s is None or spent.longest_s is None:
        return f"{median} per trial (median)"
    text = f"{duration(spent.shortest_s)} to {duration(spent.longest_s)} per trial"
    if spent.driver is not None:
        text += f", depending mostly on {spent.driver}"
    return f"{text}, median {median}"


def _action(action: Action) -> str:
    match action:
        case Resume():
            text = f"the command of this sweep runs the trials that are left: {action.left}"
            if action.budget is None:
                return text
            return f"with a `cost.budget` above {action.budget:.2f}, {text}"
        case Correct():
            return f"correct the error of {action.run_id}, and give the command of this sweep again"
        case Widen():
            side = "below" if action.end == "low" else "above"
            return (
                f"try {action.param} {side} {short_text(action.value, _DIGITS)}, where the best "
                f"trials end (with `--allow-changes --trials {action.trials}`)"
            )
        case Confirm():
            return (
                f"the command of this sweep with `--confirm {action.best}` runs the best "
                f"{action.best} again on {action.seeds} fresh seeds each, and shows what was luck"
            )
        case MoreSeeds():
            return (
                f"the command of this sweep with `--confirm {action.best} --seeds {action.seeds}` "
                "may tell them apart"
            )
        case MoreTrials():
            return (
                f"the command of this sweep with `--trials {action.trials}` shows more of what "
                "matters"
            )
        case Ablate():
            return (
                f"`notebook_hpo.py ablate {action.study}` measures what each of its values improves"
            )


def _part(part: NumberRange | ValueSet) -> str:
    if isinstance(part, NumberRange):
        return f"{part.param}={_range(part.ends)}"
    values = [short_text(value, _DIGITS) for value in part.values]
    return f"{part.param}={' or '.join(values)}"


def _range(ends: Sequence[float]) -> str:
    texts = [short_text(end, _DIGITS) for end in ends]
    return " to ".join(dict.fromkeys(texts))  # Two equal ends become a single number.


def _named(values: Mapping[str, Any], digits: int) -> str:
    """Return values with their names: `lr=0.01, width=64`.

    Args:
        values: Values by name.
        digits: Number of significant digits of a float (see `short_text`).
    """
    return ", ".join(f"{name}={short_text(value, digits)}" for name, value in values.items())


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
