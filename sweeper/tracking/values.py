"""Params, metrics, tags and names in the form that MLflow accepts and draws."""

from __future__ import annotations

import hashlib
import math
import posixpath
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..settings.space import SearchSpace
from ..trials import Params, value_text

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param, RunTag

#: The tag of the runs that are a study's trials.
STUDY_ID_TAG = "sweeper.study_id"
TAG_CHARACTERS = 5000
PARAM_CHARACTERS = 6000
_NAME_CHARACTERS = 250
_ILLEGAL = re.compile(r"[^\w\-. :/]")
#: Hexadecimal digits that tell names apart of which MLflow takes neither.
_DIGITS = 6
#: MLflow's stores have steps of 64 bits.
_MAX_STEP = 2**63 - 1


def run_params(space: SearchSpace, params: Params) -> dict[str, str]:
    """The swept params; `n/a` for those that do not exist in the trial's branch.

    A log-scaled `lr` comes with its `log10_lr`: MLflow's parallel coordinates have no log axis.
    """
    texts = {name: value_text(params[name]) if name in params else "n/a" for name in space}
    for name in space.log_names:
        if log10_name(name) in space:  # a param of the user's own
            continue
        value = params.get(name)
        texts[log10_name(name)] = (
            f"{math.log10(value):.6f}" if isinstance(value, int | float) else "n/a"
        )
    return texts


def log10_name(name: str) -> str:
    """The name of the logarithm of a param."""
    return f"log10_{name}"


def metric(name: str, value: float, step: int, timestamp_ms: int) -> Metric | None:
    """A metric; None for an infinity, which MLflow would store and draw as 1.8e308.

    So for a step that no store can hold.
    """
    from mlflow.entities import Metric

    if math.isinf(value) or not is_step(step):
        return None
    return Metric(legal(name), value, timestamp_ms, step)


def is_step(step: int) -> bool:
    """Whether MLflow's stores can hold a step."""
    return abs(step) <= _MAX_STEP


def as_tags(tags: Mapping[str, str]) -> list[RunTag]:
    """Tags, with values cut to the length that MLflow stores."""
    from mlflow.entities import RunTag

    return [RunTag(legal(key), value[:TAG_CHARACTERS]) for key, value in tags.items()]


def as_params(described: Mapping[str, str]) -> list[Param]:
    """Params, with values cut to the length that MLflow stores."""
    from mlflow.entities import Param

    return [Param(legal(name), value[:PARAM_CHARACTERS]) for name, value in described.items()]


def legal(name: str) -> str:
    """A name that MLflow accepts: this one where it does, else a name that no other one gets.

    MLflow takes a name for a path: `train//loss` would be another name of `train/loss`.
    """
    is_short = len(name) <= _NAME_CHARACTERS
    if is_short and not _ILLEGAL.search(name) and _is_plain_path(name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGITS // 2)
    parts = _ILLEGAL.sub("_", name).split("/")
    readable = "/".join(part for part in parts if part.strip(".")).strip("/. ")
    return f"{readable[: _NAME_CHARACTERS - _DIGITS - 1]}-{digest.hexdigest()}"


def _is_plain_path(name: str) -> bool:
    """Whether a name, as a path, leads nowhere else than to itself."""
    return posixpath.normpath(name) == name and name != "." and not name.startswith(("..", "/"))


def now_ms() -> int:
    """The time in milliseconds, as MLflow expects it."""
    return time.time_ns() // 1_000_000
