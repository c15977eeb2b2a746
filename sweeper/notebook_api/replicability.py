"""Which operations of a notebook need not give the same bits again.

torch only warns about them after `seed_everything(seed)`. The sweep reads their names after the
last cell; in a notebook that is run by hand nobody does.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

#: What torch's warnings say after the name of the operation, or instead of it.
_TEXTS = (
    re.compile(r"(?P<name>\S.*?) does not have a deterministic implementation, but you set"),
    re.compile(r"(?P<name>\S.*?) defaults to a non-deterministic algorithm"),
    re.compile(r".*not deterministic because it uses (?P<name>CuBLAS)"),
)


class _Observer:
    """The pattern of a warnings filter: it matches no text, so each warning goes the usual way.

    Only a filter receives all warnings: `warnings.showwarning` gets none of those that another
    filter has hidden. Python checks each text against the pattern once for each place in the code.

    Attributes:
        names: of the operations that torch has warned about, in the order of the warnings.
    """

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def match(self, text: str) -> None:
        """Remember the operation in a text of torch's; match nothing."""
        found = next(filter(None, (pattern.match(text) for pattern in _TEXTS)), None)
        if found is not None:
            self.names[found["name"]] = None


def observe_warnings() -> None:
    """Remember the operations in torch's warnings from now on; warnings are displayed as before.

    A filter that the notebook adds later and that hides all warnings hides them from here, too.
    """
    filters: Any = warnings.filters
    filters[:] = [entry for entry in filters if entry[1] is not _observer]
    filters.insert(0, ("default", _observer, UserWarning, None, 0))


def not_replicable() -> list[str]:
    """List the operations that torch has warned about in this process, by torch's own names."""
    return list(_observer.names)


_observer = _Observer()
