"""Processes and folders of a sweep are gone when the sweep ends, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from studies import until

from sweeper.execution import proving
from sweeper.execution.runtime import clear_up, guarded, temporary_folder
from sweeper.guard import MARK_VARIABLE, mark_of, marked_processes
from sweeper.kernels import Reference
from sweeper.testing import trial_spec
from sweeper.trials import RunningTrial, TrialSpec


def folders(study_folder: Path) -> list[Path]:
    return list(Path("/tmp").glob(f"sweep-{mark_of(study_folder)}*"))


@pytest.fixture(autouse=True)
def in_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/tmp")


def guards(sweep: int | None = None) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(sweep).children():
        with suppress(psutil.NoSuchProcess):  # the process may end during the check
            is_guard = "guard.py" in str(process.cmdline())
            found += [process] if is_guard and process.status() != psutil.STATUS_ZOMBIE else []
    return found


def test_the_repeated_run_that_checks_forked_kernels_writes_only_into_the_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[TrialSpec] = []

    def attempt(spec: TrialSpec, *_: Any, **__: Any) -> Any:
        specs.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr(proving, "Attempt", attempt)
    policy = SimpleNamespace(runs_of_a_proof=1)
    site: Any = SimpleNamespace(folder=tmp_path, pool=SimpleNamespace(policy=policy))
    origin: Any = None
    reference = Reference(spec=trial_spec(), run=origin, duration_s=1.0)
    with pytest.raises(KeyboardInterrupt):
        proving._repeat(site, RunningTrial(), reference, origin, saved_s=0.0)
    (spec,) = specs
    for path in (spec.notebook, spec.checkpoint_dir, spec.artifact_dir):
        assert path.is_relative_to(tmp_path)


def test_an_error_in_a_sweep_leaves_neither_its_private_folder_nor_its_guard_processes(
    tmp_path: Path,
) -> None:
    with pytest.raises(MemoryError), guarded(tmp_path) as (token, folder):
        assert folder.is_dir()
        assert folders(tmp_path) == [folder]
        assert len(str(folder)) < 56  # sockets in it have paths of at most 107 characters
        assert token.startswith(mark_of(tmp_path))
        raise MemoryError
    assert folders(tmp_path) == []
    assert guards() == []


@pytest.mark.slow  # the test starts processes
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_a_sweep_makes_its_private_folder_leaves_no_folder(
    tmp_path: Path, moment: str
) -> None:
    code = (
        "import os, sys; from pathlib import Path; from sweeper.execution.runtime import guarded\n"
        "mkdir = Path.mkdir\n"
        "def die(path, *args, **options):\n"
        f"    if {moment == 'after'}: mkdir(path, *args, **options); assert path.is_dir()\n"
        "    os.kill(os.getpid(), 9)\n"
        "Path.mkdir = die\n"
        "with guarded(Path(sys.argv[1])): pass"
    )
    died = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert died.returncode == -9
    until(lambda: not folders(tmp_path))


@pytest.mark.slow  # the test starts processes
def test_a_temporary_folder_is_gone_when_its_process_has_ended_or_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder("replay") as folder:
        (folder / "checkpoint").touch()
        assert [*tmp_path.glob("replay-*")] == [folder]
    assert not folder.exists()
    code = (
        "import os; from sweeper.execution.runtime import temporary_folder\n"
        "with temporary_folder('replay') as folder:\n"
        "    (folder / 'checkpoint').touch()\n"
        "    os.kill(os.getpid(), 9)"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    died = subprocess.run([sys.executable, "-c", code], env=env, check=False)
    assert died.returncode == -9
    until(lambda: not [*tmp_path.iterdir()])


def test_the_next_command_of_a_study_removes_the_private_folder_of_its_dead_sweep(
    tmp_path: Path,
) -> None:
    stale = Path("/tmp") / f"sweep-{mark_of(tmp_path)}dead"
    other = Path("/tmp") / f"sweep-{mark_of(tmp_path / 'other')}live"
    for folder in (stale, other):
        (folder / "k1").mkdir(parents=True)
    try:
        clear_up(tmp_path)
        assert not stale.exists()
        assert other.is_dir()
    finally:
        clear_up(tmp_path / "other")


def test_killed_guard_processes_are_replaced_and_their_replacements_clean_up_after_the_sweep(
    tmp_path: Path,
) -> None:
    with guarded(tmp_path) as (token, folder):
        until(lambda: len(guards()) == 2)
        first = guards()
        for process in first:
            process.kill()
        until(lambda: len(guards()) == len(first) and not set(guards()) & set(first))
        marked = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            env={MARK_VARIABLE: f"{token}.x;"},
        )
        until(lambda: marked_processes(token))
    assert marked.wait() == -9
    assert not folder.exists()
    assert guards() == []


#: A program: a sweep whose kernel is paused (SIGSTOP), and with it a process that it has started.
FREEZES = """
import os, signal, subprocess, sys, time
from pathlib import Path
from sweeper.execution.runtime import guarded
from sweeper.guard import MARK_VARIABLE
sleeps = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
with guarded(Path(sys.argv[1])) as (token, _):
    env = {MARK_VARIABLE: f"{token}.k;"}
    kernel = subprocess.Popen([sys.executable, "-c", sleeps], env=env, start_new_session=True)
    while not Path(f"/proc/{kernel.pid}/task/{kernel.pid}/children").read_text():
        time.sleep(0.01)
    os.killpg(kernel.pid, signal.SIGSTOP)
    print("frozen", flush=True)
    input()
"""


def test_a_frozen_kernel_ends_if_its_sweep_and_one_guard_process_are_killed_together(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", FREEZES, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sweep:
        assert sweep.stdout is not None
        assert sweep.stdout.readline() == b"frozen\n"
        mark = mark_of(tmp_path)
        # The mark is in the environment, which a process hides for a moment while it calls `exec`.
        until(lambda: len(marked_processes(mark)) == 2)
        guard = guards(sweep.pid)[0]
        subprocess.run(["kill", "-9", str(sweep.pid), str(guard.pid)], check=True)
    until(lambda: not marked_processes(mark) and not folders(tmp_path))


def test_a_deeply_nested_folder_that_another_user_has_planted_in_tmp_does_not_stop_a_sweep(
    tmp_path: Path,
) -> None:
    planted = Path("/tmp") / f"sweep-{mark_of(tmp_path)}planted"
    try:
        at = os.open("/tmp", os.O_RDONLY)
        for name in (planted.name, *["a"] * 1200):
            os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(at)
        if os.geteuid() == 0:
            os.chown(planted, 12345, 12345)
        clear_up(tmp_path)
        assert planted.exists()
    finally:
        subprocess.run(["rm", "-rf", planted], check=True)
