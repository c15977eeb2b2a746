"""Builders for tests of sweeps, ours and a user's.

Nothing here is used by the package itself.
"""

from .builders import PostgresServer, write_notebook

__all__ = ["PostgresServer", "write_notebook"]
