"""A request that a kernel overlooks, as ipykernel 7.0 to 7.3 may do, and then wait for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels_alone import kernel_pool, run_alone

from sweeper.kernels import Ending
from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

#: From now on the kernel sends its next replies as those releases do, past the object that waits
#: for requests; and so slowly that a request always comes meanwhile.
OVERLOOK = """
import time
import zmq
left = [1]
thread = get_ipython().kernel.shell_channel_thread
def send(message):
    if not left[0]:
        return thread.manager._send_on_shell_channel(message)
    left[0] -= 1
    thread.shell_stream.socket.send_multipart(message)
    time.sleep(0.3)
    thread.shell_stream.socket.get(zmq.EVENTS)
to_thread = thread.manager._main_to_shell_channel
thread.io_loop.add_callback(to_thread.on_recv, thread.io_loop, send)
"""


@pytest.mark.parametrize("cells", [(OVERLOOK, "score = 3.0"), ("score = 3.0" + OVERLOOK,)])
def test_a_cell_and_values_whose_request_is_overlooked_are_had_all_the_same(
    tmp_path: Path, cells: tuple[str, ...]
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", *cells)
    with kernel_pool(tmp_path, imports=None) as pool:
        _, result = run_alone(notebook, pool, variables=["score"])
    assert result.ending is Ending.FINISHED
    assert result.variables == {"score": 3.0}
