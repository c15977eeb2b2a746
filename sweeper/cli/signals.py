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
    """Set signal handlers while the block runs. Outside of the main thread, set none.

    A signal that the process already ignores stays ignored: `nohup` and a shell's `&` make it
    ignore signals, so that a sweep outlives the terminal.

    Args:
        terminate: Handler of SIGTERM and SIGHUP.
        interrupt: Handler of Ctrl-C. None to keep the present handler of Ctrl-C.
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
