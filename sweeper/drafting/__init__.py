"""Draft a parameters file for a notebook from the code of its cells, without running them.

How a parameters file is read belongs to `settings`.
"""

from .draft import draft

__all__ = ["draft"]
