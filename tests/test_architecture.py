"""Test the rules of the architecture: imports, owners of libraries, sizes of folders."""

from __future__ import annotations

import ast
import dataclasses
import io
import json
import re
import subprocess
import sys
import token
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import sweeper
from sweeper.notebooks.metadata import METADATA, TrialMetadata

PACKAGE = Path(sweeper.__file__).parent

PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text("utf-8")
#: The page's table of layers: number, folders or modules, and the libraries that only they know.
_ROWS = re.findall(r"^\| (\d+) \| (`[^|]+`) \|.*\|([^|]*)\|$", PAGE, re.M)
#: A folder imports only from layers below its own.
LAYER_OF = {
    name.removesuffix(".py"): int(layer)
    for layer, names, _ in _ROWS
    for name in re.findall(r"`([\w.]+)/?`", names)
}
ROOF = "__init__"  # this module shows the public names, so it may import from all folders
LIBRARIES_OF = {
    folder: set(re.findall(r"\w+", libraries)) - {"inside", "a", "function", "functions", "and"}
    for _, names, libraries in _ROWS
    for folder in re.findall(r"`(\w+)/`", names)
}
#: Exceptions: (folder, library, name) for a name that a folder may import from a library which only
#: other folders may use.
LENT = {
    ("kernels", "nbformat", "NotebookNode"),
    ("control", "nbformat", "NotebookNode"),
    ("study", "matplotlib", "Figure"),
}

#: Types of tokens that are layout or comments. They do not count for the size of a folder.
LAYOUT = {
    token.COMMENT,
    token.NL,
    token.NEWLINE,
    token.INDENT,
    token.DEDENT,
    token.ENDMARKER,
}

#: Libraries that `import sweeper` must not load in a kernel, because they take long.
HEAVY = ("torch", "mlflow", "optuna", "numpy", "IPython", "nbformat", "pydantic")
IMPORT_CPU_S = 0.1


@dataclass(frozen=True)
class Import:
    """One imported name.

    `module` is dotted, and begins with `sweeper` for the package's modules.
    """

    path: Path
    line: int
    module: str
    name: str | None

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        where = f"{self.path.relative_to(PACKAGE)}:{self.line}"
        return f"{where}: {self.module}" + (f".{self.name}" if self.name else "")


MODULES = sorted(PACKAGE.rglob("*.py"))


@cache
def sources() -> dict[Path, ast.Module]:
    """Return the syntax trees of the package's modules, by their paths.

    The modules are not parsed at the import of this file, because all test processes import it.
    """
    return {path: ast.parse(path.read_text("utf-8")) for path in MODULES}


@cache
def nodes() -> dict[Path, list[ast.AST]]:
    """Return all nodes of each module's syntax tree, by the module's path."""
    return {path: [*ast.walk(tree)] for path, tree in sources().items()}


@cache
def folder_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports() -> list[Import]:
    """Return all imports, including those inside of functions and under TYPE_CHECKING."""
    return [found for path in MODULES for found in _imports(path)]


def _imports(path: Path) -> Iterator[Import]:
    package = ("sweeper", *path.relative_to(PACKAGE).parent.parts)
    for node in nodes()[path]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *((node.module,) if node.module else ())))
            for alias in node.names:
                yield Import(path, node.lineno, module, alias.name)


def imported_folder(found: Import) -> str | None:
    """Return the folder of the package that an import uses. None for an outside library."""
    dotted = found.module.split(".")
    if dotted[0] != "sweeper":
        return None
    return dotted[1] if len(dotted) > 1 else found.name


def test_every_folder_is_in_the_table_of_layers() -> None:
    assert LAYER_OF.keys() == {folder_of(path) for path in sources()} - {ROOF}


def test_a_folder_imports_only_from_layers_below_its_own() -> None:
    wrong = [
        str(found)
        for found in imports()
        if (here := folder_of(found.path)) != ROOF
        and (there := imported_folder(found)) not in (None, here)
        and LAYER_OF.get(str(there), 99) >= LAYER_OF[here]
    ]
    assert wrong == []


