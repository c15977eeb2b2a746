"""The text about a study that MLflow's UI displays above its runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ..trials import TrialRecord, display_path, value_text
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


def best_in_words(best: Sequence[TrialRecord], objectives: Sequence[str]) -> dict[str, str]:
    """The run ids of the best trials, each with its scores and params."""
    return {
        record.run_id: "{} ({})".format(
            ", ".join(f"**{name}={record.scores[name]:.6g}**" for name in objectives),
            ", ".join(f"{name}={value_text(value)}" for name, value in record.params.items()),
        )
        for record in best
    }
