"""Durations and sizes for people."""

from ..settings.units import duration, size

__all__ = ["duration", "size"]
