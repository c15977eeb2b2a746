"""Check a sweep before it starts: the command `check`.

The first checks need no kernel. Then the notebook runs three times in kernels that are started for
it: with the largest values of the params, with the same values again, and with typical values. The
typical params differ from the largest ones in every param. The section `smoke` of the parameters
file fixes names to values with which a run is short. If it fixes names that are not swept, a fourth
run has the typical params together with these values.

These runs belong to no study. Nothing is written to a study, to MLflow, or next to the notebook.
Errors that stop the sweep itself are found in `sweep/planning/plan.py`, before this module is
called.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..errors import NotebookError
from ..execution.local import LocalExecutor
from ..execution.runtime import temporary_folder
from ..execution.side_trials import SideTrials
from ..files import free_bytes
from ..kernels import interpreter_of
from ..machine.capacity import available_bytes, memory_of, usable_cores
from ..notebooks.compare import Execution, compare
from ..notebooks.reading import read_notebook
from ..notebooks.research import ResearchNotebook
from ..notebooks.seeds import NO_SEED, is_unseeded, own_seeds, replaceable, seeds_in_words
from ..settings import Settings
from ..settings.units import duration, size
from ..sweep.inputs.resolving import with_inputs
from ..sweep.planning.kinds import whole_ranges
from ..sweep.planning.plan import SweepPlan
from ..sweep.scheduling.overwritten_names import EndedTrial, overwritten
from ..trials import (
    Params,
    RunningTrial,
    StudyPaths,
    TrialOutcome,
    TrialSpec,
    is_coarse,
    params_line,
    run_id_of,
)
from .contrasts import contrast_of

#: Signs of findings by `Finding.holds`: passed, failed, or neither.
_MARKS = {True: "✓", False: "✗", None: "–"}
_SEED = re.compile(r"\bseed\b")
_SEED_REMEDY = (
    "assign `seed` a number, or read sweeper.trial().seed, to measure the effect of chance"
)
_TRIAL_SEED = re.compile(r"\btrial\(\)\.seed|\b(t|trial)\.seed\b")
#: Pattern of code that can assign or report names which do not appear in its text.
_HIDES_NAMES = re.compile(r"[(,]\s*\*\*|import \*|%run|exec\(|globals\(\)|setattr\(")
#: Matches code that uses a library whose logs count as reports (see `notebook_api/observing.py`).
_LOGGING_LIBRARIES = re.compile(
    r"\b(fastai|keras|lightgbm|lightning|mlflow|pytorch_lightning|tensorboard|tensorflow|tf_keras|"
    r"transformers|xgboost)\b"
)
#: Every sweep needs this many bytes of free disk space, for its databases and notebooks (chosen,
#: not measured).
_LEAST_FREE_BYTES = 500 * 10**6
#: An executed notebook is on the disk this many times: as the file itself, as the file and an HTML
#: page in MLflow, and as HTML in the comparison page.
_COPIES_OF_NOTEBOOK = 4
#: A trial needs this many bytes of disk space in addition to its notebooks, for its rows in the
#: databases and its run in MLflow.
_BYTES_PER_TRIAL = 100_000
#: Trials may use this share of the free memory. The rest is left to other programs.
_MEMORY_SHARE = 0.9
#: Params count as having an effect on a score only if other values change it by more than this
#: multiple of the difference between two runs with equal params (chosen, not measured).
_MORE_THAN_LUCK = 10
#: Seconds between two measurements of the memory of a run.
_POLL_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        name: Name of the check, for scripts.
        holds: Whether the check passed. None if the check could not be made or does not apply, or
            if its result is in doubt.
        text: What was found, with figures.
        remedy: What the user can do about the finding. Empty if nothing has to be done.
        forecast: Figures for the whole sweep, or None. Only the last finding has them, and only if
            all runs completed. They assume that each trial takes as long as the typical run, and
            that no trial is pruned. The keys are `trials` (including the runs of `confirm`),
            `at_once`, `memory_at_once` (number of trials that fit into memory, None if unknown),
            `trial_s`, `duration_s`, `cost` (None without a price) and `disk_bytes` (at most).
    """

    name: str
    holds: bool | None
    text: str
    remedy: str = ""
    forecast: Mapping[str, float | None] | None = None

    def line(self) -> str:
        """Return the finding as one line of text for people."""
        return f"{_MARKS[self.holds]} {self.text}" + (f": {self.remedy}" if self.remedy else "")


