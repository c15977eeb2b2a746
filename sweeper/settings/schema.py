"""JSON Schema of records as a person writes them, for editors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

#: What may stand before a value that a notebook is given: a Python identifier. Letters beyond
#: ASCII are all let through, because what an editor's patterns know of them differs.
IDENTIFIERS = {"propertyNames": {"pattern": r"^(?![0-9])([A-Za-z0-9_]|[^\x00-\x7f])+$"}}


class AsWritten(GenerateJsonSchema):
    """Generates what an editor can show: no titles, and defaults only as one would write them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """A title would only say the key again."""
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """The default of a section is that of its keys."""
        if isinstance(schema.get("default"), BaseModel | tuple | None):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A record without its class's name."""
        json_schema = super().model_schema(schema)
        json_schema.pop("title", None)
        return json_schema


def choice_of(names: tuple[str, ...], *, default: str) -> dict[str, Any]:
    """A name, or a mapping of it and options."""
    options = {
        "type": "object",
        "properties": {"name": {"enum": list(names), "description": "Which one."}},
        "required": ["name"],
        "additionalProperties": {"description": "An option of Optuna's, by its name there."},
    }
    return {"anyOf": [{"enum": list(names)}, options], "default": default}
