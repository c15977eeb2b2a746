"""The command `mcp`: coding agents sweep notebooks of one folder, within a budget of trials."""

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
from ..trials import SweepResult, TrialState, trial_json

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from ..control.lookup import ExistingStudy
    from ..settings import Settings
    from ..sweep import Sweep

#: `status` shows so many of a study's best trials, and of its last failures.
_MOST_SHOWN = 5
_MANUAL = """\
Hyperparameter sweeps of the notebooks in {folder}, with the search space of {file}.
One idea is one study: sweep a notebook, wait with status until it has ended, confirm the study,
then compare it with a confirmed baseline. A better score in a search is mostly luck: an
improvement counts only where compare says so.
All studies in {output} together may have {budget} trials, runs that confirm included."""


def serve(parameters: Path, *, budget: int, jobs: str | None) -> None:
    """Serve sweeps to a coding agent on standard input and output; the arguments are `Agent`'s.

    Raises:
        SettingsError: the parameters file or `jobs` is wrong, or the library mcp is missing.
    """
    from ..machine.capacity import read_jobs
    from ..settings import Settings

    Settings.load(parameters)  # what is wrong is refused here, and not only to the agent
    read_jobs(jobs or 1, threads=1)
    with closing(Agent(parameters, budget=budget, jobs=jobs)) as agent:
        server = server_of(agent)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what reads would hold an exception up
        server.run("stdio")  # which keeps what sweeps and kernels print out of the protocol


