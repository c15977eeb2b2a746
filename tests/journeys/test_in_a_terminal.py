"""Whole sweeps in a pseudo-terminal, as people see them on its screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import project
from terminals import Terminal

pytestmark = pytest.mark.kernel

#: A row of the table, or its header: what must be gone when the sweep has ended.
TABLE = re.compile(r"^(trial +.* cell +time|\d{4} .* (start|\d+/\d+) )", re.M)
#: The sizes of windows.
SIZES = [(80, 24), (120, 40)]
TRAIN = (
    "import time\n"
    "for epoch in range(4):\n"
    "    time.sleep(0.1)\n"
    "    val = 1 - (x - 0.3) ** 2 - 1 / (epoch + 2)\n"
    "    print(f'epoch {epoch} val={val:.4f}', flush=True)"
)
SETTINGS = "study: {{name: {name}, trials: {trials}, sampler: random{more}}}"


def check(terminal: Terminal) -> None:
    """What holds of each sweep in a terminal: no traceback, no stale table, no silence."""
    assert "Traceback" not in terminal.output.decode()
    assert not terminal.ever("the table was not drawn")
    assert not TABLE.findall(terminal.text), terminal.text
    assert terminal.longest_silence_s() < 5


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_sweep_shows_its_trials_while_they_run_and_then_lines_alone(
    tmp_path: Path, columns: int, rows: int
) -> None:
    settings = SETTINGS.format(name="small", trials=12, more="")
    files = project(TRAIN, settings=settings, folder=tmp_path)
    terminal = Terminal(*files, "-j", "3", cwd=tmp_path, columns=columns, rows=rows)
    assert terminal.wait() == 0, terminal.text
    check(terminal)
    assert "12 completed" in terminal.text
    assert any(TABLE.search(look.text) for look in terminal.looks)
