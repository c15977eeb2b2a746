"""Handle the signals that end a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from .codes import OF_SIGNALS

_Handler = Callable[[int, FrameType | None], None]


def end_command(number: int, _frame: FrameType | None) -> None:
    """End the command by a SystemExit, so that it cleans up.

    Temporary folders are removed, and kernels and a cluster that the command has started are ended.

    Args:
        number: Number of the signal, which decides the exit code.
    """
    raise SystemExit(OF_SIGNALS[signal.Signals(number).name])


@contextmanager
def handled(terminate: _Handler, interrupt: _Handler | None = None) -> Iterator[None]:
    """Handle signals while the block runs. This works only in the main thread.

    A signal that is ignored stays ignored: `nohup` and a shell's `&` let a sweep outlive the
    terminal.

    Args:
        terminate: Called for SIGTERM and SIGHUP.
        interrupt: Called for Ctrl-C. None for Python's own KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in OF_SIGNALS if hasattr(signal, name)]
    handlers = dict.fromkeys(numbers, terminate)
    if interrupt is not None:
        handlers[signal.SIGINT] = interrupt
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
