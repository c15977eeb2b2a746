"""The parameters file: its model, sections, search space, units, messages and JSON schema.

Only this folder uses ruamel, and it contains all pydantic models of the file. Other folders decide
how they use the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Settings

__all__ = ["Settings"]


def __getattr__(name: str) -> Any:
    # Import the model late: it imports pydantic, and commands without a parameters file need only
    # messages and addresses.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .model import Settings

    return Settings
