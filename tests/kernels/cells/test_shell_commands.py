"""Shell commands of a notebook get no input, and otherwise run as in IPython."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from kernels_alone import kernel_pool, run_alone
from studies import until

from sweeper.kernels import Finished, Stopped
from sweeper.kernels.forking.zygote import in_kernel
from sweeper.notebook_api.messages import StopReason
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial

#: Commands that try to read input: from stdin, from the terminal, or from the terminal of stderr.
ASKING = {
    "read": "read answer; echo got:$answer",
    "cp": "touch a b; cp -i a b; echo got:",
    "tty": "read answer < /dev/tty; echo got:$answer",
    "output": "read answer <&2; echo got:$answer",
    "password": "python3 -c 'import getpass; getpass.getpass()'; echo got:",
}


@pytest.mark.parametrize("command", ASKING.values(), ids=ASKING)
def test_a_shell_command_that_reads_its_input_gets_the_end_of_input(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_kernel._run_command(command) == 0
    assert capsys.readouterr().out.endswith("got:\r\n")


def test_a_shell_command_prints_its_progress_as_in_a_terminal_and_returns_its_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert in_kernel._run_command("test -t 1 && test -t 2 && stty size <&1; exit 3") == 3
    assert capsys.readouterr().out == "24 80\r\n"
    assert in_kernel._run_command("sh -c 'kill -9 $$'; exit $?") == -signal.SIGKILL


def test_a_character_that_a_command_prints_in_two_parts_is_shown_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    in_kernel._run_command(r"printf '\303'; sleep 0.1; printf '\251\377'")
    assert capsys.readouterr().out == "é�"


def test_processes_that_a_shell_command_leaves_behind_end_with_the_command(tmp_path: Path) -> None:
    started_s = time.monotonic()
    in_kernel._run_command(f"sleep 60 & echo $! > {tmp_path / 'pid'}")
    assert time.monotonic() - started_s < 30
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in state(pid))


def state(pid: int) -> str:
    """Return the state of a process as a letter, such as `Z` for a zombie."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_interrupt_reaches_a_shell_command_and_ends_its_cell() -> None:
    # Set the handler that a kernel has. Libraries of other tests may have set another one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            in_kernel._run_command("trap 'echo interrupted; exit 1' INT; sleep 60 & wait")
    finally:
        signal.signal(signal.SIGINT, before)


NOTEBOOK = """
import os, subprocess
def show(text):
    !echo {text}; exit 3
show("a variable of a function")
code = float(_exit_code)
!read answer; echo got:$answer
lines = !read answer; echo got:$answer
print(lines)
os.system("read answer < /dev/tty")
subprocess.run("read answer", shell=True)
"""


@pytest.mark.kernel
@pytest.mark.parametrize("is_forked", [False, True])
def test_no_command_of_a_notebook_waits_for_input(tmp_path: Path, *, is_forked: bool) -> None:
    bash = "%%bash\nread answer < /dev/tty\necho got:$answer"
    notebook = write_notebook(tmp_path / "nb.ipynb", NOTEBOOK, bash)
    with kernel_pool(tmp_path, imports="import json" if is_forked else None) as pool:
        node, result = run_alone(notebook, pool, variables=["code"])
    assert result.ending == Finished()
    assert result.answer.floats == {"code": 3.0}
    shown = "".join(output.get("text", "") for cell in node.cells for output in cell.outputs)
    assert "a variable of a function" in shown
    assert "got:\r\n['got:']" in shown


@pytest.mark.kernel
def test_a_stop_of_a_trial_ends_its_shell_command(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "!echo begun > begun; sleep 60\ny = 1")
    running = RunningTrial(trials_left=1)

    def stop() -> None:
        until((tmp_path / "begun").exists)
        running.control.stop(StopReason.BY_HAND)

    with kernel_pool(tmp_path, imports=None) as pool:
        stopper = threading.Thread(target=stop)
        stopper.start()
        _, result = run_alone(notebook, pool, running=running)
        stopper.join()
    assert result.ending == Stopped()


@pytest.mark.kernel
@pytest.mark.parametrize("is_forked", [False, True])
def test_a_shell_command_is_paused_while_its_trial_is_frozen(
    tmp_path: Path, *, is_forked: bool
) -> None:
    ticks = "!for i in $(seq 200); do echo $i >> ticks; sleep 0.02; [ -e end ] && break; done; true"
    notebook = write_notebook(tmp_path / "nb.ipynb", ticks)
    running = RunningTrial(trials_left=1)
    seen: list[bool] = []

    def freeze() -> None:
        until((tmp_path / "ticks").exists)
        assert running.control.freeze()
        time.sleep(0.05)  # wait until the signal that pauses the command has arrived
        before = (tmp_path / "ticks").read_text()
        time.sleep(0.3)
        seen.append((tmp_path / "ticks").read_text() == before)
        (tmp_path / "end").touch()
        running.control.thaw()

    with kernel_pool(tmp_path, imports="import json" if is_forked else None) as pool:
        freezer = threading.Thread(target=freeze)
        freezer.start()
        _, result = run_alone(notebook, pool, running=running)
        freezer.join()
    assert (result.ending, seen) == (Finished(), [True])
