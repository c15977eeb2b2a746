"""A watchdog that ends every process that a dead sweep has left.

Each kernel has a mark in its environment (the variable `SWEEPER_MARK`), which its children inherit.
The guard consists of two small processes. Each of them waits until the pipe from its sweep closes,
which happens even if the sweep is killed by SIGKILL. Then it kills every process with the mark, and
removes the sweep's private folder.

The two processes run this file as a script, so the file imports only the standard library.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

#: Environment variable that marks each process of a sweep. Its value, the mark, begins with a text
#: that only this sweep uses: its token.
MARK_VARIABLE = "SWEEPER_MARK"
#: Suffix of the mark of a process that serves kernels, such as the daemon of MPS (NVIDIA's service
#: for sharing a GPU). Such a process leads its own session, which is killed after the kernels have
#: ended.
LAST = ".last;"
#: Number of scans for marked processes, and seconds between two scans (chosen, not measured). One
#: scan could miss a process that is just being started, because its mark appears a moment later.
_SCANS, _SCAN_AGAIN_S = 2, 0.05
#: Seconds that trackers get to remove the shared memory of killed processes, before they are killed
#: too (chosen, not measured). multiprocessing's resource tracker is an example.
_TRACKERS_S = 0.5
#: Number of guard processes (chosen). One of them may be killed at the same moment as its sweep.
#: The sweep cannot replace that process any more, so there is a second one.
_PROCESSES = 2
#: Seconds until a guard process that has died is replaced (chosen, not measured). Without this
#: wait, guard processes that cannot run would be started again and again.
_RESTART_S = 1.0
#: Longest wait for each guard process to clean up and end after the sweep, in seconds (chosen, not
#: measured).
_END_S = 10.0


def mark_of(study_folder: Path) -> str:
    """Return the text with which the marks (`MARK_VARIABLE`) of a study's sweeps begin."""
    digest = hashlib.blake2b(os.fsencode(study_folder), digest_size=8).hexdigest()
    return f"{digest}-"


def kill_marked(mark: str, *, patience_s: float = 3.0) -> None:
    """Kill all processes whose mark begins with `mark`, and those that they start meanwhile.

    Processes that serve kernels, such as the daemon of NVIDIA's MPS, are killed after the kernels
    have ended completely. The environment of a killed kernel, and with it the mark, vanishes before
    the kernel closes its files and devices. So the kernel's end is awaited by its process id.

    Trackers, which remove the shared memory of processes that have ended, get at most 0.5 s for it.

    Args:
        mark: Text with which the marks (`MARK_VARIABLE`) of these processes begin.
        patience_s: Seconds to wait for the kernels to end, and again for the processes that serve
            them.
    """
    killed: set[int] = set()
    trackers_until = time.monotonic() + min(_TRACKERS_S, patience_s / 2)
    for with_last in (False, True):
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            marks = marked_processes(mark)
            found = {pid for pid, mark in marks.items() if with_last or not mark.endswith(LAST)}
            if not found and not any(map(_runs, killed)):
                break
            has_time = time.monotonic() < trackers_until
            for pid in found:
                if has_time and _is_tracker(pid):
                    continue
                with suppress(ProcessLookupError):
                    session = os.getsid(pid)
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                    if marks[pid].endswith(LAST):  # Its children may have no mark. Kill them too.
                        kill_session(session)
            time.sleep(0.01)


def marked_processes(mark: str) -> dict[int, str]:
    """Return the marks (values of `MARK_VARIABLE`) that begin with `mark`, by process id.

    This works only on Linux. The scan must be fast: a sweep makes it whenever a kernel ends, and a
    machine may have thousands of processes.
    """
    name = b"\0%s=" % MARK_VARIABLE.encode()
    wanted, found = name + mark.encode(), {}
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                environment = b"\0" + file.read()
        except OSError:  # The process has ended, or belongs to another user.
            continue
        begin = environment.rfind(wanted)
        if begin >= 0:
            value = environment[begin + len(name) :].partition(b"\0")[0]
            found[pid] = value.decode(errors="replace")
    return found


