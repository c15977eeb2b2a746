"""Warm kernels: our end of the zygote, and the provisioner that forks from it.

A kernel that is forked and one that is started look the same to a notebook. Where there is any
doubt, or any trouble, kernels are started.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from .guard import MARK_VARIABLE
from .process import ForkedProcess, is_readable
from .sharing import CellsToShare, RanCell, SharedRun
from .zygote.libraries import READ_AT_IMPORT
from .zygote.messages import receive, send

#: Arguments that every kernel of ours gets.
QUIET = ["--HistoryManager.enabled=False"]

_log = logging.getLogger(__name__)

#: How long a zygote may import; kernels are started fresh meanwhile.
_PRELOAD_S = 120
_ANSWER_S = 10.0
#: After so many zygotes that died, kernels are started fresh for the rest of the sweep.
_MOST_DEATHS = 3


class Nursery:
    """Learns what a notebook imports, and forks kernels that have it imported.

    Args:
        command: how the kernelspec starts a kernel.
        env: the environment of all kernels, also of the zygote: libraries read it when imported.
        cwd: their working directory.
        token: the beginning of the mark that the zygote bears.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        runtime_folder: Path,
        token: str,
    ) -> None:
        self._command = command
        self._env = {**env, MARK_VARIABLE: f"{token}.zygote;"}
        self._cwd = cwd
        self._runtime_folder = runtime_folder
        self._to_share: CellsToShare | None = None
        self._lock = threading.Lock()
        self._lesson: Lesson | None = None
        self._deaths = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._owner: int | None = None
        self._path: str | None = None  # of a zygote that is ready
        self._waiting: threading.Thread | None = None
        self._shared: SharedRun | None = None
        self._shared_lease: socket.socket | None = None

    @classmethod
    def can_serve(cls, command: Sequence[str]) -> bool:
        """Whether kernels of a kernelspec can be forked on this system."""
        is_ours = list(command[1:3]) == ["-m", "ipykernel_launcher"]
        return is_ours and sys.platform == "linux" and hasattr(os, "pidfd_open")

    @property
    def has_learned(self) -> bool:
        """Whether it knows what to import."""
        return self._lesson is not None

    @property
    def is_ready(self) -> bool:
        """Whether kernels are forked by now."""
        return self._path is not None

    @property
    def shared(self) -> SharedRun | None:
        """The cells that have run, once they have."""
        return self._shared

    def learn(self, told: str) -> None:
        """Raise a zygote that has imported what a kernel has; the first lesson counts.

        Args:
            told: the kernel's answer to `LESSON`.
        """
        with self._lock:
            if self._lesson is not None:
                return
            self._lesson = Lesson.read(told, self._env)
        self._raise_zygote()

    def fork(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        output: int,
        after: SharedRun | None = None,
    ) -> ForkedProcess | None:
        """A kernel's process; None when one has to be started instead.

        Args:
            after: the cells that should have run in it.
        """
        path = self._path if after is None else after.path
        if path is None:
            return None
        request = {"argv": list(argv), "env": dict(env), "cwd": cwd}
        try:
            lease, pid = _request(path, request, [output])
            return ForkedProcess(lease, pid)
        except TimeoutError:
            _log.info("the zygote has not answered in %g s", _ANSWER_S)
        except OSError as error:
            _log.info("the zygote has ended: %s", error)
            if after is None:
                self._bury(path)
            else:
                self._end_sharing()
        return None

    def share(self, cells: CellsToShare | None) -> None:
        """Run cells once the libraries are imported, to fork kernels after them; None for none."""
        self._to_share = cells
        self._end_sharing()
        if cells is not None and self._path is not None:
            self._wait_behind(self._run_cells, cells, self._path)

    def wait(self) -> None:
        """Wait until it is known what can be forked and shared."""
        if self._waiting is not None:
            self._waiting.join()

    def stand_down(self) -> None:
        """Fork no more kernels; those that run go on."""
        with self._lock:
            self._path = self._shared = self._to_share = None

    def close(self) -> None:
        """End the zygote, and with it every kernel that it has forked."""
        self._end_sharing()
        with self._lock:
            path, self._path = self._path, None
            owner, self._owner = self._owner, None
            process, self._process = self._process, None
        if owner is not None:
            os.close(owner)
        if process is not None:
            if path is None:  # it imports still, and has forked nothing that it could end
                process.kill()
            process.wait()

    def _bury(self, path: str) -> None:
        """Put another zygote in the place of one that has ended; once, whoever sees it first."""
        with self._lock:
            if self._path != path:
                return
            self._path = None
        self.close()
        self._deaths += 1
        if self._deaths < _MOST_DEATHS:
            self._raise_zygote()

    def _raise_zygote(self) -> None:
        assert self._lesson is not None
        path = f"{tempfile.mkdtemp(prefix='z', dir=self._runtime_folder)}/s"
        owned, owner = os.pipe()
        reading, writing = os.pipe()
        script = str(Path(__file__).parent / "zygote" / "__main__.py")
        try:
            process = subprocess.Popen(
                [self._command[0], script, path, str(owned), str(writing)],
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
            process.stdin.write(self._lesson.encode())
            process.stdin.close()
        self._wait_behind(self._await, process, reading, path)

    def _wait_behind(self, call: Callable[..., None], *arguments: Any) -> None:
        self._waiting = threading.Thread(target=call, args=arguments, name="nursery", daemon=True)
        self._waiting.start()

    def _await(self, process: subprocess.Popen[bytes], reading: int, path: str) -> None:
        """Wait, off everybody's path, until the zygote is ready; then have the cells run."""
        report = _report(reading, _PRELOAD_S)
        refusal = "it died while importing" if report is None else report["refusal"]
        if refusal is not None:
            _log.info("kernels are started fresh: %s", refusal)
            return
        with self._lock:
            if self._process is not process:
                return
            self._path = path
        if self._to_share is not None:
            self._run_cells(self._to_share, path)

    # --- leading cells ------------------------------------------------------------------------

    def _run_cells(self, wanted: CellsToShare, path: str) -> None:
        """Run as many of the cells as a fork can carry over, in a fork of the zygote."""
        count = len(wanted.sources)
        while count:
            folder = tempfile.mkdtemp(prefix="p", dir=self._runtime_folder)
            reading, writing = os.pipe()
            argv = [argument for argument in self._command[2:] if "connection_file" not in argument]
            request = {
                **wanted.request(count),
                "path": f"{folder}/s",
                "argv": [argument for argument in argv if argument != "-f"] + QUIET,
                "env": {**self._env, "IPYTHONDIR": f"{self._runtime_folder}/ipython"},
                "cwd": str(self._cwd),
            }
            try:
                with open(f"{folder}/said", "w+b") as said:
                    lease, _ = _request(path, request, [said.fileno(), writing])
            except OSError as error:
                _log.info("the zygote does not answer: %s", error)
                return
            finally:
                os.close(writing)
            report = _report(reading, None)
            if report is None:
                report = {"why": "the process died", "refused_at": 0}
            if report["why"] is None:
                self._begin_sharing(wanted, f"{folder}/s", report["cells"], lease)
                return
            lease.close()
            count = report["refused_at"]
            place = list(wanted.sources)[count]
            _log.info("cell %d is not shared: %s", place, report["why"])

    def _begin_sharing(
        self, wanted: CellsToShare, path: str, ran: Sequence[Any], lease: socket.socket
    ) -> None:
        cells = {index: RanCell(**told) for index, told in zip(wanted.sources, ran, strict=False)}
        with self._lock:
            if self._path is None or self._to_share is None:  # closed meanwhile
                lease.close()
                return
            self._shared, self._shared_lease = SharedRun(path=path, cells=cells), lease
        until = f" (then {wanted.ended_by})" if wanted.ended_by else ""
        _log.info(
            "%d cells have run for all trials in %.1f s%s",
            len(cells),
            self._shared.duration_s,
            until,
        )

    def _end_sharing(self) -> None:
        with self._lock:
            self._shared = None
            lease, self._shared_lease = self._shared_lease, None
        if lease is not None:
            lease.close()


def _request(
    path: str, request: Mapping[str, Any], files: Sequence[int]
) -> tuple[socket.socket, int]:
    """Have a zygote fork a child; return its lease and pid.

    Raises:
        OSError: the zygote is gone, or does not answer.
    """
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lease.settimeout(_ANSWER_S)
        lease.connect(path)
        send(lease, dict(request), files)
        told, _ = receive(lease)
        if told is None:
            raise ConnectionError("it has ended")
        return lease, int(told["pid"])
    except BaseException:
        lease.close()
        raise


def _report(reading: int, limit_s: float | None) -> Any:
    """What a zygote says of itself when it is ready; None when it has ended before."""
    with open(reading, "rb") as stream:
        told = stream.read() if is_readable(reading, limit_s) else b""
    return json.loads(told) if told else None


class ForkingProvisioner(LocalProvisioner):
    """Forks the kernel where that is possible, and starts it otherwise.

    Attributes:
        after: the cells that have run in the kernel; None when it was not forked after any.
    """

    def __init__(self, *, nursery: Nursery, after: SharedRun | None, **options: Any) -> None:
        super().__init__(**options)
        self._nursery = nursery
        self.after = after

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        """As its base does, with a forked process in place of a started one."""
        forked = self._nursery.fork(
            cmd[2:],
            env=options["env"],
            cwd=options["cwd"],
            output=options["stderr"].fileno(),
            after=self.after,
        )
        if forked is None:
            self.after = None
            return await super().launch_kernel(cmd, **options)
        self.process = forked  # type: ignore[assignment]
        self.pid = self.pgid = forked.pid
        self.cwd = options["cwd"]
        return self.connection_info


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What the first kernels of a sweep tell of what the notebook needs.

    Attributes:
        modules: installed ones that it has imported, in order.
        environment: variables that its cells have set, of those that libraries read at import.
    """

    modules: Sequence[str]
    environment: Mapping[str, str]

    @classmethod
    def read(cls, told: str, env: Mapping[str, str]) -> Lesson:
        """Read a kernel's answer to `LESSON`.

        Args:
            env: what the kernel was started with.
        """
        data = json.loads(told)
        changed = {k: v for k, v in data["environment"].items() if env.get(k) != v}
        return cls(modules=data["modules"], environment=changed)

    def encode(self) -> bytes:
        """As the zygote reads it."""
        told = {"modules": list(self.modules), "environment": dict(self.environment)}
        return json.dumps(told).encode()


#: An expression for a kernel: what it has imported, in order, from where it is installed.
LESSON = (
    "(lambda s, o, p: __import__('json').dumps({'modules': [n for n, m in list(s.modules.items()) "
    "if getattr(getattr(m, '__spec__', None), 'name', None) == n and "
    "(str(m.__spec__.origin) in ('built-in', 'frozen') or str(m.__spec__.origin).startswith(p))], "
    "'environment': {k: v for k, v in o.environ.items() if __import__('re').match("
    f"{READ_AT_IMPORT!r}, k)}}}}))(__import__('sys'), __import__('os'), tuple("
    "v for k, v in __import__('sysconfig').get_paths().items() "
    "if k in ('stdlib', 'platstdlib', 'purelib', 'platlib')))"
)