def check(plan: SweepPlan, *, dry_run: bool, on_run: Callable[[str], None]) -> Iterator[Finding]:
    """Check a planned sweep: yield the findings, and last a forecast of its time and disk space.

    Args:
        plan: The sweep that is checked.
        dry_run: Whether to stop before a kernel is started.
        on_run: Called with a text for people before each run, such as `typical params`, and while
            data is fetched. A run may take long.

    Raises:
        NotebookError: A cell is not valid Python.
        SweepError: An input cannot be found in its study, or the data cannot be fetched.
    """
    plan = with_inputs(plan)
    _refuse_broken_cells(plan)
    yield from _without_kernel(plan, dry_run=dry_run)
    if dry_run:
        return
    if plan.workload.data is not None:
        plan.workload.data.bring(on_run, lambda: False)
    with temporary_folder("check") as folder:
        measured = _run_all(plan, folder, on_run)
    takes_seed = _takes_seed(plan.notebook, plan.settings)
    yield from _of_runs(measured, plan.settings, takes_seed=takes_seed)
    yield from _overwritten(measured, plan.notebook)
    if measured[-1].is_completed:
        free_disk_bytes = free_bytes(plan.paths.root)
        yield forecast(
            plan.settings, measured, jobs=plan.executor.jobs, free_disk_bytes=free_disk_bytes
        )


# --- checks without a kernel -----------------------------------------------------------------


def _refuse_broken_cells(plan: SweepPlan) -> None:
    """Check that all cells are valid Python.

    Nothing is checked if the kernel has another Python than this process, which may accept other
    syntax.

    Raises:
        NotebookError: A cell is not valid Python.
    """
    if plan.notebook.language != "python":
        return
    for interpreter in interpreter_of(plan.workload.kernel_name)[:1]:
        if os.path.realpath(interpreter) != os.path.realpath(sys.executable):
            return
    error = plan.notebook.syntax_error()
    if error:
        raise NotebookError(f"{plan.notebook.display_name}: {error}")


def _without_kernel(plan: SweepPlan, *, dry_run: bool) -> Iterator[Finding]:
    text = (
        f"{plan.notebook.display_name} has {len(plan.notebook.code)} code cells and assigns all "
        f"swept parameters; kernel {plan.workload.kernel_name}"
    )
    yield Finding(name="notebook", holds=True, text=text)
    for whole in whole_ranges(plan.notebook, plan.settings):
        holds = False if whole.leaves_out_own else None
        yield Finding(name="space", holds=holds, text=str(whole), remedy=whole.remedy)
    if plan.notebook.language == "python":
        if dry_run:  # Without --dry-run, the runs themselves show whether there is a score.
            yield from unknown_scores(plan.notebook, plan.settings)
        yield _seed(plan.notebook, plan.settings)
    free = free_bytes(plan.paths.root)
    yield Finding(
        name="disk",
        holds=free >= _LEAST_FREE_BYTES,
        text=f"{size(free)} of disk are free for the outputs in {plan.paths.root}",
        remedy="" if free >= _LEAST_FREE_BYTES else "make room, or choose another folder with -o",
    )


