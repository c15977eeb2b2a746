"""Copies a study to an object storage while it is swept, and restores it on another machine.

How objects are read and written belongs to `store.py`; `archive.py` has the data of trials.
"""

from .copying import RemoteCopy

__all__ = ["RemoteCopy"]
