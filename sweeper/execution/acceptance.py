"""Whether a worker has the Python and the packages with which trials run at home."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..kernels import environment_of, interpreter_of
from ..notebooks.cell_code import parse_or_none
from .environment import python_of
from .workload import Workload

#: What installs packages has no part in a result.
_INSTALLERS = frozenset({"pip", "setuptools", "uv", "wheel"})
#: The most packages that a message names.
_MOST_NAMES = 5


def own_version() -> str:
    """The version of this package; empty where it is not installed."""
    try:
        return version("notebook-hpo")
    except PackageNotFoundError:
        return ""


def kernel_python(kernel_name: str, modules: Sequence[str]) -> dict[str, Any] | None:
    """The Python of a kernel on this machine, as `python_of` describes it; None where none answers.

    Args:
        modules: those that it cannot import are its `missing`.
    """
    env = environment_of(kernel_name, os.environ)
    return python_of(interpreter_of(kernel_name), env, modules)


def differences(here: Mapping[str, Any] | None, there: Mapping[str, Any] | None) -> list[str]:
    """What keeps a worker from running trials; empty where nothing does.

    Args:
        here: the Python of the kernel at home; None where that is of another language.
        there: the one of the worker; None where none answers.
    """
    if here is None:
        return []
    if there is None:
        return ["the Python of the notebook's kernel does not answer there"]
    found = []
    if _minor(here) != _minor(there):
        found.append(f"Python: {here['version']} here, {there['version']} there")
    ours, theirs = here["packages"], there["packages"]
    others = [
        f"{name}: {ours[name]} here, {theirs[name]} there"
        for name in sorted((ours.keys() & theirs.keys()) - _INSTALLERS)
        if ours[name] != theirs[name]
    ]
    more = len(others) - _MOST_NAMES
    found += others[:_MOST_NAMES] + ([f"and {more} packages more"] if more > 0 else [])
    missing = [name for name in there.get("missing", ()) if name not in here.get("missing", ())]
    return found + [f"{name}: installed here, missing there" for name in missing]


def imported_modules(workload: Workload) -> list[str]:
    """The top-level modules that the notebook and the modules beside it import."""
    snapshot = workload.snapshot
    sources = [*workload.notebook.code, *(() if snapshot is None else snapshot.files.values())]
    own = {Path(file).parts[0].removesuffix(".py") for file in (snapshot.files if snapshot else ())}
    found: set[str] = set()
    for source in sources:
        tree = parse_or_none(source) or ast.Module([], [])  # of another language
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return sorted(found - own - set(sys.stdlib_module_names) - {"sweeper"})


def _minor(python: Mapping[str, Any]) -> tuple[str, ...]:
    return (python["implementation"], *python["version"].split(".")[:2])
