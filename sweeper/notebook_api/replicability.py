"""Record the operations of a notebook whose results may differ in some bits when repeated.

After `seed_everything(seed)`, torch warns about these operations. The sweep reads the names of the
operations after the last cell. In a notebook that is run by hand, nobody reads them.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

#: Patterns of torch's warnings about operations whose results may differ when they are repeated.
#: Each pattern finds the name of the operation.
_TEXTS = (
    re.compile(r"(?P<name>\S.*?) does not have a deterministic implementation, but you set"),
    re.compile(r"(?P<name>\S.*?) defaults to a non-deterministic algorithm"),
    re.compile(r".*not deterministic because it uses (?P<name>CuBLAS)"),
)


class _Observer:
    """A text pattern for a warnings filter. It records operations, but matches no text.

    Because it matches no text, Python handles each warning as it would without this filter. Only a
    filter sees all warnings: `warnings.showwarning` does not get warnings that another filter has
    hidden. Python matches a text against the pattern once for each place in the code that warns.

    scikit-learn reads the pattern of each filter, and pickles all filters for its workers. In a
    worker, the unpickled object is a plain pattern that matches no text.

    Attributes:
        pattern: A pattern that matches no text.
        names: Names of the operations about which torch has warned, in order.
    """

    pattern = "(?!)"

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def __reduce__(self) -> Any:
        return re.compile, (self.pattern,)

    def match(self, text: str) -> None:
        """Record the operation that a warning names, if it is a warning of torch about one.

        Return None, which means that the text does not match.

        Args:
            text: Text of the warning.
        """
        for pattern in _TEXTS:
            found = pattern.match(text)
            if found is not None:
                self.names[found["name"]] = None


def observe_warnings() -> None:
    """Record the operations in torch's warnings from now on. Warnings are displayed as before.

    If the notebook later adds a filter that hides all warnings, nothing more is recorded.
    """
    filters: Any = warnings.filters
    filters[:] = [entry for entry in filters if entry[1] is not _observer]
    filters.insert(0, ("default", _observer, UserWarning, None, 0))


def not_replicable() -> list[str]:
    """Return the names of the operations about which torch has warned in this process."""
    return list(_observer.names)


_observer = _Observer()
