"""YAML 1.2 into plain values; every fault has a place and a remedy. The owner of ruamel.yaml."""

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

#: No file of ours needs half of these; Python's own stack ends at a few hundred.
_DEPTH = 50
#: Characters that aliases may repeat: a few lines of them can stand for millions.
_REPEATED = 1_000_000


class BadYaml(Exception):
    """Text that is no YAML, or none that can be read.

    Attributes:
        line: counted from 1, as the column; 0 where the fault has no place.
    """

    def __init__(self, words: str, mark: Any = None) -> None:
        super().__init__(words)
        self.line = 0 if mark is None else int(mark.line) + 1
        self.column = 0 if mark is None else int(mark.column) + 1


def read_yaml(text: str) -> Any:
    """The one document of a text, as plain values.

    Raises:
        BadYaml: it is no YAML, or is nested or repeats itself beyond all bounds.
    """
    try:
        _check_bounds(text)
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        raise BadYaml(
            f"not valid YAML: {_in_words(error)}", error.problem_mark or error.context_mark
        ) from error
    except (YAMLError, ValueError) as error:
        raise BadYaml(f"not valid YAML: {first_line(error)}") from error


def _check_bounds(text: str) -> None:
    """Refuse what would take the reader's stack, or all memory, before anything is built."""
    sizes: dict[str, int] = {}
    around: list[tuple[str | None, int]] = []
    repeated = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        size = 0
        if isinstance(event, CollectionStartEvent):
            around.append((event.anchor, 1))
            if len(around) > _DEPTH:
                raise BadYaml(f"nested more than {_DEPTH} deep; write it flatter", event.start_mark)
        elif isinstance(event, CollectionEndEvent):
            anchor, size = around.pop()
            sizes.update({anchor: size} if anchor else {})
        elif isinstance(event, AliasEvent):
            if any(event.anchor == anchor for anchor, _ in around):
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
        if around and isinstance(event, NodeEvent | CollectionEndEvent):
            anchor, inside = around[-1]
            around[-1] = anchor, inside + size


def _in_words(error: MarkedYAMLError) -> str:
    """What a parser says of a file, with what to do about it."""
    said = str(error.problem).replace("'\\x00'", "the end of the file")
    if twice := re.match(r'found duplicate key "(.*?)" with value', said):
        return f"the key {twice[1]!r} stands twice; keep one of them"
    if said.startswith("but "):
        said = f"{error.context}, {said}"
    remedies = (remedy for sign, remedy in _REMEDIES.items() if sign in said)
    return "; ".join((said, *remedies))


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
