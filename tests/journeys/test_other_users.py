"""Test where a sweep listens, and what another user of the machine can read or do."""

from __future__ import annotations

import ipaddress
import multiprocessing
import os
import re
import shutil
import signal
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from commands import Command, call, project
from studies import until

from sweeper.guard import mark_of, marked_processes
from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.testing import write_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

NOBODY = 65_534
TRAIN = """\
import os, time, sweeper
sweeper.report(0, val=x)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """Make a folder with a short path that all users can read, as `/home/me` often is."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def listening(pids: set[int]) -> tuple[set[str], set[str]]:
    """Return the hosts and the paths at which processes listen."""
    hosts, paths = set(), set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            for it in psutil.Process(pid).net_connections("all"):
                if it.family == socket.AF_UNIX:
                    paths.add(str(it.laddr))
                elif it.status in (psutil.CONN_LISTEN, psutil.CONN_NONE):
                    hosts.add(it.laddr.ip)
    return hosts, paths - {""}


def become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def break_in(pids: set[int], sockets: set[str], private: set[Path], out: Path) -> list[str]:
    """As another user, try to reach, read, lock and stop a sweep. Return what has succeeded.

    Args:
        pids: Ids of the sweep's processes.
        sockets: Paths of the Unix sockets at which the processes listen.
        private: Private folders of the sweep.
        out: Folder of the outputs.
    """
    done = []

    def attempt(what: str, call: Callable[..., object], *arguments: object) -> None:
        with suppress(OSError):
            call(*arguments)
            done.append(what)

    for pid in pids:
        attempt(f"signal {pid}", os.kill, pid, signal.SIGCONT)
        attempt(f"environment of {pid}", Path(f"/proc/{pid}/environ").read_bytes)
    for path in sockets:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_UNIX, kind) as own:
                attempt(f"connect to {path}", own.connect, path)
    for folder in private:
        attempt(f"enter {folder}", os.listdir, folder)
    for file in out.rglob("*"):
        # A user who can open these files can lock them.
        if file.suffix == ".lock" or ".db" in file.name:
            attempt(f"lock {file}", file.open)
    attempt("stop", (out / "s" / "requests" / "all").touch)
    attempt("stop", (out / "s" / "requests").mkdir)
    return done


@pytest.mark.usefixtures("started_kernels")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_reads_nothing_private_of_a_sweep_and_neither_stops_nor_freezes_it(
    shared: Path,
) -> None:
    write_notebook(shared / "sweep" / "nb.ipynb", TRAIN)
    (shared / "sweep" / "s.yml").write_text(
        "objective: {val: maximize}\nspace: {x: [1, 2, 3, 4]}\nkernels: fork\n"
        "study: {trials: 4, sampler: random}\n"
    )
    words = ["-i", "nb.ipynb", "-o", "../out/{run_id}.ipynb", "-p", "s.yml", "-j", "2", "--quiet"]
    env = {**os.environ, "GO": str(shared / "go")}
    sweep = Command(*words, cwd=shared / "sweep", env=env)
    try:
        out = shared / "out"
        until(lambda: (out / "mlflow.db-shm").exists(), "MLflow's store was not opened")
        until(lambda: (read_metadata(out / "0000.ipynb") or BLANK).series, "no trial reports")
        family = psutil.Process(sweep.pid).children(recursive=True)
        pids = {sweep.pid, *(it.pid for it in family), *marked_processes(mark_of(out / "s"))}
        hosts, sockets = listening(pids)
        assert sockets, "the kernels listen on no Unix socket"
        assert all(path.startswith("/") for path in sockets), "any user reaches abstract sockets"
        assert {host for host in hosts if not ipaddress.ip_address(host).is_loopback} == set()
        private = {Path(path).parents[1] for path in sockets}
        with multiprocessing.get_context("fork").Pool(1, become_nobody) as other:
            done = other.apply(break_in, (pids, sockets, private, out))
        assert done == []
        (shared / "go").touch()
        printed, _ = sweep.communicate(timeout=120)
        assert sweep.returncode == 0, printed
    finally:
        sweep.kill()
        sweep.wait()
    with closing(sqlite3.connect(out / "mlflow.db")) as store:
        ended = store.execute("select count(*) from runs where status = 'FINISHED'").fetchone()
    assert ended == (4,)


def plant(mark: str, victim: Path, ended: Path) -> list[Path]:
    """As another user, make folders and links under names that a sweep uses in TMPDIR.

    Do so before the sweep begins and while it runs. Return their paths.

    Args:
        mark: Beginning of the marks of the study's sweeps. A mark is a part of these names.
        victim: Folder of the sweep's user, to which links lead.
        ended: File that appears when the sweep has ended.
    """
    planted = [Path("/tmp") / f"{kind}-{mark}{name}" for kind in ("sweep", "sync") for name in "ab"]
    for path in planted[::2]:
        path.mkdir(mode=0o777)
        (path / "link").symlink_to(victim)
    for path in planted[1::2]:
        path.symlink_to(victim)
    token = re.compile(mark.encode() + rb"[0-9a-f]{8}")
    while not ended.exists():
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                for seen in set(token.findall(process.read_bytes())):
                    path = Path("/tmp") / f"sweep-{seen.decode()}"
                    path.symlink_to(victim)
                    planted.append(path)
    return planted


@pytest.mark.usefixtures("started_kernels")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_files_that_another_user_plants_in_the_temporary_folder_are_not_used(
    shared: Path,
) -> None:
    folder, victim, ended = shared / "sweep", shared / "victim", shared / "ended"
    folder.mkdir()
    words = project("val = x", settings="study: {name: s, trials: 2}", folder=folder)
    victim.mkdir(mode=0o700)
    (victim / "mine").write_text("kept")
    mark = mark_of(folder / "out" / "s")
    planted: list[Path] = []
    with multiprocessing.get_context("fork").Pool(1, become_nobody) as other:
        planting = other.apply_async(plant, (mark, victim, ended))
        try:
            until(Path("/tmp", f"sync-{mark}b").is_symlink, "nothing was planted")
            done = call(*words, cwd=folder, env={**os.environ, "TMPDIR": "/tmp"})
        finally:
            ended.touch()
            planted = planting.get(30)
            left = [path for path in planted if path.is_symlink() or path.is_dir()]
            for path in left:
                path.unlink() if path.is_symlink() else shutil.rmtree(path)
    assert done.returncode == 0, done.stderr
    assert left == planted
    assert [path.name for path in victim.iterdir()] == ["mine"]
    assert list(Path("/tmp").glob(f"*{mark}*")) == []
