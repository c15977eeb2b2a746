"""A study's copy in an object storage: kept up while it is swept, brought back on a new machine.

The only owner of fsspec.
"""

from .copying import RemoteCopy

__all__ = ["RemoteCopy"]
