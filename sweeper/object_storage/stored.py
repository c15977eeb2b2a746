"""Records that are kept as JSON, in an object storage or in a local file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter


class Stored:
    """Base class of records that are stored as JSON."""

    @classmethod
    def read(cls, text: bytes | str) -> Self:
        """Return a record from its JSON.

        Raises:
            ValueError: The text is not such a record.
        """
        try:
            # `validate_json` would refuse file names that are not valid Unicode.
            return TypeAdapter(cls).validate_python(json.loads(text))
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """Return the record in a file.

        Returns:
            None if the file cannot be read, or does not contain a valid record.
        """
        try:
            return cls.read(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    @property
    def text(self) -> str:
        """The record as JSON."""
        return json.dumps(asdict(self), indent=1)  # type: ignore[call-overload]
