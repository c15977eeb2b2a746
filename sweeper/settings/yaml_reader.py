"""Read YAML 1.2 into plain values; an error has a line, a column and a remedy.

Only this module uses ruamel.yaml.
"""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    NodeEvent,
    ScalarEvent,
)

from ..errors import first_line

#: Far deeper than a parameters file needs; the parser's recursion fails at a few hundred.
_DEPTH = 50
#: How many characters aliases may repeat: a few lines of nested aliases expand to millions.
_REPEATED = 1_000_000


class BadYaml(Exception):
    """A text is not YAML, or exceeds the limits of the reader.

    Attributes:
        line: the line of the fault, counted from 1; 0 where it is unknown.
        column: the column, likewise.
    """

    def __init__(self, message: str, mark: Any = None) -> None:
        super().__init__(message)
        self.line = 0 if mark is None else int(mark.line) + 1
        self.column = 0 if mark is None else int(mark.column) + 1


def read_yaml(text: str) -> Any:
    """Read a text with one YAML document into plain values.

    Raises:
        BadYaml: it is not YAML, is nested too deeply, or has aliases that repeat too much.
    """
    try:
        _check_bounds(text)
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        raise BadYaml(
            f"not valid YAML: {_with_remedy(error)}", error.problem_mark or error.context_mark
        ) from error
    except (YAMLError, ValueError) as error:
        raise BadYaml(f"not valid YAML: {first_line(error)}") from error


def _check_bounds(text: str) -> None:
    """Refuse a text that would exhaust the stack or the memory when it is read."""
    sizes: dict[str, int] = {}
    open_collections: list[tuple[str | None, int]] = []
    repeated = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        size = 0
        if isinstance(event, CollectionStartEvent):
            open_collections.append((event.anchor, 1))
            if len(open_collections) > _DEPTH:
                raise BadYaml(f"nested more than {_DEPTH} deep; write it flatter", event.start_mark)
        elif isinstance(event, CollectionEndEvent):
            anchor, size = open_collections.pop()
            sizes.update({anchor: size} if anchor else {})
        elif isinstance(event, AliasEvent):
            if any(event.anchor == anchor for anchor, _ in open_collections):
                raise BadYaml(f"*{event.anchor} holds itself; write it out", event.start_mark)
            size = sizes.get(event.anchor, 0)
            repeated += size
            if repeated > _REPEATED:
                raise BadYaml(
                    f"*{event.anchor} and the aliases before it repeat more than "
                    f"{_REPEATED:,} characters; write out what is meant",
                    event.start_mark,
                )
        elif isinstance(event, ScalarEvent):
            size = 1 + len(event.value)
            sizes.update({event.anchor: size} if event.anchor else {})
        if open_collections and isinstance(event, NodeEvent | CollectionEndEvent):
            anchor, inside = open_collections[-1]
            open_collections[-1] = anchor, inside + size


def _with_remedy(error: MarkedYAMLError) -> str:
    """Format a parser's error with a remedy."""
    text = str(error.problem).replace("'\\x00'", "the end of the file")
    if twice := re.match(r'found duplicate key "(.*?)" with value', text):
        return f"the key {twice[1]!r} stands twice; keep one of them"
    if text.startswith("but "):
        text = f"{error.context}, {text}"
    remedies = (remedy for sign, remedy in _REMEDIES.items() if sign in text)
    return "; ".join((text, *remedies))


_REMEDIES = {
    "'\\t'": "indent with spaces, not with tabs",
    "that cannot start any token": "put text that begins with such a character in quotes",
    "mapping values are not allowed": "put text with a colon in quotes, and indent keys alike",
    "undefined alias": "put text that begins with * in quotes",
    "constructor for the tag": "leave the tag out, or put text that begins with ! in quotes",
    "expected <block end>": "indent the keys of a mapping alike",
    "another document": "one file has one document: drop the line with ---",
    "unexpected end of stream": "close the quote",
    "expected ',' or": "close the bracket",
    "'<stream end>'": "close the bracket",
    "unhashable key": "a key must be text",
}
