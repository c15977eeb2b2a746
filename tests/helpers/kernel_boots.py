"""Boot kernels in processes that are forked with ipykernel already imported.

The import of ipykernel takes most of a kernel's start, and most tests are about something else. A
forked kernel has its own process, environment, sockets and exit code, like one in a new
interpreter. It runs `ipykernel_launcher` from its first line, but its imports are already done.
Kernels with another command, and all kernels of tests with the fixture `started_kernels`, get a new
interpreter.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import re
import runpy
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from forked import Forked, Server, end, start_server

#: Environment variable of tests whose kernels are started in the usual way and not forked.
STARTS = "TESTS_START_KERNELS"
#: Environment variables that an interpreter and its C library read only when they start. A kernel
#: with other values of these cannot be forked.
_READ_FIRST = re.compile(r"PYTHON|LD_|MALLOC_|GLIBC_|LANG|LC_")
_HASH_SEED = "PYTHONHASHSEED"
#: A long environment variable. A fork overwrites its place in memory with the kernel's environment.
_ROOM, _ROOM_BYTES = "TESTS_ROOM", 1 << 16


#: Held while the process that forks is started: two threads may boot the first kernels at once.
_one_server = threading.Lock()


@cache
def server() -> socket.socket:
    """Return a socket to the process that forks kernels."""
    # All kernels of a sweep have this hash seed. An interpreter reads it only when it starts.
    return start_server(__file__, env={**os.environ, _HASH_SEED: "0", _ROOM: "-" * _ROOM_BYTES})


def launch(
    started: Any, forks: socket.socket | None, command: Sequence[str], **options: Any
) -> Any:
    """Fork a kernel if possible. This replaces `launch_kernel` of jupyter_client's provisioner.

    Args:
        started: The original function, which starts the kernel if it cannot be forked.
        forks: Socket to the process that forks. None for the one that all tests share.
    """
    env = options.get("env") or os.environ
    is_usual = list(command[:3]) == [sys.executable, "-m", "ipykernel_launcher"]
    if STARTS in os.environ or not is_usual or not _begins_alike(env):
        return started(command, **options)
    request = {"argv": command[2:], "env": dict(env), "cwd": str(options.get("cwd") or Path.cwd())}
    outputs = (options.get("stdout"), options.get("stderr"))
    files = [os.dup(n if it is None else it.fileno()) for n, it in enumerate(outputs, 1)]
    with _one_server:
        forks = forks or server()
    process = Forked(request, files, server=forks)
    # jupyter_client reads the process group, of which every kernel is the leader.
    while process.poll() is None and os.getpgid(process.pid) != process.pid:
        time.sleep(0.001)
    return process


def boot_forked(forks: socket.socket | None = None) -> None:
    """Boot the kernels of this process in forks from now on; see `launch`."""
    from jupyter_client import launcher
    from jupyter_client.provisioning import local_provisioner

    provisioner: Any = local_provisioner
    provisioner.launch_kernel = partial(launch, launcher.launch_kernel, forks)


def _begins_alike(env: Mapping[str, str]) -> bool:
    ours = {**os.environ, _HASH_SEED: "0"}
    theirs = [{k: v for k, v in it.items() if _READ_FIRST.match(k)} for it in (env, ours)]
    return theirs[0] == theirs[1]


# --- the process that forks kernels --------------------------------------------------------------


def _become_kernel(request: dict[str, Any], outputs: list[int]) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in zip((null, *outputs), (0, 1, 2), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # ipykernel ends when the process with this id, its parent, has ended.
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    _show_environment()
    time.tzset()
    random.seed()
    sys.argv = request["argv"]
    sys.path.insert(0, request["cwd"])
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = request["cwd"]  # spawned workers look for modules here


def _show_environment() -> None:
    """Write the environment to the memory that /proc/PID/environ shows.

    There, a sweep looks for the variable that marks its processes.
    """
    stat = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    # Numbered after the process name, so index 47 is field 50.
    start, end = (int(it) for it in stat[47:49])
    entries = b"".join(os.fsencode(f"{k}={v}") + b"\0" for k, v in os.environ.items())
    assert len(entries) <= end - start, "the environment of a kernel takes more than _ROOM_BYTES"
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, entries, len(entries))


if __name__ == "__main__":
    import ipykernel.kernelapp  # noqa: F401

    del os.environ[_ROOM]
    sys.path.remove(str(Path(__file__).parent))
    gc.collect()
    gc.freeze()
    _become_kernel(*Server(socket.socket(fileno=int(sys.argv[1]))).serve())
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    end(0)
