"""A pool starts kernels in advance and ends them, and no message of a kernel is lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread, Timer
from typing import Any, NoReturn

import kernels_alone
import psutil
import pytest
from kernels_alone import install_kernel, kernel_pool, run_alone, wait_until_warm
from studies import until
from zmq import ZMQError

from sweeper.guard import marked_processes, remove
from sweeper.kernels import CellFailed, Finished, KernelDied, Raised, SharedCells, Stopped
from sweeper.kernels.forking.origins import Stage, Unready
from sweeper.kernels.process.manager import PrivateKernelManager, QuickClient
from sweeper.notebook_api.messages import StopReason
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]


def started_kernels() -> int:
    """Return how many running kernels this process has started. Forked kernels do not count."""
    return sum("ipykernel_launcher" in it.cmdline() for it in psutil.Process().children())


def test_the_next_kernel_is_started_in_advance_if_kernels_are_not_forked(tmp_path: Path) -> None:
    with kernel_pool(tmp_path, imports=None) as pool:
        pool.prepare()
        until(lambda: started_kernels() == 1, "no kernel was started")
        kernel = pool.take({})
        assert started_kernels() == 1
        kernel.kill()


def test_the_result_of_a_kernel_names_the_failed_cell_and_its_exception(tmp_path: Path) -> None:
    source = write_notebook(tmp_path / "nb.ipynb", "1 + 1", "raise KeyError('x: y')")
    with kernel_pool(tmp_path, imports=None) as pool:
        node, result = run_alone(source, pool)
    assert isinstance(result.ending, CellFailed)
    assert result.ending.raised == Raised(node.cells[-1].execution_count, "KeyError")


@pytest.mark.parametrize("reason", [StopReason.INTERRUPTED, StopReason.TIME_LIMIT])
def test_a_stop_ends_a_kernel_that_has_not_answered_yet(
    reason: StopReason, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)", "-m", "ipykernel_launcher"]
    install_kernel(tmp_path, monkeypatch, "slow", [*sleeps, "-f", "{connection_file}"])
    source = write_notebook(tmp_path / "nb.ipynb", "score = 1.0")
    running = RunningTrial()
    with kernel_pool(tmp_path, imports=None, kernelspec="slow") as pool:
        stop = Timer(0.3, running.control.stop, args=[reason])
        stop.start()
        _, result = run_alone(source, pool, running=running)
        assert marked_processes(pool.setup.token) == {}
    assert result.ending == Stopped()


#: A function that computes a score for a minute, and a cell that catches the interrupt of a stop.
SCORE_LATE = "import time\ndef late():\n    open('begun', 'w').close()\n    time.sleep(60)"
SWALLOW = "try:\n    late()\nexcept KeyboardInterrupt:\n    score = 1.0"


@pytest.mark.parametrize("swallows", [False, True])
def test_a_stop_that_interrupts_the_last_cell_or_the_reading_of_a_score_makes_the_trial_stopped(
    tmp_path: Path, *, swallows: bool
) -> None:
    cells = [SCORE_LATE, SWALLOW] if swallows else [SCORE_LATE]
    source = write_notebook(tmp_path / "nb.ipynb", *cells)
    running = RunningTrial()

    def stop() -> None:
        until((tmp_path / "begun").exists)
        running.control.stop(StopReason.INTERRUPTED)

    with kernel_pool(tmp_path, imports=None) as pool:
        stopper = Thread(target=stop)
        stopper.start()
        variables = ["score" if swallows else "late()"]
        _, result = run_alone(source, pool, running=running, variables=variables)
        stopper.join()
    assert result.ending == Stopped()


def test_a_kernel_that_exits_while_a_score_is_read_counts_as_died(tmp_path: Path) -> None:
    source = write_notebook(tmp_path / "nb.ipynb", "import os")
    with kernel_pool(tmp_path, imports=None) as pool:
        _, result = run_alone(source, pool, variables=["os._exit(3)"])
    assert (result.ending, result.exit_code) == (KernelDied(), 3)


def test_a_notebook_that_shuts_down_its_kernel_in_an_orderly_way_counts_as_finished(
    tmp_path: Path,
) -> None:
    ends = "get_ipython().kernel.do_shutdown(True)"
    source = write_notebook(tmp_path / "nb.ipynb", f"import time\n{ends}; time.sleep(2)")
    with kernel_pool(tmp_path, imports=None) as pool:
        _, result = run_alone(source, pool, variables=["score"])
    assert result.ending == Finished()


def test_a_client_that_runs_out_of_file_descriptors_closes_the_sockets_it_has_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = QuickClient(connection_file=str(tmp_path / "k.json"))
    monkeypatch.setattr(client, "connect_iopub", _without_descriptors)
    with pytest.raises(ZMQError):
        client.start_channels()
    client.stop_channels()
    assert client.context.closed


def test_a_kernel_that_cannot_be_asked_to_end_is_ended_and_its_trial_keeps_its_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = write_notebook(tmp_path / "nb.ipynb", "score = 1.0")
    monkeypatch.setattr(PrivateKernelManager, "connect_control", _without_descriptors)
    with kernel_pool(tmp_path, imports=None) as pool:
        _, result = run_alone(source, pool, variables=["score"])
        assert marked_processes(pool.setup.token) == {}
    assert result.ending == Finished()
    assert result.answer.floats == {"score": 1.0}


def _without_descriptors(*_: Any, **__: Any) -> NoReturn:
    raise ZMQError(errno.EMFILE)


#: A program: a sweep whose kernel is paused (SIGSTOP). Its argument is the folder of test helpers.
STANDS_STILL = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from kernels_alone import kernel_pool, run_alone
from sweeper.testing import write_notebook
source = write_notebook(Path("nb.ipynb"), "import os, signal\\nos.killpg(0, signal.SIGSTOP)")
with kernel_pool(Path(), imports=None) as pool:
    print(pool.setup.token, flush=True)
    run_alone(source, pool)
"""


