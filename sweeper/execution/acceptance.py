"""Whether a worker has the Python and the packages with which trials run at home."""

from __future__ import annotations

import ast
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..errors import SweepError
from ..kernels import check_kernel, environment_of, interpreter_of
from ..notebooks.cell_code import parse_or_none
from .environment import python_of
from .workload import Workload

#: What installs packages has no part in a result.
_INSTALLERS = frozenset({"pip", "setuptools", "uv", "wheel"})
#: The most packages that a message names.
_MOST_NAMES = 5


class Acceptance:
    """Compares workers with home, or with the first worker where home lacks the kernel."""

    def __init__(self, workload: Workload) -> None:
        self.kernel_name = workload.kernel_name
        self.modules = _imported(workload)
        self.python: Mapping[str, Any] | None = _python_here(self.kernel_name, self.modules)
        self._whose = "here"
        self._lock = threading.Lock()

    def differences(self, python: Mapping[str, Any] | None, *, host: str) -> list[str]:
        """What keeps a worker from running trials; empty where nothing does.

        Args:
            python: of the kernel there, as `python_of` describes it; None where none answers.
            host: its machine.
        """
        with self._lock:
            if self.python is None:
                self.python, self._whose = python, f"on {host}"
                return []
        if python is None:
            return [f"the Python of the kernel {self.kernel_name!r} does not answer there"]
        return _differences(self.python, python, whose=self._whose)


def own_version() -> str:
    """The version of this package; empty where it is not installed."""
    try:
        return version("notebook-hpo")
    except PackageNotFoundError:
        return ""


def _differences(here: Mapping[str, Any], there: Mapping[str, Any], *, whose: str) -> list[str]:
    found = []
    if _minor(here) != _minor(there):
        found.append(f"Python: {here['version']} {whose}, {there['version']} there")
    ours, theirs = here["packages"], there["packages"]
    others = [
        f"{name}: {ours[name]} {whose}, {theirs[name]} there"
        for name in sorted((ours.keys() & theirs.keys()) - _INSTALLERS)
        if ours[name] != theirs[name]
    ]
    more = len(others) - _MOST_NAMES
    found += others[:_MOST_NAMES] + ([f"and {more} packages more"] if more > 0 else [])
    known = here.get("missing", ())
    return found + [
        f"{name}: installed {whose}, missing there"
        for name in there.get("missing", ())
        if name not in known
    ]


def _minor(python: Mapping[str, Any]) -> tuple[str, ...]:
    return (python["implementation"], *python["version"].split(".")[:2])


def _python_here(kernel_name: str, modules: Sequence[str]) -> dict[str, Any] | None:
    """The Python of the kernel on this machine; None where it has no such kernel."""
    try:
        check_kernel(kernel_name, asked_by="the notebook")
    except SweepError:
        return None
    env = environment_of(kernel_name, os.environ)
    return python_of(interpreter_of(kernel_name), env, modules)


def _imported(workload: Workload) -> list[str]:
    """The top-level modules that the notebook and the modules beside it import."""
    snapshot = workload.snapshot
    sources = [*workload.notebook.code, *(() if snapshot is None else snapshot.files.values())]
    own = {Path(file).parts[0].removesuffix(".py") for file in (snapshot.files if snapshot else ())}
    found: set[str] = set()
    for source in sources:
        tree = parse_or_none(source)
        if tree is None:  # of another language
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return sorted(found - own - set(sys.stdlib_module_names) - {"sweeper"})
