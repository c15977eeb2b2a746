"""An input: a parameter that gets the path of what a trial of another study has saved."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ..trials import run_id_of
from .base import SettingsModel, expected


def _digits(value: Any) -> Any:
    """A run id also without its quotes, where YAML reads a number."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return run_id_of(value) if is_number else value


_Digits = Annotated[str, Field(pattern=r"^\d{4,}$")]
RunId = Annotated[
    _Digits,
    BeforeValidator(_digits, json_schema_input_type=_Digits | Annotated[int, Field(ge=0)]),
]


class InputSource(SettingsModel):
    """What a trial of another study has saved by `sweeper.save_artifact`."""

    study: Annotated[str, Field(min_length=1)]
    """The other study: its name, where it lies beside this one, or the path of its folder."""
    artifact: Annotated[
        str,
        Field(pattern=r"^[^./\\\x00][^/\\\x00]*$"),
        expected("a plain file name such as 'model.pt', as save_artifact has it"),
    ]
    """The name under which its trials have saved it."""
    take: Annotated[Literal["best"] | RunId, expected('best, or a run id such as "0007"')] = "best"
    """Of which trial: the `best`, or that with a run id, as in "0007"."""
