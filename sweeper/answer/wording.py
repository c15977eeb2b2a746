"""Word the answer of a study. Terminal, page, `--json` and Jupyter show these sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..settings.units import duration
from ..trials import (
    Ablate,
    Action,
    Confirm,
    Correct,
    Failures,
    Front,
    Insights,
    LeaveOut,
    Mattered,
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
    short_text,
)

#: A sentence names at most this number of trials, reasons and actions (chosen): the last lines of a
#: sweep fit into a window of 80 columns.
_MOST_TRIALS, _MOST_REASONS, _MOST_ACTIONS = 3, 3, 2
#: An error message has at most this number of characters (chosen).
_LONGEST = 60
#: Option with which a study continues after its space has been changed.
_CHANGED = "with `--allow-changes`"


def sentences_of(found: Insights) -> list[Sentence]:
    """Return the sentences of an answer, each with its topic."""
    lines: list[tuple[str, str]] = []
    match found.best:
        case Winner() as winner:
            lines.append(("best", _winner(winner)))
            lines.append(("params", _params(winner.params)))
        case Front() as front:
            lines.append(("best", _front(front)))
        case None:
            lines.append(("best", "no trial has completed"))
    several = len(found.mattered) > 1
    lines += [("mattered", _mattered(one, names_score=several)) for one in found.mattered]
    if found.region is not None:
        best = f"the best {found.region.trials} of {found.region.of} trials have "
        lines.append(("where", best + _parts(found.region, with_tried=True)))
    if found.failures is not None:
        lines.append(("failed", _failures(found.failures)))
    if found.spent.trials or found.spent.cost is not None:
        lines.append(("time", _time(found.spent, found.best)))
    if found.actions:
        lines.append(("next", "; ".join(map(_action, found.actions[:_MOST_ACTIONS]))))
    return [Sentence(topic, text) for topic, text in lines]


def _winner(winner: Winner) -> str:
    ((name, score),) = winner.scores.items()
    mean = winner.mean
    if mean is None:
        text = f"{winner.run_id}  {name}={score:.6g}, not confirmed"
        others = _some(winner.same_score)
        return f"{text}; the same score: {others}" if others else text
    value = with_interval(mean.mean, mean.half_interval)
    text = f"{winner.run_id}  {name}={value}, mean of {mean.runs} {mean.by}"
    if mean.search_score is not None:
        text += f" ({mean.search_score:.6g} in the search)"
    return f"{text}; cannot be told apart from {_some(mean.alike)}" if mean.alike else text


def _front(front: Front) -> str:
    ends = dict(front.ends.values())
    named = {
        run_id: ", ".join(f"{name}={value:.6g}" for name, value in scores.items())
        for run_id, scores in ends.items()
    }
    if len(named) == 1:
        ((run_id, scores),) = named.items()
        return f"{run_id}  {scores}, the best in each objective"
    best_in = "; ".join(
        f"{run_id} has the best {name} ({named[run_id]})"
        for name, (run_id, _) in front.ends.items()
    )
    return f"{front.size} Pareto-optimal trials: {best_in}"


def with_interval(mean: float, half: float | None) -> str:
    """Format a mean with as many decimals as its half interval has with two digits."""
    if not half or not math.isfinite(half):
        return f"{mean:.6g}"
    decimals = max(0, 1 - math.floor(math.log10(half)))
    form = f".{decimals}f" if decimals <= 6 else ".2e"
    return f"{mean:{form}} ± {half:{form}}"


def _mattered(found: Mattered, *, names_score: bool) -> str:
    about = f"for {found.objective}: " if names_score else ""
    if not found.groups and found.pair is None:
        few = "too early to say" if found.trials < 30 else "no param stands out from the noise"
        return f"{about}{few}: {found.trials} trials"
    parts = [_group(group) for group in found.groups]
    text = ", then ".join(parts)
    if found.others is not None and found.groups:
        if found.others < 0.1:
            text += f"; all others below {10 if found.others >= 0.05 else 5} %"
        else:
            text += "; no other stands out from the noise"
    if found.pair is not None:
        first, second = found.pair
        together = f"{first} and {second} act together: the best value of each depends on the other"
        text = f"{text}; {together}" if text else together
    return about + text


def _group(group: Mapping[str, float]) -> str:
    named = [f"{param} {100 * share:.0f} %" for param, share in group.items()]
    if len(named) == 1:
        return named[0]
    order = "in this order or the other" if len(named) == 2 else "in any order"
    return f"{', '.join(named)}, {order}"


def _parts(region: Region, *, with_tried: bool = False) -> str:
    return " and ".join(_part(part, with_tried=with_tried) for part in region.parts)


def _part(part: NumberRange | ValueSet, *, with_tried: bool) -> str:
    if isinstance(part, ValueSet):
        return f"{part.param}={' or '.join(map(short_text, part.values))}"
    tried = f" (tried: {_number(part.tried_low)} to {_number(part.tried_high)})"
    if part.low == part.high:
        own = _number(part.low)
    else:
        own = f"{_number(part.low)} to {_number(part.high)}"
    return f"{part.param}={own}" + (tried if with_tried else "")


def _failures(failures: Failures) -> str:
    n_failed = sum(group.count for group in failures.groups)
    reasons = [
        f"{group.count} {group.reason} ({group.first}: {_cut(group.message)})"
        for group in failures.groups[:_MOST_REASONS]
    ]
    more = len(failures.groups) - _MOST_REASONS
    text = f"{n_failed} of {failures.ended} trials: {', '.join(reasons)}"
    text += f" and {more} more reasons" if more > 0 else ""
    region = failures.region
    if region is None:
        return text
    them = (
        "all" if len(failures.groups) == 1 else f"the {region.trials} {failures.groups[0].reason}"
    )
    return (
        f"{text}; {them} have {_parts(region)}, where {region.trials} of {region.inside} trials "
        "failed"
    )


def _time(spent: Spent, best: Winner | Front | None) -> str:
    parts = []
    if spent.trials:
        in_all = f"{duration(spent.trial_s)} in {spent.trials} trials"
        is_told = spent.median_s is not None and spent.trials > 1
        each = f"{duration(spent.median_s or 0)} per trial (median), " if is_told else ""
        parts.append(each + in_all)
    if spent.cost is not None:
        share = spent.cost_per_trial
        per_trial = "" if share is None else f", {share:.4g} per completed trial"
        parts.append(f"cost {spent.cost:.2f}{per_trial}")
    if isinstance(best, Winner) and best.cheaper is not None:
        (name,), cheaper = best.scores, best.cheaper
        of_time = f"{100 * cheaper.time_share:.0f} % of the time of {best.run_id}"
        parts.append(f"{cheaper.run_id} has {name}={cheaper.score:.6g} in {of_time}")
    return "; ".join(parts)


def _action(action: Action) -> str:
    match action:
        case Resume(left=left):
            trials = "trial that is" if left == 1 else f"{left} trials that are"
            return f"the same command runs the {trials} left"
        case Correct(run_id=run_id):
            return f"correct the error of {run_id}, and give the same command again"
        case LeaveOut(region=region):
            return f"leave {_parts(region)} out of the space, where most trials fail ({_CHANGED})"
        case Widen(param=param, end=end, value=value):
            side = "below" if end == "low" else "above"
            return f"try {param} {side} {_number(value)}, where the best trials end ({_CHANGED})"
        case Confirm(best=best, runs=runs):
            return (
                f"the same command with `--confirm {best}` shows in {runs} runs on fresh "
                "seeds what was luck"
            )
        case MoreSeeds(best=best, seeds=seeds):
            return f"the same command with `--confirm {best} --seeds {seeds}` may tell them apart"
        case MoreTrials(trials=trials):
            return f"the same command with `--trials {trials}` shows more of what matters"
        case Ablate(study=study):
            return f"`notebook_hpo.py ablate {study}` measures what each of its values improves"


def _params(params: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={short_text(value)}" for name, value in params.items())  # type: ignore[arg-type]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_TRIALS
    return ", ".join(names[:_MOST_TRIALS]) + (f" and {more} more" if more > 0 else "")


def _number(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _cut(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"
