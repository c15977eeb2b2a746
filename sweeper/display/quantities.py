"""Durations and sizes for people."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A duration for people: `3.1s`, `4m05s`, `2h10m`."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def size(n_bytes: int) -> str:
    """As people read it: `1.5 GB`, `20 MB`."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
