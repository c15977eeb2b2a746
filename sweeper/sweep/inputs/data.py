"""The data of a sweep: which version its trials use, settled once when the study begins."""

from __future__ import annotations

from dataclasses import replace

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
    made_of = {} if plan.allow_changes else stored_facts(plan).get("made_of") or {}
    plan.data.settle(begun_with=made_of.get(DATA))
    return replace(plan, fingerprint={**plan.fingerprint, DATA: plan.data.version})
