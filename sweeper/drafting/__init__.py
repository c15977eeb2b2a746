"""A first parameters file for a notebook, made from what its cells say."""

from .draft import draft

__all__ = ["draft"]
