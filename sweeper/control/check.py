"""What can be known of a sweep before it is paid for: the command `check`.

First what needs no kernel, then three runs as trials that no study has: at the largest sizes, the
same again, and at typical params. Nothing is written to a study, to MLflow or beside the notebook.
What refuses a wrong call belongs to `sweep/plan.py`, which is asked first.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..display.quantities import duration, size
from ..display.screen import params_line
from ..errors import DataError, NotebookError, SweepError, first_line
from ..execution.capacity import available_bytes, memory_of, usable_cores
from ..execution.local import LocalExecutor
from ..kernels import interpreter_of
from ..notebooks import ResearchNotebook, read_cells_s
from ..notebooks.cell_code import assigned_values, parse, plain_python
from ..settings import Settings
from ..settings.space import AnyDimension, ChoiceDimension, FloatDimension, IntDimension
from ..study.access import call_server
from ..sweep.inputs.data import bring_data, with_data
from ..sweep.inputs.resolving import with_inputs
from ..sweep.plan import SweepPlan
from ..tracking import sqlite_file, store_of
from ..trials import RunningTrial, StudyPaths, TrialOutcome, TrialSpec, inputs_of, run_id_of
from .side_trials import SideTrials

_MARKS = {True: "✓", False: "✗", None: "–"}
_SEED = re.compile(r"\bseed\b")
_TRIAL_SEED = re.compile(r"\btrial\(\)\.seed|\b(t|trial)\.seed\b")
#: With one of these, a name need not stand in the code that assigns or reports it.
_HIDES_NAMES = re.compile(r"[(,]\s*\*\*|import \*|%run|exec\(|globals\(\)|setattr\(")
#: Less free disk than this is too little for any sweep: databases, notebooks and their copies.
_LEAST_FREE_BYTES = 500 * 10**6
#: The seconds that a command takes besides its trials, measured with the examples on two cores.
_COMMAND_S = 6.0
#: A trial's notebook is kept four times: as it is, in MLflow with its page, for the comparison.
_COPIES_OF_NOTEBOOK = 4
#: A trial takes 100 kB beside its notebooks: databases, a run in MLflow, a record in the study.
_BYTES_PER_TRIAL = 100_000
#: A tenth of the memory that is free is left to others.
_MEMORY_SHARE = 0.9
#: The memory of a run is read ten times a second.
_POLL_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that holds or does not.

    Attributes:
        name: of the check, for scripts; the same in all versions.
        holds: None where it could not be tried, or does not apply.
        text: what was found, with figures.
        remedy: what to do about it; empty where nothing is to be done.
    """

    name: str
    holds: bool | None
    text: str
    remedy: str = ""

    def line(self) -> str:
        """The finding for people."""
        return f"{_MARKS[self.holds]} {self.text}" + (f": {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepForecast:
    """What a whole sweep would take if all its trials were like the typical one.

    Attributes:
        trials: those that confirm the best ones included.
        at_once: how many trials run at once.
        memory_at_once: how many fit into this machine's memory; None where that is not known.
        duration_s: of the command, if no trial is pruned.
        trial_s: of a trial.
        cost: in the currency of `cost.price_per_hour`; None without one.
        disk_bytes: for all outputs at most.
    """

    trials: int
    at_once: int
    memory_at_once: int | None
    duration_s: float
    trial_s: float
    cost: float | None
    disk_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What `check` has found.

    Attributes:
        forecast: None where a run has failed, or none was made.
    """

    findings: Sequence[Finding]
    forecast: SweepForecast | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing was found that has to be changed."""
        return all(finding.holds is not False for finding in self.findings)


def check(
    plan: SweepPlan,
    *,
    dry_run: bool,
    on_finding: Callable[[Finding], None],
    on_run: Callable[[str], None],
) -> CheckResult:
    """Check everything that can be known of a sweep, and forecast what it will take.

    Args:
        dry_run: whether to stop before any kernel is started.
        on_finding: called with each finding at once.
        on_run: called with the words for what is run next, which may take long.

    Raises:
        NotebookError: a cell is not valid Python.
        SweepError: an input cannot be found in its study, or the data cannot be fetched.
    """
    findings: list[Finding] = []
    plan = with_data(with_inputs(plan))
    _refuse_broken_cells(plan)

    def note_all(found: Iterator[Finding]) -> None:
        for finding in found:
            findings.append(finding)
            on_finding(finding)

    note_all(_without_kernel(plan))
    if dry_run:
        return CheckResult(findings=findings)
    bring_data(plan, on_run, lambda: False)
    with tempfile.TemporaryDirectory(prefix="check-") as folder:
        measured = _run_all(plan, Path(folder), on_run)
    note_all(_of_runs(measured, plan.settings))
    if len(measured) < len(Role) or not all(it.is_completed for it in measured.values()):
        return CheckResult(findings=findings)
    forecast = make_forecast(plan.settings, measured, jobs=plan.executor.jobs)
    note_all(iter([forecast_finding(forecast, free_disk_bytes=_free_bytes(plan.paths.root))]))
    return CheckResult(findings=findings, forecast=forecast)


# --- without a kernel ------------------------------------------------------------------------


def _refuse_broken_cells(plan: SweepPlan) -> None:
    """Refuse a cell that is not Python; a kernel of another Python may know another syntax."""
    interpreters = [*interpreter_of(plan.workload.kernel_name)[:1], sys.executable]
    if plan.notebook.language != "python" or len({*map(os.path.realpath, interpreters)}) > 1:
        return
    for number, source in enumerate(plan.notebook.code, start=1):
        try:
            parse("" if source.lstrip().startswith("%%") else plain_python(source))
        except SyntaxError as error:
            where = f"{plan.notebook.display_name}: code cell {number}, line {error.lineno}"
            raise NotebookError(f"{where}: {error.msg}") from error


def _without_kernel(plan: SweepPlan) -> Iterator[Finding]:
    yield _names(plan)
    if plan.notebook.language == "python":
        yield from _unknown_scores(plan.notebook, plan.settings)
        yield from _wrong_types(plan.notebook, plan.settings)
        yield _seed(plan.notebook, plan.settings)
    for name, files in plan.inputs.items():
        total = size(sum(file.size_bytes for file in files))
        text = (
            f"{name} is {files[0].artifact} of {len(files)} trials of {files[0].study!r} ({total})"
        )
        yield Finding(name="inputs", holds=True, text=text)
    free, memory = _free_bytes(plan.paths.root), available_bytes()
    yield Finding(
        name="disk",
        holds=free >= _LEAST_FREE_BYTES,
        text=f"{size(free)} of disk are free for the outputs in {plan.paths.root}",
        remedy="" if free >= _LEAST_FREE_BYTES else "make room, or choose another place with -o",
    )
    free_memory = "" if memory is None else f" and {size(memory)} of free memory"
    why = f" {plan.executor.description}" if plan.executor.description else ""
    text = f"{usable_cores()} cores{free_memory} for {plan.executor.jobs} at once{why}"
    yield Finding(name="machine", holds=True, text=text)
    yield from _servers(plan)


def _names(plan: SweepPlan) -> Finding:
    n_names = len(plan.settings.search_space)
    text = (
        f"{plan.notebook.display_name} has {len(plan.notebook.code)} code cells and assigns the "
        f"{n_names} swept parameter{'s' if n_names > 1 else ''}; kernel {plan.workload.kernel_name}"
    )
    return Finding(name="notebook", holds=True, text=text)


def _unknown_scores(notebook: ResearchNotebook, settings: Settings) -> Iterator[Finding]:
    code = "\n".join(notebook.code)
    for name in settings.objective:
        source = settings.scores.get(name)
        wanted = name if source is None else source.variable
        if wanted and not re.search(rf"\b{wanted}\b", code) and not _HIDES_NAMES.search(code):
            yield Finding(
                name="score",
                holds=False,
                text=f"nothing in the notebook assigns, reports or prints {wanted}",
                remedy=f"report it: sweeper.score({name}=…); or say under scores where it is",
            )


def _wrong_types(notebook: ResearchNotebook, settings: Settings) -> Iterator[Finding]:
    own = {name: value for name, (value, _) in assigned_values(notebook.parameters_source).items()}
    stated = {name: [value] for name, value in settings.fixed.items()}
    stated |= {
        name: list(dimension.choices)
        for name, dimension in settings.search_space.items()
        if isinstance(dimension, ChoiceDimension)
    }
    for name, values in stated.items():
        texts = [value for value in values if isinstance(value, str)]
        if texts and _is_number(own.get(name)):
            text = f"{name} is the text {texts[0]!r}, and the notebook has the number {own[name]!r}"
            remedy = "state a number in the parameters file"
            yield Finding(name="types", holds=False, text=text, remedy=remedy)


def _seed(notebook: ResearchNotebook, settings: Settings) -> Finding:
    cells = [cell for cell in notebook.code if cell != notebook.parameters_source]
    is_stated = "seed" in settings.fixed or "seed" in settings.search_space
    takes = not is_stated and (notebook.assigns("seed") or any(map(_TRIAL_SEED.search, cells)))
    if takes and not any(map(_SEED.search, cells)):
        return Finding(
            name="seed",
            holds=False,
            text="the notebook assigns seed and nothing reads it, so the seed has no effect",
            remedy="pass it on: sweeper.seed_everything(seed), random_state=seed",
        )
    if takes:
        return Finding(name="seed", holds=True, text="the notebook takes the seed of its trial")
    is_needed = settings.confirm is not None
    return Finding(
        name="seed",
        holds=False if is_needed else None,
        text="the notebook takes no seed" + (", which confirm needs" if is_needed else ""),
        remedy="assign `seed` in the parameters cell, or read sweeper.trial().seed, so that luck "
        "can be told from merit",
    )


def _servers(plan: SweepPlan) -> Iterator[Finding]:
    """Whether what is not on this machine answers: data, the study's storage, MLflow, the copy."""
    address = plan.tracking_uri or f"sqlite:///{plan.paths.tracking}"

    def open_mlflow() -> None:
        store_of(
            plan.tracking_uri,
            study=plan.settings.name,
            study_id="",
            embedded=plan.paths.tracking,
            artifacts=plan.paths.artifacts,
            cells=plan.paths.page_notebooks,
        )

    calls: list[tuple[str, str, Callable[[], object]]] = []
    if (data := plan.data) is not None:
        calls.append(("data", f"data {data.version} of {data.url}", data.look))
    if sqlite_file(plan.storage_url.full) is None:
        text = f"the study's storage answers at {plan.storage_url}"
        calls.append(("storage", text, lambda: call_server(plan.storage_url)))
    if sqlite_file(str(address)) is None:
        calls.append(("mlflow", f"MLflow answers at {address}", open_mlflow))
    if (remote := plan.remote) is not None:
        calls.append(("sync", f"sync: {remote.display_url} answers", remote.probe))
    for name, text, call in calls:
        try:
            more = call()
        except (DataError, SweepError) as error:
            remedy = "check the address, the credentials and the network"
            yield Finding(name=name, holds=False, text=first_line(error), remedy=remedy)
        else:
            text += f": {more}" if isinstance(more, str) else ""
            yield Finding(name=name, holds=True, text=text)


def _free_bytes(folder: Path) -> int:
    """How much can be written into a folder, which need not exist yet."""
    return shutil.disk_usage(next(it for it in (folder, *folder.parents) if it.exists())).free


# --- the three runs --------------------------------------------------------------------------


class Role(StrEnum):
    """What a run is for, in the order in which they are made."""

    LARGEST = "the largest sizes"
    AGAIN = "the same again"
    TYPICAL = "typical params"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run came to.

    Attributes:
        memory_bytes: the most that its processes had at once; None where that is not known.
        cells_s: for how long its cells ran, without what its kernel took to boot.
        notebook_bytes: the size of its executed notebook.
        checkpoint_bytes: of all checkpoints that it left.
    """

    params: Mapping[str, Any]
    outcome: TrialOutcome
    memory_bytes: int | None
    cells_s: float
    notebook_bytes: int
    checkpoint_bytes: int

    @property
    def is_completed(self) -> bool:
        """Whether it ran to its end and gave every objective a finite score."""
        return self.outcome.state == "completed"


def _run_all(plan: SweepPlan, folder: Path, on_run: Callable[[str], None]) -> dict[Role, Measured]:
    """Run the largest params twice with the values of `smoke`, then the typical ones without."""
    quick = plan.settings.with_overrides(fixed=plan.settings.smoke or {})
    typical = typical_params(plan.settings, plan.notebook.parameters_source)
    largest = largest_params(quick, typical)
    measured: dict[Role, Measured] = {}
    for settings, runs in (
        (quick, {Role.LARGEST: largest, Role.AGAIN: largest}),
        (plan.settings, {Role.TYPICAL: typical}),
    ):
        if all(it.is_completed for it in measured.values()):
            paths = StudyPaths.parse(f"{folder}/{len(measured)}/{{run_id}}.ipynb", study="check")
            paths.folder.mkdir(parents=True)
            workload = replace(plan.workload, settings=settings, paths=paths)
            source = _Runs(plan, workload.paths, settings, runs, on_run)
            LocalExecutor.on_this_machine(workload, 1).run(source)
            measured |= source.measured
    return measured


class _Runs(SideTrials[tuple[Role, Mapping[str, Any]]]):
    """Gives runs to an executor and measures them; none begins after one that has failed."""

    def __init__(
        self,
        plan: SweepPlan,
        paths: StudyPaths,
        settings: Settings,
        runs: Mapping[Role, Mapping[str, Any]],
        on_run: Callable[[str], None],
    ) -> None:
        super().__init__(list(runs.items()))
        self._plan, self._paths, self._settings, self._on_run = plan, paths, settings, on_run
        self._watch: _MemoryWatch | None = None
        self.measured: dict[Role, Measured] = {}

    def begin(self, item: tuple[Role, Mapping[str, Any]], running: RunningTrial) -> TrialSpec:
        """Make the spec of a run, and watch its memory from now on."""
        role, params = item
        self._on_run(str(role))
        self._watch = _MemoryWatch(running)
        number = list(Role).index(role)
        run_id = run_id_of(number)
        return TrialSpec(
            study=self._paths.study,
            study_id="check",
            number=number,
            params=params,
            fixed=self._settings.fixed,
            seed=0,
            attempt=1,
            notebook=self._paths.notebook(run_id),
            checkpoint_dir=self._paths.checkpoints(run_id),
            artifact_dir=self._paths.saved(run_id),
            inputs=inputs_of(self._plan.inputs, params),
        )

    def end(
        self, item: tuple[Role, Mapping[str, Any]], spec: TrialSpec, outcome: TrialOutcome
    ) -> None:
        """Note what a run came to."""
        assert self._watch is not None
        self._watch.close()
        checkpoints = (file for file in spec.checkpoint_dir.rglob("*") if file.is_file())
        self.measured[item[0]] = Measured(
            params=item[1],
            outcome=outcome,
            memory_bytes=self._watch.memory_bytes,
            cells_s=read_cells_s(spec.notebook),
            notebook_bytes=spec.notebook.stat().st_size if spec.notebook.exists() else 0,
            checkpoint_bytes=sum(file.stat().st_size for file in checkpoints),
        )
        if not self.measured[item[0]].is_completed:
            self.drop(lambda _: True)


class _MemoryWatch:
    """Reads a kernel's memory while its trial runs, on a thread of its own."""

    def __init__(self, running: RunningTrial) -> None:
        self.memory_bytes: int | None = None
        self._running = running
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="check", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(_POLL_INTERVAL_S):
            pid = self._running.pid
            memory_bytes = None if pid is None else memory_of(pid)
            if memory_bytes is not None:
                self.memory_bytes = max(self.memory_bytes or 0, memory_bytes)


def typical_params(settings: Settings, parameters_source: str) -> dict[str, Any]:
    """The params of the first `start` trial, else the notebook's own, else the middle.

    Args:
        parameters_source: the source of the parameters cell.
    """
    own = {name: value for name, (value, _) in assigned_values(parameters_source).items()}
    stated = settings.start_params[0] if settings.start_params else {}

    def pick(name: str, dimension: AnyDimension) -> Any:
        for values in (stated, own):
            if name in values and dimension.allows(values[name]):
                return values[name]
        return _middle(dimension)

    return settings.search_space.sample(pick)


def largest_params(settings: Settings, typical: Mapping[str, Any]) -> dict[str, Any]:
    """Those with the largest sizes: whole numbers and numeric choices at their greatest.

    Numbers with fractions are learning rates and the like; they stay as they are.
    """

    def pick(name: str, dimension: AnyDimension) -> Any:
        if isinstance(dimension, IntDimension):
            step = dimension.step or 1
            return dimension.low + (dimension.high - dimension.low) // step * step
        if isinstance(dimension, ChoiceDimension) and all(map(_is_number, dimension.choices)):
            return max(dimension.choices, key=float)
        return typical.get(name, _middle(dimension))

    return settings.search_space.sample(pick)


def _middle(dimension: AnyDimension) -> Any:
    if isinstance(dimension, ChoiceDimension):
        return dimension.choices[0]
    low, high, step = float(dimension.low), float(dimension.high), dimension.step
    value = math.sqrt(low * high) if dimension.log else (low + high) / 2
    if step is not None:
        value = low + math.floor((value - low) / step + 1e-9) * step
    return value if isinstance(dimension, FloatDimension) else round(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- what the runs show ----------------------------------------------------------------------


def _of_runs(measured: Mapping[Role, Measured], settings: Settings) -> Iterator[Finding]:
    for role, it in measured.items():
        if not it.is_completed:
            yield _failure(role, it)
    if Role.TYPICAL in measured and measured[Role.TYPICAL].is_completed:
        yield _score(measured[Role.TYPICAL], settings)
    if Role.AGAIN in measured and measured[Role.AGAIN].is_completed:
        yield _repeats(measured[Role.LARGEST], measured[Role.AGAIN])
        yield from _params(measured)
        yield _memory(list(measured.values()))


def _failure(role: Role, it: Measured) -> Finding:
    lines = it.outcome.message.strip().splitlines() or [str(it.outcome.state)]
    text = f"the notebook fails at {role} ({params_line(it.params)}): {lines[0]}"
    remedy = "run it by hand with these values"
    if role is not Role.TYPICAL:
        remedy += "; if they are too much for it, make the space smaller"
    return Finding(name="runs", holds=False, text=text, remedy=remedy)


def _score(it: Measured, settings: Settings) -> Finding:
    found = ", ".join(f"{name} {it.outcome.scores[name]:.6g}" for name in settings.objective)
    steps = max((len(points) for points in it.outcome.series.values()), default=0)
    many = "s" if steps > 1 else ""
    live = f", reported at {steps} step{many}" if steps else ", found after the last cell"
    text = f"the notebook runs in {duration(it.outcome.duration_s)} and gives {found}{live}"
    holds = bool(steps) or settings.study.pruner.name == "none"
    remedy = "report it while it runs (sweeper.report), or no trial can be pruned"
    return Finding(name="score", holds=holds, text=text, remedy="" if holds else remedy)


def _repeats(first: Measured, second: Measured) -> Finding:
    for name, value in first.outcome.scores.items():
        other = second.outcome.scores.get(name)
        if repr(other) != repr(value):
            return Finding(
                name="repeats",
                holds=False,
                text=f"the same seed gives another score: {name} {value!r} and {other!r}",
                remedy="call sweeper.seed_everything(seed) before anything random",
            )
    text = "the same seed gives the same score, to the last bit"
    return Finding(name="repeats", holds=True, text=text)


def _params(measured: Mapping[Role, Measured]) -> Iterator[Finding]:
    largest, typical = measured[Role.LARGEST], measured.get(Role.TYPICAL)
    if typical is None or typical.params == largest.params:
        return
    differ = typical.outcome.scores != largest.outcome.scores
    yield Finding(
        name="params",
        holds=differ,
        text="other params give other scores" if differ else "other params give the same score",
        remedy="" if differ else "does the notebook use the names of its parameters cell?",
    )


def _memory(measured: Sequence[Measured]) -> Finding:
    peak = max(it.memory_bytes or 0 for it in measured)
    on_gpu = max((it.outcome.gpu.peak_bytes or 0 for it in measured if it.outcome.gpu), default=0)
    gpu = f", and {size(on_gpu)} of a GPU" if on_gpu else ""
    text = f"a trial takes at most {size(peak)} of memory{gpu}"
    return Finding(name="memory", holds=True, text=text)


def make_forecast(
    settings: Settings, measured: Mapping[Role, Measured], *, jobs: int
) -> SweepForecast:
    """Extrapolate from runs that have all completed.

    Trials take as long as the typical one's cells and what the quickest run took outside of them;
    where more run at once than there are cores, they share these.
    """
    confirm, trials = settings.confirm, settings.study.trials
    trials += 0 if confirm is None else min(confirm.best, trials) * confirm.seeds
    at_once = min(jobs, trials)
    outside_s = min(max(0.0, it.outcome.duration_s - it.cells_s) for it in measured.values())
    trial_s = (measured[Role.TYPICAL].cells_s + outside_s) * max(1, at_once / usable_cores())
    duration_s = _COMMAND_S + math.ceil(trials / at_once) * trial_s
    memory = max(it.memory_bytes or 0 for it in measured.values())
    free = available_bytes()
    disk_bytes = (
        _COPIES_OF_NOTEBOOK * max(it.notebook_bytes for it in measured.values())
        + max(it.checkpoint_bytes for it in measured.values())
        + _BYTES_PER_TRIAL
    )
    price = None if settings.cost is None else settings.cost.price_per_hour
    return SweepForecast(
        trials=trials,
        at_once=at_once,
        memory_at_once=int(_MEMORY_SHARE * free / memory) if free and memory else None,
        duration_s=duration_s,
        trial_s=trial_s,
        cost=None if price is None else price * duration_s / 3600,
        disk_bytes=trials * disk_bytes,
    )


def forecast_finding(forecast: SweepForecast, *, free_disk_bytes: int) -> Finding:
    """Whether the sweep as a whole fits this machine's memory and disk."""
    money = "" if forecast.cost is None else f", cost {forecast.cost:.2f}"
    text = (
        f"{forecast.trials} trials, {forecast.at_once} at once, take about "
        f"{duration(forecast.duration_s)}{money} and at most {size(forecast.disk_bytes)} of disk"
    )
    remedies = []
    if forecast.memory_at_once is not None and forecast.memory_at_once < forecast.at_once:
        remedies.append(f"memory carries {max(1, forecast.memory_at_once)} at once: lower -j")
    if forecast.disk_bytes > free_disk_bytes:
        remedies.append(
            f"only {size(free_disk_bytes)} are free: make room, or keep fewer checkpoints "
            "(checkpoints: {completed: best})"
        )
    return Finding(name="forecast", holds=not remedies, text=text, remedy="; ".join(remedies))
