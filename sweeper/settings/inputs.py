"""An input: a parameter that gets the path of what a trial of another study has saved."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from ..trials import run_id_of
from .base import SettingsModel, check_name
from .messages import as_yaml, nearest, problem
from .space import ChoiceDimension

_RUN_ID = re.compile(r"\d{4,}")
_FORMS = (
    'expected best, a run id such as "0007", a list of run ids, or {best: 3} to sweep over the '
    "three best"
)


class BestTrials(SettingsModel):
    """The best trials of a study, over which another one sweeps."""

    best: Annotated[int, Field(ge=1)]
    """How many of them."""


def _read_take(value: Any) -> Any:
    if value == "best" or isinstance(value, BestTrials):
        return value
    if isinstance(value, Mapping):
        if set(value) != {"best"}:
            wrong = next((key for key in value if key != "best"), None)
            hint = "" if wrong is None else f"unknown key {as_yaml(wrong)}; "
            raise problem(f"{hint}{_FORMS}")
        n_best = value["best"]
        if isinstance(n_best, bool) or not isinstance(n_best, int) or n_best < 1:
            raise problem(f"best: expected a whole number of 1 or more; got {as_yaml(n_best)}")
        return value
    if isinstance(value, list | tuple):
        if not value:
            raise problem(f"{_FORMS}; got an empty list")
        run_ids = tuple(map(_read_run_id, value))
        twice = [run_id for place, run_id in enumerate(run_ids) if run_id in run_ids[:place]]
        if twice:
            raise problem(f"{twice[0]!r} stands twice; keep one of them")
        return run_ids
    return _read_run_id(value)


def _read_run_id(value: Any) -> str:
    """Read a run id, also without its quotes, where YAML reads a number."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return run_id_of(value)
    if isinstance(value, str) and _RUN_ID.fullmatch(value):
        return value
    hint = f"; {nearest(value, ['best'])}" if isinstance(value, str) and value else ""
    raise problem(f"{_FORMS}; got {as_yaml(value)}{hint}")


_TAKE_SCHEMA = {
    "anyOf": [
        {"enum": ["best"]},
        {"type": "string", "pattern": "^[0-9]{4,}$"},
        {"type": "integer", "minimum": 0},
        {
            "type": "array",
            "items": {"type": ["string", "integer"], "pattern": "^[0-9]{4,}$", "minimum": 0},
            "minItems": 1,
            "uniqueItems": True,
        },
        {
            "type": "object",
            "properties": {"best": {"type": "integer", "minimum": 1}},
            "required": ["best"],
            "additionalProperties": False,
        },
    ],
    "default": "best",
}


class InputSource(SettingsModel):
    """What a trial of another study has saved by `sweeper.save_artifact`."""

    study: Annotated[str, Field(min_length=1)]
    """The other study: its name, where it lies beside this one, or the path of its folder."""
    artifact: Annotated[str, Field(min_length=1)]
    """The name under which its trials have saved it."""
    take: Annotated[
        Literal["best"] | str | tuple[str, ...] | BestTrials,
        BeforeValidator(_read_take),
        WithJsonSchema(_TAKE_SCHEMA),
    ] = "best"
    """Of which trial: the `best`, or that with a run id, as in "0007". With {best: 3}, or a list of
    run ids, the sweep goes over these trials."""

    @field_validator("artifact")
    @classmethod
    def _is_a_plain_name(cls, artifact: str) -> str:
        is_plain = artifact not in (".", "..") and not {"/", "\\", "\0"} & set(artifact)
        if not is_plain or artifact.startswith("."):
            raise problem(
                f"{artifact!r} is no name of an artifact; expected a plain file name such as "
                "'model.pt', as save_artifact has it"
            )
        return artifact


def choices_of(inputs: Mapping[str, InputSource]) -> dict[str, ChoiceDimension]:
    """The dimensions of the inputs that differ between trials: choices of run ids.

    Until it is known which trials are the best, `best 1` to `best K` stand for their run ids.
    """
    found = {}
    for name, source in inputs.items():
        choices: tuple[str, ...] = ()
        if isinstance(source.take, BestTrials):
            choices = tuple(f"best {place + 1}" for place in range(source.take.best))
        elif isinstance(source.take, tuple):
            choices = source.take
        if choices:
            found[name] = ChoiceDimension(choices=choices)
    return found


def check_inputs(inputs: Mapping[str, InputSource], others: Mapping[str, Collection[str]]) -> None:
    """Refuse inputs that have no name for a notebook, or one that is taken.

    Args:
        others: the names in each other section.
    """
    for name in inputs:
        check_name(name, where="inputs.")
        for section, names in others.items():
            if name in names:
                raise problem(f"{name!r} stands in both inputs and {section}; keep one of them")
