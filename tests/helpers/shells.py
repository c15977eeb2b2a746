"""IPython without a terminal, for tests that run cells in their own process."""

from __future__ import annotations

import atexit
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


def new_shell() -> Any:
    """Start IPython without a history."""
    config = Config({"HistoryManager": {"enabled": False}})
    config.HistoryManager.hist_file = ":memory:"
    shell: Any = InteractiveShell(config=config)  # type: ignore[no-untyped-call]
    # At the end of the process, each shell would collect all garbage several times.
    atexit.unregister(shell.atexit_operations)
    return shell
