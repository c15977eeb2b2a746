"""Test whole sweeps in a pseudo-terminal, as people see them on its screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import project
from studies import kernels_in, until
from terminals import Terminal

from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

#: Lines of the live table: its header, a row, and the line above them. All are erased at the end.
TABLE = re.compile(
    r"^(trial .* time +memory|\d{4} .* (start|\d+/\d+) |\S+ · \d+ of \d+ trials)", re.M
)
TRAIN = (
    "import time\n"
    "for epoch in range(4):\n"
    "    time.sleep(0.1)\n"
    "    val = 1 - (x - 0.3) ** 2 - 1 / (epoch + 2)\n"
    "    print(f'epoch {epoch} val={val:.4f}', flush=True)"
)
#: A cell that runs until the file `go` exists.
WAIT = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)\nval = x"
MLFLOW = ("MLflow", "parallel", "mlflow", "http", "experiments")


def sweep(
    folder: Path,
    cell: str,
    *options: str,
    study: str = "trials: 6",
    more: str = "",
    columns: int = 80,
    rows: int = 24,
    env: dict[str, str | None] | None = None,
) -> Terminal:
    """Sweep a notebook of one cell in a terminal."""
    settings = f"study: {{name: s, sampler: random, {study}}}\n{more}"
    files = project(cell, settings=settings, folder=folder)
    return Terminal(*files, "-j", "3", *options, cwd=folder, columns=columns, rows=rows, env=env)


def check(terminal: Terminal) -> None:
    """Check that there is no traceback, no table after the end, and no 5 s without output."""
    assert "Traceback" not in terminal.output.decode()
    assert not terminal.ever("the table was not drawn")
    assert not TABLE.findall(terminal.text), terminal.text
    assert terminal.longest_silence_s() < 5


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
def test_a_sweep_shows_a_table_while_trials_run_and_only_lines_afterwards(
    tmp_path: Path, columns: int, rows: int
) -> None:
    fail_or_train = f"assert x < 0.9, 'too large'\n{TRAIN}"
    # The start trial with x = 0.95 fails, and the one with x = 0.8 is pruned.
    reports = "scores: {val: {pattern: 'val=([0-9.]+)'}}\nstart: [{x: 0.95}, {x: 0.8}]"
    study = "trials: 10, pruner: {name: threshold, lower: 0.4}"
    terminal = sweep(tmp_path, fail_or_train, study=study, more=reports, columns=columns, rows=rows)
    assert terminal.wait() == 0, terminal.text
    check(terminal)
    assert any(TABLE.search(look.text) for look in terminal.looks)
    assert re.search(r"^\d+ completed, \d+ pruned, \d+ failed in", terminal.text, re.M), (
        terminal.text
    )
    assert "too large" in terminal.text
    # Only screens with the live table are checked: the answer after it is wrapped at full width.
    while_running = [look for look in terminal.looks if TABLE.search(look.text)]
    full = [line for look in while_running for line in look.lines if len(line) == columns]
    assert not [it for it in full if it[-1] != "…" and not any(word in it for word in MLFLOW)]


def test_a_sweep_that_is_proposed_for_a_notebook_starts_when_the_user_presses_enter(
    tmp_path: Path,
) -> None:
    cell = "acc = 1 - (lr - 0.3) ** 2\nprint(f'acc={acc:.4f}')"
    write_notebook(tmp_path / "my.ipynb", cell, parameters="lr = 0.1")
    terminal = Terminal("my.ipynb", "-j", "2", cwd=tmp_path)
    terminal.until_seen("Enter")
    terminal.press("\r")
    assert terminal.wait() == 0, terminal.text
    check(terminal)
    assert "best: " in terminal.text


def test_the_live_table_names_frozen_trials_while_others_run(tmp_path: Path) -> None:
    cell = (
        "import math, time\nfor epoch in range(12):\n    time.sleep(0.05)\n"
        "    val = (1 - abs(x - 0.7)) * (1 - math.exp(-(epoch + 1) / 4))\n"
        "    print(f'{epoch}: val={val:.6f}', flush=True)"
    )
    more = "scores: {val: {pattern: 'val=([0-9.]+)'}}\nkernels: fork"
    terminal = sweep(tmp_path, cell, study="trials: 12, pruner: auto", more=more)
    assert terminal.wait() == 0, terminal.text
    check(terminal)
    assert terminal.ever("frozen, and may continue: \\d{4}")
    assert re.search(r"\d pruned", terminal.text)


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_is_answered_at_once_and_leaves_no_table(tmp_path: Path, presses: int) -> None:
    terminal = sweep(tmp_path, WAIT)
    until(lambda: len(kernels_in(tmp_path)) >= 3)
    terminal.until_seen(r"\d/\d")
    terminal.press("\x03")
    terminal.until_seen("running ones finish")
    if presses == 1:
        (tmp_path / "go").touch()
    else:
        terminal.press("\x03")
    assert terminal.wait() == 130, terminal.text
    check(terminal)
    ended = "3 completed" if presses == 1 else "3 stopped"
    assert re.search(rf"^{ended} in", terminal.text, re.M), terminal.text


def test_a_terminal_window_that_is_resized_several_times_shows_the_live_table_once(
    tmp_path: Path,
) -> None:
    terminal = sweep(tmp_path, WAIT, columns=120, rows=40)
    terminal.until_seen(r"0002 .*\d/\d")
    for columns, rows in ((70, 20), (132, 50), (50, 12)):
        terminal.resize(columns, rows)
        terminal.until_new_frame()
        assert len(TABLE.findall(terminal.now)) == 2 + 3, terminal.now
    (tmp_path / "go").touch()
    assert terminal.wait() == 0, terminal.text
    check(terminal)


def test_no_color_is_obeyed_and_a_dumb_terminal_gets_only_lines(tmp_path: Path) -> None:
    for name, env in (("plain", {"NO_COLOR": "1"}), ("dumb", {"TERM": "dumb"})):
        (tmp_path / name).mkdir()
        terminal = sweep(tmp_path / name, "val = x", study="trials: 3", env=dict(env))
        assert terminal.wait() == 0, terminal.text
        check(terminal)
        assert not re.search(rb"\x1b\[[0-9;]*(3|4|9)[0-9]m", terminal.output)
        has_table = any(TABLE.search(look.text) for look in terminal.looks)
        assert has_table == (name == "plain")
    assert b"\x1b" not in terminal.output
    assert "0002 started" in terminal.text


@pytest.mark.slow
def test_the_live_table_remains_until_30_short_trials_are_written_to_mlflow(tmp_path: Path) -> None:
    terminal = sweep(tmp_path, "val = x", study="trials: 30", rows=40)
    assert terminal.wait() == 0, terminal.text
    check(terminal)
    assert terminal.ever(r"writing trials to MLflow: \d+ of 30")
    assert len(re.findall(r"\d{4} completed in", terminal.text)) == 30


def test_a_running_sweep_reports_once_that_its_trials_overwrite_the_same_file(
    tmp_path: Path,
) -> None:
    saved = "import pathlib\npathlib.Path('best.txt').write_text(str(x))\nval = x"
    terminal = sweep(tmp_path, saved)
    assert terminal.wait() == 0, terminal.text
    check(terminal)
    told = re.findall(r"^\[ *[\d.ms]+\] 1 trial overwrote files", terminal.text, re.M)
    assert len(told) == 1, terminal.text
    assert re.search(r"^[2-6] trials overwrote files .*best\.txt", terminal.text, re.M)
    assert "sweeper.trial().artifact_dir" in " ".join(terminal.text.split())
