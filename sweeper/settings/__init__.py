"""The parameters file: its model, sections, search space, units, messages and JSON schema.

Only this folder uses ruamel, which reads YAML, and it contains all pydantic models of the file.
Other folders decide how they use the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Settings

__all__ = ["Settings"]


def __getattr__(name: str) -> Any:
    # Import the model only when it is used, because it imports pydantic, which is slow. Commands
    # without a parameters file need only the modules `messages` and `addresses`.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .model import Settings

    return Settings
