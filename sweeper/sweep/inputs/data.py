"""The data of a sweep: which version its trials use, settled once when the study begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..plan import SweepPlan
from .resolving import stored_facts

#: The part of a study's fingerprint with the version.
DATA = "data"


def with_data(plan: SweepPlan) -> SweepPlan:
    """Settle which version of the data the trials use; nothing is fetched or written.

    A study that has begun goes on with the version with which it began, unless its data is said or
    allowed to change.

    Raises:
        SettingsError: a package for the URL's scheme is missing.
        DataError: there is no such version, or none at all.
    """
    if plan.data is None:
        return plan
    plan.data.settle(begun_with=None if plan.allow_changes else _begun_with(plan))
    return replace(plan, fingerprint={**plan.fingerprint, DATA: plan.data.version})


def bring_data(
    plan: SweepPlan, on_line: Callable[[str], None], is_stopped: Callable[[], bool]
) -> None:
    """Have the data on this machine, where its trials run here; workers of a cluster fetch it.

    Raises:
        DataError: it cannot be fetched, or other data is in its place.
    """
    if plan.data is not None and plan.settings.cluster is None:
        plan.data.bring(on_line, is_stopped)


def _begun_with(plan: SweepPlan) -> str | None:
    made_of: dict[str, Any] = stored_facts(plan).get("made_of") or {}
    version = made_of.get(DATA)
    return None if version is None else str(version)
