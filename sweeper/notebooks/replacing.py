"""Replace values in a cell's source, and check that nothing else in the cell has changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from .cell_code import executed_tree, is_same_but, parse, parse_or_none, plain_python, python_lines
from .plain import LeftOut

#: Comments that state a value's original code have at most this number of characters (chosen, not
#: measured).
_COMMENT_WIDTH = 60


class Cell:
    """A code cell in Python.

    Attributes:
        number: Number of the cell among the code cells, from 1.
        source: Text of the cell in the notebook.
    """

    def __init__(self, number: int, source: str) -> None:
        self.number = number
        self.source = source

    @cached_property
    def code(self) -> str:
        """The cell in plain Python. Lines have the same numbers as in the source."""
        return plain_python(self.source)

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines of `code` as bytes, in which the syntax tree counts columns."""
        return python_lines(self.code)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of `code`. Empty if the cell is not valid Python."""
        return parse_or_none(self.code) or ast.Module([], [])

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """The statements at the top level of the cell.

        The statements inside of `if __name__ == "__main__":` count, because this condition is true
        in a kernel. The statements of its `else` branch never run.
        """
        found: list[ast.stmt] = []
        for statement in self.tree.body:
            if isinstance(statement, ast.If) and _is_main(statement.test):
                found += statement.body
            else:
                found.append(statement)
        return found

    @cached_property
    def hidden_words(self) -> frozenset[str]:
        """The words of a cell whose code has no tree, as it is not Python or runs elsewhere.

        A cell with `%%bash` or `%%timeit` may read and call all that it names.
        """
        is_known = bool(self.tree.body) or parse_or_none(self.source) is not None
        return frozenset() if is_known else words_in(self.source)

    @cached_property
    def _is_understood(self) -> bool:
        """Whether IPython runs exactly the code of `tree`."""
        return is_same_but(self.tree, executed_tree(self.source), {})

    def text_of(self, node: ast.expr | ast.stmt) -> str:
        """Return the code of a node, including its decorators."""
        return text_in(self.lines, node)

    def _original_text(self, node: ast.expr) -> str:
        """Return the code of a value, or of the default of an argument that is left out."""
        return repr(node.value) if isinstance(node, LeftOut) else self.text_of(node)

    def with_values(self, news: Mapping[ast.expr, str]) -> str | None:
        """Replace values in the source. A comment on each changed line states the original value.

        IPython must read the new source as the old one, except for these values. This is checked
        with the syntax trees of both.

        Args:
            news: Code of each new value, by the node of the old value.

        Returns:
            The new source. None if anything except the values would change.
        """
        changed = {node: code for node, code in news.items() if code != self._original_text(node)}
        if not changed:
            return self.source
        wanted = _replaced_nodes(changed)
        edited = self._edited(changed)
        if edited is None or not self._is_understood:
            return None
        lines, were = edited

        def is_right(lines: Sequence[bytes]) -> bool:
            return is_same_but(self.tree, executed_tree(b"".join(lines).decode()), wanted)

        if not is_right(lines):
            return None
        for at, texts in were.items():
            commented = [*lines[:at], _commented(lines[at], texts), *lines[at + 1 :]]
            if is_right(commented):
                # The check fails if the line ends inside a multi-line string: the comment would
                # become part of the string.
                lines = commented
        return b"".join(lines).decode()

    def _edited(
        self, news: Mapping[ast.expr, str]
    ) -> tuple[list[bytes], dict[int, list[str]]] | None:
        """Return the lines with the new values, and the original values by line.

        A line of the source may begin with a prompt or white space that `code` lacks. So the
        columns in the syntax tree are shifted.

        Returns:
            None if the old values cannot be found in the source.
        """
        lines = python_lines(self.source)
        shifts = [*map(_shift, lines, self.lines)]
        were: dict[int, list[str]] = {}
        changed_calls = set[ast.Call]()
        for node, code in sorted(news.items(), key=lambda item: _begin(item[0]))[::-1]:
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            begin, end = shifts[first], shifts[last]
            if begin is None or end is None:
                return None
            before = lines[first][: begin + node.col_offset]
            after = lines[last][end + (node.end_col_offset or 0) :]
            old = self.text_of(node)
            if isinstance(node, LeftOut):
                old, code = f"the default of {node.parameter}", f"{node.parameter}={code}"
                if node.call.args or node.call.keywords:
                    code = f", {code}"
                elif node.call in changed_calls:
                    code = f"{code}, "
                changed_calls.add(node.call)
            lines[first : last + 1] = [before + code.encode() + after]
            were = {line - (last - first): texts for line, texts in were.items()}
            were.setdefault(first, []).insert(0, ast.unparse(node) if last > first else old)
        return lines, were


def words_in(text: str) -> frozenset[str]:
    """Return the words of a text, any of which may be the name of a variable or a function."""
    return frozenset(re.findall(r"\w+", text))


def _replaced_nodes(news: Mapping[ast.expr, str]) -> dict[ast.AST, ast.AST]:
    """Return the nodes of the syntax tree after a replacement, by the nodes that they replace."""
    found: dict[ast.AST, ast.AST] = {}
    for node, code in news.items():
        if not isinstance(node, LeftOut):
            found[node] = _expression(code)
            continue
        call = found.get(node.call, node.call)
        assert isinstance(call, ast.Call)
        option = ast.keyword(arg=node.parameter, value=_expression(code))
        found[node.call] = ast.Call(
            func=call.func, args=call.args, keywords=[*call.keywords, option]
        )
    return found


def text_in(lines: Sequence[bytes], node: ast.expr | ast.stmt) -> str:
    """Cut the code of a node, including its decorators, out of the lines of a cell.

    The line `if 1:` is put before an indented statement, so that the code compiles.
    """
    first, column = node.lineno, node.col_offset
    if decorators := getattr(node, "decorator_list", None):
        first = decorators[0].lineno
    cut = [*lines[first - 1 : node.end_lineno]]
    cut[-1:] = [line[: node.end_col_offset] for line in cut[-1:]]
    is_indented = isinstance(node, ast.stmt) and column > 0 and not cut[0][:column].strip()
    cut[:1] = [b"if 1:\n", cut[0]] if is_indented else [line[column:] for line in cut[:1]]
    return b"".join(cut).decode(errors="replace")


def _is_main(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            sides = {getattr(side, "id", getattr(side, "value", None)) for side in (left, right)}
            return sides == {"__name__", "__main__"}
    return False


def _shift(source: bytes, code: bytes) -> int | None:
    """Return how many bytes at the start of a source line are missing in the line of plain Python.

    Returns:
        None if the rest of the line differs as well.
    """
    whole, rest = source.rstrip(b"\r\n"), code.rstrip(b"\r\n")
    return len(whole) - len(rest) if whole.endswith(rest) else None


def _begin(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _expression(code: str) -> ast.expr:
    tree = parse(f"({code}\n)")
    return tree.body[0].value  # type: ignore[attr-defined,no-any-return]


def _commented(line: bytes, texts: Sequence[str]) -> bytes:
    comment = f"  # was {', '.join(texts)}"
    if len(comment) > _COMMENT_WIDTH:
        comment = f"{comment[:_COMMENT_WIDTH]}…"
    text = line.rstrip(b"\r\n")
    return text + comment.encode() + line[len(text) :]
