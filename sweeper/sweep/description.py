"""The text about a study that MLflow's UI displays above its runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..trials import Confirmation, TrialRecord, display_path, value_text
from .plan import SweepPlan


def description(plan: SweepPlan) -> str:
    """What a study is, and the command that sweeps it; Markdown."""
    goals = ", ".join(f"{goal.direction} {name}" for name, goal in plan.settings.objective.items())
    words = ["notebook_hpo.py", "-i", display_path(plan.notebook.path)]
    words += ["-o", display_path(Path(plan.paths.template))]
    if plan.settings.file is not None:
        words += ["-p", display_path(plan.settings.file)]
    command = shlex.join([*words, "-j", str(plan.executor.jobs)])
    return f"Sweep over `{plan.notebook.display_name}`: {goals}.\n\n    python {command}"


def best_in_words(
    best: Sequence[TrialRecord], objectives: Sequence[str], confirmation: Confirmation | None
) -> dict[str, str]:
    """The run ids of the best trials, each with its scores and params.

    Args:
        confirmation: by which the best trial has won, if it names one.
    """
    return {
        record.run_id: "{}{} ({})".format(
            ", ".join(f"**{name}={record.scores[name]:.6g}**" for name in objectives),
            _won_by(record, confirmation),
            ", ".join(f"{name}={value_text(value)}" for name, value in record.params.items()),
        )
        for record in best
    }


def _won_by(record: TrialRecord, confirmation: Confirmation | None) -> str:
    winner = None if confirmation is None else confirmation.winner
    if winner is None or winner.trial.number != record.number or winner.mean is None:
        return ""
    return f", mean over {len(winner.scores)} fresh seeds **{winner.mean:.6g}**"


def confirmed_runs(
    confirmation: Confirmation,
) -> Iterator[tuple[str, Mapping[str, float], Mapping[str, str]]]:
    """What the runs of confirmed trials in MLflow have of it: run id, metrics and tags."""
    alike = [one.trial.run_id for one in confirmation.alike]
    for rank, one in enumerate(confirmation.ranking, 1):
        if one.mean is None:
            continue
        low, high = one.interval or (None, None)
        known = {"mean": one.mean, "std": one.std, "low": low, "high": high}
        metrics = {f"sweeper.confirmed_{n}": v for n, v in known.items() if v is not None}
        tags = {
            "sweeper.confirmed_seeds": str(len(one.scores)),
            "sweeper.confirmed_rank": str(rank) if confirmation.winner is not None else "",
            "sweeper.confirmed_alike": ", ".join(alike) if one is confirmation.winner else "",
        }
        yield one.trial.run_id, metrics, tags
