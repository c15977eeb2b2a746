"""A cell's outputs are joined after the cell has run."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbclient.client import _RGX_CARRIAGERETURN
from nbformat import NotebookNode
from nbformat.v4 import new_output

from sweeper.kernels.cells.outputs import joined, moved, redrawn, without_overwritten


def text(name: str, content: str) -> NotebookNode:
    output: NotebookNode = new_output("stream", name=name, text=content)
    return output


def seen(outputs: list[NotebookNode]) -> list[str]:
    """Return a text for each joined output, with `o:` before stdout and `e:` before stderr."""
    return [
        f"{output.name[3]}:{output.text}" if output.output_type == "stream" else output.data["t"]
        for output in joined(outputs)
    ]


def figure(name: str) -> NotebookNode:
    output: NotebookNode = new_output("display_data", data={"t": name})
    return output


@pytest.mark.slow  # it computes for a second
@settings(derandomize=True, max_examples=500)
@given(st.lists(st.text(alphabet="ab \n\r", max_size=6), min_size=1, max_size=6))
def test_text_overwritten_by_a_carriage_return_is_removed_as_nbclient_does(
    pieces: list[str],
) -> None:
    left = without_overwritten(pieces)
    assert "".join(left) == _RGX_CARRIAGERETURN.sub("", "".join(pieces))
    assert len(left) == len(pieces)
    for before, after in zip(pieces, left, strict=True):
        rest = iter(before)
        assert all(character in rest for character in after), "remaining text stays in its piece"


@pytest.mark.parametrize("end", ["", "\r", "\rdone"])
def test_overwritten_text_is_removed_from_a_line_of_megabytes_within_seconds(end: str) -> None:
    started = time.process_time()
    without_overwritten(["x" * 5_000_000 + end])
    without_overwritten(["x" * 50] * 100_000 + [end])
    assert time.process_time() - started < 5, "nbclient takes hours"


def test_joined_outputs_keep_the_order_of_printed_text_and_figures() -> None:
    outputs = [
        output
        for epoch in "012"
        for output in (
            text("stdout", f"epoch {epoch}"),
            text("stdout", "\n"),
            text("stderr", "careful\n"),
            figure(f"figure {epoch}"),
        )
    ]
    assert seen(outputs) == [
        *("o:epoch 0\n", "e:careful\n", "figure 0"),
        *("o:epoch 1\n", "e:careful\n", "figure 1"),
        *("o:epoch 2\n", "e:careful\n", "figure 2"),
    ]


def test_only_the_last_state_of_a_progress_bar_among_printed_lines_is_kept() -> None:
    outputs = [
        text("stderr", "\r  0%"),
        text("stdout", "one\n"),
        text("stderr", "\r 50%"),
        text("stdout", "two\n"),
        text("stderr", "\r100%\n"),
    ]
    assert seen(outputs) == ["o:one\ntwo\n", "e:100%\n"]


def test_streams_that_overwrote_a_line_by_a_carriage_return_are_listed() -> None:
    bar = [text("stderr", "\r  0%"), text("stdout", "one\r\n"), text("stderr", "\r 50%\n")]
    assert redrawn([*bar, figure("below")]) == ["stderr"]
    assert redrawn([text("stdout", "\rone\n"), text("stdout", "two\r"), text("stdout", "\n")]) == []


def test_a_progress_bar_above_a_figure_keeps_the_state_it_had_when_the_figure_was_drawn() -> None:
    outputs = [
        *(text("stderr", "\r  0%"), text("stderr", "\r 25%"), figure("first")),
        *(text("stderr", "\r 50%"), text("stderr", "\r100%\n"), figure("second")),
    ]
    assert seen(outputs) == ["e: 25%", "first", "e:100%\n", "second"]


def test_a_display_can_be_updated_after_earlier_outputs_were_joined() -> None:
    display = new_output("display_data", data={"text/plain": "first"})
    outputs = [*(text("stdout", piece) for piece in "abc"), display]
    places = {"id": {4: [3]}, "other": {2: [0]}}
    after = joined(outputs)
    moved(places, 4, outputs, after)
    assert places == {"id": {4: [1]}, "other": {2: [0]}}
    assert after[1] is display
