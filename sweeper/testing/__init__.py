"""Builders, doubles and contract classes for tests of sweeps, for us and for users.

The package itself uses nothing of this. `executor_contract` needs pytest, so you import it
yourself.
"""

from .builders import trial_spec, write_notebook
from .inline_executor import InlineExecutor

__all__ = ["InlineExecutor", "trial_spec", "write_notebook"]
