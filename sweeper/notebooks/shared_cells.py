"""Find the leading cells of a notebook that can run once for all trials, without running them.

They end before the first cell that mentions a swept name, or does something whose effect cannot be
read from the code. A doubtful cell is not shared: one cell too few costs time, one too many gives
wrong results.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Names that lead to names outside of the text, to user input, or to the kernel itself.
_UNREADABLE_NAMES = frozenset(
    "globals locals vars exec eval compile input __import__ __builtins__ __main__ "
    "get_ipython breakpoint exit quit In _ih _i _ii _iii".split()
)
_EARLIER_INPUT = re.compile(r"_i\d+")
#: Magics that IPython runs without a percent sign at the start of a cell's only line.
_BARE_MAGIC = re.compile(
    r"\s*(connect_info|debug|edit|env|gui|hist|history|logstart|recall|rep|rerun|"
    r"reset|reset_selective|tb|who|who_ls|whos)\s*([-;].*)?"
)
#: Modules that may be imported but not used: they start processes or threads, wait for something,
#: or differ between processes. The values are the members that may be used.
_UNSHARABLE_MODULES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        "__main__ asyncio atexit builtins clearml code comet_ml concurrent ctypes dask fcntl "
        "getpass inspect ipywidgets mlflow mmap multiprocessing neptune psutil pty ray resource "
        "runpy sched secrets select selectors signal socket subprocess sweeper tempfile "
        "threading timeit uuid wandb _thread".split(),
        frozenset[str](),
    ),
    "IPython": frozenset({"HTML", "Image", "Markdown", "clear_output", "display", "Latex"}),
    "joblib": frozenset({"dump", "load"}),
    "time": frozenset({"sleep"}),
}
#: Attributes of any object that must not be used: they reach processes, clocks, frames, namespaces
#: or memory that forks share, remove files of an earlier trial, or use a GPU, for which a trial has
#: a lease and the shared cells have not.
_UNSHARABLE_ATTRIBUTES = frozenset(
    "system popen fork forkpty posix_spawn getpid getppid urandom argv modules "
    "_getframe currentframe settrace setprofile f_globals f_locals __globals__ "
    "__builtins__ __dict__ get_objects get_referrers now today utcnow "
    "register_at_fork share_memory share_memory_ rmtree unlink rmdir removedirs cuda mps xpu "
    "accelerator".split()
)
_UNSHARABLE_MEMBERS = frozenset({("os", "remove"), ("os", "rename"), ("shutil", "move")})
#: Attributes of `sys` that must not be assigned, because each kernel sets its own.
_REPLACED = frozenset({"stdin", "stdout", "stderr", "displayhook", "excepthook"})
#: Modules with the attributes above, from which `import *` would import these without a dot.
_HAVE_UNSHARABLE = frozenset({"datetime", "os", "shutil", "sys"})
#: Strings that may lead to something that differs between trials.
_UNSHARABLE_TEXT = re.compile(
    r"__main__|SWEEPER_|(CUDA|NVIDIA)_VISIBLE_DEVICES|^(now|today)$|\bcuda\b"
)
_LINE_MAGIC = re.compile(
    r"%(matplotlib\s+inline|load_ext\s+autoreload|autoreload(\s+[0-3])?|"
    r"config\s+InlineBackend\.[^?!]*)\s*"
)
_CELL_MAGIC = re.compile(r"%%(time|capture(\s+\w+)?)\s*")
_WRITING = frozenset("wax+")
#: Functions and classes that draw a random seed when they are called without one.
_RANDOM_WITHOUT_SEED = frozenset(
    "seed default_rng RandomState SeedSequence Random SystemRandom MT19937 PCG64 PCG64DXSM "
    "Philox SFC64".split()
)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadingCells:
    """The leading cells that can run once for all trials.

    Attributes:
        cells: their number, with the cells that are not code.
        ended_by: why the next cell cannot be shared; empty where all can.
    """

    cells: int
    ended_by: str


def find_shared_cells(cells: Sequence[Any], swept: Collection[str]) -> LeadingCells:
    """Find the leading cells that cannot depend on a swept name.

    Args:
        cells: the cells of a notebook into which papermill has injected its cell.
        swept: the names that have another value in each trial.
    """
    check = _SharingCheck(frozenset(swept))
    codes = 0
    for index, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        codes += 1
        tags = cell.get("metadata", {}).get("tags", [])
        if "skip-execution" in tags:
            continue
        try:
            if "raises-exception" in tags:
                raise _Unsharable("is tagged raises-exception")
            is_parameters = not {"parameters", "injected-parameters"}.isdisjoint(tags)
            check.check_cell("".join(cell["source"]), is_parameters=is_parameters)
        except RecursionError:
            return LeadingCells(cells=index, ended_by=f"code cell {codes} is nested too deeply")
        except _Unsharable as error:
            return LeadingCells(cells=index, ended_by=f"code cell {codes} {error}")
    return LeadingCells(cells=len(cells), ended_by="")


def why_module_unsharable(
    files: Sequence[str], cells: Sequence[str], frozen: Mapping[str, str]
) -> str | None:
    """Say why cells that have imported the project's modules cannot be shared; None if they can.

    The top level of each module is checked like a cell. Its functions and classes are checked only
    where the cells or the code checked so far mention their names, as others have not run.

    Args:
        files: the files of the modules.
        cells: the sources of all cells up to the one that imports the last of the modules.
        frozen: sources that were imported in place of what lies on disk, by their absolute paths
            without links.
    """
    definitions: list[tuple[str, _Definition]] = []
    waiting: list[tuple[str, Sequence[ast.AST]]] = []
    for file in files:
        try:
            source = frozen.get(os.path.realpath(file))
            tree = ast.parse(Path(file).read_text("utf-8") if source is None else source)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return f"it imports {Path(file).name}, which cannot be read"
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        tops = [node for node in tree.body if not _is_script_guard(node)]
        definitions += [(file, node) for node in tops if isinstance(node, kinds)]
        waiting.append((file, [n for n in tops if not isinstance(n, kinds)]))
    cell_trees = [t for source in cells if (t := _parsed(_without_magics(source)[0]))]
    names = _Mentions([*cell_trees, *(node for _, nodes in waiting for node in nodes)])
    checks = {file: _SharingCheck(frozenset()) for file in files}
    while waiting:
        file, nodes = waiting.pop()
        try:
            checks[file].check_statements(nodes)
        except _Unsharable as error:
            return f"it imports {Path(file).name}, which {error}"
        names.add(nodes)
        waiting += [(where, [node]) for where, node in definitions if node.name in names.found]
        definitions = [item for item in definitions if item[1].name not in names.found]
    return None


class _Mentions:
    """The names that code mentions, without those that it only imports."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        self.found: set[str] = set()
        self._imported_as: dict[str, str] = {}
        self.add(nodes)

    def add(self, nodes: Sequence[ast.AST]) -> None:
        for node in (part for top in nodes for part in ast.walk(top)):
            if isinstance(node, ast.alias) and node.asname:
                self._imported_as[node.asname] = node.name.rpartition(".")[2]
            elif isinstance(node, ast.Name):
                self.found.add(node.id)
            elif isinstance(node, ast.Attribute):
                self.found.add(node.attr)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "getattr":
                self.found |= {str(a.value) for a in node.args if isinstance(a, ast.Constant)}
        self.found |= {name for alias, name in self._imported_as.items() if alias in self.found}


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _is_script_guard(node: ast.AST) -> bool:
    """Whether a statement is an `if __name__ == "__main__"`, which an import does not run."""
    return isinstance(node, ast.If) and ast.unparse(node.test).replace('"', "'") in (
        "__name__ == '__main__'",
        "'__main__' == __name__",
    )


