"""Find studies whose outputs were moved or copied by hand, so that their stored paths are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import StudyError
from ..trials import StudyPaths, facts_beside
from .facts import StudyFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A study that was moved or copied together with its executed notebooks.

    Attributes:
        facts: Facts of the study.
        before: Paths that the study has stored.
        now: Paths at which the study is now.
    """

    facts: StudyFacts
    before: StudyPaths
    now: StudyPaths


def moves_in(outputs: Path) -> Iterator[Move]:
    """Yield each study whose folder is in a folder of outputs and was moved or copied there."""
    for file in sorted(outputs.glob(f"*/{facts_beside(Path('study.db')).name}")):
        move = move_of(file)
        if move is not None:
            yield move


def move_of(file: Path) -> Move | None:
    """Return the facts of a moved or copied study, with the paths it has stored and its paths now.

    Return None if it was neither moved nor copied, or if its facts cannot be read.

    Args:
        file: File with the study's facts, where it is now.
    """
    try:
        name, facts = StudyFacts.read(file)
    except StudyError:  # The file is missing or damaged. The next sweep writes it again.
        return None
    before = StudyPaths.parse(facts.template, study=name)
    now = before.moved_to(file.parent.parent)
    if file.absolute() != now.facts or now.facts == before.facts:
        return None
    with suppress(OSError):  # The old folder does not exist.
        if now.facts.samefile(before.facts):
            return None
    if before.written_run_ids() and not now.written_run_ids():
        return None  # The notebooks are at their old paths, so the study was not moved.
    return Move(facts=facts, before=before, now=now)
