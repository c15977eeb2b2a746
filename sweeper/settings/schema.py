"""Generate the JSON Schema of a parameters file in the form that people write, for editors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

#: Schema of keys that are names of parameters: one or two Python identifiers with a dot between
#: them. All characters beyond ASCII are allowed, because editors differ in which of them are
#: letters.
IDENTIFIERS = {
    "propertyNames": {"pattern": r"^((?![0-9])([A-Za-z0-9_]|[^\x00-\x7f])+(\.(?=.)|$)){1,2}$"}
}


class AsWritten(GenerateJsonSchema):
    """Generates a schema without titles, and without defaults that nobody would write in a file."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False, because titles would only repeat the keys."""
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return a value's schema, with the default unless this is a section, a list or null.

        A section needs no default, because each of its keys has one.
        """
        if isinstance(schema.get("default"), BaseModel | tuple | None):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a model, without the name of its class."""
        json_schema = super().model_schema(schema)
        json_schema.pop("title", None)
        return json_schema


def choice_of(names: tuple[str, ...], *, default: str) -> dict[str, Any]:
    """Return the schema of a value that is a name, or a mapping with the name and options.

    Args:
        names: Allowed names.
        default: Name that is used if the key is missing.
    """
    options = {
        "type": "object",
        "properties": {"name": {"enum": list(names), "description": "Name of the algorithm."}},
        "required": ["name"],
        "additionalProperties": {"description": "An option, by its name in Optuna."},
    }
    return {"anyOf": [{"enum": list(names)}, options], "default": default}
