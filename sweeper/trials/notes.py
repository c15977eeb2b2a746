"""Define the notes of people about a trial: a name, a remark and a star."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Largest numbers of characters in a trial's name and in a note (chosen, not measured). A name fits
#: on one line of a table, and a note is a paragraph. Longer texts belong into a file of their own.
MOST_NAME, MOST_NOTE = 80, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialNote:
    """The notes of people about one trial.

    Attributes:
        trial_name: Name that people have given to the trial. It does not replace the run id.
        note: Remark about the trial.
        is_starred: Whether the trial is marked with a star.
    """

    trial_name: str = ""
    note: str = ""
    is_starred: bool = False

    def changed(self, changes: Mapping[str, Any]) -> TrialNote:
        """Return a copy of the note with some parts changed.

        Args:
            changes: New values of any of the keys that `to_json` returns: `trial_name`, `note` and
                `starred`.

        Raises:
            ValueError: A key is unknown, or a value has a wrong type, is too long or is not UTF-8.
        """
        parts = {**self.to_json(), **changes}
        if unknown := parts.keys() - self.to_json().keys():
            raise ValueError(f"{min(unknown)!r} is unknown; expected trial_name, note or starred")
        if not isinstance(parts["starred"], bool):
            raise ValueError(f"starred: expected true or false, got {parts['starred']!r}")
        for part, at_most in (("trial_name", MOST_NAME), ("note", MOST_NOTE)):
            text = parts[part]
            if not isinstance(text, str):
                raise ValueError(f"{part}: expected a text, got {text!r}")
            if len(text) > at_most:
                raise ValueError(
                    f"{part} has {len(text):,} characters; expected {at_most:,} at most"
                )
            text.encode()  # UTF-8 cannot encode a lone surrogate: this raises a ValueError.
        name = " ".join(parts["trial_name"].split())
        return TrialNote(trial_name=name, note=parts["note"].strip(), is_starred=parts["starred"])

    def to_json(self) -> dict[str, Any]:
        """Return the note as JSON data, in the form that `changed` reads."""
        return {"trial_name": self.trial_name, "note": self.note, "starred": self.is_starred}


#: Note of a trial about which nobody has noted anything.
NO_NOTE = TrialNote()