def server_of(agent: Agent) -> MCPServer:
    """The server of an agent's tools, whose errors the agent reads."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise SettingsError(
            "mcp: needs the library mcp, version 2 or later: pip install 'notebook-hpo[mcp]'"
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
    """The tools of an agent, which reads their docstrings.

    A sweep runs on a thread, one at a time: its guard ends its kernels however this process ends.

    Attributes:
        manual: what an agent has to know beside the tools.

    Args:
        parameters: the parameters file; no notebook outside of its folder is swept.
        budget: how many trials all studies of the agent may have together.
        jobs: how many trials run at once, as `Sweep.from_settings` has it.
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
        #: How many trials there will be when the running sweep and what was queued have ended.
        self._allowed = 0

    def sweep(self, notebook: str, study: str, trials: int | None = None) -> dict[str, Any]:
        """Start a sweep of a notebook, or go on with its study.

        Args:
            notebook: its path in the folder of the parameters file.
            study: a new name for each version of the notebook.
            trials: how many the study is to have in all, over all calls.
        """
        from ..settings import Settings

        settings = Settings.load(self._parameters)
        return self._begin(settings.with_overrides(study=study, trials=trials), notebook)

    def status(self, study: str | None = None, wait_s: int = 0) -> dict[str, Any]:
        """What is left of the budget; each study, with its best trials and last failures.

        Args:
            study: only this one; default: all.
            wait_s: wait so long at most for the end of the running sweep.
        """
        from ..control.lookup import clean_up_after_crash

        result, findings = self._result, []
        if result is not None and wait([result], wait_s).done:
            error = result.exception()
            findings = [str(error)] if error else [*result.result().findings]
        studies = self._studies().values()
        searches = [existing for existing in studies if existing.study.confirmation is None]
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
        """Add a trial of your own to a study: the running sweep takes it, or the study's next one.

        Args:
            params: some of its params; the sampler chooses the others.
        """
        from ..control import steering

        with self._lock:
            self._spend(1)
            run_id, settled = steering.enqueue(self._study(study), params, like=None)
            self._allowed += 1
        return {"study": study, "run_id": run_id, "params": settled}

    def stop(self, study: str, run_ids: list[str] | None = None) -> dict[str, Any]:
        """Stop a sweep, which `sweep` with the same arguments goes on with, or some of its trials.

        Args:
            run_ids: trials to stop for good; default: the whole sweep.
        """
        from ..control import steering

        steering.stop(self._study(study), run_ids or [], running_finish=False)
        return {"study": study, "stopped": run_ids or "the sweep"}

    def confirm(self, study: str, best: int = 1, seeds: int = 5) -> dict[str, Any]:
        """Start to run the best trials of a study again on fresh seeds, so that compare can judge.

        Args:
            best: how many trials; each is one more chance that a lucky one passes.
            seeds: on how many seeds each, at least 2.
        """
        existing = self._study(study)
        (begun, _), notebook = existing.study.claimed(), existing.study.facts.notebook
        settings = existing.settings.with_overrides(trials=begun, confirm=best, seeds=seeds)
        return self._begin(settings, notebook)

    def compare(self, new: str, old: str) -> dict[str, Any]:
        """Whether the confirmed winner of study `new` is better than that of `old`.

        An improvement counts only where `counts` is true.
        """
        newer, older = self._study(new).confirmation(), self._study(old).confirmation()
        found = None if newer is None or older is None else newer.gain_over(older)
        if found is None:
            why = (
                "not to be judged: both have to be confirmed, with two seeds or more in common; "
                "and where no seed changes a score, its noise is not known"
            )
            return {"counts": False, "why": why}
        why = "not shown to be better" if found[0] <= 0 else "better on the same seeds, at 95 %"
        return {"counts": found[0] > 0, "why": why, "gain": sum(found) / 2, "interval": found}

    def close(self) -> None:
        """Stop the running sweep; the next one of its study goes on with it."""
        if self._sweep is not None:
            self._sweep.stop("the end of the agent's session", now=True)
        self._pool.shutdown()

    def _begin(self, settings: Settings, notebook: str) -> dict[str, Any]:
        """Start a sweep, and wait until it has begun.

        Raises:
            SweepError: it is refused, or goes beyond the budget.
        """
        from ..sweep import Sweep

        path, begun = (self._folder / notebook).resolve(), threading.Event()
        if not path.is_relative_to(self._folder):
            raise SettingsError(f"{notebook}: only notebooks in {self._folder} can be swept")
        with self._lock:
            if self._is_sweeping():
                raise SettingsError("a sweep is running; wait with status, or stop it")
            known, again = self._studies().get(settings.name), settings.confirm
            more = settings.study.trials - (known.study.claimed()[0] if known else 0)
            runs = 0 if again is None else again.best * again.seeds
            allowed = self._spend(max(0, more) + runs)
            self._sweep = Sweep.from_settings(
                settings,
                notebook=path,
                output=f"{self._output}/{{study}}.{{run_id}}.ipynb",
                jobs=self._jobs,
                observer=lambda *_: begun.set(),
            )
            self._allowed, self._result = allowed, self._pool.submit(self._sweep.run)
            self._result.add_done_callback(lambda _: begun.set())
            begun.wait()
            if self._result.done():
                self._result.result()  # raises why it is refused
        return {"study": settings.name, "started": True, "trials_left": self._budget - allowed}

    def _spend(self, trials: int) -> int:
        """How many trials there will be with so many more.

        Raises:
            SettingsError: the budget does not have them.
        """
        used = self._used()
        if used + trials > self._budget:
            raise SettingsError(
                f"this takes {trials} trials, and {max(0, self._budget - used)} of the budget of "
                f"{self._budget} are left; give a smaller number, or ask for a greater --budget"
            )
        return used + trials

    def _used(self) -> int:
        used = sum(sum(existing.study.claimed()) for existing in self._studies().values())
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
        except StudyError:  # there is none yet
            return {}

    def _study(self, name: str) -> ExistingStudy:
        known = self._studies()
        if name not in known:
            raise StudyError(f"there is no study {name!r}; known: {', '.join(known) or 'none'}")
        return known[name]


def _described(existing: ExistingStudy) -> dict[str, Any]:
    """What `--json` has of a study, with few of its trials, as each word costs the agent."""
    from ..control.status import look, sort

    result, _ = look(existing)
    best = sort(existing, result.records, by=None)[:_MOST_SHOWN]
    failed = [record for record in result.records if record.state is TrialState.FAILED]
    shown = [*best, *failed[-_MOST_SHOWN:]]
    return {**result.to_json(), "trials": [trial_json(record) for record in shown]}
