"""Compare two trials of a study: the command `diff`.

Two trials with the same params and the same seed should differ only in times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..errors import StudyError
from ..execution.environment import environment_facts
from ..notebooks.compare import Differences, Execution, change, compare
from ..notebooks.metadata import BLANK, metadata_of, read_metadata
from ..notebooks.reading import read_notebook
from ..notebooks.scores import scrape
from ..settings import Settings
from ..study_folder.snapshots import read_environment, read_snapshot
from ..trials import StudyPaths, value_text
from .lookup import ExistingStudy


def diff_trials(existing: ExistingStudy, first: str, second: str) -> Differences:
    """Compare two trials of a study.

    Args:
        existing: The study.
        first: Run id of a trial.
        second: Run id of the other trial.

    Raises:
        StudyError: The study has no such trial.
        NotebookError: An executed notebook is missing.
    """
    return compare(_execution_of(existing, first), _execution_of(existing, second))


def read_execution(notebook: Path, paths: StudyPaths, settings: Settings) -> Execution:
    """Read the cells, scores, series and environment of an executed notebook, to compare them.

    Args:
        notebook: Executed notebook.
        paths: Paths of the study, which has a file that describes the trial's environment.
        settings: Settings of the study, with its scores and objectives.

    Raises:
        NotebookError: The notebook is missing.
    """
    node = read_notebook(notebook)
    environment: Mapping[str, str] = {}
    metadata = metadata_of(node) or BLANK
    scraped = scrape(node.cells, metadata, sources=settings.scores, objectives=settings.objective)
    if metadata.environment:
        with suppress(StudyError):  # The file with the environment was removed.
            environment = environment_facts(read_environment(paths, metadata.environment))
    return Execution(
        cells=node.cells, scores=scraped.scores, series=scraped.series, environment=environment
    )


def _execution_of(existing: ExistingStudy, run_id: str) -> Execution:
    record = existing.record(run_id)
    executed = read_execution(record.notebook, existing.paths, existing.settings)
    metadata = read_metadata(record.notebook) or BLANK
    params = {**metadata.fixed, **record.params}
    environment = {
        "state": str(record.state),
        "seed": str(record.seed),
        "attempt": str(record.attempt),
    }
    if metadata.data is not None and metadata.data.version:
        environment["data"] = metadata.data.version
    if record.message:
        environment["message"] = record.message
    with suppress(StudyError):  # The file with the code was removed.
        environment |= read_snapshot(existing.paths, metadata.snapshot).versions
    environment |= executed.environment
    return replace(
        executed,
        params={name: value_text(value) for name, value in params.items()},
        environment=environment,
    )


def diff_in_words(first: str, second: str, found: Differences) -> list[str]:
    """Return lines of text that say what differs between two trials.

    Args:
        first: Run id of a trial.
        second: Run id of the other trial.
        found: The differences, as `diff_trials` returns them.
    """
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