def unknown_scores(notebook: ResearchNotebook, settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each objective that no code of the notebook or its modules names.

    The finding neither passes nor fails (`holds` is None) if the code imports a library that may
    log the score by itself.
    """
    sources = [module.source for module in notebook.modules.values()]
    code = "\n".join([*notebook.code, *sources])
    logs = settings.reports == "auto" and _LOGGING_LIBRARIES.search(code) is not None
    for name in settings.objective:
        source = settings.scores.get(name)
        wanted = name if source is None else source.variable
        is_named = wanted and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", code)
        if not wanted or is_named or _HIDES_NAMES.search(code):
            continue
        text = f"nothing in the notebook assigns, reports or prints {wanted}"
        if logs and source is None:
            text = f"{text}, so it is found only if a library logs it under this name"
            yield Finding(name="score", holds=None, text=text)
            continue
        call = f"report it: sweeper.score({name}=…)" if name.isidentifier() else "correct its name"
        remedy = f"{call}; or state its source under `scores`"
        yield Finding(name="score", holds=False, text=text, remedy=remedy)


def _seed(notebook: ResearchNotebook, settings: Settings) -> Finding:
    if stated := _stated_seed(settings):
        text = f"{stated} sets seed, so no trial has a seed of its own"
        return Finding(name="seed", holds=True, text=text)
    reads = _reads_trial_seed(notebook)
    if reads or notebook.takes("seed"):
        n_seeds = len(_SEED.findall("\n".join(notebook.code)))
        if reads or n_seeds > 1:
            return Finding(name="seed", holds=True, text="the notebook uses the seed of its trial")
        text = "the notebook assigns seed and nothing reads it, so the seed has no effect"
        remedy = "pass it on: sweeper.seed_everything(seed), random_state=seed"
        return Finding(name="seed", holds=False, text=text, remedy=remedy)
    own = replaceable(own_seeds(notebook.assignments.cells), notebook.node)
    if own:
        return Finding(name="seed", holds=True, text=seeds_in_words(own))
    if is_unseeded(notebook.flows, notebook.all_code):
        return Finding(name="seed", holds=True, text=NO_SEED)
    text = "the notebook does not use its trial's seed"
    if settings.confirm is not None:
        text += ", which confirm needs"
    return Finding(
        name="seed",
        holds=None if settings.confirm is None else False,
        text=text,
        remedy=notebook.why_no_seed() or _SEED_REMEDY,
    )


def _reads_trial_seed(notebook: ResearchNotebook) -> bool:
    return _TRIAL_SEED.search("\n".join(notebook.code)) is not None


def _takes_seed(notebook: ResearchNotebook, settings: Settings) -> bool:
    """Return whether the notebook uses its trial's seed, or the parameters file sets its seed.

    If so, runs with equal params should give equal scores. Return True for languages other than
    Python, whose code is not analysed.
    """
    if notebook.language != "python" or _stated_seed(settings):
        return True
    return _reads_trial_seed(notebook) or notebook.takes("seed")


def _stated_seed(settings: Settings) -> str | None:
    """Return the section that sets `seed` in the parameters file: `fixed`, `space` or None."""
    sections = {"fixed": settings.fixed, "space": settings.search_space}
    return next((section for section, names in sections.items() if "seed" in names), None)


# --- runs of the notebook --------------------------------------------------------------------


class Role(StrEnum):
    """One of the runs of the notebook that `check` makes, named in words for people."""

    LARGEST = "the largest sizes"
    AGAIN = "the same again"
    QUICK = "typical params with the values of smoke"
    TYPICAL = "typical params"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The outcome and the memory and disk use of one run of the notebook.

    Attributes:
        role: Purpose of the run.
        params: Params that the notebook ran with.
        outcome: How the run ended, with its scores.
        memory_bytes: Peak memory of all its processes together. 0 if it is not known.
        disk_bytes: Disk space that a trial like this run uses, including its checkpoints.
        cells: Cells of the executed notebook.
    """

    role: Role
    params: Params
    outcome: TrialOutcome
    memory_bytes: int
    disk_bytes: int
    cells: Sequence[Mapping[str, Any]] = ()

    @property
    def is_completed(self) -> bool:
        """Whether the run completed and gave every objective a finite score."""
        return self.outcome.state == "completed"

    @property
    def execution(self) -> Execution:
        """The run in the form in which it is compared with another run."""
        return Execution(cells=self.cells, scores=self.outcome.scores, series=self.outcome.series)


def _run_all(plan: SweepPlan, folder: Path, on_run: Callable[[str], None]) -> list[Measured]:
    """Run the notebook twice with the largest params, then with the typical params.

    All runs but the last use the values of `smoke`, with which a run is short. If `smoke` sets a
    name that is not swept, one more run precedes the last: typical params with these values.

    Returns:
        The runs in their order. After a run that failed, no more are made.
    """
    settings = plan.settings
    contrast = contrast_of(settings, plan.notebook)
    quick_fixed = {**settings.fixed, **settings.smoke}
    runs: list[tuple[Role, Params, Params]] = [
        (Role.LARGEST, contrast.largest, quick_fixed),
        (Role.AGAIN, contrast.largest, quick_fixed),
    ]
    if any(name not in settings.search_space for name in settings.smoke):
        runs.append((Role.QUICK, contrast.quick, quick_fixed))
    runs.append((Role.TYPICAL, contrast.typical, settings.fixed))
    paths = StudyPaths.parse(f"{folder}/{{run_id}}.ipynb", study="check")
    paths.folder.mkdir(parents=True)
    cold = settings.model_copy(update={"kernels": "cold"})
    workload = replace(plan.workload, settings=cold, paths=paths)
    watches: list[_MemoryWatch] = []
    measured: list[Measured] = []

    def spec_of(number: int) -> TrialSpec:
        run_id, (_, params, fixed) = run_id_of(number), runs[number]
        return TrialSpec(
            study=paths.study,
            study_id="check",
            number=number,
            params=params,
            fixed=fixed,
            seed=0,
            attempt=1,
            notebook=paths.notebook(run_id),
            checkpoint_dir=paths.checkpoints(run_id),
            artifact_dir=paths.saved(run_id),
            inputs=plan.inputs,
        )

    def begin(spec: TrialSpec, running: RunningTrial) -> None:
        on_run(runs[spec.number][0])
        watches.append(_MemoryWatch(running))

    def end(spec: TrialSpec, outcome: TrialOutcome) -> bool:
        measured.append(
            Measured(
                role=runs[spec.number][0],
                params=spec.params,
                outcome=outcome,
                memory_bytes=watches.pop().close(),
                disk_bytes=_disk_bytes_of(spec),
                cells=read_notebook(spec.notebook).cells if spec.notebook.exists() else (),
            )
        )
        return measured[-1].is_completed

    specs = [*map(spec_of, range(len(runs)))]
    LocalExecutor.on_this_machine(workload, 1).run(SideTrials(specs, begin=begin, end=end))
    return measured


def _disk_bytes_of(spec: TrialSpec) -> int:
    """Return the disk space in bytes that a trial like this run would use in a sweep."""
    notebook_bytes = spec.notebook.stat().st_size if spec.notebook.exists() else 0
    checkpoints = (file for file in spec.checkpoint_dir.rglob("*") if file.is_file())
    kept_bytes = sum(file.stat().st_size for file in checkpoints)
    return _COPIES_OF_NOTEBOOK * notebook_bytes + kept_bytes + _BYTES_PER_TRIAL


class _MemoryWatch:
    """Measures the peak memory of a kernel while its trial runs, on its own thread."""

    def __init__(self, running: RunningTrial) -> None:
        self._running = running
        self._most_bytes = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="check", daemon=True)
        self._thread.start()

    def close(self) -> int:
        """End the thread. Return the peak memory in bytes."""
        self._closing.set()
        self._thread.join()
        return self._most_bytes

    def _work(self) -> None:
        while not self._closing.wait(_POLL_INTERVAL_S):
            if (pid := self._running.points.pid) is not None:
                self._most_bytes = max(self._most_bytes, memory_of(pid) or 0)


