"""Start a zygote (a process that kernels are forked from), wait for its report, and end it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .forked_process import ANSWER_S
from .origins import KernelSetup
from .zygote.messages import receive, send

_SCRIPT = Path(__file__).parent / "zygote" / "__main__.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygoteReport:
    """What a zygote reports after its imports: whether kernels can be forked from it.

    Attributes:
        refusal: Why no kernel can be forked from the zygote. None if kernels can be forked.
        exclude: Modules that keep this zygote from forking kernels. Another zygote can probably
            fork kernels if it does not import them.
        environment: Environment variables that the interpreter, the boot and the imports have set,
            by name. None for a variable that they have removed.
        duration_s: Seconds that the imports took.
    """

    refusal: str | None
    exclude: Sequence[str]
    environment: Mapping[str, str | None]
    duration_s: float


class ZygoteProcess:
    """A process that imports what a notebook imports, then forks kernels on request.

    Args:
        interpreter: Command of the Python that runs the kernels, with options.
        setup: What all kernels have in common, with the whole environment of this process.
        imports: Modules to import, arguments of the kernels and sources of local modules, in the
            form that `serve_forks` reads.

    Attributes:
        path: Path of the socket for requests to fork. The zygote answers them after its imports.
        is_let_go: Whether the zygote was told to end by `let_go`.

    Raises:
        OSError: The interpreter cannot be run.
    """

    def __init__(
        self,
        interpreter: Sequence[str],
        setup: KernelSetup,
        *,
        imports: dict[str, Any],
    ) -> None:
        self.path = f"{tempfile.mkdtemp(prefix='z', dir=setup.runtime_folder)}/s"
        self.is_let_go = False
        self._has_reported = False
        self._owner, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*interpreter, str(_SCRIPT), self.path, str(theirs.fileno())],
                    env=setup.env,
                    cwd=setup.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError:
                self._owner.close()
                raise
        with contextlib.suppress(ConnectionError):  # The zygote has ended, and will not report.
            send(self._owner, {**imports, "env": dict(setup.env)})

    def wait_for_report(self, limit_s: float) -> ZygoteReport | None:
        """Wait for the zygote's report about its imports, and return it.

        Return None if the zygote ends first, or takes too long.

        Args:
            limit_s: Longest wait in seconds.
        """
        self._owner.settimeout(limit_s)
        try:
            report, _ = receive(self._owner)
        except OSError:
            return None
        if report is None:
            return None
        self._has_reported = True
        return ZygoteReport(**report)

    def wait(self) -> None:
        """Wait until the zygote ends, or until `let_go` is called."""
        self._owner.settimeout(None)
        with contextlib.suppress(OSError):
            self._owner.recv(1)

    def let_go(self) -> None:
        """Tell the zygote to end, and let `wait` return. This method is thread-safe."""
        self.is_let_go = True
        with contextlib.suppress(OSError):  # The zygote has ended already.
            self._owner.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End the zygote, and with it every process that it has forked."""
        self.let_go()
        if not self._has_reported:  # While it imports, a zygote does not notice the closed socket.
            self._process.kill()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._owner.close()
