"""Read the number that a pattern has found in a printed line, in the way a person reads it.

The pattern only selects a position. The whole number that begins there counts, even if the
pattern's group has matched only a part of it: `loss=([0-9.]+)` finds 120000 in `loss=1.2e+05`, -0.3
in `loss=-0.3`, and NaN in `loss=nan`. A text that can be read in two ways is not a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import regex

from ..settings.patterns import compile_pattern, find_all, match_at

#: Terminal codes for colours and cursor movement, and the backspaces of old progress bars.
_CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x08")
_SPACES = "\u00a0\u2009\u202f"
_MINUS = "\u2212"
#: Text that may precede a number: the type of a scalar, a bracket, a quote, a currency sign.
_WRAPPER = re.compile(
    r"\s*(?:(?:\w{1,20}\.){0,3}(?:[Tt]ensor|[Aa]rray|DeviceArray|EagerTensor|Variable|Parameter"
    r"|Decimal|longdouble|(?:u?int|b?float)\d*)(?=\())?"
    r"""(?P<bracket>[(\[]{0,3})["'`*$€£¥]{0,3}"""
)
_NUMBER = re.compile(
    rf"(?P<sign>[-+{_MINUS}]?)(?:(?P<word>nan|inf(?:inity)?)(?!\w)|"
    rf"(?P<digits>(?P<whole>\d{{1,3}}(?:(?P<by>[,_{_SPACES}])\d{{3}}(?:(?P=by)\d{{3}})*)(?!\d)|\d+)"
    rf"(?P<fraction>\.\d*)?|\.\d+)(?P<exponent>e[-+{_MINUS}]?\d+)?)",
    re.IGNORECASE,
)
#: Numbers without digits: `nan` and `inf`. A user's pattern that names one of them, as
#: `loss=([\d.]+|nan)` does, is matched in the printed text. For any other pattern, digits replace
#: these words first. So `loss=([\d.]+)`, which matches digits only, also finds `loss=nan`.
_WORD = re.compile(r"(?<!\w)(?:nan|inf(?:inity)?)(?!-?\w)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\[A-Za-z]")
#: Sign that belongs to the number after it: not a hyphen, a minus between two numbers, or `+/-`.
_SIGN = rf"(?<![\w)\]%+{_MINUS}-])(?<!\+/)[-+{_MINUS}]"
_OPTIONAL_SIGN = rf"(?:{_SIGN}(?=\.?\d))??"
#: Part of a user's pattern before its first group: escapes, sets such as `[a-z]`, parentheses that
#: capture nothing such as `(?:`, and other characters.
_BEFORE_GROUP = re.compile(r"(?:\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\((?=\?(?!P<))|[^\\[(])*", re.DOTALL)
#: Number with spaces between thousands. Columns of numbers look the same, so it counts as one
#: number only if the pattern's group has matched all of it.
_SPACED = re.compile(r"\s*\d{1,3}(?: \d{3})+(?:\.\d+)?\s*")
#: Letters after a number that multiply it. All other letters are units, which are ignored.
_MULTIPLIERS = {"k": 1e3, "K": 1e3, "M": 1e6}
#: Text after a number that changes its value or makes it ambiguous: a version, a power of ten, an
#: incomplete exponent, a billion or a byte, `12h30`, `0m 7s`, `0x1f`, `1j`.
_OTHER = re.compile(
    rf"\.\d|_\w|\s?[x×*·]\s?10(?:\^|\*\*|[⁰¹²³⁴-⁹⁻])|[eEBGTj](?!\w)|[^\W\d_]+(?:[\d_]|[-+{_MINUS}]\d)"
    r"|(?:d|days?|hr?s?|m|min)\s\d{1,6}(?:\.\d{1,9})?\s?(?:h|hr|m|min|s|sec|ms)\b"
)
_UNIT = re.compile(r"[^\W\d_]{0,20}")
#: Text after a number, if the pattern's group has matched more than the number: the rest of a date,
#: a time or a fraction.
_COMPOSITE = re.compile(r"[-+/:*^][-+]?\.?\d")
#: Text that may follow a number inside a bracket: a unit, `%` or quotes; then the closing bracket,
#: or the rest of a tensor's `repr`, such as `, device=` in `tensor(0.5, device='cpu')`.
_CLOSED = re.compile(
    r"""[^\W\d_]{0,20}%?["'`*]{0,3}\s?(?:[)\]]|,\s{0,80}(?:device|dtype|grad_fn|requires_grad|shape|weak_type)=)"""
)
#: Text before a position that shows that the position is inside of a number.
_INSIDE = re.compile(rf"(?:\d|(?<!\.)\.|\d_|\d\.?[eE][-+{_MINUS}]?)\Z")
#: A position is inside of a number, too, if it follows a comma between thousands. The first pattern
#: matches the text before such a position (`12,`), the second the text after it (`345`).
_INSIDE_GROUPS = re.compile(r"(?<![\d.])\d{1,3},\Z")
_GROUP = re.compile(r"\d{3}(?!\d)")
#: Minus sign at the end of a text. It belongs to the number after this text.
_LONE_SIGN = re.compile(rf"{_SIGN}(?<!\+)\Z")
#: Text after digits which shows that they begin a clock time, a number with a comma, or one with
#: points between its thousands. Then no number is read, unless the user's pattern also matches this
#: text.
_CLOCK = re.compile(r":\d\d(?!\d)")
_COMMA_AND_DIGIT = re.compile(r",\d")
_POINTS_AS_GROUPS = re.compile(r"[1-9]\d{0,2}\.\d{3},\d+(?![\d.])")
#: Text after a number at the end of an incomplete line. The number may still grow by further text:
#: the first pattern is for whole numbers, the second for all numbers.
_UNFINISHED_WHOLE = re.compile(rf"[,_{_SPACES}]\d{{0,3}}\Z")
_UNFINISHED = re.compile(rf"(?:\.|\w{{0,20}}[-+{_MINUS}]?)\Z")
#: To find out whether a sign belongs to a number, its match is tried again without the sign, in a
#: piece of the text with this many characters before and after the match.
_CONTEXT_CHARACTERS = 20
#: A message quotes at most this many characters of a text that is not a number.
_QUOTED_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The number that a pattern's first group selects in a printed text.

    Attributes:
        value: The number. None if there is no number, or if it is ambiguous.
        text: Text of the group, and of the number if it ends later, shortened for messages.
        end: Index in the line at which the number ends. If the group of the pattern ends later, the
            end of that group.
        is_complete: Whether more text at the end of the line would not change the number.
    """

    value: float | None
    text: str
    end: int
    is_complete: bool


def without_codes(text: str) -> str:
    """Return a text without the codes that a terminal does not show."""
    return _CODES.sub("", text) if "\x1b" in text or "\x08" in text else text


def read_numbers(pattern: regex.Pattern[str], text: str) -> Iterator[Reading]:
    """Yield the numbers that a pattern selects in a text, from left to right.

    Raises:
        TimeoutError: The pattern takes longer than its time limit.
    """
    digits = text
    if not _WORD.search(_ESCAPE.sub(" ", pattern.pattern)):
        digits = _WORD.sub(lambda word: "0.0".ljust(len(word[0]), "0"), text)
    end = 0
    for match in find_all(_with_sign(pattern), digits):
        reading = read_number(match, text)
        if reading is not None and match.start(1) >= end:  # Not within the previous number.
            end = reading.end
            yield reading


@cache
def _with_sign(pattern: regex.Pattern[str]) -> regex.Pattern[str]:
    """Return a pattern that also matches if a sign precedes its first group.

    For example, `loss=([0-9.]+)` then also matches `loss=-0.3`. Text that the original pattern
    matches is matched in the same way.
    """
    before = _BEFORE_GROUP.match(pattern.pattern)
    at = before.end() if before else 0
    return compile_pattern(pattern.pattern[:at] + _OPTIONAL_SIGN + pattern.pattern[at:])


def read_number(match: regex.Match[str], printed: str) -> Reading | None:
    """Return the number at the first group of a match.

    Args:
        match: Match of a pattern.
        printed: Text as it was printed. In the text that was searched, digits may replace `nan` and
            `inf`, but the positions are the same.

    Returns:
        None if the group has matched nothing.

    Raises:
        TimeoutError: The pattern takes longer than its time limit.
    """
    if match[1] is None:
        return None
    start, end = match.span(1)
    begin, _ = _skip_wrapper(printed, start, end)
    if _is_inside(printed, begin):
        part = _read_at(printed[start:end], 0, end - start, goes_on=False)
        return replace(part, end=end, is_complete=False)
    reading = _read_at(printed, start, end, goes_on=match.end() > end)
    if match.end() == len(printed):
        reading = replace(reading, is_complete=False)
    if reading.value is not None and _has_lost_its_sign(match):
        reading = replace(reading, value=-reading.value, text=f"-{reading.text}")
    return reading


def _read_at(text: str, start: int, end: int, *, goes_on: bool) -> Reading:
    """Return the number that begins within the group of a pattern.

    Args:
        text: Printed line.
        start: Start of the group.
        end: End of the group.
        goes_on: Whether the pattern has matched text after the group.
    """
    group = text[start:end]
    if _SPACED.fullmatch(group):
        spaced = float(group.replace(" ", ""))
        return Reading(value=spaced, text=group, end=end, is_complete=end < len(text))
    begin, is_opened = _skip_wrapper(text, start, end)
    found = _NUMBER.match(text, begin) if begin < end else None
    behind = found.end() if found else end
    is_left_open = is_opened and not _CLOSED.match(text, behind)
    is_in_list = is_opened or text[max(0, begin - 1) : begin] in ("(", "[")
    value = None
    if found and not is_left_open:
        is_ambiguous = _is_ambiguous(found, end, is_in_list=is_in_list, goes_on=goes_on)
        value = None if is_ambiguous else _value(found)
    return Reading(
        value=value,
        text=text[start : max(end, behind)][:_QUOTED_CHARACTERS].strip(),
        end=max(end, behind),
        is_complete=not is_left_open and _is_complete(text, found),
    )


def _skip_wrapper(text: str, start: int, end: int) -> tuple[int, bool]:
    """Skip text such as `tensor(` before a number.

    Args:
        text: Printed line.
        start: Start of the pattern's group.
        end: End of the pattern's group.

    Returns:
        The position at which the number begins, and whether a bracket before it is open.
    """
    wrapper = _WRAPPER.match(text, start, end)
    if wrapper is None:
        return start, False
    return wrapper.end(), bool(wrapper["bracket"])


def _is_complete(text: str, found: re.Match[str] | None) -> bool:
    """Return whether a number would be the same if more text followed.

    Args:
        text: Printed line so far.
        found: Match of the number. None, for a text without a number, counts as complete.
    """
    if found is None:
        return True
    behind = found.end()
    if behind == len(text) or _UNFINISHED.match(text, behind):
        return False
    is_whole = found["fraction"] is None and found["exponent"] is None
    return not (is_whole and _UNFINISHED_WHOLE.match(text, behind))


def _is_inside(text: str, begin: int) -> bool:
    """Return whether a position is within a number, and not at its beginning."""
    before = text[max(0, begin - 6) : begin]
    if _INSIDE_GROUPS.search(before):
        return _GROUP.match(text, begin) is not None
    return _INSIDE.search(before) is not None


def _is_ambiguous(found: re.Match[str], end: int, *, is_in_list: bool, goes_on: bool) -> bool:
    """Return whether the text around a number leaves open which number is meant.

    Args:
        found: Match of the number.
        end: End of the pattern's group.
        is_in_list: Whether a bracket is open, so that a comma may separate numbers.
        goes_on: Whether the pattern has matched text after its group.
    """
    text, behind = found.string, found.end()
    if _OTHER.match(text, behind) or (end > behind and _COMPOSITE.match(text, behind)):
        return True
    has_commas = found["by"] == ","
    if has_commas and is_in_list and end < behind:
        return True
    is_separator = goes_on and end == behind
    if not is_separator and _CLOCK.match(text, behind):
        return True
    if is_separator or not _COMMA_AND_DIGIT.match(text, behind):
        return False
    is_whole = found["whole"] and found["fraction"] is None and found["exponent"] is None
    return bool(is_whole or _POINTS_AS_GROUPS.match(text, found.start("digits")))


def _value(found: re.Match[str]) -> float:
    sign = -1.0 if found["sign"] in ("-", _MINUS) else 1.0
    if found["word"]:
        return sign * float(found["word"])
    digits = found["digits"].replace(found["by"] or ",", "")
    unit = _UNIT.match(found.string, found.end())
    factor = _MULTIPLIERS.get(unit[0] if unit else "", 1.0)
    exponent = (found["exponent"] or "").replace(_MINUS, "-")
    return sign * float(digits + exponent) * factor


def _has_lost_its_sign(match: regex.Match[str]) -> bool:
    """Return whether the minus sign before the group of a match belongs to its number.

    It does if the pattern also matches without the sign. It does not if the pattern requires the
    sign, as `loss=-([0-9.]+)` does.
    """
    text, start = match.string, match.start(1)
    sign = start - 1
    if not _LONE_SIGN.search(text[max(0, sign - 2) : start]):
        return False
    at = min(match.start(), sign)
    first = max(0, at - _CONTEXT_CHARACTERS)
    without = text[first:sign] + text[start : match.end() + _CONTEXT_CHARACTERS]
    again = match_at(match.re, without, at - first)
    return again is not None and again.start(1) == sign - first