# --- findings of the runs --------------------------------------------------------------------


def _of_runs(
    measured: Sequence[Measured], settings: Settings, *, takes_seed: bool
) -> Iterator[Finding]:
    """Yield the findings about the runs. If the last run has failed, yield only its failure.

    Args:
        measured: The runs. Only the last one can have failed.
        settings: Settings of the sweep.
        takes_seed: Whether the notebook uses a seed; see `_takes_seed`.
    """
    if not measured[-1].is_completed:
        yield _failure(measured[-1])
        return
    run_as = {run.role: run for run in measured}
    yield _score(run_as[Role.TYPICAL], settings)
    yield _repeats(run_as[Role.LARGEST], run_as[Role.AGAIN], takes_seed=takes_seed)
    other = run_as.get(Role.QUICK, run_as[Role.TYPICAL])
    if other.params != run_as[Role.LARGEST].params:
        yield what_params_change(
            run_as[Role.LARGEST], run_as[Role.AGAIN], other, objective=settings.objective
        )
    yield _memory(measured)


def _memory(measured: Sequence[Measured]) -> Finding:
    text = f"a trial uses {size(max(run.memory_bytes for run in measured))} of memory"
    free = available_bytes()
    if free:
        text += f" ({size(free)} are free)"
    uses = [run.outcome.gpu for run in measured]
    on_gpu = max(use.peak_bytes or 0 if use else 0 for use in uses)
    if on_gpu:
        text += f", and {size(on_gpu)} of a GPU's memory"
    return Finding(name="memory", holds=True, text=text)


