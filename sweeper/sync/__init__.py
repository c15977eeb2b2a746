"""A study's copy in an object storage: kept up while it is swept, brought back on a new machine.

How files get to a storage belongs to `object_store`.
"""

from .copying import RemoteCopy

__all__ = ["RemoteCopy"]
