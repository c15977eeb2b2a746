"""Copy a study to an object storage while it is swept, and restore it on another machine.

The folder `object_storage` reads and writes the objects of the copy.
"""

from .copying import RemoteCopy

__all__ = ["RemoteCopy"]
