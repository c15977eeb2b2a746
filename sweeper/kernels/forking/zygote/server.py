"""Fork a child for each request.

A client opens one connection for each child, and sends a request with open files. The server
answers with the child's process id, and later with its exit code. If the connection closes, the
child and its session are killed. If the socket of the owner (the process that started the server)
closes, all children are killed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

from .in_kernel import end_with_parent
from .messages import receive, send

#: Largest number of connections that can wait while a child is forked (chosen, not measured).
_BACKLOG = 64


def fork() -> int:
    """Call `os.fork` without Python's warning about threads, such as those of an allocator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _readable(sources: Iterable[Any]) -> list[Any]:
    """Wait until at least one socket or descriptor can be read. Return those that can be read.

    `select.select` cannot be used, because it supports only descriptors below 1,024.
    """
    with selectors.PollSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select()]


class _Child:
    """A forked process. The connection to the client that asked for it is still open."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.has_ended = False


class Server:
    """Listens on a socket, and forks a child for each request.

    Args:
        path: Path of the socket.
        owner: Socket to the process that started the server. When this socket closes, the server
            ends. None for a server that the system kills when its parent ends.
    """

    def __init__(self, path: str, owner: socket.socket | None) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(_BACKLOG)
        self._owner = owner
        self._children: dict[socket.socket, _Child | None] = {}

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Fork a child for each request.

        Return only in the child, with its request and open files.
        """
        while True:
            pidfds = {
                child.pidfd: connection
                for connection, child in self._children.items()
                if child is not None and not child.has_ended
            }
            watched: list[Any] = [self._listener, *self._children, *pidfds]
            if self._owner is not None:
                watched.append(self._owner)
            for source in _readable(watched):
                if source is self._owner:
                    self._end()
                elif source is self._listener:
                    connection, _ = self._listener.accept()
                    self._children[connection] = None
                elif source in pidfds:
                    self._send_exit_code(pidfds[source])
                else:
                    request = self._answer(source)
                    if request is not None:
                        return request
                break  # The other readable sources may be closed by now.

    def _answer(self, connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
        """Read a request and fork a child. In the child, return the request. Else return None."""
        try:
            request, descriptors = receive(connection)
        except OSError:
            request, descriptors = None, []
        if request is None:
            self._drop(connection)
            return None
        try:
            pid = fork()
        except OSError as error:
            # At the moment, there are too many processes or there is too little memory.
            with contextlib.suppress(OSError):
                send(connection, {"error": f"fork: {error.strerror}"})
            self._drop(connection)
        else:
            if pid == 0:
                self._become_child()
                return request, descriptors
            self._children[connection] = _Child(pid)
            self._send(connection, {"pid": pid})
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _send(self, connection: socket.socket, message: dict[str, Any]) -> None:
        """Send a message about a child to the client that asked for it.

        If the client does not receive it, end the child.
        """
        try:
            send(connection, message)
        except OSError:
            self._drop(connection)

    def _become_child(self) -> None:
        parent = os.getppid()
        os.setsid()
        end_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        self._listener.close()
        if self._owner is not None:
            self._owner.close()
        for connection, child in self._children.items():
            connection.close()
            if child is not None:
                os.close(child.pidfd)

    def _send_exit_code(self, connection: socket.socket) -> None:
        """Send the exit code of a child. The child stays a zombie until its connection closes."""
        child = self._children[connection]
        assert child is not None
        ended = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        child.has_ended = True
        self._send(connection, {"exit": code})

    def _drop(self, connection: socket.socket) -> None:
        child = self._children.pop(connection)
        connection.close()
        if child is None:
            return
        if not child.has_ended:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:  # The child is not the leader of its group yet.
                os.kill(child.pid, signal.SIGKILL)
        # Do not wait for a killed process, because a driver that hangs may keep it from ending. In
        # this case, init collects the process.
        os.waitpid(child.pid, 0 if child.has_ended else os.WNOHANG)
        os.close(child.pidfd)

    def _end(self) -> NoReturn:
        for connection in list(self._children):
            self._drop(connection)
        os._exit(0)
