"""Show the live table in a Jupyter notebook, as an output of a cell that is updated in place."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..trials import Snapshot
from .repeating import repeated
from .screen import table

_log = logging.getLogger(__name__)

#: Seconds between two drawings of the table (chosen, not measured).
_INTERVAL_S = 1.0
#: Number of columns that an output of JupyterLab shows (measured in a window of 1,280 pixels with
#: the file browser open).
_COLUMNS = 90
_FORMAT = (
    "<pre style=\"white-space:pre;line-height:normal;font-family:Menlo,'DejaVu Sans Mono',"
    "consolas,'Courier New',monospace\">{code}</pre>"
)


def is_jupyter() -> bool:
    """Return whether this process is a Jupyter kernel that runs a notebook's cells."""
    # A Jupyter kernel has imported IPython, and its shell has a kernel. The shell of IPython in a
    # terminal has none.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def live_output(look: Callable[[], Snapshot | None]) -> Iterator[None]:
    """Display the live table while the block runs, and its last state afterwards.

    Outside of Jupyter, display nothing.

    Args:
        look: Function that returns the sweep's state to draw, or None while there is none.
    """
    if not is_jupyter():
        yield
        return
    from IPython.display import display

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def draw() -> None:
        try:
            snapshot = look()
            if snapshot is not None:
                handle.update(_bundle(snapshot), raw=True)
        except Exception:  # noqa: BLE001  The next drawing may succeed.
            _log.info("the table was not drawn", exc_info=True)

    try:
        with repeated(draw, _INTERVAL_S, name="table") as thread:
            yield
    finally:
        if not thread.is_alive():  # If it is alive, a drawing hangs, and this one would hang too.
            draw()


def _bundle(snapshot: Snapshot) -> dict[str, str]:
    from rich.console import Console

    console = Console(
        file=io.StringIO(), record=True, width=_COLUMNS, force_jupyter=False, highlight=False
    )
    console.print(table(snapshot, _COLUMNS))
    bar = (
        f'<progress style="width:100%" max="{snapshot.trials}" value="{snapshot.n_ended}">'
        "</progress>"
    )
    return {
        "text/plain": console.export_text(clear=False).rstrip(),
        "text/html": bar + console.export_html(inline_styles=True, code_format=_FORMAT),
    }
