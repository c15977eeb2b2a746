"""Notice effects of shared cells beyond their process: those happen once, not in each trial.

Files that are written, processes that are started and entropy that is drawn are seen while shared
cells run. What an installed library does while it is imported does not count: nearly all of them
draw entropy or make a folder then. Neither do the caches that libraries keep.
"""

from __future__ import annotations

import os
import random
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from .imports import installed_folders, is_installed

#: Events of the interpreter that begin another process.
_STARTS = frozenset(
    {
        *("subprocess.Popen", "os.system", "os.posix_spawn", "os.spawn", "os.exec"),
        *("os.fork", "os.forkpty", "pty.spawn"),
    }
)
#: Events that change files, with a path as their first argument.
_CHANGES = frozenset(
    {
        *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"),
        *("os.truncate", "shutil.rmtree", "shutil.move"),
    }
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Where libraries keep caches: these variables, and folders of the user's.
_CACHE_VARIABLES = (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR"),
    *("HF_HOME", "KERAS_HOME", "NUMBA_CACHE_DIR", "SCIKIT_LEARN_DATA", "SEABORN_DATA", "NLTK_DATA"),
)
_CACHES = (".cache", ".config", ".keras", ".torch", "scikit_learn_data", "seaborn-data")
#: Packages that draw entropy for the identifiers of displays and comms.
_SHELL_PACKAGES = ("IPython", "ipykernel", "comm", "jupyter_client", "traitlets")
_FOLDER = str(Path(__file__).parent)
_RUNNER = f"{_FOLDER}/cells.py"
_NO_FILES = ("/dev/", "/proc/", "pipe:", "socket:")


class Effects:
    """Notes what the code of the cells does.

    An audit hook cannot be taken away; outside of `noted`, as in the forks, it returns at once.
    """

    def __init__(self) -> None:
        self._seen: list[str] = []
        self._is_on = False
        self._folders = installed_folders()
        paths = sysconfig.get_paths()
        self._stdlib = (paths["stdlib"], paths["platstdlib"])
        self._caches = tuple(_cache_folders())
        self._urandom = os.urandom
        sys.addaudithook(self._audit)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what happens while the block runs."""
        self._is_on = True
        os.urandom = random._urandom = self._draw_entropy  # type: ignore[attr-defined]
        try:
            yield
        finally:
            self._is_on = False
            os.urandom = random._urandom = self._urandom  # type: ignore[attr-defined]

    def take(self) -> list[str]:
        """The effects since the last call, in words."""
        seen, self._seen = self._seen, []
        return seen

    def _draw_entropy(self, size: int, /) -> bytes:
        caller = sys._getframe(1)
        if self._is_on and not self._is_at_import(caller) and not self._is_identifier(caller):
            self._seen.append("draws random numbers that nothing seeds")
        return self._urandom(size)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_on:
            return
        what = None
        if event == "open":
            path, _, flags = arguments
            # Code that opens a file to append counts as a change of the file.
            if isinstance(flags, int) and flags & _WRITING:
                what = self._change(path)
        elif event in _CHANGES:
            is_there = event == "os.mkdir" and _exists(arguments[0])
            what = None if is_there else self._change(arguments[0])
        elif event in _STARTS:
            what = "starts a process"
        if what is not None and not self._is_at_import(sys._getframe(1)):
            self._seen.append(what)

    def _change(self, path: Any) -> str | None:
        """The effect of a change of a file, in words; None where the change does not count."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return None
        name = os.path.abspath(os.fsdecode(path))
        if name.startswith(_NO_FILES) or "__pycache__" in name:
            return None
        return None if self._is_kept_by_library(name) else f"writes {name}"

    def _is_kept_by_library(self, name: str) -> bool:
        """Whether an installed library writes the file to its cache, or makes a temporary file."""
        caller, through = self._caller(sys._getframe(3))
        if caller is None or not is_installed(caller, self._folders):
            return False
        is_temporary = any(Path(file).name == "tempfile.py" for file in through)
        return is_temporary or name.startswith(self._caches)

    def _is_at_import(self, frame: FrameType | None) -> bool:
        """Whether the body of an installed module runs below a frame."""
        for module, name in _bodies(frame):
            if name == "<module>" and is_installed(module, self._folders):
                return True
        return False

    def _is_identifier(self, frame: FrameType | None) -> bool:
        """Whether entropy makes an identifier of a display, as of a table or of a chart."""
        caller, through = self._caller(frame)
        if caller is None or not is_installed(caller, self._folders):
            return False
        is_shell = any(f"-packages/{name}/" in caller for name in _SHELL_PACKAGES)
        return is_shell or any(Path(file).name == "uuid.py" for file in through)

    def _caller(self, frame: FrameType | None) -> tuple[str | None, list[str]]:
        """The file that has called the standard library, and the files of that in between."""
        through: list[str] = []
        for file, _ in _bodies(frame):
            if not file.startswith(self._stdlib) or "-packages" in file:
                return file, through
            through.append(file)
        return None, through


def _bodies(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """File and name of the code of a frame and of its callers, up to the runner of the cells."""
    while frame is not None and frame.f_code.co_filename != _RUNNER:
        code = frame.f_code
        if not code.co_filename.startswith(("<frozen", _FOLDER)):
            yield code.co_filename, code.co_name
        frame = frame.f_back


def _cache_folders() -> Iterator[str]:
    yield from (os.environ[name] for name in _CACHE_VARIABLES if os.environ.get(name))
    home = Path.home()
    yield from (str(home / name) for name in _CACHES)


def _exists(path: Any) -> bool:
    try:
        return Path(os.fsdecode(path)).exists()
    except (TypeError, ValueError):
        return False