def _overwritten(measured: Sequence[Measured], notebook: ResearchNotebook) -> Iterator[Finding]:
    """Yield a finding if the notebook overwrites a swept name.

    A name is overwritten if two runs that were given different values end with the same value.
    """
    ended = [
        EndedTrial(run_id=run_id_of(number), given=run.params, ended=run.outcome.values_at_end)
        for number, run in enumerate(measured)
        if run.is_completed
    ]
    if (found := overwritten(ended, lambda: notebook.code)) is not None:
        remedy = "remove the statement that assigns it, or leave the name out of `space`"
        yield Finding(name="values", holds=False, text=str(found), remedy=remedy)


def _failure(run: Measured) -> Finding:
    lines = run.outcome.message.strip().splitlines()
    why = lines[0] if lines else str(run.outcome.state)
    text = f"the notebook fails at {run.role} ({params_line(run.params)}): {why}"
    remedy = "run it by hand with these values; if these values cause the failure, narrow `space`"
    return Finding(name="runs", holds=False, text=text, remedy=remedy)


def _score(run: Measured, settings: Settings) -> Finding:
    found = ", ".join(f"{name} {run.outcome.scores[name]:.6g}" for name in settings.objective)
    text = f"the notebook runs in {duration(run.outcome.duration_s)} and gives {found}"
    n_steps = max(map(len, run.outcome.series.values()), default=0)
    if n_steps:
        text += f", reported at {n_steps} steps"
        return Finding(name="score", holds=True, text=text)
    text += ", found after the last cell"
    if settings.study.pruner.name == "none":
        return Finding(name="score", holds=True, text=text)
    remedy = "report it while it runs (sweeper.report), or no trial can be pruned"
    return Finding(name="score", holds=False, text=text, remedy=remedy)


def _repeats(first: Measured, second: Measured, *, takes_seed: bool) -> Finding:
    """Compare the scores of two runs with the same params, which should be equal bit for bit.

    If the notebook does not use its trial's seed, different scores are no failure: the finding's
    `holds` is None.
    """
    condition = "the same seed gives" if takes_seed else "the same params give"
    for name, value in first.outcome.scores.items():
        other = second.outcome.scores.get(name)
        if repr(other) == repr(value):
            continue
        return Finding(
            name="repeats",
            holds=False if takes_seed else None,
            text=f"{condition} different scores: {name} {value!r} and {other!r}",
            remedy="give generators of your own a seed, as in np.random.default_rng(0), and call "
            "sweeper.seed_everything(seed) where a GPU is used",
        )
    text = f"{condition} the same score, to the last bit"
    return Finding(name="repeats", holds=True, text=text)


