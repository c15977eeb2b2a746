"""Format values, lines and comments as YAML in the style that people write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

#: Longer lines do not take part in the alignment of comments.
_MAX_ALIGNED = 56
_BARE = re.compile(r"[^\W\d][\w./+-]*")
#: Words that need quotes, because YAML 1.2 or 1.1 does not read them as text.
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off"}


def value(plain: Any) -> str:
    """Format a plain value."""
    if plain is None:
        return "null"
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, float):
        return _float(plain)
    if isinstance(plain, list):
        return sequence(plain)
    return str(plain) if isinstance(plain, int) else text(str(plain))


def _float(number: float) -> str:
    """Format a float exactly with the fewest digits, with an exponent where people write one."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    small = 0.01 if digits == (1,) else 0.001  # 1e-3, but 0.003
    if number == 0 or small <= abs(number) < 100_000:
        return repr(number)
    figures = "".join(map(str, digits))
    power = int(exponent) + len(figures) - 1
    mantissa = figures[0] + ("." + figures[1:] if figures[1:] else "")
    return f"{'-' if sign else ''}{mantissa}e{power}"


def text(plain: str) -> str:
    """Format a text, in quotes only where it needs them."""
    if _BARE.fullmatch(plain) and plain.isprintable() and plain.lower() not in _RESERVED:
        return plain
    return '"' + "".join(map(_escaped, plain)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def mapping(entries: Mapping[str, Any]) -> str:
    """Format a mapping on one line; its values are formatted already."""
    inside = ", ".join(f"{text(key)}: {inner}" for key, inner in entries.items())
    return f"{{{inside}}}"


def sequence(values: Iterable[Any]) -> str:
    """Format a list on one line."""
    return f"[{', '.join(map(value, values))}]"


def comment(text: str) -> str:
    """Replace line ends and other unprintable characters, which could end a comment."""
    return "".join(c if c.isprintable() else " " for c in text)


def block(lines: Iterable[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Indent lines and align their comments.

    Args:
        lines: each line with its comment, which may be empty.
        indent: the indentation.
    """
    rows = [(indent + line, comment(remark)) for line, remark in lines]
    widths = [len(line) for line, remark in rows if remark and len(line) <= _MAX_ALIGNED]
    column = max(widths, default=0)
    return [f"{line:{column}}    # {remark}" if remark else line for line, remark in rows]