def _pids() -> list[int]:
    """Return the ids of all processes of the machine. The list is empty if there is no `/proc`."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit()]


def _runs(pid: int) -> bool:
    """Return whether a process still runs. A zombie does not."""
    try:
        return stat_of(pid)[0] not in (b"Z", b"X")
    except OSError:
        return False


def _is_tracker(pid: int) -> bool:
    """Return whether a process is a tracker, which removes shared memory when its users have ended.

    multiprocessing, joblib and torch start such processes.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"resource_tracker" in command or b"torch_shm_manager" in command


def kill_session(leader: int) -> None:
    """Kill all processes of a session, even those without a mark (`MARK_VARIABLE`).

    Children that a forked kernel has forked lack the kernel's mark.

    Args:
        leader: Process id of the process that leads the session.
    """
    for pid in _pids():
        with suppress(OSError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def stat_of(pid: int) -> list[bytes]:
    """Return the fields of `/proc/PID/stat` that follow the name: state, parent, …

    The name of a process may contain any bytes, even spaces and brackets. So the text is split
    after the last bracket.
    """
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


class Guard:
    """Starts the guard processes of one sweep, and replaces those that die before the sweep ends.

    When the sweep has ended or was killed, a guard process kills all processes with the sweep's
    mark, and removes the sweep's folder.

    Attributes:
        token: Text with which the marks (`MARK_VARIABLE`) of this sweep's processes begin.
        folder: Private folder of the sweep.
    """

    def __init__(self, *, token: str, folder: Path) -> None:
        self.token = token
        self.folder = folder
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._processes = [self._started() for _ in range(_PROCESSES)]
        self._threads = [
            threading.Thread(target=self._watch, args=[place], name="guard", daemon=True)
            for place in range(_PROCESSES)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Kill the sweep's remaining processes, remove its folder, and end the guard processes."""
        with self._lock:
            self._closing.set()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for thread in self._threads:
            thread.join(_END_S)
        for process in self._processes:
            process.kill()  # This does nothing if the process has ended.
        exit_codes = [process.wait() for process in self._processes]
        if 0 not in exit_codes:  # All guard processes were killed before they could clean up.
            kill_marked(self.token)
            remove(self.folder)

    def _watch(self, place: int) -> None:
        """Replace a guard process whenever it dies before the end of the sweep.

        Args:
            place: Index of the guard process in `_processes`.
        """
        while not self._closing.is_set():
            process = self._processes[place]
            process.wait()
            with self._lock:
                if self._closing.is_set():
                    return
                assert process.stdin is not None
                process.stdin.close()
                with suppress(OSError):  # The system may refuse another process at the moment.
                    self._processes[place] = self._started()
            self._closing.wait(_RESTART_S)

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # A Ctrl-C on the terminal must not end the guard.
        )
        assert process.stdin is not None
        # Send token and folder through a pipe and not as arguments. Other users see arguments, and
        # could make the folder before the sweep does.
        with suppress(BrokenPipeError):  # The process was killed, and will be replaced.
            os.write(process.stdin.fileno(), os.fsencode(f"{self.token}\n{self.folder}\n"))
        return process


def remove(folder: Path) -> None:
    """Remove a folder and its content. Do nothing if it is a link or belongs to another user."""
    with suppress(OSError, RecursionError):  # Very deep folders cause a RecursionError.
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The guard must not end before its sweep.
    pipe = sys.stdin.buffer
    token = os.fsdecode(pipe.readline()).rstrip("\n")
    folder = os.fsdecode(pipe.readline()).rstrip("\n")
    while pipe.read(1):
        pass
    if not folder:  # The sweep was killed before it had started anything.
        return
    # Let only one guard process clean up at a time. Each of them waits only for processes that it
    # has killed itself, and could remove the folder while other killed processes still use it.
    with suppress(OSError):
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
    for _ in range(_SCANS):
        kill_marked(token)
        time.sleep(_SCAN_AGAIN_S)
    remove(Path(folder))


if __name__ == "__main__":
    _main()
