"""The line in which an error is reported."""

from __future__ import annotations

import pytest

from sweeper.errors import SweepError, first_line, root_cause, shortened


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "MemoryError"),
        (ValueError("  \n "), "ValueError"),
        (ValueError("\nfirst\nsecond"), "first"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_an_error_has_a_line_even_when_it_has_no_message(error: Exception, line: str) -> None:
    assert first_line(error) == line


def test_a_message_that_quotes_all_its_data_loses_its_middle() -> None:
    text = shortened(f"first{'x' * 5_000_000}last")
    assert len(text) < 2100
    assert text.startswith("firstx")
    assert text.endswith("xlast")
    assert " … 4,998,009 characters … " in text
    assert shortened("short") == "short"


def test_the_root_cause_of_an_error_without_a_message_is_the_name_of_its_class() -> None:
    try:
        try:
            raise MemoryError
        except MemoryError as error:
            raise SweepError("in general words") from error
    except SweepError as error:
        assert root_cause(error) == "MemoryError"
