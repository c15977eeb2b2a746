"""The parameters file: its model, units, search space, messages and JSON schema.

The only owner of pydantic and ruamel. What a notebook or a study makes of the settings does not
belong here.
"""

from .model import Settings

__all__ = ["Settings"]
