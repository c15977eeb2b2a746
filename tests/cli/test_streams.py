"""Lines that fit a terminal."""

from __future__ import annotations

from sweeper.cli.streams import folded

LINE = "[  0.9s] study digits: 12 trials of notebooks/digits.ipynb, 4 at once, sampler gp"


def test_a_long_line_is_wrapped_between_words_below_its_text_and_not_below_its_clock() -> None:
    first, second = folded([LINE], 80)
    assert len(first) <= 80
    assert second == "         gp"
    assert first + second[8:] == LINE


def test_a_line_that_fits_and_a_word_that_does_not_stay_as_they_are() -> None:
    url = "http://127.0.0.1:5000/" + 100 * "x"
    assert folded(["", "two words", url], 80) == ["", "two words", url]
