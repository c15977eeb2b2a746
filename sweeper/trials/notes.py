"""Define what people note about a trial: a name, a note and a star."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: At most this many characters (chosen, not measured): a name is on one line of a table, and a note
#: is a paragraph. What is longer belongs into a file of its own.
MOST_NAME, MOST_NOTE = 80, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialNote:
    """What people have noted about a trial.

    Attributes:
        trial_name: Name that they have given to the trial. It does not replace the run id.
        note: Their remark.
        is_starred: Whether they have starred it.
    """

    trial_name: str = ""
    note: str = ""
    is_starred: bool = False

    def changed(self, changes: Mapping[str, Any]) -> TrialNote:
        """Return the note after some of its parts were changed.

        Args:
            changes: Any of `trial_name`, `note` and `starred`, as in JSON.

        Raises:
            ValueError: A part is not known, has another type, or is too long.
        """
        parts = {**self.to_json(), **changes}
        if unknown := parts.keys() - self.to_json().keys():
            raise ValueError(f"{min(unknown)!r} is not trial_name, note or starred")
        if not isinstance(parts["starred"], bool):
            raise ValueError("starred is neither true nor false")
        for part, at_most in (("trial_name", MOST_NAME), ("note", MOST_NOTE)):
            text = parts[part]
            if not isinstance(text, str):
                raise ValueError(f"{part} is not a text")
            if len(text) > at_most:
                raise ValueError(f"{part} has {len(text):,} characters; at most {at_most:,} fit")
            text.encode()  # half a surrogate pair is no text
        name = " ".join(parts["trial_name"].split())
        return TrialNote(trial_name=name, note=parts["note"].strip(), is_starred=parts["starred"])

    def to_json(self) -> dict[str, Any]:
        """Return the note as JSON, as `changed` reads it."""
        return {"trial_name": self.trial_name, "note": self.note, "starred": self.is_starred}


#: The note of a trial about which nobody has noted anything.
NO_NOTE = TrialNote()
