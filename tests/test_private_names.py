"""Private names of libraries: those that the package uses exist, and are listed in the docs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import sweeper

PACKAGE = Path(sweeper.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "private-names.md"

#: Library, private name, and the modules that use it.
NAMES = [
    ("optuna", "optuna.study.study.Study._storage", "study/study.py"),
    (
        "optuna",
        "optuna.samplers._gp.sampler.GPSampler._sample_relative_impl",
        "study/samplers/padded_gp.py",
    ),
    (
        "optuna",
        "optuna.samplers._gp.sampler.GPSampler._optimize_acqf",
        "study/samplers/padded_gp.py",
    ),
    ("optuna", "optuna._gp.search_space.SearchSpace", "study/samplers/padding.py"),
    (
        "optuna",
        "optuna.trial._frozen.FrozenTrial._trial_id",
        "study/study.py, study/storage.py, study/proposals.py",
    ),
    (
        "nbclient",
        "nbclient.client.NotebookClient._async_poll_kernel_alive",
        "kernels/cells/client.py",
    ),
    ("nbclient", "nbclient.client.NotebookClient._display_id_map", "kernels/cells/client.py"),
    (
        "nbconvert",
        "nbconvert.exporters.html.HTMLExporter._init_resources",
        "notebooks/html.py",
    ),
    (
        "ipykernel",
        "ipykernel.kernelbase.Kernel._process_children",
        "kernels/cells/expressions.py",
    ),
    ("ipykernel", "ipykernel.iostream.OutStream._master_pid", "kernels/forking/zygote/shell.py"),
    (
        "mlflow",
        "mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore._engine_map",
        "tracking/files.py",
    ),
]
#: Documented in spite of their names.
PUBLIC = {"_exit", "_getframe", "_asdict", "_replace"}


@pytest.mark.parametrize(("library", "name", "users"), NAMES, ids=[name for _, name, _ in NAMES])
def test_a_private_name_that_the_package_uses_exists(library: str, name: str, users: str) -> None:
    try:
        installed = platform.python_version() if library == "Python" else version(library)
    except PackageNotFoundError:
        pytest.skip(f"{library} is not installed")
    has_name = _python_has(name) if library == "Python" else _source_has(name)
    assert has_name, (
        f"{library} {installed} has no {name}, which sweeper/{users} needs; "
        "docs/private-names.md says what for, and what to do"
    )


@pytest.mark.parametrize(("library", "name", "users"), NAMES, ids=[name for _, name, _ in NAMES])
def test_a_listed_private_name_is_used_where_the_list_says(
    library: str, name: str, users: str
) -> None:
    last = name.rpartition(".")[2]
    for user in users.split(", "):
        assert last in (PACKAGE / user).read_text("utf-8"), f"remove {name} from the list and page"


def test_the_page_and_the_list_are_the_same() -> None:
    rows = re.findall(
        r"^\| (\w+) \| `([\w.]+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", PAGE.read_text("utf-8"), re.M
    )
    assert [(library, name, users.replace("`", "")) for library, name, users in rows] == NAMES


@pytest.mark.slow
def test_every_private_name_of_a_library_that_the_package_uses_is_listed() -> None:
    listed = {name.rpartition(".")[2] for _, name, _ in NAMES}
    trees = {path: ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
    own = {name for tree in trees.values() for name in _defined(tree)}
    unlisted = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.attr}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and re.match(r"_[^_]", node.attr)
        and node.attr not in own | listed | PUBLIC
    ]
    assert unlisted == []


def _defined(tree: ast.Module) -> set[str]:
    """The names of functions, fields, variables and attributes that a module of ours defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def _python_has(name: str) -> bool:
    owner, _, last = name.rpartition(".")
    module, _, part = owner.rpartition(".")
    try:
        found = importlib.import_module(owner)
    except ImportError:
        found = getattr(importlib.import_module(module), part)
    return hasattr(found, last)


def _source_has(name: str) -> bool:
    """Whether the source of a library's class or module has a name; imports nothing heavy."""
    owner, _, last = name.rpartition(".")
    module, _, class_name = owner.rpartition(".")
    tree = _source_of(owner)
    if tree is None:
        tree = _source_of(module)
        if tree is None:
            return False
        classes = (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))
        tree = next((node for node in classes if node.name == class_name), None)
    if tree is None:
        return False
    return any(
        last in (getattr(node, "name", None), getattr(node, "attr", None), getattr(node, "id", ""))
        for node in ast.walk(tree)
    )


@cache
def _source_of(module: str) -> ast.AST | None:
    top, *parts = module.split(".")
    spec = importlib.util.find_spec(top)
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent.joinpath(*parts)
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return ast.parse(file.read_text("utf-8"))
    return None