def test_inside_a_folder_no_modules_import_each_other_in_a_circle() -> None:
    for folder in LAYER_OF:
        modules = {dotted(path): path for path in sources() if folder_of(path) == folder}
        needs = {name: imported_modules(path) & modules.keys() for name, path in modules.items()}
        while free := {name for name, below in needs.items() if not below & needs.keys()}:
            needs = {name: below for name, below in needs.items() if name not in free}
        assert needs == {}


def test_no_two_folders_import_each_other_not_even_parents_and_children() -> None:
    folders = {dotted(path): path.parent for path in MODULES if path.parent != PACKAGE}
    arrows = {
        (path.parent, folders[module])
        for path in MODULES
        for module in imported_modules(path) & folders.keys()
        if path.parent not in (PACKAGE, folders[module])
    }
    assert {(above, below) for above, below in arrows if (below, above) in arrows} == set()


@cache
def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(("sweeper", *(part for part in parts if part != "__init__")))


def imported_modules(path: Path) -> set[str]:
    """Return the modules of the package that a file imports from.

    For a module in a file's own folder, this is the module and not the folder.
    """
    return modules_by_importer().get(path, set())


@cache
def modules_by_importer() -> dict[Path, set[str]]:
    """Return the imported modules of the package by the file that imports them."""
    known = {dotted(source) for source in MODULES}
    found: dict[Path, set[str]] = {}
    for imported in imports():
        full = f"{imported.module}.{imported.name}"
        module = full if full in known else imported.module
        if module in known:
            found.setdefault(imported.path, set()).add(module)
    return found


def test_no_folder_has_more_code_than_the_page_of_the_architecture_allows() -> None:
    _, _, table = PAGE.partition("### Size of each folder")
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \|$", table, re.M)
    allowed = {folder.strip("`/"): int(tokens.replace(",", "")) for folder, tokens in rows}
    tokens: dict[str, int] = {}
    for path in MODULES:
        where = folder_of(path) if path.parent != PACKAGE else "modules beside them"
        tokens[where] = tokens.get(where, 0) + tokens_of(path)
    assert tokens.keys() == allowed.keys()
    assert {name: n for name, n in tokens.items() if n > allowed[name]} == {}


def tokens_of(path: Path) -> int:
    """Return the number of tokens of code in a module, without comments and docstrings."""
    docstrings: set[int] = set()
    for node in nodes()[path]:
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            docstrings |= {*range(docstring.lineno, (docstring.end_lineno or 0) + 1)}
    n_tokens = depth = 0
    for found in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        # An f-string is one token, as before Python 3.12, which splits it into many.
        kind = tokenize.tok_name[found.type]
        is_whole = depth == 0
        depth += {"FSTRING_START": 1, "FSTRING_END": -1}.get(kind, 0)
        is_docstring = kind == "STRING" and found.start[0] in docstrings
        n_tokens += is_whole and found.type not in LAYOUT and not is_docstring
    return n_tokens


def test_the_docstring_of_each_package_folder_has_a_summary_and_an_explanation() -> None:
    for face in (path for path in MODULES if path.name == "__init__.py" and path.parent != PACKAGE):
        first, _, rest = (ast.get_docstring(sources()[face]) or "").partition("\n\n")
        assert first, face
        assert rest, face


def test_each_outside_library_is_imported_by_its_owners_and_by_no_other_folder() -> None:
    outside = [
        found
        for found in imports()
        if imported_folder(found) is None
        and found.top not in sys.stdlib_module_names
        and (folder_of(found.path), found.top, found.name) not in LENT
    ]
    unknown = [str(it) for it in outside if it.top not in LIBRARIES_OF[folder_of(it.path)]]
    assert unknown == []
    used = {(folder_of(found.path), found.top) for found in outside}
    listed = {(folder, library) for folder, known in LIBRARIES_OF.items() for library in known}
    assert listed - used == set()


def test_every_module_has_a_docstring_and_a_specific_name() -> None:
    for path in MODULES:
        assert ast.get_docstring(sources()[path]), path
        words = set(path.stem.split("_"))
        assert words.isdisjoint({"util", "utils", "helper", "helpers", "common", "misc"}), path


