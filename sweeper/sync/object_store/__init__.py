"""Reads and writes objects in an object storage; the only owner of fsspec.

What is stored there, and when, does not belong here.
"""

from .store import ConflictError, Store, StoreError

__all__ = ["ConflictError", "Store", "StoreError"]
