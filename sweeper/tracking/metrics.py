"""Metrics, tags and names in the form that MLflow accepts."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.entities import Metric, RunTag

_TAG_CHARACTERS = 5000
_ILLEGAL = re.compile(r"[^\w\-. :/]")


def metric(name: str, value: float, step: int, timestamp_ms: int) -> Metric | None:
    """A metric; None for an infinity, which MLflow would store and draw as 1.8e308."""
    from mlflow.entities import Metric

    if math.isinf(value):
        return None
    return Metric(legal(name), value, timestamp_ms, step)


def as_tags(tags: Mapping[str, str]) -> list[RunTag]:
    """Tags, with values cut to the length that MLflow stores."""
    from mlflow.entities import RunTag

    return [RunTag(legal(key), value[:_TAG_CHARACTERS]) for key, value in tags.items()]


def legal(name: str) -> str:
    """A name that MLflow accepts; one bad name would make it refuse the whole batch."""
    return _ILLEGAL.sub("_", name)[:250].strip("/.") or "_"


def now_ms() -> int:
    """The time in milliseconds, as MLflow expects it."""
    return time.time_ns() // 1_000_000
