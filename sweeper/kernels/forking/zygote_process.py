"""Start one zygote, wait for its report, and end it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .process import ANSWER_S, is_readable

_SCRIPT = Path(__file__).parent / "zygote" / "__main__.py"


class ZygoteProcess:
    """A process that imports what a notebook imports, and then forks kernels on request.

    Args:
        interpreter: the Python that runs the kernels, and its options.
        env: the whole environment of the process.
        imports: what to import, from `ImportProfile.encode`.
        runtime_folder: the folder for the socket.

    Attributes:
        path: the socket at which the zygote serves, once it has reported.

    Raises:
        OSError: the interpreter cannot be run.
    """

    def __init__(
        self,
        interpreter: Sequence[str],
        *,
        env: Mapping[str, str],
        imports: bytes,
        runtime_folder: Path,
    ) -> None:
        self.path = f"{tempfile.mkdtemp(prefix='z', dir=runtime_folder)}/s"
        self._has_reported = False
        owned, self._owner = os.pipe()
        self._report, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*interpreter, str(_SCRIPT), self.path, str(owned), str(writing)],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(owned, writing),
                start_new_session=True,
            )
        except OSError:
            os.close(self._owner)
            os.close(self._report)
            raise
        finally:
            os.close(owned)
            os.close(writing)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(imports)
            self._process.stdin.close()

    def wait_for_report(self, limit_s: float) -> Mapping[str, Any] | None:
        """The report after the imports; None when the zygote ends before or takes longer."""
        report: Mapping[str, Any] | None = read_report(self._report, limit_s)
        self._has_reported = report is not None
        return report

    def end(self) -> None:
        """End the zygote, and with it every process that it has forked."""
        os.close(self._owner)
        if not self._has_reported:  # it still imports, and does not watch its owner's pipe
            self._process.kill()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def read_report(descriptor: int, limit_s: float | None) -> Any:
    """Read a JSON message up to the end of a pipe; None when none comes in time."""
    with open(descriptor, "rb") as stream:
        message = stream.read() if is_readable(descriptor, limit_s) else b""
    return json.loads(message) if message else None
