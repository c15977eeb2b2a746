"""Turn a cell into plain Python, parse it, and find comments and uses of global variables.

Only this module knows IPython's syntax: magics, shell commands and help.
"""

from __future__ import annotations

import ast
import dis
import io
import operator
import re
import threading
import tokenize
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any

#: Cell magics whose code is not Python, or runs in another process or namespace.
_FOREIGN = frozenset(
    "bash cmd file HTML html javascript js latex markdown perl pypy python python2 python3 ruby "
    "script sh svg SVG system sx timeit writefile R cython sql".split()
)
#: Functions that run a text as code, or find an object by its name in a text. IPython turns magics
#: and shell commands into calls of the last four.
_WITH_TEXTS = frozenset("eval exec getattr system getoutput run_line_magic run_cell_magic".split())
#: Largest number of magics in one cell, the same as IPython's own limit.
_MOST_MAGICS = 500

#: Only one thread may parse at a time, so the whole package parses through this module. Before
#: CPython 3.11.8 and 3.12.2, two threads that parse at once can fail with a SystemError
#: (gh-106905). Parsing also changes the filters of warnings, which all threads share.
_PARSING = threading.Lock()
#: If parsing fails with a SystemError, it is tried again, with this number of tries in all (chosen,
#: not measured). A library that parses in another thread can cause this error.
_PARSE_TRIES = 10
#: Instructions of Python's bytecode that read a variable which is not local to a function.
_READING = frozenset({"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"})
#: Whether bytecode states columns. It does not if PYTHONNODEBUGRANGES is set.
_HAS_COLUMNS = any(place[2] is not None for place in compile("0", "", "eval").co_positions())


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A place where code binds or reads a global variable.

    Attributes:
        name: Name of the variable.
        binds: Whether the code gives the variable a value. Else the code reads it.
        is_inside: Whether the place is in the body of a function, class or comprehension.
        begin: Line and column where the code begins, as `begin_of` returns them. The code is the
            variable's name in an expression or an assignment, or a whole statement such as an
            import.
    """

    name: str
    binds: bool
    is_inside: bool
    begin: tuple[int, int]


def begin_of(node: ast.expr) -> tuple[int, int]:
    """Return the line, from 1, and the column of a node, to compare them with `Use.begin`.

    If Python's bytecode states no columns (`PYTHONNODEBUGRANGES`), the column of each `Use` is 0.
    Then this column is 0, too.
    """
    return node.lineno, node.col_offset if _HAS_COLUMNS else 0


def uses_in(body: Sequence[ast.stmt]) -> list[Use] | None:
    """List where statements bind and read global variables, as Python's compiler decides it.

    A text that is run as code, such as a magic, may read each variable that it names, so these
    reads are listed, too.

    Returns:
        None if the code does not compile.
    """
    try:
        with _PARSING, warnings.catch_warnings(action="ignore"):
            whole = compile(
                ast.Module([*body], []),
                "cell",
                "exec",
                flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
                dont_inherit=True,
            )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = [
        Use(name=word, binds=False, is_inside=False, begin=begin_of(call))
        for call in ast.walk(ast.Module([*body], []))
        if isinstance(call, ast.Call)
        for word in words_run_by(call)
    ]
    waiting = [whole]
    while waiting:
        code = waiting.pop()
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        is_inside = code is not whole
        # In the body of a class, STORE_NAME binds an attribute of the class, not a global variable.
        binding = {"STORE_GLOBAL"} if is_inside else {"STORE_GLOBAL", "STORE_NAME"}
        for step in dis.get_instructions(code):
            place = step.positions
            if place is None or step.opname not in binding | _READING:
                continue
            use = Use(
                name=str(step.argval),
                binds=step.opname in binding,
                is_inside=is_inside,
                begin=(place.lineno or 0, place.col_offset or 0),
            )
            found.append(use)
    return found


def words_run_by(node: ast.AST) -> frozenset[str]:
    """Return the words of the texts that a call runs as code, or by which it finds an object.

    Examples are the texts in calls of `eval` and `getattr`. IPython turns magics such as `%time`
    into such calls. Empty for other nodes.
    """
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _WITH_TEXTS:
            texts = [str(part.value) for part in node.args if isinstance(part, ast.Constant)]
            return words_in(" ".join(texts))
    return frozenset()


def words_in(text: str) -> frozenset[str]:
    """Return the words of a text, any of which may be the name of a variable or a function.

    They are normalized to NFKC, as Python normalizes names.
    """
    return frozenset(re.findall(r"\w+", unicodedata.normalize("NFKC", text)))


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
        elif repr(old) != repr(new):  # As texts, 0.0 and -0.0 differ, and NaN equals NaN.
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
