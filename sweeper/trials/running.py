"""Connect a running trial with its sweep.

The trial sends its reported values to the sweep, and the sweep sends at most one stop to the trial.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .control import Control
from .points import Points


@dataclass(frozen=True, slots=True, eq=False)
class RunningTrial:
    """Connects a running trial with its sweep.

    Attributes:
        points: Values that the trial has reported. The code that runs the kernel writes them, and
            the sweep reads them.
        control: Object with which the sweep stops, freezes and thaws the trial.
        trials_left: Number of trials that had to wait for a slot when this trial began: those that
            had not begun, minus the slots that were still free.
        usual_s: Median duration of the study's completed trials in seconds when this trial began.
            None if no trial had completed.
    """

    points: Points = field(default_factory=Points)
    control: Control = field(default_factory=Control)
    trials_left: int = 0
    usual_s: float | None = None
