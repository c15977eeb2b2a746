"""One sweep: build its parts, schedule its trials, stop it in order.

What other processes do to a study belongs to `control`; how a trial runs, to `execution`.
"""

from .sweep import Sweep

__all__ = ["Sweep"]