def what_params_change(
    largest: Measured, again: Measured, other: Measured, *, objective: Iterable[str]
) -> Finding:
    """Compare runs with different params, to see whether the swept names have an effect.

    The check fails only if all scores, steps and outputs are equal bit for bit. If all objectives
    are coarse (such as an accuracy on few examples), they may be equal by chance, and the check
    does not fail.

    Args:
        largest: Run with the largest params.
        again: Second run with the largest params. It shows the differences that are due to chance.
        other: Run with other params.
        objective: Names of the scores that are optimised.
    """
    both = {**largest.params, **other.params}
    names = [name for name in both if largest.params.get(name) != other.params.get(name)]
    changed = f"other values of {', '.join(names)}"

    def objectives_of(run: Measured) -> Execution:
        scores = {name: run.outcome.scores[name] for name in objective}
        return Execution(scores=scores, series={})

    first, same, second = map(objectives_of, (largest, again, other))
    found, luck = compare(first, second), compare(first, same)
    if found.scores and found.distance <= _MORE_THAN_LUCK * luck.distance:
        text = f"{changed} change the score hardly more than a second run with the same values"
        return Finding(name="params", holds=None, text=text)
    if found.scores:
        return Finding(name="params", holds=True, text=f"{changed} give other scores")
    scores = ", ".join(f"{name} {value:.6g}" for name, value in first.scores.items())
    tie = f"{changed} give the same score ({scores})"
    everything = compare(largest.execution, other.execution)
    if everything.outputs or not everything.has_equal_numbers:
        text = f"{tie}, but other outputs or steps, so the score may be too coarse"
        return Finding(name="params", holds=None, text=text)
    if all(map(is_coarse, first.scores.values())):
        text = f"{tie} and outputs: the score is coarse, or nothing reads these names"
        return Finding(name="params", holds=None, text=text)
    return Finding(
        name="params",
        holds=False,
        text=f"{tie} and the same outputs, to the last bit",
        remedy="use the swept names in the code that computes the score",
    )


def forecast(
    settings: Settings, measured: Sequence[Measured], *, jobs: int, free_disk_bytes: int
) -> Finding:
    """Estimate the time and disk space of the whole sweep, and whether they fit this machine.

    Each trial is assumed to take as long as the typical run. If more trials run at once than the
    machine has cores, each takes longer in proportion.

    Args:
        settings: Settings of the sweep.
        measured: Runs that have all completed, the typical one last.
        jobs: Number of trials that run at once.
        free_disk_bytes: Free disk space for the outputs.
    """
    confirm, trials = settings.confirm, settings.study.trials
    trials += 0 if confirm is None else min(confirm.best, trials) * confirm.seeds
    at_once = min(jobs, trials)
    trial_s = measured[-1].outcome.duration_s * max(1, at_once / usable_cores())
    duration_s = math.ceil(trials / at_once) * trial_s
    cost = None if settings.cost is None else settings.cost.price_of(duration_s)
    disk_bytes = trials * max(run.disk_bytes for run in measured)
    memory, free = max(run.memory_bytes for run in measured), available_bytes()
    memory_at_once = int(_MEMORY_SHARE * free / memory) if free and memory else None
    money = "" if cost is None else f", cost {cost:.2f}"
    text = (
        f"{trials} trials, {at_once} at once, take about {duration(duration_s)}{money} and at most "
        f"{size(disk_bytes)} of disk"
    )
    remedies = []
    if memory_at_once is not None and memory_at_once < at_once:
        remedies.append(f"memory is enough for {max(1, memory_at_once)} at once: lower -j")
    if disk_bytes > free_disk_bytes:
        remedies.append(
            f"only {size(free_disk_bytes)} are free: make room, or keep fewer checkpoints "
            "(checkpoints: {completed: best})"
        )
    figures = {
        "trials": trials,
        "at_once": at_once,
        "memory_at_once": memory_at_once,
        "trial_s": trial_s,
        "duration_s": duration_s,
        "cost": cost,
        "disk_bytes": disk_bytes,
    }
    remedy = "; ".join(remedies)
    return Finding(name="forecast", holds=not remedies, text=text, remedy=remedy, forecast=figures)
