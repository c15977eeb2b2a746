"""The parameters file: its model, sections, search space, units, messages and JSON schema.

The only owner of ruamel and of the model in pydantic. How a notebook, a study or a sweep uses the
settings does not belong here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import Settings

__all__ = ["Settings"]


def __getattr__(name: str) -> Any:
    # Commands that read no parameters file need the messages and addresses only, and not the model.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .model import Settings

    return Settings
