"""Test that each private name of a library that the package uses is in a page, and exists."""

from __future__ import annotations

import ast
import importlib.util
import re
from importlib.metadata import version
from pathlib import Path

import pytest

import sweeper

PACKAGE = Path(sweeper.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "private-names.md"

#: Library, private name, and the modules that use it, from the page.
NAMES = [
    (library, name, users.replace("`", "").split(", "))
    for library, name, users in re.findall(
        r"^\| (\w+) \| `([\w.]+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", PAGE.read_text("utf-8"), re.M
    )
]
#: Names that begin with an underscore but are documented as public.
PUBLIC = {"_exit", "_getframe", "_asdict", "_fields", "_replace"}


@pytest.mark.parametrize(("library", "name", "users"), NAMES, ids=[name for _, name, _ in NAMES])
def test_each_listed_private_name_of_a_library_exists_and_is_used_in_the_listed_modules(
    library: str, name: str, users: list[str]
) -> None:
    last = name.rpartition(".")[2]
    assert re.search(rf"\b{last}\b", _source_of(name)), (
        f"{library} {version(library)} has no {name}, which {users} need; "
        "docs/private-names.md says what for, and what to do"
    )
    for user in users:
        assert last in (PACKAGE / user).read_text("utf-8"), f"remove {name} from the page"


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
    """Return the functions, fields, variables and attributes that a module defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def _source_of(name: str) -> str:
    """Return the source of the module in which a library defines a name, without an import."""
    top, *parts = name.split(".")
    spec = importlib.util.find_spec(top)
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent
    for part in parts:
        if (path / f"{part}.py").is_file():
            return (path / f"{part}.py").read_text("utf-8")
        path /= part
    raise AssertionError(f"there is no module of {name}")
