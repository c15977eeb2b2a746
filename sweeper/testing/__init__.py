"""Builders, test doubles and contract tests for sweeps and executors. Users may use them too.

The rest of the package does not import this folder. Import `executor_contract` by its own name: it
needs pytest, so it is not imported here.
"""

from .builders import trial_spec, write_notebook
from .inline_executor import InlineExecutor

__all__ = ["InlineExecutor", "trial_spec", "write_notebook"]
