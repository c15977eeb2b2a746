"""The live table is displayed in Jupyter alone; tests/journeys/test_in_jupyter.py has a kernel."""

from __future__ import annotations

import subprocess
import sys

from sweeper.display.in_jupyter import live_output
from sweeper.trials import Snapshot


def test_outside_of_jupyter_nothing_is_looked_at() -> None:
    looks = []

    def look() -> Snapshot | None:
        looks.append(True)
        return None

    with live_output(look):
        pass
    assert looks == []


def test_the_ipython_of_a_terminal_is_no_notebook() -> None:
    code = "from sweeper.display.in_jupyter import is_jupyter; print(is_jupyter())"
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--quick", "--colors=NoColor", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
