"""Compare two trials of a study: the command `diff`.

Two trials with the same params and the same seed should differ in nothing but times.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..execution.environment import environment_facts
from ..notebooks import METADATA, read_executed
from ..notebooks.compare import Differences, Execution, change, compare
from ..notebooks.scores import scrape
from ..study_folder.snapshots import read_environment
from ..trials import value_text
from .lookup import ExistingStudy


def diff_trials(existing: ExistingStudy, first: str, second: str) -> Differences:
    """Compare two trials of a study.

    Raises:
        StudyError: the study has no such trial.
        NotebookError: an executed notebook is missing.
    """
    return compare(_execution(existing, first), _execution(existing, second))


def _execution(existing: ExistingStudy, run_id: str) -> Execution:
    record, settings = existing.record(run_id), existing.settings
    node = read_executed(record.notebook)
    metadata = node["metadata"].get(METADATA, {})
    facts = {
        "state": str(record.state),
        "seed": str(record.seed),
        "attempt": str(record.attempt),
        "data": metadata.get("data", {}).get("version"),
        "message": record.message,
    }
    if name := metadata.get("environment"):
        facts |= environment_facts(read_environment(existing.paths, name))
    return Execution(
        cells=node.cells,
        scores=record.scores,
        series=scrape(node, sources=settings.scores, objectives=settings.objective).series,
        params={name: value_text(value) for name, value in record.params.items()},
        environment={name: value for name, value in facts.items() if value},
    )


def diff_in_words(first: str, second: str, found: Differences) -> list[str]:
    """Say what differs between two trials, for people."""
    return [
        f"{first} and {second}:",
        *(f"  {line}" for line in found.environment_in_words()),
        *_section("params", [f"{n}: {change(*pair)}" for n, pair in found.params.items()]),
        *_section("scores", [f"{n}: {change(*pair)}" for n, pair in found.scores.items()]),
        *_section("series", [f"{n}: {parting}" for n, parting in found.series.items()]),
        *_section("outputs", list(map(str, found.outputs))),
    ]


def _section(heading: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return [f"{heading}: no difference"]
    return [heading, *(f"  {line}" for line in lines)]
