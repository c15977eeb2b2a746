"""Record which operations of a notebook may give other bits when they are repeated.

After `seed_everything(seed)`, torch only warns about them. The sweep reads their names after the
last cell. In a notebook that is run by hand, nobody reads them.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

#: Texts of torch's warnings, which name the operation.
_TEXTS = (
    re.compile(r"(?P<name>\S.*?) does not have a deterministic implementation, but you set"),
    re.compile(r"(?P<name>\S.*?) defaults to a non-deterministic algorithm"),
    re.compile(r".*not deterministic because it uses (?P<name>CuBLAS)"),
)


class _Observer:
    """The pattern of a warnings filter.

    It matches no text, so that each warning is handled as usual.

    Only a filter sees all warnings: `warnings.showwarning` does not get warnings that another
    filter has hidden. Python matches each text against the pattern once for each place in the code.

    Attributes:
        names: Names of the operations that torch has warned about, in order.
    """

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def match(self, text: str) -> None:
        """Record the operation in one of torch's warnings. Match nothing."""
        found = next(filter(None, (pattern.match(text) for pattern in _TEXTS)), None)
        if found is not None:
            self.names[found["name"]] = None


def observe_warnings() -> None:
    """Record the operations in torch's warnings from now on. Warnings are displayed as before.

    A filter that hides all warnings and that the notebook adds later also hides them from here.
    """
    filters: Any = warnings.filters
    filters[:] = [entry for entry in filters if entry[1] is not _observer]
    filters.insert(0, ("default", _observer, UserWarning, None, 0))


def not_replicable() -> list[str]:
    """Return the names of the operations that torch has warned about in this process."""
    return list(_observer.names)


_observer = _Observer()
