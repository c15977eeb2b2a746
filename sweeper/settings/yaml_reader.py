"""Read YAML 1.2 into plain values, and write it. Errors have a line, a column and a remedy.

Only this module uses ruamel.yaml.
"""

from __future__ import annotations

import io
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ..errors import first_line

#: Half of a surrogate pair. JSON writes a character such as an emoji as two such halves.
_SURROGATE = re.compile("[\ud800-\udfff]")


#: A text may have at most this many values, with all aliases written out (chosen, not measured).
#: Nine lists, each with eight aliases of the previous one, have 150 million values.
_MOST_VALUES = 1_000_000


class _Constructor(SafeConstructor):
    """Reads dates as text, as YAML 1.2 does, and JSON's surrogate pairs as characters."""

    def construct_scalar(self, node: Any) -> Any:
        value = super().construct_scalar(node)
        if not isinstance(value, str) or not _SURROGATE.search(value):
            return value
        try:
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            half = ascii(_SURROGATE.findall(value)[-1]).strip("'")
            raise MarkedYAMLError(
                problem=f"{half} is half of a character; write both halves, or the character",
                problem_mark=node.start_mark,
            ) from error


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


class BadYaml(Exception):
    """A text is not YAML, is nested too deeply, or has too many values.

    Attributes:
        line: Line of the error, from 1. 0 if it is unknown.
        column: Column of the error, from 1. 0 if it is unknown.
    """

    def __init__(self, message: str, mark: Any = None) -> None:
        super().__init__(message)
        self.line = 0 if mark is None else int(mark.line) + 1
        self.column = 0 if mark is None else int(mark.column) + 1


def read_yaml(text: str) -> Any:
    """Read a text with one YAML document into plain values.

    Raises:
        BadYaml: The text is not YAML, is nested too deeply, or repeats too many values by aliases.
    """
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    try:
        value = reader.load(text)
        if _has_too_many_values(value):
            raise BadYaml(
                f"aliases repeat more than {_MOST_VALUES:,} values, or a value contains itself; "
                "write the values out"
            )
        return value
    except MarkedYAMLError as error:
        raise BadYaml(
            f"not valid YAML: {_with_remedy(error)}", error.problem_mark or error.context_mark
        ) from error
    except (YAMLError, ValueError) as error:
        raise BadYaml(f"not valid YAML: {first_line(error)}") from error
    except (IndexError, KeyError) as error:  # For example, at `!!int ""` or `!!bool maybe`.
        raise BadYaml(
            "not valid YAML: a tag such as !!int does not fit its value; leave the tag out"
        ) from error
    except RecursionError as error:
        raise BadYaml("nested too deeply; write it flatter") from error


def _has_too_many_values(value: Any) -> bool:
    """Return whether a value has more than `_MOST_VALUES` parts, or contains itself.

    A part that YAML aliases repeat counts each time.
    """
    n_values = 0
    parts = [value]
    while parts and n_values <= _MOST_VALUES:
        part = parts.pop()
        if isinstance(part, list | dict):
            n_values += len(part)
            parts += part.values() if isinstance(part, dict) else part
    return n_values > _MOST_VALUES


def write_yaml(value: Any) -> str:
    """Return plain values as a YAML document, from which `read_yaml` reads the same values."""
    writer, text = YAML(typ="safe", pure=True), io.StringIO()
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.dump(value, text)
    return text.getvalue()


def _with_remedy(error: MarkedYAMLError) -> str:
    """Return the text of a parser's error, with what a user can do about it."""
    text = str(error.problem).replace("'\\x00'", "the end of the file")
    if twice := re.match(r'found duplicate key "(.*?)" with value', text):
        return f"the key {twice[1]!r} is given twice; keep one of them"
    if text.startswith("but "):
        text = f"{error.context}, {text}"
    remedies = (remedy for sign, remedy in _REMEDIES.items() if sign in text)
    return "; ".join((text, *remedies))


#: Parts of the parser's messages, each with what a user can do about the error.
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
