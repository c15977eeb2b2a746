"""Connect a running trial with its sweep: points come up, and at most one stop goes down."""

from __future__ import annotations

from dataclasses import dataclass, field

from .control import Control
from .points import Points


@dataclass(frozen=True, slots=True, eq=False)
class RunningTrial:
    """Connects a running trial with its sweep.

    Attributes:
        points: Points of the trial. The code that runs the kernel writes them, and the sweep reads
            them.
        control: Object with which the sweep stops, freezes and thaws the trial.
        trials_left: Number of trials that are left when each free slot has got a trial, counted
            when this trial began.
        usual_s: Median duration of the study's completed trials in seconds when this trial began.
            None if no trial had completed.
    """

    points: Points = field(default_factory=Points)
    control: Control = field(default_factory=Control)
    trials_left: int = 0
    usual_s: float | None = None
