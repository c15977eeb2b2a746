"""What becomes of a cell's outputs once it has run."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbclient.client import _RGX_CARRIAGERETURN
from nbformat.v4 import new_output

from sweeper.kernels.outputs import as_shown, joined, moved


@settings(derandomize=True, max_examples=500)
@given(st.text(alphabet="ab \n\r"))
def test_text_that_a_carriage_return_has_overwritten_is_gone_as_nbclient_has_it(text: str) -> None:
    assert as_shown(text) == _RGX_CARRIAGERETURN.sub("", text)


@pytest.mark.parametrize("end", ["", "\r", "\rdone"])
def test_a_line_of_megabytes_takes_no_longer_than_many_short_ones(end: str) -> None:
    started = time.process_time()
    as_shown("x" * 5_000_000 + end)
    assert time.process_time() - started < 5, "nbclient takes hours"


def test_streams_are_one_piece_each_standard_output_first() -> None:
    outputs = [
        new_output("stream", name="stderr", text="e1"),
        new_output("stream", name="stdout", text="a"),
        new_output("stream", name="stderr", text="e2"),
        new_output("stream", name="stdout", text="b"),
    ]
    seen = [(output.name, output.text) for output in joined(outputs)]
    assert seen == [("stdout", "ab"), ("stderr", "e1e2")]


def test_a_display_is_found_after_the_outputs_before_it_were_joined() -> None:
    shown = new_output("display_data", data={"text/plain": "first"})
    outputs = [*(new_output("stream", name="stdout", text=t) for t in "abc"), shown]
    places = {"id": {4: [3]}, "other": {2: [0]}}
    after = joined(outputs)
    moved(places, 4, outputs, after)
    assert places == {"id": {4: [1]}, "other": {2: [0]}}
    assert after[1] is shown
