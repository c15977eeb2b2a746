"""Run one sweep: build its parts, schedule its trials, and stop it in order.

The folder `control` holds what other processes do to a study. The folder `execution` runs a trial.
"""

from .sweep import Sweep

__all__ = ["Sweep"]