def test_a_paused_kernel_ends_if_its_sweep_and_the_guard_processes_are_killed(
    tmp_path: Path,
) -> None:
    tests = str(Path(kernels_alone.__file__).parent)
    command = [sys.executable, "-c", STANDS_STILL, tests]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as sweep:
        assert sweep.stdout is not None
        token = sweep.stdout.readline().strip()
        children = until(lambda: _children_if_one_stands_still(sweep.pid))
        guard = [child for child in children if "guard.py" in str(child.cmdline())]
        # While a process calls `exec`, its mark, an environment variable, cannot be read.
        until(lambda: len(marked_processes(token)) == 1)
        pids = [sweep.pid, *(process.pid for process in guard)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)
    until(lambda: not marked_processes(token))
    remove(Path("/tmp") / token)


def _children_if_one_stands_still(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children()
    is_still = any(child.status() == psutil.STATUS_STOPPED for child in children)
    return children if is_still else []


def test_no_kernel_is_started_while_the_process_that_forks_kernels_imports_libraries(
    tmp_path: Path,
) -> None:
    with kernel_pool(tmp_path, imports=None, kernels="fork") as pool:
        pool.fork_server.record_imports({"modules": ["pandas"], "environment": {}})
        pool.prepare()
        wait_until_warm(pool)
        assert started_kernels() == 0
        kernel = pool.take({})
        assert kernel.origin.is_forked
        kernel.kill()


@pytest.mark.parametrize("has_imported", [False, True])
def test_an_early_start_forks_no_kernel_if_the_notebook_sets_variables_that_libraries_read(
    tmp_path: Path, *, has_imported: bool
) -> None:
    with kernel_pool(tmp_path, imports=None, kernels="fork") as pool:
        server = pool.fork_server
        server.start_early(["json"])
        if has_imported:
            wait_until_warm(pool)
        wants = [server.wants_import_profile]
        server.record_imports({"modules": ["json"], "environment": {"HF_HOME": "/elsewhere"}})
        wants.append(server.wants_import_profile)
        assert wants == [True, False]
        until(lambda: isinstance(server.available, Unready) and "HF_HOME" in server.available.why)
        assert isinstance(server.available, Unready)
        assert server.available.stage is Stage.NEVER


def test_replacing_the_process_that_forks_kernels_is_not_reported_as_a_fault_of_shared_cells(
    tmp_path: Path,
) -> None:
    cell = "open('begun', 'w').close()\nimport time\ntime.sleep(60)"
    source = write_notebook(tmp_path / "nb.ipynb", cell, parameters="x = 1", shared=1)
    with kernel_pool(tmp_path, imports=None, kernels="fork") as pool:
        server = pool.fork_server
        server._shared_cells = SharedCells.of(ResearchNotebook(source).fresh_copy())
        server.start_early(["json"])
        until((tmp_path / "begun").exists)
        server.record_imports({"modules": ["json"], "environment": {"HF_HOME": "/elsewhere"}})
        until(lambda: isinstance(server.available, Unready) and "HF_HOME" in server.available.why)
        assert server.finding is None


def test_kernels_are_forked_after_an_early_start_if_a_library_has_set_its_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process of the tests may have this variable as well, if it has imported the library.
    monkeypatch.delitem(kernels_alone.ENVIRONMENT, "KMP_INIT_AT_FORK", raising=False)
    set_by_library = {"KMP_INIT_AT_FORK": "FALSE"}
    with kernel_pool(tmp_path, imports=None, kernels="fork") as pool:
        pool.fork_server.start_early(["json"])
        wait_until_warm(pool)
        early = pool.fork_server._zygote
        pool.fork_server.record_imports({"modules": ["sklearn"], "environment": set_by_library})
        until(lambda: pool.fork_server._zygote is not early)
        wait_until_warm(pool)
        kernel = pool.take({})
        assert kernel.origin.is_forked
        kernel.kill()


def test_a_forked_kernel_lacks_an_environment_variable_that_an_import_has_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "removing.py").write_text("import os\nos.environ.pop('LEFT_OVER', None)")
    monkeypatch.setitem(kernels_alone.ENVIRONMENT, "PYTHONPATH", str(folder))
    monkeypatch.setitem(kernels_alone.ENVIRONMENT, "LEFT_OVER", "1")
    looking = write_notebook(
        tmp_path / "nb.ipynb", "import os\nimport removing", "assert 'LEFT_OVER' not in os.environ"
    )
    with kernel_pool(tmp_path, imports="import removing") as pool:
        _, result = run_alone(looking, pool)
        assert result.origin.is_forked
        assert isinstance(result.ending, Finished)


