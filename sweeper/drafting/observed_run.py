"""Run a notebook once as it is (the observed run), and record the numbers that it computes.

From these numbers, a first parameters file is drafted.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FailedRunError, NotebookError
from ..execution.local import LocalExecutor
from ..execution.side_trials import SideTrials
from ..files import files_below
from ..kernels import interpreter_of
from ..notebook_code.replacing import Cell
from ..notebooks.fingerprint import Fingerprint, without_made_files
from ..notebooks.metadata import BLANK, TrialMetadata, as_json, metadata_of, read_metadata
from ..notebooks.reading import read_notebook
from ..notebooks.research import ResearchNotebook
from ..search.seeds import trial_seed
from ..settings import Settings
from ..sweep.planning.plan import SweepPlan
from ..sweep.scheduling.scheduler import progress_of
from ..trials import (
    Reason,
    RunningTrial,
    Snapshot,
    StudyPaths,
    TrialOutcome,
    TrialSpec,
    TrialState,
)
from .draft import Draft, draft, params_behind
from .scores.metrics import metric_of
from .scores.score_guesses import Code
from .scores.seen_scores import Doubt, SeenScore, own_cells, seen_scores

if TYPE_CHECKING:
    from ..sweep import Sweep
    from ..trials import Chore

#: Name of the run's executed notebook in the study's folder, until the run has become the study's
#: first trial.
OBSERVED_NAME = "observed.ipynb"
#: Name of the run's folders for checkpoints and artifacts, next to those of the study's trials.
_OBSERVED = "observed"
#: If a run has shown no score, the error names at most `_MOST_OTHERS` numbers that a person may
#: choose. They are looked for among the likeliest `_MOST_TRIED` numbers (both chosen).
_MOST_OTHERS, _MOST_TRIED = 3, 12
#: Keys of a study's fingerprint (a record of code, files and settings) that decide the results of a
#: run without params.
_DECIDES = ("cells", "files", "kernel", "resources.cpus_per_trial")
#: Settings of an observed run. Settings need a score, but the notebook's scores are known only when
#: the run has ended. So a constant takes the place of the score.
_NO_SCORE: Mapping[str, Any] = {
    "objective": {"observed": "minimize"},
    "scores": {"observed": {"expression": "0"}},
    "kernels": "cold",
}


def settings_to_observe(notebook: ResearchNotebook, study: str) -> Settings:
    """Return the settings with which a notebook is run once to find its scores.

    They have the search space of a drafted parameters file. The score is a constant, because the
    notebook's scores are not known yet.

    Raises:
        NotebookError: The notebook is not Python, or has no value that could be swept.
    """
    space = draft(notebook, seen=()).space
    return Settings.from_mapping({"space": space, "study": {"name": study}, **_NO_SCORE})


def made_of(fingerprint: Fingerprint) -> dict[str, Any]:
    """Return the entries of a study's fingerprint that decide the results of a run without params.

    They are the hashes of the code cells and of the local modules, the kernel, and the number of
    CPUs of a trial.
    """
    return {key: fingerprint.get(key) for key in _DECIDES}


def has_same_code(observed: TrialMetadata, fingerprint: Fingerprint) -> bool:
    """Return whether a run had the code, kernel and number of CPUs that a fingerprint records.

    Files that the run itself has made, such as a generated module, are ignored.
    """
    before = observed.observed
    return before == made_of(without_made_files(before, fingerprint))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """A run of a notebook that has ended, with the scores that it has shown.

    Attributes:
        file: File of the executed notebook.
        node: The executed notebook.
        metadata: The sweep's metadata in it.
        code: The notebook's code, with what each statement has changed in the run.
        scores: Numbers that may be scores, the likeliest first.
        unlisted: All other numbers, which a person may also choose as the score.
        others: Unlisted numbers that the error of `best` proposes as the score if the run has shown
            no score. Empty if it has shown one.
    """

    file: Path
    node: Any
    metadata: TrialMetadata
    code: Code
    scores: Sequence[SeenScore]
    unlisted: Sequence[SeenScore]
    others: Sequence[SeenScore] = ()

    @classmethod
    def read(cls, file: Path, notebook: ResearchNotebook) -> ObservedRun:
        """Read an observed run (the run before the sweep) from its executed notebook."""
        node = read_notebook(file)
        metadata = metadata_of(node) or BLANK
        code = Code(
            notebook.code,
            dict(_changes(node, metadata, notebook.assignments.cells)),
            notebook.modules.values(),
        )
        scores, unlisted = seen_scores(node, code, literals=notebook.assignments.literals())
        return cls(
            file=file,
            node=node,
            metadata=metadata,
            code=code,
            scores=_reached_first(notebook, code, scores),
            unlisted=unlisted,
            others=[] if scores else _others(notebook, code, unlisted),
        )

    @property
    def duration_s(self) -> float:
        """How long the run took, in seconds."""
        return self.metadata.duration_s

    def expressions(self) -> dict[str, float]:
        """Return the last value of each recorded number, by its variable or expression."""
        noted = self.metadata.numbers
        found = {name: float.fromhex(number.values[-1]) for name, number in noted.items()}
        shown = [score for score in (*self.unlisted, *self.scores) if score.key == "expression"]
        return {**found, **{score.text: score.value for score in shown}}

    def named(self, name: str) -> SeenScore | None:
        """Return the score or other number of this name. None if the run has shown none."""
        named = (score for score in [*self.scores, *self.unlisted] if score.name == name)
        return next(named, None)

    @property
    def best(self) -> SeenScore:
        """The likeliest score.

        Raises:
            NotebookError: The run has shown no score.
        """
        if not self.scores:
            remedy = "assign one in the last cell, as in `val_acc = …`"
            if self.others:
                others = [f"{other.name} = {other.value:.6g}" for other in self.others]
                remedy = (
                    f"if the score is one of {', '.join(others)}, call notebook_hpo.py with the "
                    f"notebook and --score {shlex.quote(self.others[0].name)}:min (or :max)"
                )
            raise NotebookError(f"no number of the run is recognised as a score; {remedy}")
        return self.scores[0]

    def drafted(
        self,
        notebook: ResearchNotebook,
        *,
        trials: int = 20,
        chosen: SeenScore | None = None,
        direction: str | None = None,
    ) -> Draft:
        """Draft a parameters file with the scores of the run.

        Args:
            trials: Number of trials of the sweep.
            chosen: Score to optimise. None for the likeliest one.
            direction: `minimize` or `maximize`. None for the score's direction, if it is known.
        """
        first = self.best if chosen is None else chosen
        seen = [replace(first, direction=direction or first.direction)]
        seen += [score for score in self.scores if score.name != first.name]
        return draft(notebook, trials=trials, seen=seen, code=self.code)


def _changes(
    node: Any, metadata: TrialMetadata, cells: Sequence[Cell]
) -> Iterator[tuple[tuple[int, int], Sequence[str]]]:
    """Yield the cell and line of each statement, and the names of the variables it has changed.

    A run records a cell with a magic such as `%%time` as one statement. If several statements are
    below the magic, the cell is left out: it is not known which of them has changed a variable.

    Args:
        node: The executed notebook.
        cells: Code cells of the research notebook.
    """
    numbers = {cell["execution_count"]: n for n, cell in enumerate(own_cells(node), 1)}
    for at, names in metadata.changes.items():
        count, position = map(int, at.split(":"))
        number = numbers.get(count)
        if number is None:
            continue
        cell = cells[number - 1]
        body = cell.tree.body
        is_magic = cell.source.lstrip().startswith("%%")
        if is_magic and len(body) > 1:
            continue
        if position <= len(body):
            yield (number, body[position - 1].lineno), names


def _reached_first(
    notebook: ResearchNotebook, code: Code, scores: Sequence[SeenScore]
) -> list[SeenScore]:
    """Sort scores: first those that depend on a value of the notebook that could be swept.

    Each of these gets the names of such values as its `params`. Each of the others gets the doubt
    `UNREACHED`. If several models have equally likely scores, the score that depends on the most
    values written in the notebook comes first.
    """
    behind = params_behind(notebook, code, scores)
    reached, unreached = [], []
    n_stated = {}  # For each score, how many of the values that change it are in the notebook.
    for score, params in zip(scores, behind, strict=True):
        n_stated[score.name] = sum(params.values())
        if params:
            reached.append(replace(score, params={*params}))
        else:
            unreached.append(replace(score, doubts=[Doubt.UNREACHED, *score.doubts]))
    if not reached:
        return unreached
    likeliest = reached[0]
    alike = [likeliest]
    for score in reached[1:]:
        if score.group == likeliest.group and not score.params & likeliest.params:
            alike.append(score)
    first = max(alike, key=lambda score: n_stated[score.name])
    others = [score for score in reached if score is not first]
    return [first, *others, *unreached]


def _others(
    notebook: ResearchNotebook, code: Code, numbers: Sequence[SeenScore]
) -> list[SeenScore]:
    """Return up to three numbers that an error proposes as the score if a run has shown none.

    They depend on a value of the notebook that could be swept, and are no whole numbers. Numbers
    with a metric in their name are preferred.

    Args:
        numbers: Numbers of the run that are not listed as scores.
    """
    found = [number for number in numbers if not number.value.is_integer()]
    found.sort(key=lambda number: (metric_of(number.words) is None, -number.at))
    reached = _reached_first(notebook, code, found[:_MOST_TRIED])
    return [number for number in reached if number.params][:_MOST_OTHERS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedFolders:
    """The folders with the checkpoints and artifacts of an observed run.

    Attributes:
        paths: Paths of the study of which the run becomes the first trial.
    """

    paths: StudyPaths

    @property
    def checkpoints(self) -> Path:
        """Folder with the checkpoints of the observed run."""
        return self.paths.checkpoints(_OBSERVED)

    @property
    def artifacts(self) -> Path:
        """Folder with the artifacts of the observed run."""
        return self.paths.saved(_OBSERVED)

    def remove(self) -> None:
        """Remove the observed run's checkpoints and artifacts, if there are any."""
        for folder in (self.checkpoints, self.artifacts):
            shutil.rmtree(folder, ignore_errors=True)

    def give_to(self, spec: TrialSpec) -> None:
        """Rename the observed run's folders to the checkpoint and artifact folders of a trial."""
        pairs = [(self.checkpoints, spec.checkpoint_dir), (self.artifacts, spec.artifact_dir)]
        for folder, own in pairs:
            if folder.exists():  # If not, a sweep may have renamed it before it was killed.
                shutil.rmtree(own, ignore_errors=True)
                folder.rename(own)


