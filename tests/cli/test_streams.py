"""Streams that drop what they cannot write."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

import pytest

from sweeper.cli.streams import Output, unbreakable


class Failing(io.StringIO):
    """Fails at each write, as a full disk or a closed pipe does."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.tries = 0

    def write(self, text: str) -> int:
        self.tries += 1
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(
    ("number", "fault"), [(errno.ENOSPC, "No space left on device"), (errno.EPIPE, None)]
)
def test_a_stream_that_fails_once_is_not_tried_again(number: int, fault: str | None) -> None:
    stream = Failing(number)
    output = Output(stream)
    assert output.write("first") == 5
    assert output.write("second") == 6
    output.flush()
    assert stream.tries == 1
    assert output.fault == fault


def test_characters_outside_the_encoding_are_escaped(tmp_path: Path) -> None:
    file = tmp_path / "out"
    with open(file, "w", encoding="ascii") as stream:
        Output(stream).write("ä…\n")
    assert file.read_text("ascii") == "\\xe4\\u2026\n"


def test_the_standard_streams_are_replaced_only_while_the_block_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sys.stdout, sys.stderr
    with unbreakable() as (stdout, stderr):
        replaced: tuple[object, object] = sys.stdout, sys.stderr
        assert replaced == (stdout, stderr)
        sys.stdout.write("to stdout\n")
        sys.stderr.write("to stderr\n")
    assert (sys.stdout, sys.stderr) == before
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("to stdout\n", "to stderr\n")
