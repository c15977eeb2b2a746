"""Compile a user's regular expressions, and match them within a limit of time.

`re` holds Python's interpreter lock while it matches. A pattern that backtracks would stop the
whole sweep: no signal and no limit of time would be answered.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache

import regex

#: Seconds for the matches in one line. Chosen: a usual line takes microseconds.
LIMIT_S = 2.0
#: Seconds of CPU for all lines of a trial that are slow, and when a line is (chosen). Quick lines
#: do not count, so that a trial may print as many of them as it likes.
TRIAL_LIMIT_S, SLOW_S = 5.0, 0.001
#: What `re` reads as plain characters, and `regex` as an approximate match or a class of POSIX.
_READ_DIFFERENTLY = re.compile(r"\{(?=[^{}]*[deis])[\s\d<=+,deis]+\}|\[:\^?\w+:\]")


@cache
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """Compile a pattern in the syntax of `re`.

    Raises:
        ValueError: the pattern is none, or the two libraries understand it differently.
    """
    try:
        # Both read `[[` as the plain character, and warn of a future in which they will not.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            re.compile(pattern)
            compiled = regex.compile(pattern, regex.VERSION0)
    except (re.error, regex.error) as error:
        raise ValueError(str(error)) from error
    if found := _READ_DIFFERENTLY.search(pattern):
        raise ValueError(
            f"{found[0]!r} has two meanings; write a backslash before {found[0][0]!r} for the "
            "plain character"
        )
    return compiled


def find_all(pattern: regex.Pattern[str], text: str) -> Iterator[regex.Match[str]]:
    """Find all matches; other threads run meanwhile.

    Raises:
        TimeoutError: while iterating, when the limit of time has passed.
    """
    return pattern.finditer(text, timeout=LIMIT_S, concurrent=True)


def match_at(pattern: regex.Pattern[str], text: str, start: int) -> regex.Match[str] | None:
    """Match a pattern at one place of a text.

    Raises:
        TimeoutError: the limit of time has passed.
    """
    return pattern.match(text, start, timeout=LIMIT_S, concurrent=True)