class Observer:
    """Runs a notebook once, in the same way as a trial of a study.

    Args:
        plan: Plan of a sweep with the settings of `settings_to_observe`.
        file: File for the executed notebook.
    """

    def __init__(self, plan: SweepPlan, file: Path) -> None:
        self._plan, self._file = plan, file
        self._spec = self._first_attempt()
        self._running: RunningTrial | None = None
        self._outcome: TrialOutcome | None = None
        self._source: SideTrials | None = None
        self._stopped_by: str | None = None

    def known(self) -> bool:
        """Return whether the notebook's completed run is already in the file.

        The run must have had the plan's code, kernel, number of CPUs and fixed values.
        """
        earlier = self._earlier()
        return earlier is not None and earlier.state is TrialState.COMPLETED

    def _earlier(self) -> TrialMetadata | None:
        """Return the metadata of an earlier run of the notebook in the file.

        None if there is no such file, or if the run's code, kernel, number of CPUs or fixed values
        are not those of the plan.
        """
        metadata = read_metadata(self._file) or BLANK
        is_same = metadata.fixed == as_json(self._plan.settings.fixed)
        return metadata if is_same and has_same_code(metadata, self._plan.fingerprint) else None

    def run(self) -> None:
        """Run the notebook, unless the file already has a completed run of it.

        A run that was interrupted continues from its checkpoints, as a trial does.

        Raises:
            FailedRunError: The run did not complete.
        """
        if self.known():
            return
        earlier = self._earlier()
        has_checkpoints = bool(files_below(self._spec.checkpoint_dir))
        if earlier is not None and earlier.state is not TrialState.FAILED and has_checkpoints:
            attempt = earlier.attempt + 1
            self._spec = replace(self._spec, attempt=attempt, continues=self._file)
        else:
            self._file.unlink(missing_ok=True)
            # The last run may have had other code. This one must not resume from its checkpoints.
            ObservedFolders(paths=self._plan.paths).remove()
        observed = made_of(self._plan.fingerprint)
        workload = replace(self._plan.workload, observed=observed, tracking=None)
        self._source = SideTrials([self._spec], begin=self._begin, end=self._end)
        if self._stopped_by is not None:
            self._source.stop(self._stopped_by)
        LocalExecutor.on_this_machine(workload, 1).run(self._source)
        if self._outcome is None or self._outcome.state is not TrialState.COMPLETED:
            raise FailedRunError(
                f"{self._plan.notebook.display_name}: the notebook was run once, and did not "
                f"complete, so no sweep is proposed: {self._why_incomplete()}"
            )

    def _why_incomplete(self) -> str:
        if self._stopped_by is not None:
            return (
                f"it was stopped ({self._stopped_by}); the same command runs it again, from its "
                "last checkpoint if there is one"
            )
        outcome = self._outcome
        if outcome is None:
            return ""
        return self._error() if outcome.reason is Reason.CELL_ERROR else outcome.message

    def _error(self) -> str:
        """Return a text about the notebook's last error, with the number of its code cell.

        If an earlier cell has shown a score, the text says that trials can skip the failing cell.
        Empty if no cell has an error.
        """
        run = ObservedRun.read(self._file, self._plan.notebook)
        errors = [
            (number, output)
            for number, cell in enumerate(own_cells(run.node), 1)
            for output in cell.get("outputs", ())
            if output.output_type == "error"
        ]
        if not errors:
            return ""
        failing, output = errors[-1]
        error = f"code cell {failing}: {output.ename}: {output.evalue}{self._where(output.ename)}"
        before = [score for score in run.scores if score.direction and score.cell < failing]
        if not before:
            return error
        return (
            f"{error}; {before[0].name} is computed before it: tag code cell {failing} `skip` if "
            "no later cell needs it, and trials do not run it"
        )

    def _where(self, error: str) -> str:
        """Return a clause for the error message about where the notebook ran.

        It names the Python interpreter if a module was missing, and the folder if a file was
        missing. Empty for other errors.

        Args:
            error: Name of the error's class.
        """
        workload = self._plan.workload
        if error == "ModuleNotFoundError":
            python = (interpreter_of(workload.kernel_name) or [workload.kernel_name])[0]
            return f"; it ran with {python}, and -k names another environment"
        if error == "FileNotFoundError":
            return f"; it ran in its folder, {workload.notebook.path.parent.absolute()}"
        return ""

    def stop(self, reason: str) -> None:
        """End the run. If it has not begun, it does not begin.

        Args:
            reason: Why it ends, for the error message of `run`.
        """
        self._stopped_by = reason
        if self._source is not None:
            self._source.stop(reason)

    def _first_attempt(self) -> TrialSpec:
        paths, settings = self._plan.paths, self._plan.settings
        folders = ObservedFolders(paths=paths)
        return TrialSpec(
            study=paths.study,
            study_id="observed",
            number=0,
            params={},
            fixed=settings.fixed,
            seed=trial_seed(settings.study.seed, 0),
            attempt=1,
            notebook=self._file,
            checkpoint_dir=folders.checkpoints,
            artifact_dir=folders.artifacts,
        )

    def _begin(self, _: TrialSpec, running: RunningTrial) -> None:
        self._running = running

    def _end(self, _: TrialSpec, outcome: TrialOutcome) -> bool:
        self._outcome = outcome
        return True

    # --- for the live table ---------------------------------------------------------------------

    def snapshot(self) -> Snapshot | None:
        """Return the progress of the observed run. None before it has begun."""
        running = self._running
        if running is None:
            return None
        return Snapshot(
            study=self._plan.paths.study,
            trials=1,
            counts={},
            objectives=(),
            running=[progress_of(self._spec, running)],
            best=(),
        )

    def doing(self) -> tuple[Chore, ...]:
        """Return the work in the background that the live table shows. An observed run has none."""
        return ()


def observe(notebook: ResearchNotebook, sweep_of: Callable[..., Sweep]) -> ObservedRun:
    """Run a notebook once, and return the scores that it has shown.

    Args:
        sweep_of: Function that gets settings and a notebook, and returns a sweep with a temporary
            output folder.

    Raises:
        FailedRunError: The run did not complete.
        NotebookError: The notebook is not Python, or has no value that could be swept.
    """
    plan = sweep_of(settings_to_observe(notebook, "observed"), notebook=notebook).plan
    file = plan.paths.folder / OBSERVED_NAME
    plan.paths.folder.mkdir(parents=True, exist_ok=True)
    Observer(plan, file).run()
    return ObservedRun.read(file, notebook)
