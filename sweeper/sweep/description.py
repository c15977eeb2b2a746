"""The text about a study that MLflow's UI displays above its runs."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..trials import display_path
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
