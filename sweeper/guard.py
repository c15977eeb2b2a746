"""A watchdog that ends every process that a dead sweep has left.

Every kernel carries a mark in its environment, which its children inherit. The guard is two small
processes, each of which waits for the end of a pipe from its sweep. That end comes however the
sweep dies, by SIGKILL too; then each kills every process with the mark and removes the sweep's
private folder. Run as a script it imports the standard library only.
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

#: Marks every process of a sweep; the value begins with the sweep's token.
MARK_VARIABLE = "SWEEPER_MARK"
#: The end of the mark of a process that serves kernels, as the daemon of MPS does: it leads a
#: session of its own, which is killed when they have ended.
LAST = ".last;"
#: A process that was just being started bears its mark a moment later, so the guard looks twice.
_SCANS, _SCAN_AGAIN_S = 2, 0.05
#: One may be killed in the same moment as its sweep, when nobody is left to replace it.
_PROCESSES = 2
#: The pause before a process that has died is replaced, so that one which cannot run costs little.
_RESTART_S = 1.0
#: How long the end of a sweep waits for each process of its guard.
_END_S = 10.0


def mark_of(study_folder: Path) -> str:
    """The beginning of the marks of all sweeps of a study on this machine."""
    digest = hashlib.blake2b(os.fsencode(study_folder), digest_size=8).hexdigest()
    return f"{digest}-"


def kill_marked(mark: str, *, patience_s: float = 3.0) -> None:
    """Kill all processes that bear a mark, and those that they start meanwhile.

    A process gives up its environment before it closes its files and devices, so those that serve
    kernels are killed only when the kernels are gone altogether.

    Args:
        patience_s: how long to wait for their ends; as long again for those that end last.
    """
    killed: set[int] = set()
    for with_last in (False, True):
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            marks = marked_processes(mark)
            found = {pid for pid, mark in marks.items() if with_last or not mark.endswith(LAST)}
            if not found and not any(map(_runs, killed)):
                break
            for pid in found:
                with suppress(ProcessLookupError):
                    session = os.getsid(pid)
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                    if marks[pid].endswith(LAST):  # what it has started may bear no mark
                        kill_session(session)
            time.sleep(0.01)


def marked_processes(mark: str) -> dict[int, str]:
    """The marks that begin with this one, by the processes that bear them; Linux only."""
    name = f"{MARK_VARIABLE}=".encode()
    wanted, found = name + mark.encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # the process has ended, or belongs to another user
            continue
        for variable in environment.split(b"\0"):
            if variable.startswith(wanted):
                found[int(folder.name)] = variable[len(name) :].decode(errors="replace")
    return found


def _runs(pid: int) -> bool:
    """Whether a process has not ended; nobody may have taken note of its end."""
    try:
        return _stat(pid)[0] not in (b"Z", b"X")
    except OSError:
        return False


def kill_session(leader: int) -> None:
    """Kill all processes of a session: a forked kernel's children may bear no mark."""
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with suppress(OSError):
            if int(_stat(pid)[3]) == leader:
                os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> list[bytes]:
    """State, parent, group, session, … of a process, which follow its name of any bytes."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


class Guard:
    """The watchdog of one sweep; another process takes the place of one that has died.

    Attributes:
        token: the beginning of the marks of this sweep's processes.
        folder: a private folder with a short path, for sockets; gone when the sweep is.
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
        """End the sweep's remaining processes and the guard itself."""
        with self._lock:
            self._closing.set()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for thread in self._threads:
            thread.join(_END_S)
        for process in self._processes:
            process.kill()  # does nothing to one that has ended
        exit_codes = [process.wait() for process in self._processes]
        if 0 not in exit_codes:  # they were killed before they could do this
            kill_marked(self.token)
            remove(self.folder)

    def _watch(self, place: int) -> None:
        """Start another process whenever one has died before the sweep has ended."""
        while not self._closing.is_set():
            process = self._processes[place]
            process.wait()
            with self._lock:
                if self._closing.is_set():
                    return
                assert process.stdin is not None
                process.stdin.close()
                with suppress(OSError):  # no processes or descriptors are left for the moment
                    self._processes[place] = self._started()
            self._closing.wait(_RESTART_S)

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C on the terminal must not end it
        )
        assert process.stdin is not None
        # Not as arguments: other users see those, and could make the folder before the sweep does.
        with suppress(BrokenPipeError):  # it was killed, and is replaced
            os.write(process.stdin.fileno(), os.fsencode(f"{self.token}\n{self.folder}\n"))
        return process


def remove(folder: Path) -> None:
    """Remove a folder of this user with all that is in it; what others have planted is left."""
    with suppress(OSError, RecursionError):  # of very many folders inside of each other
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)


def _main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its sweep does, not before
    token, folder = (os.fsdecode(sys.stdin.buffer.readline()).rstrip("\n") for _ in range(2))
    while sys.stdin.buffer.read(1):
        pass
    if not folder:  # the sweep was killed before there was anything of it
        return
    with suppress(OSError):  # one after the other: each waits for the ends of those it has killed
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
    for _ in range(_SCANS):
        kill_marked(token)
        time.sleep(_SCAN_AGAIN_S)
    remove(Path(folder))


if __name__ == "__main__":
    _main()
