"""Replace values in a cell's source, and check that nothing else in the cell has changed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property

from .cell_code import (
    Use,
    executed_tree,
    is_same_but,
    parse,
    parse_or_none,
    plain_python,
    python_lines,
    uses_in,
    words_in,
)
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
    def nodes(self) -> list[ast.AST]:
        """All nodes of `tree`. Outer nodes come before the nodes inside of them."""
        return [*ast.walk(self.tree)]

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
    def uses(self) -> list[list[Use]]:
        """Where each of `statements` binds and reads global variables.

        Empty for a statement that does not compile, because its cell will fail.
        """
        return [uses_in([statement]) or [] for statement in self.statements]

    @cached_property
    def hidden_words(self) -> frozenset[str]:
        """All words of a cell that cannot be parsed, such as one with `%%bash` or `%%timeit`.

        The code of such a cell is not Python or runs elsewhere. It may read and call all that it
        names. Empty for other cells.
        """
        is_known = bool(self.tree.body) or parse_or_none(self.source) is not None
        return frozenset() if is_known else words_in(self.source)

    @cached_property
    def _is_understood(self) -> bool:
        """Whether IPython runs exactly the code of `tree`."""
        return is_same_but(self.tree, executed_tree(self.source), {})

    def text_of(self, node: ast.expr) -> str:
        """Return the code of a value, or of the default of an argument that is left out."""
        if isinstance(node, LeftOut):
            return repr(node.value)
        return ast.get_source_segment(self.code, node) or ""

    def with_values(self, news: Mapping[ast.expr, str]) -> str | None:
        """Replace values in the source. A comment on each changed line states the original value.

        IPython must read the new source as the old one, except for these values. This is checked
        with the syntax trees of both.

        Args:
            news: Code of each new value, by the node of the old value.

        Returns:
            The new source. None if anything except the values would change.
        """
        changed = {node: code for node, code in news.items() if code != self.text_of(node)}
        if not changed:
            return self.source
        edited = self._edited(changed)
        if edited is None or not self._is_understood:
            return None
        lines, originals = edited
        wanted = _replaced_nodes(changed)

        def is_right(lines: Sequence[bytes]) -> bool:
            return is_same_but(self.tree, executed_tree(b"".join(lines).decode()), wanted)

        if not is_right(lines):
            return None
        for at, texts in originals.items():
            commented = [*lines]
            commented[at] = _commented(lines[at], texts)
            if is_right(commented):
                # The check fails if the line ends inside a multi-line string: the comment would
                # become part of the string.
                lines = commented
        return b"".join(lines).decode()

    def _edited(
        self, news: Mapping[ast.expr, str]
    ) -> tuple[list[bytes], dict[int, list[str]]] | None:
        """Return the source's lines with the new values, and the original values by line.

        A line of the source may begin with a prompt or white space that `code` lacks. So the
        columns in the syntax tree are shifted.

        Args:
            news: Code of each new value, by the node of the old value.

        Returns:
            The new lines, and the texts of the original values by the index of their new line, from
            0. None if the old values cannot be found in the source.
        """
        lines = python_lines(self.source)
        shifts = [*map(_shift, lines, self.lines)]
        originals: dict[int, list[str]] = {}
        changed_calls = set[ast.Call]()
        # The last value is replaced first, so that the places of the others stay right.
        for node in sorted(news, key=_begin)[::-1]:
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            begin, end = shifts[first], shifts[last]
            if begin is None or end is None:
                return None
            before = lines[first][: begin + node.col_offset]
            after = lines[last][end + (node.end_col_offset or 0) :]
            original, code = self.text_of(node), news[node]
            if isinstance(node, LeftOut):
                original = f"the default of {node.parameter}"
                code = _argument(node, code, is_followed=node.call in changed_calls)
                changed_calls.add(node.call)
            elif last > first:
                original = ast.unparse(node)
            lines[first : last + 1] = [before + code.encode() + after]
            originals = {line - (last - first): texts for line, texts in originals.items()}
            originals.setdefault(first, []).insert(0, original)
        return lines, originals


def _argument(place: LeftOut, code: str, *, is_followed: bool) -> str:
    """Return the code to insert at the end of a call's arguments, with a comma where one is needed.

    Args:
        place: The argument, which the call leaves out so far.
        code: Code of the value.
        is_followed: Whether another argument was already inserted at the end of this call. It then
            comes after the new one.
    """
    if place.call.args or place.call.keywords:
        return f", {place.parameter}={code}"
    return f"{place.parameter}={code}{', ' if is_followed else ''}"


def _replaced_nodes(news: Mapping[ast.expr, str]) -> dict[ast.AST, ast.AST]:
    """Return the syntax tree nodes of new values, by the nodes of the old values.

    For an argument that a call leaves out, the whole call is replaced by one with the argument.

    Args:
        news: Code of each new value, by the node of the old value.
    """
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


def _is_main(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            sides = {ast.unparse(left), ast.unparse(right)}
            return sides == {"__name__", "'__main__'"}
    return False


def _shift(source: bytes, code: bytes) -> int | None:
    """Return how many bytes at the start of a source line are missing in the line of plain Python.

    Args:
        source: Line of the cell in the notebook.
        code: The same line in `Cell.code`.

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
