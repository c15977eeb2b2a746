"""The command `mcp`: it lets a coding agent sweep notebooks of one folder, within a budget."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SettingsError, StorageAwayError, StudyError, SweepError
from ..trials import SweepResult, TrialState, as_template, trial_json

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from ..control.lookup import ExistingStudy
    from ..settings import Settings
    from ..study.study import Study
    from ..sweep import Sweep

#: `status` shows at most this many of a study's best trials, and at most this many of its last
#: failures (chosen, not measured).
_MOST_SHOWN = 5
_MANUAL = """\
Hyperparameter sweeps of the notebooks in {folder}, with the search space of {file}.
Use one study for each idea: sweep a notebook, wait with status until the sweep has ended, confirm
the study, then compare it with a confirmed baseline. A better score in a search is mostly luck:
count an improvement only if compare says so.
All studies in {output} together may have {budget} trials, including the runs of confirm."""


def serve(parameters: Path, *, budget: int, jobs: str | None) -> None:
    """Let a coding agent run sweeps: serve the tools of `Agent` over MCP on stdin and stdout.

    Args:
        parameters: Parameters file; see `Agent`.
        budget: Number of trials that all studies of the agent may have together.
        jobs: Number of trials that run at once; see `Agent`.

    Raises:
        SettingsError: The parameters file or `jobs` is wrong, or the library mcp is missing.
    """
    from ..machine.capacity import read_jobs
    from ..settings import Settings

    Settings.load(parameters)  # Show errors to the user now. Later ones reach only the agent.
    read_jobs(jobs or 1, threads=1)
    with closing(Agent(parameters, budget=budget, jobs=jobs)) as agent:
        server = server_of(agent)
        # Let Ctrl-C end the process at once. Python's own handler would wait for input on stdin.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        server.run("stdio")  # The library keeps printed text out of the messages on stdout.


def server_of(agent: Agent) -> MCPServer:
    """Return an MCP server for the tools of an `Agent`.

    If a tool raises a `SweepError`, the coding agent gets its message as the answer.
    """
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise SettingsError(
            "the command mcp needs the library mcp, version 2 or later: "
            "pip install 'notebook-hpo[mcp]'"
        ) from error

    def told(tool: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(tool)
        def call(**arguments: Any) -> Any:
            try:
                return tool(**arguments)
            except SweepError as error:
                raise ToolError(str(error)) from error

        return call

    server = MCPServer("notebook-hpo", instructions=agent.manual, log_level="WARNING")
    for name in ("sweep", "status", "enqueue", "stop", "confirm", "compare"):
        server.add_tool(told(getattr(agent, name)))
    return server


class Agent:
    """The tools of a coding agent: all public methods except `close`.

    The agent reads the methods' docstrings as descriptions of the tools.

    One sweep runs at a time, on a thread of this process. If this process dies, the sweep's guard
    ends the kernels.

    Attributes:
        manual: Instructions for the agent, in addition to the docstrings of the tools.

    Args:
        parameters: Parameters file. Only notebooks in its folder can be swept.
        budget: Number of trials that all studies of the agent may have together.
        jobs: Number of trials that run at once, or `auto` for as many as cores and memory allow.
            None for the default of `Sweep.from_settings`.
    """

    def __init__(self, parameters: Path, *, budget: int, jobs: str | None) -> None:
        self._parameters = parameters.absolute()
        self._folder = self._parameters.parent.resolve()
        self._output = self._folder / "out" / "agent"
        self._budget, self._jobs = budget, jobs
        self.manual = _MANUAL.format(
            folder=self._folder, file=parameters.name, output=self._output, budget=budget
        )
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "agent")
        self._sweep: Sweep | None = None
        self._result: Future[SweepResult] | None = None
        #: Number of trials that all studies together will have when the running sweep and all
        #: enqueued trials have ended.
        self._allowed = 0

    def sweep(self, notebook: str, study: str, trials: int | None = None) -> dict[str, Any]:
        """Start a sweep of a notebook, or resume its study. Return as soon as the sweep has begun.

        Wait for its end with `status`. Only one sweep can run at a time.

        Args:
            notebook: Path of the notebook, relative to the folder of the parameters file.
            study: Name of the study. Use a new name for each version of the notebook.
            trials: Number of trials that the study has in all, counted over all calls. Default: the
                number in the parameters file.
        """
        from ..settings import Settings

        settings = Settings.load(self._parameters)
        return self._begin(settings.with_overrides(study=study, trials=trials), notebook)

    def status(self, study: str | None = None, wait_s: int = 0) -> dict[str, Any]:
        """Return the trials that are left of the budget, and the state of each study.

        A study is shown with its best trials and its last failures.

        Args:
            study: Name of the only study to show. Default: all studies.
            wait_s: Seconds to wait for the end of the running sweep. The call returns earlier if
                the sweep ends earlier.
        """
        from ..control.lookup import clean_up_after_crash

        result, findings = self._result, list[str]()
        if result is not None and wait([result], wait_s).done:
            if error := result.exception():
                findings.append(str(error))
            else:
                ended = result.result()
                if ended.why_incomplete is not None:
                    findings.append(ended.why_incomplete)
                findings += ended.findings
        studies = self._studies().values()
        searches = [existing for existing in studies if existing.study.facts.confirms is None]
        chosen = searches if study is None else [self._study(study)]
        for existing in chosen:
            clean_up_after_crash(existing)
        return {
            "trials_left": self._budget - self._used(),
            "is_sweeping": self._is_sweeping(),
            "findings_of_the_last_sweep": findings,
            "studies": [_described(existing) for existing in chosen],
        }

    def enqueue(self, study: str, params: dict[str, Any]) -> dict[str, Any]:
        """Add a trial with params that you choose to a study. It uses one trial of the budget.

        The running sweep of the study runs the trial. If there is none, the next sweep does.

        Args:
            study: Name of the study.
            params: Values of some params, by name. The sampler chooses the others.
        """
        from ..control import steering

        with self._lock:
            self._spend(1)
            run_id, settled = steering.enqueue(self._study(study), params, like=None)
            self._allowed += 1
        return {"study": study, "run_id": run_id, "params": settled}

    def stop(self, study: str, run_ids: list[str] | None = None) -> dict[str, Any]:
        """Stop the sweep of a study, or only some of its trials.

        To resume a stopped sweep, call `sweep` with the same arguments. A trial that you name in
        `run_ids` is not run again.

        Args:
            study: Name of the study.
            run_ids: Ids of the trials to stop, as `status` shows them. Default: stop the sweep.
        """
        from ..control import steering

        steering.stop(self._study(study), run_ids or [], running_finish=False)
        return {"study": study, "stopped": run_ids or "the sweep"}

    def confirm(self, study: str, best: int = 1, seeds: int = 5) -> dict[str, Any]:
        """Run the best trials of a study again on fresh seeds, so that `compare` can judge them.

        Return as soon as the runs have begun. Wait for their end with `status`. They use `best`
        times `seeds` trials of the budget.

        Args:
            study: Name of the study.
            best: Number of trials to run again. Each further trial makes it more likely that one
                wins by luck.
            seeds: Number of fresh seeds for each trial, at least 2.
        """
        existing = self._study(study)
        (begun, _), notebook = existing.study.claimed(), existing.study.facts.notebook
        settings = existing.settings.with_overrides(trials=begun, confirm=best, seeds=seeds)
        return self._begin(settings, notebook)

    def compare(self, new: str, old: str) -> dict[str, Any]:
        """Compare the confirmed winner of study `new` with the confirmed winner of study `old`.

        Count an improvement only if `counts` in the answer is true. `gain` states by how much the
        score of `new` is better on the same seeds, and `interval` is its 95 % interval.

        Args:
            new: Name of the study with the new idea. It must be confirmed.
            old: Name of the study that is the baseline. It must be confirmed.
        """
        newer, older = self._study(new).confirmation(), self._study(old).confirmation()
        found = None
        # Do not compare the means of a study with `repeat`, which runs each trial's params on
        # several seeds. The search has chosen its winner by these means, so the mean of the winner
        # is too good by luck.
        if newer and older and newer.repeats is None and older.repeats is None:
            found = newer.gain_over(older)
        if found is None:
            why = (
                "cannot be judged: both studies must be confirmed on at least two seeds in common, "
                "and the score must differ between seeds, so that its noise is known"
            )
            return {"counts": False, "why": why}
        counts, why = found[0] > 0, "not shown to be better"
        if counts:
            why = "better on the same seeds, at 95 %"
        return {"counts": counts, "why": why, "gain": sum(found) / 2, "interval": found}

    def close(self) -> None:
        """Stop the running sweep. The next sweep of its study resumes it."""
        if self._sweep is not None:
            self._sweep.stop("the end of the agent's session", now=True)
        self._pool.shutdown()

    def _begin(self, settings: Settings, notebook: str) -> dict[str, Any]:
        """Start a sweep in the background, and wait until it has begun.

        Args:
            settings: Settings of the sweep.
            notebook: Path of the notebook, relative to the folder of the parameters file, or
                absolute.

        Returns:
            What the coding agent reads: the study's name, that its sweep has started, and how many
            trials the budget still allows after this sweep.

        Raises:
            SweepError: The sweep is refused, or exceeds the budget.
        """
        from ..sweep import Sweep

        path, begun = (self._folder / notebook).resolve(), threading.Event()
        if not path.is_relative_to(self._folder):
            raise SettingsError(f"{notebook}: only notebooks in {self._folder} can be swept")
        with self._lock:
            if self._is_sweeping():
                raise SettingsError("a sweep is running; wait with status, or stop it")
            known, again = self._studies().get(settings.name), settings.confirm
            more = settings.study.trials - (0 if known is None else _to_keep(known.study))
            runs = 0 if again is None else again.best * again.seeds
            allowed = self._spend(max(0, more) + runs)
            self._sweep = Sweep.from_settings(
                settings,
                notebook=path,
                output=f"{as_template(str(self._output))}/{{study}}.{{run_id}}.ipynb",
                jobs=self._jobs,
                observer=lambda *_: begun.set(),
            )
            self._allowed, self._result = allowed, self._pool.submit(self._sweep.run)
            self._result.add_done_callback(lambda _: begun.set())
            begun.wait()
            if self._result.done():
                self._result.result()  # This raises the error with which the sweep is refused.
        return {"study": settings.name, "started": True, "trials_left": self._budget - allowed}

    def _spend(self, trials: int) -> int:
        """Check that the budget allows more trials, but record nothing.

        Args:
            trials: Number of trials to add.

        Returns:
            Number of trials that all studies together will have with these trials.

        Raises:
            SettingsError: This number exceeds the budget.
        """
        used = self._used()
        if used + trials > self._budget:
            raise SettingsError(
                f"the call needs {trials} trials, but {max(0, self._budget - used)} of the budget "
                f"of {self._budget} are left; give a smaller number, or ask the person who has "
                "started this server for a greater --budget"
            )
        return used + trials

    def _used(self) -> int:
        studies = [existing.study for existing in self._studies().values()]
        used = sum(sum(study.claimed()) + study.facts.replaced_trials for study in studies)
        return max(used, self._allowed) if self._is_sweeping() else used

    def _is_sweeping(self) -> bool:
        return self._result is not None and not self._result.done()

    def _studies(self) -> dict[str, ExistingStudy]:
        from ..control.lookup import find_studies

        try:
            found = find_studies(str(self._output), storage=None)
            return {existing.study.name: existing for existing in found}
        except StorageAwayError:
            raise
        except StudyError:  # No study exists yet.
            return {}

    def _study(self, name: str) -> ExistingStudy:
        known = self._studies()
        if name not in known:
            raise StudyError(f"there is no study {name!r}; known: {', '.join(known) or 'none'}")
        return known[name]


def _to_keep(study: Study) -> int:
    """Return how many trials of a study surely count towards `study.trials` of its next sweep.

    Return 0 if all trials of the study have failed. If the notebook or the settings have changed
    since, the next sweep begins the study anew, and the budget must allow all of its trials.
    """
    has_failed = all(record.state is TrialState.FAILED for record in study.records())
    return 0 if has_failed else study.claimed()[0]


def _described(existing: ExistingStudy) -> dict[str, Any]:
    """Return the JSON of a study as `status --json` prints it, but with only a few of its trials.

    A short answer matters, because each word that an agent reads costs tokens.
    """
    from ..control.status import look, sort

    result, _ = look(existing)
    best = sort(existing, result.records, by=None)[:_MOST_SHOWN]
    failed = [record for record in result.records if record.state is TrialState.FAILED]
    shown = [*best, *failed[-_MOST_SHOWN:]]
    return {**result.to_json(), "trials": [trial_json(record) for record in shown]}
