"""The server that forks can watch many children."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from sweeper.kernels.forking.zygote import messages

pytestmark = pytest.mark.slow

SERVER = """
import os, socket, sys
from sweeper.kernels.forking.zygote.server import Server
request, _ = Server(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))).serve()
os._exit(request["code"])  # in each child
"""
#: Each child needs two file descriptors of the server.
CHILDREN = 520


def test_a_fork_server_watches_more_children_than_select_supports(tmp_path: Path) -> None:
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
            while child.connect_ex(path):  # until it listens
                assert server.poll() is None
            messages.send(child, {"code": number % 7})
            assert "pid" in (messages.receive(child)[0] or {})
            assert messages.receive(child)[0] == {"exit": number % 7}
        assert server.poll() is None
