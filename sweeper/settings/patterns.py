"""Compile a user's regular expressions, and match them within a time limit.

`re` holds Python's interpreter lock while it matches. A pattern that backtracks could block the
whole sweep: neither signals nor time limits would be handled.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache

import regex

#: Finding all matches in one line may take this many seconds (chosen, not measured). An ordinary
#: line takes microseconds.
LIMIT_S = 2.0
#: Matching all slow lines of a trial may take the first number of seconds of CPU time in all. A
#: line counts as slow after the second number of seconds (chosen, not measured). Quick lines do not
#: count, so that a trial may print any number of them.
TRIAL_LIMIT_S, SLOW_S = 5.0, 0.001
#: Syntax that `re` reads as plain characters, but `regex` as an approximate match or a POSIX class.
_READ_DIFFERENTLY = re.compile(r"\{(?=[^{}]*[deis])[\s\d<=+,deis]+\}|\[:\^?\w+:\]")


@cache
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """Compile a pattern in the syntax of `re`.

    Raises:
        ValueError: The pattern is not valid, or `re` and `regex` understand it differently.
    """
    try:
        # `re` and `regex` read `[[` as a plain character, and warn that this will change.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            re.compile(pattern)
            compiled = regex.compile(pattern, regex.VERSION0)
    except (re.error, regex.error) as error:
        raise ValueError(str(error)) from error
    if found := _READ_DIFFERENTLY.search(pattern):
        raise ValueError(
            f"{found[0]!r} has one meaning in Python's re and another in the library regex; write "
            f"a backslash before {found[0][0]!r} for the plain character"
        )
    return compiled


def find_all(pattern: regex.Pattern[str], text: str) -> Iterator[regex.Match[str]]:
    """Yield all matches. Other threads can run meanwhile.

    Raises:
        TimeoutError: The matches in this text took longer than the time limit.
    """
    return pattern.finditer(text, timeout=LIMIT_S, concurrent=True)


def match_at(pattern: regex.Pattern[str], text: str, start: int) -> regex.Match[str] | None:
    """Return the match of a pattern that begins at a position of a text. None if there is none.

    Raises:
        TimeoutError: The match took longer than the time limit.
    """
    return pattern.match(text, start, timeout=LIMIT_S, concurrent=True)
