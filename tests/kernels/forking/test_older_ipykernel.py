"""What the zygote does with classes of older ipykernels, which this environment does not have."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Boots the zygote's shell with ipykernel's streams as release 6 makes them: without `_fid` where
#: the descriptor is not watched.
BOOT = """
from ipykernel import iostream

initialize = iostream.OutStream.__init__

def initialize_as_6(self, *arguments, watchfd=True, **options):
    initialize(self, *arguments, watchfd=watchfd, **options)
    if not watchfd:
        del self._fid

iostream.OutStream.__init__ = initialize_as_6

from sweeper.kernels.forking.zygote.shell import App

app = App.instance()
app.boot([])
app.shell.run_cell("print('printed')")
(message,) = app.recorder.take()
assert message["content"] == {"name": "stdout", "text": "printed\\n"}, message
"""


@pytest.mark.slow
def test_a_zygote_records_what_cells_print_with_the_streams_of_ipykernel_6() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOOT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
