"""When a running trial is given up: the pruners by name, with options of theirs.

When a trial is judged, and how its notebook is stopped, does not belong here.
"""

from .factory import make_pruner, why_pruned

__all__ = ["make_pruner", "why_pruned"]
