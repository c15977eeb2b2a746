"""Values, lines and comments as they stand in a parameters file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

#: Comments of neighbouring lines are aligned, unless that would push them further out than this.
_WIDEST = 56
_BARE = re.compile(r"[^\W\d][\w./+-]*")
#: Words that YAML, or a reader of YAML 1.1, takes for something else.
_TAKEN = {"true", "false", "null", "yes", "no", "on", "off"}


def value(given: Any) -> str:
    """A plain value as YAML."""
    if given is None:
        return "null"
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, float):
        return _float(given)
    if isinstance(given, list):
        return listed(given)
    return str(given) if isinstance(given, int) else text(str(given))


def _float(number: float) -> str:
    """The shortest digits that give this float again: 1e-4 where people write it so."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    small = 0.01 if digits == (1,) else 0.001  # 1e-3, but 0.003
    if number == 0 or small <= abs(number) < 100_000:
        return repr(number)
    figures = "".join(map(str, digits))
    power = int(exponent) + len(figures) - 1
    mantissa = figures[0] + ("." + figures[1:] if figures[1:] else "")
    return f"{'-' if sign else ''}{mantissa}e{power}"


def text(given: str) -> str:
    """A word or a sentence, in quotes only where it needs them."""
    if _BARE.fullmatch(given) and given.isprintable() and given.lower() not in _TAKEN:
        return given
    return '"' + "".join(map(_escaped, given)) + '"'


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
    """A mapping on one line."""
    inside = ", ".join(f"{text(key)}: {inner}" for key, inner in entries.items())
    return f"{{{inside}}}"


def listed(values: Iterable[Any]) -> str:
    """A list on one line."""
    return f"[{', '.join(map(value, values))}]"


def comment(said: str) -> str:
    """Text that cannot leave its comment."""
    return "".join(c if c.isprintable() else " " for c in said)


def block(lines: Iterable[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Lines with their comments aligned behind them."""
    rows = [(indent + line, comment(said)) for line, said in lines]
    widths = [len(line) for line, said in rows if said and len(line) <= _WIDEST]
    column = max(widths, default=0)
    return [f"{line:{column}}    # {said}" if said else line for line, said in rows]
