"""What a study has settled of its inputs and its data, for a process that does not settle them."""

from __future__ import annotations

from typing import Any

from ...notebooks.fingerprint import Fingerprint
from ...settings import Settings
from ...study import Study
from .data import DATA
from .resolving import INPUTS, stated_of


def as_settled(made_of: Fingerprint, settings: Settings, study: Study) -> Fingerprint:
    """A fingerprint with the files and the version of the data with which a study goes on.

    Args:
        made_of: the fingerprint of the settings as they are stated.

    Returns:
        `made_of` with the study's files and version; where the settings ask for other ones, with
        what they ask for.
    """
    stored: dict[str, Any] = study.facts.get("made_of") or {}
    inputs: dict[str, Any] = study.facts.get(INPUTS) or {}
    settled = {
        f"inputs.{name}"
        for name, source in settings.inputs.items()
        if inputs.get(name, {}).get("stated") == stated_of(source)
    }
    parts = {key: part for key, part in stored.items() if key in settled}
    if settings.data is not None:
        asked, known = settings.data.version or "", str(stored.get(DATA, ""))
        parts[DATA] = known if known and known.startswith(asked) else asked or "the newest version"
    return {**made_of, **parts}
