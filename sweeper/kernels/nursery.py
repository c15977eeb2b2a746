"""Warm kernels: our end of the zygote, and the provisioner that forks from it.

A kernel that is forked and one that is started look the same to a notebook. Where there is any
doubt, or any trouble, kernels are started.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from . import zygote
from .guard import MARK_VARIABLE

_log = logging.getLogger(__name__)

#: How long a zygote may import; kernels are started fresh meanwhile.
_PRELOAD_S = 120
_ANSWER_S = 10.0
#: After so many zygotes that died, kernels are started fresh for the rest of the sweep.
_MOST_DEATHS = 3


class ForkedProcess:
    """The part of `subprocess.Popen` that is used of a kernel, for a child of the zygote."""

    stdin = stdout = stderr = None

    def __init__(self, lease: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lease = lease
        self._pidfd = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        with self._lock:
            if self.returncode is None and _readable(self._pidfd, 0.0):
                self._collect()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end."""
        if _readable(self._pidfd, timeout) or self.returncode is not None:
            return self.poll()
        raise subprocess.TimeoutExpired("forked kernel", timeout or 0.0)

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def release(self) -> None:
        """Give the lease back; its number may be another's from now on."""
        with self._lock:
            self._lease.close()
            os.close(self._pidfd)

    def _collect(self) -> None:
        self._lease.settimeout(_ANSWER_S)
        try:
            told, _ = zygote.receive(self._lease)
        except OSError:
            told = None
        # Without an answer the zygote is gone, and has taken its children with it.
        self.returncode = -signal.SIGKILL if told is None else int(told["exit"])


class Nursery:
    """Learns what a notebook imports, and forks kernels that have it imported.

    Args:
        command: how the kernelspec starts a kernel.
        env: the environment of all kernels, also of the zygote: libraries read it when imported.
        token: the beginning of the mark that the zygote bears.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], runtime_folder: Path, token: str
    ) -> None:
        self._python = command[0]
        self._env = {**env, MARK_VARIABLE: f"{token}.zygote;"}
        self._runtime_folder = runtime_folder
        self._lock = threading.Lock()
        self._modules: list[str] | None = None
        self._deaths = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._path: str | None = None  # of a zygote that is ready
        self._owner: int | None = None

    @classmethod
    def can_serve(cls, command: Sequence[str]) -> bool:
        """Whether kernels of a kernelspec can be forked on this system."""
        is_ours = list(command[1:3]) == ["-m", "ipykernel_launcher"]
        return is_ours and sys.platform == "linux" and hasattr(os, "pidfd_open")

    @property
    def has_learned(self) -> bool:
        """Whether it knows what to import."""
        return self._modules is not None

    @property
    def is_ready(self) -> bool:
        """Whether kernels are forked by now."""
        return self._path is not None

    def learn(self, modules: Sequence[str]) -> None:
        """Raise a zygote that has imported these modules; the first lesson counts."""
        with self._lock:
            if self._modules is not None:
                return
            self._modules = list(modules)
        self._raise_zygote()

    def fork(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, output: int
    ) -> ForkedProcess | None:
        """A kernel's process; None when one has to be started instead."""
        with self._lock:
            path = self._path
        if path is None:
            return None
        lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lease.settimeout(_ANSWER_S)
            lease.connect(path)
            zygote.send(lease, {"argv": list(argv), "env": dict(env), "cwd": cwd}, [output])
            told, _ = zygote.receive(lease)
            if told is not None:
                return ForkedProcess(lease, int(told["pid"]))
        except OSError as error:
            _log.info("the zygote does not answer: %s", error)
        lease.close()
        self._bury()
        return None

    def close(self) -> None:
        """End the zygote, and with it every kernel that it has forked."""
        with self._lock:
            self._path = None
            owner, self._owner = self._owner, None
            process, self._process = self._process, None
        if owner is not None:
            os.close(owner)
        if process is not None:
            process.wait()

    def _bury(self) -> None:
        self.close()
        self._deaths += 1
        if self._deaths < _MOST_DEATHS:
            self._raise_zygote()

    def _raise_zygote(self) -> None:
        folder = tempfile.mkdtemp(prefix="z", dir=self._runtime_folder)
        path = f"{folder}/s"
        owned, owner = os.pipe()
        reading, writing = os.pipe()
        command = [self._python, zygote.__file__, path, str(owned), str(writing)]
        try:
            process = subprocess.Popen(
                command,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(owned, writing),
                start_new_session=True,
            )
        except OSError as error:
            _log.info("no zygote: %s", error)
            for descriptor in (owner, reading):
                os.close(descriptor)
            return
        finally:
            os.close(owned)
            os.close(writing)
        with self._lock:
            self._process, self._owner = process, owner
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("\n".join(self._modules or ()).encode())
            process.stdin.close()
        waiting = threading.Thread(target=self._await, args=[process, reading, path], daemon=True)
        waiting.start()

    def _await(self, process: subprocess.Popen[bytes], reading: int, path: str) -> None:
        """Wait, off everybody's path, until the zygote has imported everything."""
        try:
            report = os.read(reading, 4096) if _readable(reading, _PRELOAD_S) else b""
        finally:
            os.close(reading)
        refusal = json.loads(report)["refusal"] if report else "it died while importing"
        if refusal is not None:
            _log.info("kernels are started fresh: %s", refusal)
            return
        with self._lock:
            if self._process is process:
                self._path = path


class ForkingProvisioner(LocalProvisioner):
    """Forks the kernel where that is possible, and starts it otherwise."""

    def __init__(self, *, nursery: Nursery, **options: Any) -> None:
        super().__init__(**options)
        self._nursery = nursery

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        """As its base does, with a forked process in place of a started one."""
        forked = self._nursery.fork(
            cmd[2:], env=options["env"], cwd=options["cwd"], output=options["stderr"].fileno()
        )
        if forked is None:
            return await super().launch_kernel(cmd, **options)
        self.process = forked  # type: ignore[assignment]
        self.pid = self.pgid = forked.pid
        self.cwd = options["cwd"]
        return self.connection_info


def _readable(descriptor: int, limit_s: float | None) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if limit_s is None else limit_s * 1000))


#: An expression for a kernel: what it has imported, in order, from where it is installed.
IMPORTED = (
    "(lambda s, p: '\\n'.join(n for n, m in list(s.modules.items()) "
    "if getattr(getattr(m, '__spec__', None), 'name', None) == n and "
    "(str(m.__spec__.origin) in ('built-in', 'frozen') or "
    "str(m.__spec__.origin).startswith(p))))(__import__('sys'), tuple("
    "v for k, v in __import__('sysconfig').get_paths().items() "
    "if k in ('stdlib', 'platstdlib', 'purelib', 'platlib')))"
)
