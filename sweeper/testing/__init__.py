"""Help to test sweeps and executors: builders, doubles and contract classes.

Tests of the package and of users share them. The package itself uses nothing of this folder.
`executor_contract` needs pytest, so import that module yourself.
"""

from .builders import trial_spec, write_notebook
from .inline_executor import InlineExecutor

__all__ = ["InlineExecutor", "trial_spec", "write_notebook"]
