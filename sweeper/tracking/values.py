"""Convert params, metrics, tags and names to a form that MLflow accepts and can draw."""

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

#: Tag of the runs that are trials of a study. Its value is the study's id.
STUDY_ID_TAG = "sweeper.study_id"
#: Tag with the sweep's run id of the trial that an MLflow run shows.
RUN_ID_TAG = "sweeper.run_id"
TAG_CHARACTERS = 5000
PARAM_CHARACTERS = 6000
_NAME_CHARACTERS = 250
_ILLEGAL = re.compile(r"[^\w\-. :/]")
#: A name that was converted ends with this many hexadecimal digits of a hash, which distinguish it
#: from other such names (chosen, not measured).
_DIGITS = 6
#: Largest step that MLflow's stores can hold, in 64 bits.
_MAX_STEP = 2**63 - 1


def run_params(space: SearchSpace, params: Params) -> dict[str, str]:
    """Return the swept params of a trial as text, with `n/a` for params that the trial lacks.

    A trial lacks a param whose condition `when` does not hold. Params of the trial that are no
    longer in the space are included.

    A param `lr` on a logarithmic scale is followed by its logarithm, `log10_lr`, because MLflow's
    parallel coordinates have no logarithmic axes.
    """
    texts = dict.fromkeys(space, "n/a")
    texts |= {name: value_text(value) for name, value in params.items()}
    for name in space.log_names:
        if log10_name(name) in space:  # A swept param already has this name.
            continue
        value, text = params.get(name), "n/a"
        if isinstance(value, int | float):
            text = f"{math.log10(value):.6f}"
        texts[log10_name(name)] = text
    return texts


def log10_name(name: str) -> str:
    """Return the name under which the logarithm of a param is written."""
    return f"log10_{name}"


def is_step(step: int) -> bool:
    """Return whether MLflow's stores can hold a step."""
    return abs(step) <= _MAX_STEP


def metric(name: str, value: float, step: int, timestamp_ms: int) -> Metric | None:
    """Return a metric for MLflow. None if MLflow cannot store its value or its step.

    For example, MLflow would store and draw infinity as 1.8e308.
    """
    from mlflow.entities import Metric

    if math.isinf(value) or not is_step(step):
        return None
    return Metric(legal(name), value, timestamp_ms, step)


def as_tags(tags: Mapping[str, str]) -> list[RunTag]:
    """Return tags for MLflow, with values cut to the length that it stores."""
    from mlflow.entities import RunTag

    return [RunTag(legal(key), value[:TAG_CHARACTERS]) for key, value in tags.items()]


def as_params(described: Mapping[str, str]) -> list[Param]:
    """Return params for MLflow, with values cut to the length that it stores."""
    from mlflow.entities import Param

    return [Param(legal(name), value[:PARAM_CHARACTERS]) for name, value in described.items()]


def legal(name: str) -> str:
    """Return a name that MLflow accepts.

    A name that MLflow accepts is returned unchanged. Otherwise, illegal characters are replaced,
    and a hash keeps the name distinct from all others. MLflow treats names as paths, so that
    `train//loss` would be the same as `train/loss`.
    """
    is_short = len(name) <= _NAME_CHARACTERS
    if is_short and not _ILLEGAL.search(name) and _is_plain_path(name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGITS // 2)
    parts = _ILLEGAL.sub("_", name).split("/")
    readable = "/".join(part for part in parts if part.strip(".")).strip("/. ")
    return f"{readable[: _NAME_CHARACTERS - _DIGITS - 1]}-{digest.hexdigest()}"


def _is_plain_path(name: str) -> bool:
    """Return whether a name is a relative path in its shortest form, without `//`, `.` or `..`."""
    return posixpath.normpath(name) == name and name != "." and not name.startswith(("..", "/"))


def now_ms() -> int:
    """Return the time in milliseconds since 1970, as MLflow expects it."""
    return time.time_ns() // 1_000_000