#: A cell that makes the kernel overlook requests, as ipykernel 7.0 to 7.3 can: its next replies are
#: sent so slowly that a request always arrives meanwhile.
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
def test_a_request_that_the_kernel_overlooks_is_sent_again_over_a_new_connection(
    tmp_path: Path, cells: tuple[str, ...]
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", *cells)
    with kernel_pool(tmp_path, imports=None) as pool:
        _, result = run_alone(notebook, pool, variables=["score"])
    assert result.ending == Finished()
    assert result.answer.floats == {"score": 3.0}


FORKED_OR_NOT = pytest.mark.parametrize("is_forked", [False, True])

NOTEBOOK = (
    "import sys\nby_itself = float('debugpy' in sys.modules)",
    "import debugpy\nby_hand = float(callable(debugpy.listen))",
)


@FORKED_OR_NOT
def test_a_kernel_does_not_import_a_debugger_but_its_notebook_can(
    is_forked: bool, tmp_path: Path
) -> None:
    source = write_notebook(tmp_path / "nb.ipynb", *NOTEBOOK)
    with kernel_pool(tmp_path, imports="import json" if is_forked else None) as pool:
        _, result = run_alone(source, pool, variables=["by_itself", "by_hand"])
    assert result.origin.is_forked is is_forked
    assert result.answer.floats == {"by_itself": 0.0, "by_hand": 1.0}


@FORKED_OR_NOT
def test_no_output_of_a_kernel_is_lost_while_the_process_that_reads_it_is_paused(
    is_forked: bool, tmp_path: Path
) -> None:
    # The cell prints several times what ZeroMQ and the system buffer for a slow reader.
    cell = (
        "import subprocess, time\n"
        f"subprocess.Popen('kill -STOP {os.getpid()}; sleep 2.5; kill -CONT {os.getpid()}', "
        "shell=True)\n"
        "time.sleep(0.2)\n"
        "for i in range(3_000): display(i)"
    )
    source = write_notebook(tmp_path / "nb.ipynb", "import json", cell)
    with kernel_pool(tmp_path, imports="import json" if is_forked else None) as pool:
        node, result = run_alone(source, pool)
    assert result.origin.is_forked is is_forked
    assert [o.data["text/plain"] for o in node.cells[-1].outputs] == [str(i) for i in range(3_000)]


PRINTING_CHILD = """
import multiprocessing, os, psutil
child = multiprocessing.get_context("fork").Process(target=print, args=["printed by a child"])
child.start()
child.join()
listens = sum(it.status == psutil.CONN_LISTEN for it in psutil.Process().net_connections("inet"))
"""


@FORKED_OR_NOT
def test_prints_of_a_notebooks_child_process_arrive_although_the_kernel_opens_no_port(
    is_forked: bool, tmp_path: Path
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", PRINTING_CHILD, "import time; time.sleep(1)")
    with kernel_pool(tmp_path, imports="import psutil" if is_forked else None) as pool:
        node, result = run_alone(notebook, pool, variables=["listens"])
    assert result.ending == Finished(), result
    assert result.answer.floats == {"listens": 0.0}
    assert "printed by a child" in str([cell.get("outputs") for cell in node.cells])


#: A cell that sends SIGTERM and SIGHUP: they do not end the kernel, but end its child processes. A
#: handler that the notebook sets receives them.
SIGNALLED = """
import multiprocessing, os, signal, subprocess, time
numbers = [signal.SIGTERM, signal.SIGHUP]
for number in numbers:
    os.kill(os.getpid(), number)
context = multiprocessing.get_context("fork")
children = [context.Process(target=time.sleep, args=[600]) for _ in numbers]
for child in children:
    child.start()
commands = [subprocess.Popen(["sleep", "600"]) for _ in numbers]
time.sleep(0.5)
for number, child, command in zip(numbers, children, commands):
    os.kill(child.pid, number)
    os.kill(command.pid, number)
    child.join(60)
ended = [child.exitcode for child in children] == [-number for number in numbers]
ended &= [command.wait(60) for command in commands] == [-number for number in numbers]
seen = []
signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
os.kill(os.getpid(), signal.SIGTERM)
n_seen = len(seen)
"""


@FORKED_OR_NOT
def test_a_kernel_but_not_its_children_survives_the_signals_of_a_machine_that_shuts_down(
    is_forked: bool, tmp_path: Path
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", SIGNALLED)
    with kernel_pool(tmp_path, imports="import json" if is_forked else None) as pool:
        _, result = run_alone(notebook, pool, variables=["ended", "n_seen"])
    assert result.origin.is_forked is is_forked
    assert result.ending == Finished(), result
    assert result.answer.floats == {"ended": 1.0, "n_seen": 1.0}
