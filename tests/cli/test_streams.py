"""Test lines that are wrapped to the width of a terminal."""

from __future__ import annotations

from sweeper.cli.streams import folded

LINE = "[  0.9s] study digits: 12 trials of notebooks/digits.ipynb, 4 at once, sampler gp"


def test_a_wrapped_log_line_is_indented_by_the_width_of_the_time_at_its_beginning() -> None:
    first, second = folded([LINE], 80)
    assert len(first) <= 80
    assert second == "         gp"
    assert first + second[8:] == LINE


def test_lines_that_fit_and_words_that_are_too_long_are_not_wrapped() -> None:
    url = "http://127.0.0.1:5000/" + 100 * "x"
    assert folded(["", "two words", url], 80) == ["", "two words", url]
