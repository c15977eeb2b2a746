"""Copies a study to an object storage while it is swept, and restores it on another machine.

How objects are read and written belongs to `object_store`.
"""

from .copying import RemoteCopy

__all__ = ["RemoteCopy"]
