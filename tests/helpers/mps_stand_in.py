#!/usr/bin/env python3
"""A stand-in for nvidia-cuda-mps-control, which does what NVIDIA's documentation describes.

With -d it becomes a daemon, which starts a server process for its first client. Without -d it sends
the commands on its standard input to the daemon. A client is a connection that has sent `client
PID`. After a fault, new clients are refused until all clients of that moment have disconnected.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import stat
import sys
import time
from pathlib import Path


def installed(folder: Path) -> Path:
    """Put the program into a folder under the name of NVIDIA's program."""
    program = folder / "nvidia-cuda-mps-control"
    # A file that is both a shell script and a Python program, because a `#!` line cannot name an
    # interpreter whose path has a space. The shell runs Python with this file. For Python, these
    # lines are a docstring.
    lines = ["#!/bin/sh", "''':'", f'exec \'{sys.executable}\' "$0" "$@"', "'''"]
    rest = Path(__file__).read_text(encoding="utf-8").split('"""', 2)[2]
    program.write_text("\n".join(lines) + rest, encoding="utf-8")
    shutil.copymode(__file__, program)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


class Daemon:
    """The daemon. It logs what happens in `log/control.log`."""

    def __init__(self, folder: Path) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / "unready"))
        self._listening.listen()
        (folder / "unready").rename(folder / "control")
        self._log = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "control.log"
        self._clients: dict[socket.socket, int] = {}
        self._faulty: set[socket.socket] = set()
        self._server = 0
        self._folder = folder
        self._quits = False

    def serve(self) -> None:
        """Answer until the command quit was sent and the last client has gone."""
        self._note(f"started for {os.environ['CUDA_VISIBLE_DEVICES']}")
        with selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            while not self._quits or self._clients:
                for key, _ in selector.select():
                    if key.fileobj is self._listening:
                        connection, _ = self._listening.accept()
                        selector.register(connection, selectors.EVENT_READ, connection)
                    elif not self._answer(key.data):
                        selector.unregister(key.data)
                        key.data.close()
        if self._server:
            os.kill(self._server, signal.SIGTERM)
        (self._folder / "control").unlink(missing_ok=True)
        self._note("ended in order")

    def _note(self, text: str) -> None:
        with self._log.open("a") as log:
            log.write(text + "\n")

    def _answer(self, connection: socket.socket) -> bool:
        try:
            words = connection.recv(1000).decode().split()
        except ConnectionError:
            words = []
        if not words:
            if connection in self._clients:
                self._note(f"client {self._clients.pop(connection)} has gone")
            self._faulty.discard(connection)
            return False
        answer = ""
        match words:
            case ["client", pid] if self._faulty:
                self._note(f"client {pid} refused")
                answer = "REFUSED"
            case ["client", pid]:
                self._server = self._server or start_server()
                self._clients[connection] = int(pid)
                self._note(f"client {pid} accepted")
                answer = "ACCEPTED"
            case ["fault"]:
                self._faulty = set(self._clients)
                self._note("fault")
                return True
            case ["get_server_list"]:
                answer = str(self._server or "")
            case ["quit"]:
                self._quits = True
            case _:
                answer = "Unknown command"
        connection.sendall(f"{answer}\n".encode())
        return words[0] == "client" and answer == "ACCEPTED"


def start_server() -> int:
    """Start a process that does nothing, with an empty environment."""
    pid = os.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
    return pid


def main() -> int:
    """Run the program."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if sys.argv[1:] == ["-d"]:
        if os.environ.get("STAND_IN_FAILS"):
            sys.stderr.write("the stand-in does not start\n")
            return 1
        if os.fork():
            while not (folder / "control").exists():
                time.sleep(0.01)
            return 0
        os.setsid()
        if os.fork():
            os._exit(0)
        Daemon(folder).serve()
        return 0
    for line in sys.stdin:
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(str(folder / "control"))
            except OSError:
                sys.stdout.write("Cannot find MPS control daemon process\n")
                return 1
            asking.sendall(line.encode())
            sys.stdout.write(asking.makefile().read())
    return 0


if __name__ == "__main__":
    sys.exit(main())
