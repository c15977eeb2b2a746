"""Copy a study to an object storage while it is swept, and restore it on another machine.

`store.py` reads and writes objects. `archive.py` pushes and fetches the data of trials.
"""

from .copying import RemoteCopy

__all__ = ["RemoteCopy"]
