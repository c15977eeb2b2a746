"""Lines about the best trials that were run again on fresh seeds, and by what the best has won."""

from __future__ import annotations

from collections.abc import Sequence

from ..trials import Confirmation, ConfirmedTrial

#: How many names a line has.
_MOST_NAMES = 5


def some_of(names: Sequence[str]) -> str:
    """The first of several names in one line, and how many there are besides."""
    n_more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {n_more} more" if n_more > 0 else "")


def won_by(confirmation: Confirmation | None) -> str:
    """What the best trial has won by, where some were to be confirmed; empty else."""
    if confirmation is None:
        return ""
    winner = confirmation.winner
    if winner is None:
        return "  by its score in the search, which luck may have made"
    return f"  by its mean over {len(winner.scores)} fresh seeds, {winner.mean:.6g}"


def confirmation_lines(confirmation: Confirmation | None) -> list[str]:
    """The ranking by means on fresh seeds, and what it lacks; empty where there is none."""
    if confirmation is None:
        return []
    first = (
        f"run again on {len(confirmation.seeds)} fresh seeds ({confirmation.study}): mean of "
        f"{confirmation.objective}, with its 95 % interval"
    )
    lines = [
        f"  {f'{rank}.' if one.is_complete else '–'} {_line(one, confirmation)}"
        for rank, one in enumerate(confirmation.ranking, 1)
    ]
    return [first, *lines, *_doubts(confirmation)]


def _line(one: ConfirmedTrial, confirmation: Confirmation) -> str:
    if one.mean is None:
        mean = "no score"
    elif one.interval is None:
        mean = f"{one.mean:.6g}" + (" on each seed" if one.std == 0 else "")
    else:
        low, high = one.interval
        mean = f"{one.mean:.6g}, {low:.6g} to {high:.6g} (std {one.std:.2g})"
    line = f"{one.run_id}  {mean}; {one.search_score:.6g} in the search"
    if one.is_complete:
        return line
    return f"{line}; it has {len(one.scores)} of {len(confirmation.seeds)} scores and cannot win"


def _doubts(confirmation: Confirmation) -> list[str]:
    """What keeps the ranking from being the last word."""
    lines = []
    winner, alike = confirmation.winner, confirmation.alike
    if confirmation.has_no_effect:
        lines.append(
            "  every seed gives the same score: the notebook does not use its seed (assign `seed` "
            "a number, or call sweeper.seed_everything(sweeper.trial().seed)), or "
            "the score is too coarse; so nothing is known of how far luck goes"
        )
    elif winner is not None and alike:
        names = some_of([one.run_id for one in alike])
        lines.append(
            f"  {winner.run_id} cannot be told apart from {names}: 0 is in the 95 % interval of "
            "their differences; more --seeds may"
        )
    if confirmation.n_missing:
        lines.append(
            f"  {confirmation.n_missing} of {confirmation.n_wanted} runs on fresh seeds are "
            "missing; the same command goes on with them"
        )
    elif any(not one.is_complete for one in confirmation.ranking):
        lines.append(f"  `retry {confirmation.study} --failed` runs again what gave no score")
    return lines
