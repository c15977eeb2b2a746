"""A first parameters file for a notebook, made from what its cells say.

How such a file is read belongs to `settings`.
"""

from .draft import draft

__all__ = ["draft"]
