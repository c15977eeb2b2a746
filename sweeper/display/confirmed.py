"""Lines about the best trials that were run again on fresh seeds, and by what the best has won."""

from __future__ import annotations

from ..trials import Confirmation, ConfirmedTrial, TrialRecord, run_id_of

#: How many trials that cannot be told apart from the best a line names.
_MOST_NAMES = 5


def trial_name(record: TrialRecord) -> str:
    """A trial's run id; with what it confirms, where it does."""
    if record.confirms is None:
        return record.run_id
    return f"{record.run_id} (confirms {run_id_of(record.confirms)}, seed {record.repetition})"


def progress_line(confirmation: Confirmation) -> str:
    """How many runs on fresh seeds have ended, for a line with other things."""
    if not confirmation.runs or not confirmation.n_wanted:
        return ""
    ended = confirmation.n_wanted - confirmation.n_missing
    return f"confirming: {ended} of {confirmation.n_wanted} runs"


def won_by(record: TrialRecord, confirmation: Confirmation | None) -> str:
    """What a best trial has won by, where some were to be confirmed; empty else."""
    if confirmation is None:
        return ""
    winner = confirmation.winner
    if winner is None or winner.trial.number != record.number:
        return "  by its score in the search, which luck may have made"
    return f"  by its mean over {len(winner.scores)} fresh seeds, {winner.mean:.6g}"


def confirmation_lines(confirmation: Confirmation | None) -> list[str]:
    """The ranking by means on fresh seeds, and what it lacks; empty where there is none."""
    if confirmation is None:
        return []
    measured = [one for one in confirmation.ranking if one.runs]
    lines = []
    if measured:
        lines.append(
            f"run again on {confirmation.seeds} fresh seeds: mean of {confirmation.objective}, "
            "with its 95 % interval"
        )
    for rank, one in enumerate(measured, 1):
        place = f"{rank}." if one.is_measured else "–"
        lines.append(f"  {place} {_line(one, confirmation)}")
    return lines + _doubts(confirmation)


def _line(one: ConfirmedTrial, confirmation: Confirmation) -> str:
    if one.mean is None:
        mean = "no score"
    elif one.std is None:
        mean = f"{one.mean:.6g} (1 seed, so no spread is known)"
    elif one.interval is None:
        mean = f"{one.mean:.6g} (the same on {len(one.scores)} seeds)"
    else:
        low, high = one.interval
        mean = (
            f"{one.mean:.6g}, {low:.6g} to {high:.6g} (std {one.std:.2g}, {len(one.scores)} seeds)"
        )
    parts = [f"{one.trial.run_id}  {mean}; {one.search_score:.6g} in the search"]
    if one.n_failed:
        parts.append(
            f"{one.n_failed} of its runs gave no score, so its mean leaves these seeds out"
        )
    missing = one.n_missing(confirmation.seeds)
    is_candidate = any(it is one for it in confirmation.candidates)
    if missing and is_candidate:
        parts.append(f"{missing} of {confirmation.seeds} runs are missing")
    return "; ".join(parts)


def _doubts(confirmation: Confirmation) -> list[str]:
    """What keeps the ranking from being the last word."""
    lines = []
    winner, alike = confirmation.winner, confirmation.alike
    if confirmation.has_no_effect:
        lines.append(
            "  every seed gives the same score: the notebook does not use its seed (assign `seed` "
            "in the parameters cell, or call sweeper.seed_everything(sweeper.trial().seed)), or "
            "the score is too coarse; so nothing is known of how far luck goes"
        )
    elif winner is not None and alike:
        names = ", ".join(one.trial.run_id for one in alike[:_MOST_NAMES])
        more = f" and {len(alike) - _MOST_NAMES} more" if len(alike) > _MOST_NAMES else ""
        p = winner.p_value(alike[0])
        by = "" if p is None else f" (paired t-test over the seeds, p = {p:.2g})"
        lines.append(
            f"  {winner.trial.run_id} cannot be told apart from {names}{more}{by}; more --seeds may"
        )
    if confirmation.n_missing:
        how = (
            "the same command goes on with them"
            if confirmation.is_asked
            else f"--confirm {confirmation.best} --seeds {confirmation.seeds} runs them"
        )
        lines.append(
            f"  {confirmation.n_missing} of {confirmation.n_wanted} runs on fresh seeds are "
            f"missing; {how}"
        )
    return lines
