"""Streams that drop what they cannot write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweeper.cli.streams import Output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("fault", ["No space left on device", None])
def test_a_stream_that_has_failed_drops_all_text(fault: str | None) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    if fault is not None:
        os.close(writer)
        writer = os.open("/dev/full", os.O_WRONLY)
    with open(writer, "w") as stream:
        output = Output(stream)
        for _ in range(2):
            assert output.write("text") == 4
            output.flush()
            assert output.fault == fault
    assert stream.closed
