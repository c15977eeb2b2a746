"""Files in an object storage: the only owner of fsspec.

What is stored there, and when, does not belong here.
"""

from .store import Store, StoreError

__all__ = ["Store", "StoreError"]