class _Unsharable(Exception):
    """Code cannot be shared; the text is what the code does, as in `uses os`."""


class _SharingCheck:
    """Checks one cell after the other, and keeps which names stand for which modules."""

    def __init__(self, swept: frozenset[str]) -> None:
        self._swept = swept
        #: For each name the (module, member) pairs it was imported as; '' for the module itself.
        self._imported: dict[str, set[tuple[str, str]]] = {}

    def check_cell(self, source: str, *, is_parameters: bool) -> None:
        """Check a cell.

        Raises:
            _Unsharable: the cell cannot be shared.
        """
        python, magics = _without_magics(source)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # each kernel prints them
                tree = ast.parse(python)
        except (SyntaxError, ValueError):
            raise _Unsharable("is not plain Python") from None
        if _BARE_MAGIC.fullmatch(python.strip()):
            raise _Unsharable("may be a magic")
        self._refuse_words(magics)
        self._note_imports(tree)
        self._check(tree)
        # The parameters cell itself sees the defaults in every trial. Its functions, and texts such
        # as those of `df.query`, are evaluated later and could see a trial's value.
        for part in _runs_later(tree) if is_parameters else [tree]:
            for node in ast.walk(part):
                for text in _texts(node):
                    self._refuse_words(text)

    def check_statements(self, nodes: Sequence[ast.AST]) -> None:
        """Check statements of a module.

        Raises:
            _Unsharable: they cannot be shared.
        """
        for node in nodes:
            self._note_imports(node)
        for node in nodes:
            self._check(node)

    def _refuse_words(self, text: str) -> None:
        mentioned = self._swept.intersection(_WORD.findall(text))
        if mentioned:
            raise _Unsharable(f"mentions {min(mentioned)}")

    def _note_imports(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    self._imported.setdefault(alias.asname or root, set()).add((root, ""))
            elif isinstance(node, ast.ImportFrom) and not node.level:
                root = (node.module or "").partition(".")[0]
                for alias in node.names:
                    if alias.name == "*" and root in _HAVE_UNSHARABLE.union(_UNSHARABLE_MODULES):
                        raise _Unsharable(f"imports all of {root}")
                    named = self._imported.setdefault(alias.asname or alias.name, set())
                    named.add((root, alias.name))

    def _meanings(self, name: str) -> set[tuple[str, str]]:
        """List the (module, member) pairs that a name may stand for, by default its own name."""
        return self._imported.get(name, {(name, "")})

    def _check(self, node: ast.AST, *, is_closed: bool = False) -> None:
        """Check a node and all nodes below it.

        Args:
            is_closed: whether a `with` around the node closes the file that it opens.
        """
        is_async = isinstance(node, ast.comprehension) and node.is_async
        if is_async or isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            raise _Unsharable("awaits something")
        if isinstance(node, ast.Name):
            self._check_name(node.id)
        elif isinstance(node, ast.Attribute):
            if node.attr in _UNSHARABLE_ATTRIBUTES:
                raise _Unsharable(f"uses .{node.attr}")
            if node.attr in _REPLACED and isinstance(node.ctx, ast.Store):
                raise _Unsharable(f"replaces .{node.attr}")
            if isinstance(node.value, ast.Name):
                self._check_member(node.value.id, node.attr)
                return
        elif isinstance(node, ast.Constant):
            text = node.value
            if isinstance(text, str) and _UNSHARABLE_TEXT.search(text):
                raise _Unsharable(f"mentions {text!r:.60}")
        elif isinstance(node, ast.Call):
            if not is_closed and _opens_for_writing(node):
                raise _Unsharable("opens a file for writing outside of a with statement")
            if _lacks_seed(node):
                raise _Unsharable("draws random numbers that nothing seeds")
        if isinstance(node, ast.With):
            for item in node.items:
                self._check(item.context_expr, is_closed=True)
                if item.optional_vars is not None:
                    self._check(item.optional_vars)
            for statement in node.body:
                self._check(statement)
            return
        for child in ast.iter_child_nodes(node):
            self._check(child)

    def _check_name(self, name: str) -> None:
        if name in _UNREADABLE_NAMES or _EARLIER_INPUT.fullmatch(name):
            raise _Unsharable(f"uses {name}")
        for root, member in self._meanings(name):
            _refuse(root, member)

    def _check_member(self, name: str, attribute: str) -> None:
        """Check an attribute of a name, which may stand for a module."""
        if name in _UNREADABLE_NAMES:
            raise _Unsharable(f"uses {name}")
        for root, member in self._meanings(name):
            _refuse(root, member or attribute)


def _refuse(root: str, member: str) -> None:
    """Refuse a module, or a member of a module, that must not be used."""
    if member in _UNSHARABLE_ATTRIBUTES or (root, member) in _UNSHARABLE_MEMBERS:
        raise _Unsharable(f"uses {member} of {root}")
    if root in _UNSHARABLE_MODULES and member not in _UNSHARABLE_MODULES[root]:
        raise _Unsharable(f"uses {root}")


def _without_magics(source: str) -> tuple[str, str]:
    """Split a cell into Python and harmless magics; any other magic stays in the Python."""
    lines, magics = source.splitlines(), []
    if lines and _CELL_MAGIC.fullmatch(lines[0]):
        magics.append(lines[0])
        lines[0] = ""
    for number, line in enumerate(lines):
        stripped = line.lstrip()
        if _LINE_MAGIC.fullmatch(stripped):
            magics.append(stripped)
            lines[number] = line[: len(line) - len(stripped)] + "pass"
    return "\n".join(lines), "\n".join(magics)


def _texts(node: ast.AST) -> Iterator[str]:
    """List the texts of a node that could name a variable.

    Attributes and keywords of calls are left out: they name something of another object.
    """
    for field, value in ast.iter_fields(node):
        is_foreign = field == "attr" or (isinstance(node, ast.keyword) and field == "arg")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, bytes):
                yield text.decode("latin-1")
            elif isinstance(text, str) and not is_foreign:
                yield text


def _runs_later(tree: ast.AST) -> Iterator[ast.AST]:
    """List the functions, classes, generators and texts of a cell, which are evaluated later."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
    docstrings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and node not in docstrings
        if is_text or isinstance(node, kinds):
            yield node


def _opens_for_writing(call: ast.Call) -> bool:
    function = call.func
    named = getattr(function, "id", None) or getattr(function, "attr", None)
    if named not in ("open", "fdopen"):
        return False
    values = [*call.args[isinstance(function, ast.Name) :], *(k.value for k in call.keywords)]
    texts = [v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)]
    modes = [text for text in texts if len(text) <= 3]
    return any(_WRITING.intersection(mode) for mode in modes)


def _lacks_seed(call: ast.Call) -> bool:
    """Whether a call makes or seeds a random generator without a seed."""
    named = getattr(call.func, "id", None) or getattr(call.func, "attr", None)
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    has_seed = any(not (isinstance(v, ast.Constant) and v.value is None) for v in values)
    return named in _RANDOM_WITHOUT_SEED and not has_seed
