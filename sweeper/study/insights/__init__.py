"""What the trials of a study say beyond which one is best.

What the next trial is does not belong here, nor how the answers are worded.
"""

from .insights import Insights

__all__ = ["Insights"]
