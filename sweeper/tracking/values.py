"""Params, metrics, tags and names in the form that MLflow accepts and draws."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..settings.space import SearchSpace
from ..trials import Params, value_text

if TYPE_CHECKING:
    from mlflow.entities import Metric, RunTag

TAG_CHARACTERS = 5000
_ILLEGAL = re.compile(r"[^\w\-. :/]")


def run_params(space: SearchSpace, params: Params) -> dict[str, str]:
    """The swept params; `n/a` for those that do not exist in the trial's branch.

    A log-scaled `lr` comes with its `log10_lr`: MLflow's parallel coordinates have no log axis.
    """
    texts = {name: value_text(params[name]) if name in params else "n/a" for name in space}
    for name in space.log_names:
        value = params.get(name)
        texts[log10_name(name)] = (
            f"{math.log10(value):.6f}" if isinstance(value, int | float) else "n/a"
        )
    return texts


def log10_name(name: str) -> str:
    """The name of the logarithm of a param."""
    return f"log10_{name}"


def metric(name: str, value: float, step: int, timestamp_ms: int) -> Metric | None:
    """A metric; None for an infinity, which MLflow would store and draw as 1.8e308."""
    from mlflow.entities import Metric

    if math.isinf(value):
        return None
    return Metric(legal(name), value, timestamp_ms, step)


def as_tags(tags: Mapping[str, str]) -> list[RunTag]:
    """Tags, with values cut to the length that MLflow stores."""
    from mlflow.entities import RunTag

    return [RunTag(legal(key), value[:TAG_CHARACTERS]) for key, value in tags.items()]


def legal(name: str) -> str:
    """A name that MLflow accepts; one bad name would make it refuse the whole batch."""
    return _ILLEGAL.sub("_", name)[:250].strip("/.") or "_"


def now_ms() -> int:
    """The time in milliseconds, as MLflow expects it."""
    return time.time_ns() // 1_000_000
