"""The process that forks kernels (zygote) watches many children, and says why it cannot fork."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sweeper.kernels import KernelSetup
from sweeper.kernels.forking.zygote import messages
from sweeper.kernels.forking.zygote_process import ZygoteProcess, ZygoteReport

pytestmark = pytest.mark.slow

SERVER = """
import os, socket, sys
from sweeper.kernels.forking.zygote.server import Server
request, _ = Server(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))).serve()
os._exit(request["code"])  # in each child
"""
#: Each child needs two file descriptors of the server.
CHILDREN = 520


def test_the_fork_server_watches_more_children_than_the_system_call_select_supports(
    tmp_path: Path,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 4 * CHILDREN:
        pytest.skip("needs a hard limit of 2,080 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * CHILDREN, limits[1]))
    ours, theirs = socket.socketpair()
    path = str(tmp_path / "s")
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        opened.enter_context(ours)
        server = opened.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", SERVER, path, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
            )
        )
        opened.callback(server.kill)
        theirs.close()
        for number in range(CHILDREN):
            child = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            while child.connect_ex(path):  # until the server listens
                assert server.poll() is None
            messages.send(child, {"code": number % 7})
            assert "pid" in (messages.receive(child)[0] or {})
            assert messages.receive(child)[0] == {"exit": number % 7}
        assert server.poll() is None


def report_of_zygote(tmp_path: Path) -> ZygoteReport:
    """Start a process to fork from, with a folder on PYTHONPATH. Return its report."""
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    setup = KernelSetup(
        name="python3",
        env=env,
        cwd=tmp_path,
        runtime_folder=tmp_path,
        token="sweep-test",
        random_seed=0,
    )
    imports: dict[str, Any] = {"modules": [], "argv": [], "frozen": {}}
    zygote = ZygoteProcess([sys.executable], setup, imports=imports)
    try:
        report = zygote.wait_for_report(60)
    finally:
        zygote.end()
    assert report is not None
    return report


def test_the_process_that_forks_kernels_reports_environment_variables_set_by_its_interpreter(
    tmp_path: Path,
) -> None:
    setting = "import os\nos.environ['OMP_WAIT_POLICY'] = 'PASSIVE'"
    (tmp_path / "sitecustomize.py").write_text(setting)
    report = report_of_zygote(tmp_path)
    assert report.refusal is None
    assert report.environment["OMP_WAIT_POLICY"] == "PASSIVE"


def test_the_process_that_forks_kernels_reports_a_remedy_if_ipykernel_is_too_old(
    tmp_path: Path,
) -> None:
    (tmp_path / "comm.py").write_text("raise ModuleNotFoundError(\"No module named 'comm'\")")
    report = report_of_zygote(tmp_path)
    assert report.refusal is not None
    assert "No module named 'comm'" in report.refusal
    assert "pip install -U ipykernel" in report.refusal
