"""Connect a running trial with its sweep: points come up, and at most one stop goes down."""

from __future__ import annotations

from dataclasses import dataclass, field

from .control import Control
from .points import Points


@dataclass(frozen=True, slots=True, eq=False)
class RunningTrial:
    """Connects a running trial with its sweep.

    Attributes:
        points: Points of the trial. The code that runs its kernel writes them, the sweep reads
            them.
        control: Stops, freezes and thaws the trial. The sweep calls it.
        trials_left: Number of trials that will not have begun when each free slot has got one, as
            it was known when this trial began.
    """

    points: Points = field(default_factory=Points)
    control: Control = field(default_factory=Control)
    trials_left: int = 0
