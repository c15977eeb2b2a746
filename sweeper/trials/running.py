"""The connection between a running trial and its sweep: points one way, at most one stop back."""

from __future__ import annotations

from dataclasses import dataclass, field

from .control import Control
from .points import Points


@dataclass(frozen=True, slots=True, eq=False)
class RunningTrial:
    """Connects a running trial with its sweep.

    Attributes:
        points: What comes up; whoever runs the kernel writes it.
        control: What goes down; the sweep writes it.
        trials_left: How many trials had not begun when this one did and each free slot had taken
            one, as far as was known.
    """

    points: Points = field(default_factory=Points)
    control: Control = field(default_factory=Control)
    trials_left: int = 0