def test_only_the_folder_of_the_command_line_prints() -> None:
    printing = {
        folder_of(path)
        for path, found_nodes in nodes().items()
        for node in found_nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("print", "pprint")
    }
    assert printing == {"cli"}


def test_only_the_module_facts_reads_a_studys_stored_facts_by_key() -> None:
    owner = PACKAGE / "study" / "facts.py"
    by_key = [
        f"{path.relative_to(PACKAGE)}:{key.lineno}: {ast.unparse(node)}"
        for path, found_nodes in nodes().items()
        if path != owner
        for node in found_nodes
        for looked_into, key in reads_by_key(node)
        if name_of(looked_into) == "facts" and is_fixed(key)
    ]
    assert by_key == []
    in_attributes = {
        str(found.path.parent.relative_to(PACKAGE))
        for found in imports()
        if found.module == "sweeper.study.facts" and found.name == "ATTRIBUTE"
    }
    assert in_attributes == {"study"}


def test_only_the_module_metadata_reads_a_notebooks_metadata_by_key() -> None:
    keys = {field.name for field in dataclasses.fields(TrialMetadata)}
    by_key = [
        f"{path.relative_to(PACKAGE)}:{key.lineno}: {ast.unparse(node)}"
        for path, found_nodes in nodes().items()
        if path != PACKAGE / "notebooks" / "metadata.py"
        for node in found_nodes
        for looked_into, key in reads_by_key(node)
        if name_of(looked_into) == "metadata" and isinstance(key, ast.Constant)
        if key.value in {*keys, METADATA}
    ]
    assert by_key == []
    in_notebooks = {
        folder_of(found.path)
        for found in imports()
        if found.module == "sweeper.notebooks.metadata" and found.name == "METADATA"
    }
    assert in_notebooks == {"notebooks"}


def reads_by_key(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the container and the key if a node reads by key: `facts["id"]`, `"id" in facts`."""
    match node:
        case ast.Subscript(value=looked_into, slice=key):
            yield looked_into, key
        case ast.Call(func=ast.Attribute(value=looked_into, attr="get" | "pop"), args=[key, *_]):
            yield looked_into, key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[looked_into]):
            yield looked_into, key


def is_fixed(key: ast.expr) -> bool:
    """Return whether a key is a literal text, or has the name of a constant."""
    name = name_of(key)
    return (isinstance(key, ast.Constant) and isinstance(key.value, str)) or str(name).isupper()


def name_of(node: ast.expr | None) -> str | None:
    """Return the last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def test_importing_sweeper_in_a_kernel_is_quick_and_loads_no_large_library() -> None:
    code = (
        "import sys, time, json; before = set(sys.modules); began = time.process_time();"
        "import sweeper; sweeper.report; took_s = time.process_time() - began;"
        f"print(json.dumps([took_s, sorted(set({HEAVY!r}) & (set(sys.modules) - before))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took_s, loaded = json.loads(done.stdout)
    assert loaded == []
    assert took_s < IMPORT_CPU_S


@pytest.mark.slow
def test_a_sweeps_process_does_not_import_the_libraries_of_kernels() -> None:
    code = "import sys, sweeper.sweep; print({'ipykernel', 'torch', 'mlflow'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["sweep", "control.loaded", "study.access", "search.samplers"])
def test_an_import_in_a_notebook_without_widgets_shows_no_warning(module: str) -> None:
    code = f"import ipykernel.zmqshell; import sweeper.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_the_command_line_is_parsed_without_an_import_of_pydantic() -> None:
    code = "import sys, sweeper.cli.parser; print('pydantic' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_all_public_names_can_be_imported_and_no_others_are_listed() -> None:
    for name in sweeper.__all__:
        assert getattr(sweeper, name).__name__.rpartition(".")[2] == name
    assert dir(sweeper) == sorted(sweeper.__all__)
    with pytest.raises(AttributeError, match="no attribute 'repport'"):
        _ = sweeper.repport


def test_no_public_name_of_the_package_is_also_the_name_of_a_submodule() -> None:
    # `import sweeper.score` would put the module where the function was.
    assert set(sweeper.__all__) & {folder_of(path) for path in sources()} == set()
