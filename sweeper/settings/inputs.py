"""Define the section `inputs`: parameters that get the path of another study's artifact."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ..trials import run_id_of
from .base import SettingsModel, expected


def _digits(value: Any) -> Any:
    """Convert a whole number from 0 to a run id. Return any other value unchanged.

    YAML reads a run id without quotes as a number.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return run_id_of(value) if is_number else value


_Digits = Annotated[str, Field(pattern=r"^\d{4,}$")]
RunId = Annotated[
    _Digits,
    BeforeValidator(_digits, json_schema_input_type=_Digits | Annotated[int, Field(ge=0)]),
]


class InputSource(SettingsModel):
    """An artifact that a trial of another study has saved with `sweeper.save_artifact`."""

    study: Annotated[str, Field(min_length=1)]
    """The other study: its name, if its folder is next to this study's, else the path of its
    folder."""
    artifact: Annotated[
        str,
        Field(pattern=r"^[^./\\\x00][^/\\\x00]*$"),
        expected("a plain file name such as 'model.pt', as given to save_artifact"),
    ]
    """The name of the artifact: the name of a file or folder in the trial's `artifact_dir`, or the
    name that was given to `save_artifact`."""
    take: Annotated[Literal["best"] | RunId, expected('best, or a run id such as "0007"')] = "best"
    """The trial that saved the artifact: `best`, or a run id such as "0007"."""
