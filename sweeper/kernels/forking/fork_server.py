"""Warm kernels: our end of the zygote, from which they are forked.

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
from pathlib import Path
from typing import Any

from ...notebooks.shared_cells import why_module_unsharable
from ..guard import MARK_VARIABLE
from .import_profile import ImportProfile
from .policy import Offer
from .process import ForkedProcess, is_readable
from .sharing import CellsToShare, RanCell, SharedRun
from .zygote.messages import receive, send

#: Arguments that every kernel of ours gets.
QUIET = ["--HistoryManager.enabled=False"]

_log = logging.getLogger(__name__)

#: How long a zygote may import; kernels are started fresh meanwhile.
_PRELOAD_S = 120
_ANSWER_S = 10.0
#: After so many zygotes that died, kernels are started fresh for the rest of the sweep.
_MOST_DEATHS = 3
#: How often modules are left out of a zygote that could not repeat their effects.
_MOST_EXCLUSIONS = 3


class ForkServer:
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
        self._env = {
            **env,
            MARK_VARIABLE: f"{token}.zygote;",
            "IPYTHONDIR": f"{runtime_folder}/ipython",
        }
        self._cwd = cwd
        self._runtime_folder = runtime_folder
        self._to_share: CellsToShare | None = None
        self._lock = threading.Lock()
        self._import_profile: ImportProfile | None = None
        self._excluded: frozenset[str] = frozenset()
        self._exclusions = 0
        self._is_closed = False
        self._import_s = 0.0
        self._has_acting_imports = False
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
    def has_import_profile(self) -> bool:
        """Whether it knows what to import."""
        return self._import_profile is not None

    @property
    def offer(self) -> Offer:
        """What kernels can be forked from now."""
        waiting = self._waiting
        return Offer(
            is_settled=waiting is not None and not waiting.is_alive(),
            can_fork=self._path is not None,
            shared=self._shared,
            import_s=self._import_s,
            has_acting_imports=self._has_acting_imports,
        )

    def learn(self, told: str) -> None:
        """Raise a zygote that has imported what a kernel has; the first lesson counts.

        Args:
            told: the kernel's answer to `IMPORT_PROFILE`.
        """
        with self._lock:
            if self._import_profile is not None:
                return
            self._import_profile = ImportProfile.read(told, self._env)
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
                self._replace_dead_server(path)
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
        while (waiting := self._waiting) is not None and waiting.is_alive():
            waiting.join()

    def stand_down(self) -> None:
        """Fork no more kernels; those that run go on."""
        with self._lock:
            self._path = self._shared = self._to_share = None

    def close(self) -> None:
        """End the zygote, and with it every kernel that it has forked."""
        with self._lock:
            self._is_closed = True
        self._end_zygote()

    def _end_zygote(self) -> None:
        self._end_sharing()
        with self._lock:
            path, self._path = self._path, None
            owner, self._owner = self._owner, None
            process, self._process = self._process, None
        if owner is not None:
            os.close(owner)
        if process is None:
            return
        if path is None:  # it imports still, and has forked nothing that it could end
            process.kill()
        try:
            process.wait(_ANSWER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _replace_dead_server(self, path: str) -> None:
        """Put another zygote in the place of one that has ended; once, whoever sees it first."""
        with self._lock:
            if self._path != path:
                return
            self._path = None
        self._end_zygote()
        self._deaths += 1
        if self._deaths < _MOST_DEATHS:
            self._raise_zygote()

    def _raise_zygote(self) -> None:
        assert self._import_profile is not None
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
            is_closed = self._is_closed
        if is_closed:
            os.close(reading)
            self._end_zygote()
            return
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(
                self._import_profile.encode(argv=self._argv(), without=self._excluded)
            )
            process.stdin.close()
        self._wait_behind(self._await, process, reading, path)

    def _wait_behind(self, call: Callable[..., None], *arguments: Any) -> None:
        self._waiting = threading.Thread(
            target=call, args=arguments, name="fork_server", daemon=True
        )
        self._waiting.start()

    def _await(self, process: subprocess.Popen[bytes], reading: int, path: str) -> None:
        """Wait, off everybody's path, until the zygote is ready; then have the cells run."""
        report = _report(reading, _PRELOAD_S)
        if report is not None and report["exclude"] and self._exclusions < _MOST_EXCLUSIONS:
            self._raise_without(process, report["exclude"])
            return
        refusal = "it died while importing" if report is None else report["refusal"]
        if report is None or refusal is not None:
            _log.info("kernels are started fresh: %s", refusal)
            if self._process is process:
                self._end_zygote()
            return
        with self._lock:
            if self._process is not process:
                return
            self._path = path
            self._import_s = report["duration_s"]
            self._has_acting_imports = bool(report["acting"])
        if report["acting"]:
            _log.info("repeated in each fork: the imports of %s", ", ".join(report["acting"]))
        if self._to_share is not None:
            self._run_cells(self._to_share, path)

    def _raise_without(self, process: subprocess.Popen[bytes], modules: Sequence[str]) -> None:
        """Put a zygote in the place of one that cannot fork with what some imports have done."""
        _log.info("imported in each kernel: %s", ", ".join(modules))
        with self._lock:
            if self._process is not process:  # closed meanwhile
                return
            self._excluded |= frozenset(modules)
            self._exclusions += 1
        self._end_zygote()
        self._raise_zygote()

    # --- leading cells ------------------------------------------------------------------------

    def _run_cells(self, wanted: CellsToShare, path: str) -> None:
        """Run as many of the cells as a fork can carry over, in a fork of the zygote."""
        count = len(wanted.sources)
        while count:
            folder = tempfile.mkdtemp(prefix="p", dir=self._runtime_folder)
            reading, writing = os.pipe()
            request = {
                **wanted.request(count),
                "path": f"{folder}/s",
                "argv": ["ipykernel_launcher", *self._argv()],
                "env": self._env,
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
                report.update(_unsharable_modules(wanted, report["cells"]))
            if report["why"] is None:
                self._begin_sharing(wanted, f"{folder}/s", report, lease)
                return
            lease.close()
            count = report["refused_at"]
            place = list(wanted.sources)[count]
            _log.info("cell %d is not shared: %s", place, report["why"])

    def _begin_sharing(
        self, wanted: CellsToShare, path: str, report: Mapping[str, Any], lease: socket.socket
    ) -> None:
        cells = {
            index: RanCell(**ran)
            for index, ran in zip(wanted.sources, report["cells"], strict=False)
        }
        with self._lock:
            if self._path is None or self._to_share is None:  # closed meanwhile
                lease.close()
                return
            self._shared = SharedRun(path=path, cells=cells, seeded=report["seeded"])
            self._shared_lease = lease
        until = f" (then {wanted.ended_by})" if wanted.ended_by else ""
        _log.info(
            "%d cells have run for all trials in %.1f s%s",
            len(cells),
            self._shared.duration_s,
            until,
        )

    def _argv(self) -> list[str]:
        """The arguments of every kernel but for its connection file."""
        rest = [argument for argument in self._command[3:] if "connection_file" not in argument]
        return [argument for argument in rest if argument != "-f"] + QUIET

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


def _unsharable_modules(wanted: CellsToShare, ran: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Whether a module of the project that the cells have imported keeps them from being shared.

    Returns:
        `why` and `refused_at`, as the report of the cells has them.
    """
    files: list[str] = []
    for place, cell in enumerate(ran):
        files += cell.pop("local_modules")
        cells = list(wanted.sources.values())[: place + 1]
        why = why_module_unsharable(files, cells) if files else None
        if why is not None:
            for later in ran:
                later.pop("local_modules", None)
            return {"why": why, "refused_at": place}
    return {"why": None, "refused_at": None}


def _report(reading: int, limit_s: float | None) -> Any:
    """What a zygote says of itself when it is ready; None when it has ended before."""
    with open(reading, "rb") as stream:
        told = stream.read() if is_readable(reading, limit_s) else b""
    return json.loads(told) if told else None
