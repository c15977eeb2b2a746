"""What a sweep teaches: what pruning saved, and which params mattered."""

from __future__ import annotations

from ..trials import SweepResult, TrialState
from .quantities import duration

#: Three params are named for each objective.
_MOST_PARAMS = 3


def lesson_lines(result: SweepResult) -> list[str]:
    """A line about pruned trials, and one for each objective; left out where nothing is known."""
    return [*_saved(result), *_important(result)]


def _saved(result: SweepResult) -> list[str]:
    records = result.records
    n_pruned = sum(record.state is TrialState.PRUNED for record in records)
    if result.not_run_s is None or not n_pruned:
        return []
    took_s = sum(record.duration_s for record in records if record.state is TrialState.PRUNED)
    whole_s = took_s + result.not_run_s
    part = f" after {took_s / whole_s:.0%} of their time" if whole_s > 0 else ""
    return [
        f"pruned: {n_pruned} of {len(records)} trials{part}; about {duration(result.not_run_s)} of "
        "running was saved"
    ]


def _important(result: SweepResult) -> list[str]:
    lines = []
    for name, shares in result.importances.items():
        first = list(shares.items())[:_MOST_PARAMS]
        if len(shares) < 2:  # a single param explains all there is
            continue
        named = ", ".join(
            f"{param} {it.share:.0%} ({100 * it.low:.0f} to {it.high:.0%})" for param, it in first
        )
        lines.append(f"what mattered for {name}: {named}")
    return lines
