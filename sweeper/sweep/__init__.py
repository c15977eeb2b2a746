"""Run one sweep: build its parts, schedule its trials, and stop it in order.

The commands by which other processes read and change a study are in the folder `control`. The
folder `execution` runs a trial.
"""

from .sweep import Sweep

__all__ = ["Sweep"]
