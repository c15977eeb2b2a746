"""The parameters file: its model, sections, search space, units, messages and JSON schema.

The only owner of ruamel and of the model in pydantic. How a notebook, a study or a sweep uses the
settings does not belong here.
"""

from .model import Settings

__all__ = ["Settings"]
