"""Builders, doubles and contract classes for tests of sweeps, ours and a user's.

Nothing here is used by the package itself. `executor_contract` needs pytest and is imported by who
uses it.
"""

from .builders import trial_spec, write_notebook
from .inline_executor import InlineExecutor

__all__ = ["InlineExecutor", "trial_spec", "write_notebook"]
