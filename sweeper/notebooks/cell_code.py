"""Turn a cell into plain Python, parse it, compare syntax trees, and read comments and scopes.

Only this module knows IPython's syntax: magics, shell commands and help.
"""

from __future__ import annotations

import ast
import io
import operator
import re
import symtable
import threading
import tokenize
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

#: Cell magics whose code is not Python, or runs in another process or namespace.
_FOREIGN = frozenset(
    "bash cmd file HTML html javascript js latex markdown perl pypy python python2 python3 ruby "
    "script sh svg SVG system sx timeit writefile R cython sql".split()
)
#: Largest number of magics in one cell, the same as IPython's own limit.
_MOST_MAGICS = 500

#: Only one thread may parse at a time, so the whole package parses through this module. Before
#: CPython 3.11.8 and 3.12.2, two threads that parse at once can fail with a SystemError
#: (gh-106905). Parsing also changes the filters of warnings, which all threads share.
_PARSING = threading.Lock()
#: Code is parsed again up to this number of times in all if parsing fails with a SystemError
#: (chosen, not measured). A library that parses in another thread can cause this error.
_PARSE_TRIES = 10


def plain_python(source: str) -> str:
    """Convert a cell with IPython syntax to plain Python. Each line keeps its number.

    Magics, shell commands and help become the calls that IPython would make. Blank lines replace
    lines that IPython would join or drop. The code under `%%time` and similar cell magics is kept.
    The code under `%%bash` and similar cell magics is dropped. A line lacks its first characters if
    IPython strips a prompt such as `>>>` from it.
    """
    if parse_or_none(source) is not None:
        return source
    return _converted(source, keeps_lines=True)


def executed_tree(source: str) -> ast.Module | None:
    """Return the syntax tree of the Python code that IPython runs for a cell.

    The tree differs from `parse(plain_python(source))` if keeping the line numbers has changed the
    meaning of the code.

    Returns:
        None if the code is not valid Python.
    """
    if (tree := parse_or_none(source)) is not None:
        return tree
    return parse_or_none(_converted(source, keeps_lines=False))


def _converted(source: str, *, keeps_lines: bool) -> str:
    # This import takes 0.2 s, so only cells with magics pay for it.
    from IPython.core.inputtransformer2 import TransformerManager

    manager: Any = TransformerManager()  # type: ignore[no-untyped-call]
    whole = (source if source.endswith("\n") else f"{source}\n").splitlines(keepends=True)
    lines = whole
    for transform in manager.cleanup_transforms:
        lines = transform(lines)
    above = ["\n"] * (_ends(whole) - _ends(lines)) if keeps_lines else []
    if lines[0].startswith("%%") and "?" not in lines[0]:
        magic = lines[0][2:].split()[:1]
        if not magic or magic[0] in _FOREIGN:
            return ""
        text = "".join(lines[1:])
        if parse_or_none(text) is None:
            text = _converted(text, keeps_lines=keeps_lines)
        return "".join([*above, "\n", text])
    for _ in range(_MOST_MAGICS):
        try:
            has_changed, after = manager.do_one_token_transform(lines)
        except SyntaxError:  # The indentation is wrong, so the cell will fail.
            break
        if not has_changed:
            break
        if keeps_lines:
            # IPython has joined some lines to another one. Blank lines replace them, so that
            # all later lines keep their numbers.
            changed = [*map(operator.ne, lines, after)].index(True) + 1
            after[changed:changed] = ["\n"] * (_ends(lines) - _ends(after))
        lines = after
    return "".join([*above, *lines])


def _ends(lines: Sequence[str]) -> int:
    return len(python_lines("".join(lines)))


def python_lines(source: str) -> list[bytes]:
    """Split code into the lines that Python counts, with their line ends, as bytes.

    Syntax trees count columns in bytes. Unlike in `str.splitlines`, a form feed and other
    separators do not end a line.
    """
    return re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", source.encode())


def parse_or_none(source: str) -> ast.Module | None:
    """Parse Python. Return None if it is not valid."""
    try:
        return parse(source)
    except SyntaxError:
        return None


def parse(source: str) -> ast.Module:
    """Parse Python into a syntax tree.

    Raises:
        SyntaxError: The code is not valid Python, contains null bytes, or is nested too deeply.
    """
    try:
        # Ignore the warnings of the parser, because the kernel prints them when it runs the code.
        with _PARSING, warnings.catch_warnings(action="ignore"):
            return _tree(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "too deeply nested") from error


def _tree(source: str) -> ast.Module:
    for _ in range(_PARSE_TRIES - 1):
        with suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


def scope_of(source: str) -> symtable.SymbolTable | None:
    """Return the symbol table of code: the names that the code binds and reads.

    Returns:
        None if the code does not compile.
    """
    try:
        with _PARSING, warnings.catch_warnings(action="ignore"):
            return symtable.symtable(_with_own_scopes(source), "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Generators(ast.NodeTransformer):
    """Turns comprehensions into generators, which bind and read the same names."""

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.ListComp(elt=made, generators=loops) | ast.SetComp(elt=made, generators=loops):
                return ast.GeneratorExp(elt=made, generators=loops)
            case ast.DictComp(key=key, value=value, generators=loops):
                pair = ast.Tuple(elts=[key, value], ctx=ast.Load())
                return ast.GeneratorExp(elt=pair, generators=loops)
        return node


def _with_own_scopes(source: str) -> str:
    """Return code in which each comprehension has a scope of its own.

    Python 3.12 and later run a comprehension in the scope around it (PEP 709). So their symbol
    tables do not tell which names belong to the comprehension.
    """
    if re.search(r"\bfor\b", source) is None:
        return source
    tree = ast.parse(source)
    kinds = ast.ListComp | ast.SetComp | ast.DictComp
    if not any(isinstance(node, kinds) for node in ast.walk(tree)):
        return source
    return ast.unparse(_Generators().visit(tree))


def is_same_but(
    before: ast.AST | None, after: ast.AST | None, replaced: Mapping[ast.AST, ast.AST]
) -> bool:
    """Return whether two syntax trees are equal except for nodes that were replaced.

    Args:
        before: Syntax tree before the replacement.
        after: Syntax tree after the replacement.
        replaced: Nodes that `after` must have, by the nodes of `before` that they replace.
    """
    pairs: list[tuple[object, object]] = [(before, after)]
    while pairs:  # A loop and not a recursion, because trees may be deep.
        old, new = pairs.pop()
        if isinstance(old, ast.AST):
            old = replaced.get(old, old)
        if type(old) is not type(new):
            return False
        if isinstance(old, ast.AST):
            pairs += [
                (getattr(old, field, None), getattr(new, field, None)) for field in old._fields
            ]
        elif isinstance(old, list) and isinstance(new, list):
            if len(old) != len(new):
                return False
            pairs += zip(old, new, strict=True)
        elif repr(old) != repr(new):  # Texts tell 0.0 from -0.0, and let NaN equal NaN.
            return False
    return True


def comments(source: str) -> dict[int, str]:
    """Return the comments of plain Python by line number, from 1."""
    readline = io.StringIO(re.sub(r"\r\n?", "\n", source)).readline
    found: dict[int, str] = {}
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(readline):
            if token.type == tokenize.COMMENT:
                found[token.start[0]] = token.string.strip("# ")
    return found
