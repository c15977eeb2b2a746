"""Propose a sweep of a notebook that has no parameters file, after one run of the notebook.

In a terminal, the scores of this run (the observed run) and the params to sweep are listed. The
user chooses a score, and starts the sweep with Enter, which first writes the parameters file.
Without a terminal, or with `--yes`, the sweep starts at once. But it starts only if `--score` names
the score, or if it is clear which score to optimise.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from ..errors import (
    FailedRunError,
    NotebookError,
    OutputError,
    SettingsError,
    first_line,
)
from ..files import write_atomically
from ..settings.units import duration
from ..trials import clipped, display_path
from .console_output import ConsoleOutput
from .run_options import RunOptions
from .signals import end_command, handled
from .streams import is_terminal, wrapped

if TYPE_CHECKING:
    from ..drafting.draft import Draft
    from ..drafting.observed_run import ObservedRun, Observer
    from ..drafting.scores.seen_scores import SeenScore
    from ..drafting.space.places import Entry
    from ..notebooks.research import ResearchNotebook

#: A proposed sweep has this number of trials (chosen, not measured), for a first test of a
#: notebook. `init` drafts a longer sweep.
_TRIALS = 12
#: At most `_MOST_LISTED` scores are listed. Their names are at most `_WIDEST_NAME` characters wide.
_MOST_LISTED, _WIDEST_NAME = 9, 28
#: Editors to open a file with if neither VISUAL nor EDITOR names one. The last resort is vi.
_EDITORS = ("sensible-editor", "nano")
_ARROWS = {"minimize": "↓", "maximize": "↑", None: "?"}
_WORDS = {"min": "minimize", "max": "maximize"}
_ONLY = "works only with `notebook_hpo.py my.ipynb`, which proposes a sweep"


def propose(options: RunOptions, console: ConsoleOutput) -> bool:
    """Run the notebook once, and write the parameters file of the sweep that the user chooses.

    Run and write nothing if the file exists, or if the command line does not begin with the
    notebook (see `RunOptions.proposes`). With `--dry-run`, only print which params could be swept.

    Args:
        options: Options of the command line.
        console: Output of the command.

    Returns:
        Whether the sweep starts now.

    Raises:
        NotebookError: The run failed, or the notebook has no score or nothing to sweep.
        OutputError: The file cannot be written.
        SettingsError: It is not clear which score is meant, and there is no terminal to ask. Or the
            parameters file exists, and its score is not that of `--score`. Or `--score` or
            `--dry-run` was given, and the command line does not begin with the notebook.
        StudyError: The study has trials already, but the parameters file is missing.
    """
    file = Path(options.parameters)
    if not options.proposes:
        for option, value in {"--score": options.score, "--dry-run": options.dry_run}.items():
            if value:
                raise SettingsError(f"{option} {_ONLY}")
        return True
    if _is_there(file):
        if options.score is not None:
            _refuse_another_score(options.score, file)
        if not options.dry_run:
            return True
    from ..notebooks.research import ResearchNotebook
    from ..settings.sections import study_name_of

    notebook = ResearchNotebook(options.input)
    if options.dry_run:
        _show_static(notebook, console, file=file if _is_there(file) else None)
        return False
    _refuse_unwritable(file)
    run, jobs = _observed(options, notebook, study_name_of(file.stem), console)
    proposal = _Proposal(run, notebook, options, jobs=jobs, file=file, console=console)
    is_asked = console.can_ask and not options.yes and options.score is None
    return proposal.ask() if is_asked else proposal.take_clear()


def _is_there(file: Path) -> bool:
    """Return whether a parameters file exists.

    An empty file does not count: for `init … > my.yml`, the shell makes the file even if `init`
    then fails.
    """
    # `Path.exists` raises an error in a folder that nobody may enter.
    is_empty = os.path.isfile(file) and file.stat().st_size == 0
    return os.path.exists(file) and not is_empty


def _refuse_unwritable(file: Path) -> None:
    """Raise an error if the parameters file cannot be written, before the notebook runs.

    Raises:
        OutputError: The folder of the file cannot be written.
    """
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{file}: cannot be written: {error.strerror or error}; name another file with -p"
    )


def _refuse_another_score(text: str, file: Path) -> None:
    """Refuse a score that is no objective of an existing parameters file.

    The same score as in the file is allowed, so that the command that wrote the file also resumes
    the sweep.

    Args:
        text: Value of `--score`.
        file: The parameters file.

    Raises:
        SettingsError: The file states another score, or the other direction.
    """
    from ..settings import Settings

    known = Settings.load(file).objective
    name, way = _name_and_way(text)
    if name not in known or way not in (None, known[name].direction):
        stated = ", ".join(f"{name}: {goal.direction}" for name, goal in known.items())
        raise SettingsError(
            f"--score {text}: {file} states the score ({stated}); leave --score out, or edit the "
            "file"
        )


def _name_and_way(text: str) -> tuple[str, str | None]:
    """Split `NAME:min` or `NAME:max` into the name and the direction, `minimize` or `maximize`.

    The direction is None if the text states none.
    """
    before, _, after = text.rpartition(":")
    way = _WORDS.get(after.lower())
    return (text if way is None else before), way


def _show_static(notebook: ResearchNotebook, console: ConsoleOutput, *, file: Path | None) -> None:
    """Print the params that could be swept. The notebook is not run to find them.

    Args:
        notebook: The research notebook.
        console: Output of the command.
        file: The parameters file. None if there is none.
    """
    from ..drafting.draft import draft, left_out_lines, swept_lines

    drafted = draft(notebook)
    if file is not None:
        console.line(f"{file} exists, and a sweep uses it; a new proposal would be:")
    console.line(f"{notebook.display_name}: its scores are known after one run; params:")
    for line in [*swept_lines(drafted.params), *left_out_lines(drafted.params.left_out)]:
        console.line(line)
    console.json({"notebook": notebook.display_name, "space": drafted.space})


def _observed(
    options: RunOptions, notebook: ResearchNotebook, study: str, console: ConsoleOutput
) -> tuple[ObservedRun, int]:
    """Run the notebook with its original values and those of `--set`, and display the live table.

    An earlier run of the same notebook with the same values is used again.

    Returns:
        The run, and the number of trials that a sweep would run at once.
    """
    from ..drafting.observed_run import OBSERVED_NAME, ObservedRun, Observer, settings_to_observe
    from ..study_folder.ownership import held_folder
    from ..sweep.deadline import stopped_after
    from ..sweep.resume_checks import refuse_run_for_nothing

    # Wrong options are refused here, before the notebook runs, perhaps for hours.
    settings = settings_to_observe(notebook, options.study or study)
    settings = settings.with_overrides(**options.values())
    notebook.check_names(settings.sources)
    plan = options.sweep(settings, notebook).plan
    if not options.allow_changes:
        refuse_run_for_nothing(plan, Path(options.parameters))
    file = plan.paths.folder / OBSERVED_NAME
    observer = Observer(plan, file)
    values = f"with {', '.join(options.set)}" if options.set else "as it is"
    doing = f"running {notebook.display_name} once {values}, to see what it computes (trial 0000)"
    if observer.known():
        doing = f"using the earlier run of {notebook.display_name}"
    console.begin(f"{doing}; could be swept: {', '.join(settings.space)}")
    try:
        console.tell_kernel(plan)
        limit = f"--timeout after {options.timeout or 0:g} s"
        limited = stopped_after(plan.left_s, partial(observer.stop, limit))
        with held_folder(plan.paths) as held, _ended_by_ctrl_c(observer), limited:
            console.watch(observer)
            try:
                observer.run()
            except FailedRunError:
                if file.exists():
                    console.progress(f"the outputs of the run are in {display_path(file)}")
                raise
            finally:
                held.is_needed = file.exists()
    finally:
        console.close()
        console.watch(None)
    return ObservedRun.read(file, notebook), plan.executor.jobs


@contextmanager
def _ended_by_ctrl_c(observer: Observer) -> Iterator[None]:
    """Make Ctrl-C stop the observed run in this block. The run then ends its kernel.

    Raises:
        KeyboardInterrupt: The block raised an error after Ctrl-C was pressed.
    """
    received: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        observer.stop("Ctrl-C")

    try:
        with handled(end_command, interrupt):
            yield
    except Exception:
        if received:
            raise KeyboardInterrupt from None
        raise


class _Proposal:
    """The sweep that is proposed after one run of a notebook, and that a user can change or start.

    Args:
        run: The one run of the notebook.
        notebook: The research notebook.
        options: Options of the command line.
        jobs: Number of trials that the sweep runs at once.
        file: Parameters file to write.
        console: Output of the command.
    """

    def __init__(
        self,
        run: ObservedRun,
        notebook: ResearchNotebook,
        options: RunOptions,
        *,
        jobs: int,
        file: Path,
        console: ConsoleOutput,
    ) -> None:
        self._run, self._notebook, self._options = run, notebook, options
        self._jobs, self._file, self._console = jobs, file, console
        self._left_out: Sequence[Entry] = ()
        self._n_trials = 1
        self._is_asked = False
        if options.score is None:
            self._chosen, self._direction = run.best, run.best.direction
        else:
            self._choose(options.score)

    @property
    def _listed(self) -> list[SeenScore]:
        from ..drafting.scores.seen_scores import Doubt

        scores = self._run.scores
        reached = [score for score in scores if Doubt.UNREACHED not in score.doubts]
        listed = list(reached or scores)[:_MOST_LISTED]
        if self._chosen.name not in [score.name for score in listed]:
            listed.append(self._chosen)
        return listed

    def take_clear(self) -> bool:
        """Write the parameters file without asking, and print what was chosen.

        The score is that of `--score`, or the only one that a user can mean.

        Returns:
            True, because the sweep starts.

        Raises:
            SettingsError: No score was named, and it is not clear which one is meant. Or the
                direction of the score is unknown.
        """
        from ..drafting.scores.seen_scores import is_clear

        if self._options.score is None and not is_clear(self._run.scores):
            listed = "\n".join(self._score_lines())
            first = self._run.scores[0]
            way = "" if first.direction else ":min or :max"
            raise SettingsError(
                f"{self._notebook.display_name}: which score is meant is not clear:\n{listed}\n"
                f"name it, as in --score {shlex.quote(first.name)}{way}"
            )
        if self._direction is None:
            raise SettingsError(
                f"--score {self._chosen.name}: say whether less or more is better, as in "
                f"--score {self._chosen.name}:min"
            )
        self._show()
        self._keep()
        self._console.line(f"{self._plan_words()}, kept in {self._file} for edits")
        return True

    def ask(self) -> bool:
        """List scores and params, and do what the user types.

        Returns:
            Whether the sweep starts now.

        Raises:
            NotebookError: No param influences the likeliest score.
        """
        from ..drafting.draft import left_out_lines

        self._is_asked = True
        self._show()
        while True:
            self._print_keys()
            line = sys.stdin.readline()
            match line.strip().lower():
                case "" if not line:  # The input has ended.
                    self._console.line("\nno sweep was started; the same command asks again")
                    return False
                case "" if self._direction is None:
                    name = self._chosen.name
                    self._console.line(f"is less or more of {name} better? type {name}:min or :max")
                case "":
                    self._keep()
                    return True
                case "q" | "quit" | "exit":
                    self._console.line("no sweep was started; the same command asks again")
                    return False
                case "e" | "edit":
                    return self._edit()
                case "?" if self._left_out:
                    self._tell(left_out_lines(self._left_out))
                case _:
                    self._choose_and_show(line.strip())

    def _print_keys(self) -> None:
        """Print what the user can type."""
        n_listed = len(self._listed)
        others = f", a number (1 to {n_listed}) takes another score" if n_listed > 1 else ""
        self._console.line(f"{self._plan_words()}.")
        self._console.line(f"Enter runs them{others},")
        self._console.line(f"e opens {self._file}, q leaves")

    def _choose_and_show(self, text: str) -> None:
        """Choose the score that the user has typed, and list the params that influence it.

        If there is no such score, or no param influences it, print the error and keep the old
        score.

        Args:
            text: What the user has typed.
        """
        before = self._chosen, self._direction
        try:
            self._choose(text)
            self._show()
        except (NotebookError, SettingsError) as error:
            self._chosen, self._direction = before
            self._tell([str(error)])

    def _choose(self, text: str) -> None:
        """Choose a score, and its direction if the text states it.

        Args:
            text: Name of the score, perhaps with `:min` or `:max`. A user who was asked may also
                type the score's number in the list, or the direction alone, such as `:min`, for the
                score that is chosen already.

        Raises:
            SettingsError: There is no such score.
        """
        from ..settings.messages import nearest

        name, way = _name_and_way(text)
        typed: dict[str, SeenScore] = {}
        if self._options.score is None:
            # The user was asked, and may answer with a number in the list, or with a direction.
            typed = {str(number): score for number, score in enumerate(self._listed, 1)}
            typed[""] = self._chosen
        found = typed.get(name) or self._run.named(name)
        if found is None:
            near = nearest(name, [score.name for score in self._run.scores])
            if typed:
                raise SettingsError(
                    f"{text!r} is no score of the list; type a number or a name; {near}"
                )
            raise SettingsError(f"--score: the run showed no score {name!r}; {near}")
        self._chosen = found
        self._direction = way or found.direction

    def _drafted(self) -> Draft:
        return self._run.drafted(
            self._notebook,
            trials=self._options.trials or _TRIALS,
            chosen=self._chosen,
            direction=self._direction,
        )

    def _keep(self) -> None:
        try:
            write_atomically(self._file, self._drafted().text)
        except OSError as error:
            raise _unwritable(self._file, error) from error

    def _edit(self) -> bool:
        """Write the parameters file and open it in an editor. The user starts the sweep later.

        Returns:
            False, because no sweep starts now.
        """
        self._keep()
        found = next(filter(shutil.which, _EDITORS), "vi")
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or found
        try:
            subprocess.run([*shlex.split(editor), str(self._file)], check=False)
        except (OSError, ValueError) as error:
            # There is no such program, or a quote is missing.
            self._console.line(f"the editor {editor!r} cannot be started: {first_line(error)}")
        self._console.line(f"{self._file} is kept; the same command sweeps without asking")
        return False

    def _plan_words(self) -> str:
        others = self._n_trials - 1
        if not others:
            return "this run is the only trial"
        left_s = others * self._run.duration_s / self._jobs
        return f"{others} more trials take about {duration(left_s)}, {self._jobs} at once"

    def _show(self) -> None:
        """List the params, and below them the scores, right above the question which score to use.

        Raises:
            NotebookError: No param influences the chosen score.
        """
        from ..drafting.draft import swept_lines

        drafted = self._drafted()
        params = drafted.params
        self._n_trials = self._options.trials or drafted.trials
        self._left_out = params.left_out
        self._print([f"it took {duration(self._run.duration_s)}", "", *swept_lines(params)])
        self._tell(self._left_out_lines())
        if len(params.start) > 1:
            self._console.line("the next trials change one value each, to see if it matters")
        self._print(["", *self._score_lines(), ""])

    def _left_out_lines(self) -> list[str]:
        """Return lines about the params that are not swept.

        In a terminal, which has few rows, the lines have only the names of the params, and say
        where the reasons are. Otherwise, they have the reasons, too.
        """
        from ..drafting.draft import as_comment, left_out_lines
        from ..drafting.space.places import as_flow

        if not is_terminal(sys.stdout):
            return left_out_lines(self._left_out)
        names = [as_flow(entry.name) for entry in self._left_out if entry.name is not None]
        lines = [as_comment(entry.text) for entry in self._left_out if entry.name is None]
        if names:
            why = "type ? for the reasons" if self._is_asked else f"{self._file} has the reasons"
            lines.insert(0, as_comment(f"not swept: {', '.join(names)}; {why}"))
        return lines

    def _print(self, lines: Sequence[str]) -> None:
        """Print lines, cut to the width of a terminal."""
        width = _width()
        for line in lines:
            self._console.line(line if width is None else clipped(line, width))

    def _tell(self, lines: Sequence[str]) -> None:
        """Print lines whole, wrapped to the width of a terminal."""
        width = _width()
        for line in lines:
            for row in [line] if width is None else wrapped(line, width):
                self._console.line(row)

    def _score_lines(self) -> list[str]:
        listed, lines = self._listed, []
        width = min(_WIDEST_NAME, max(len(score.name) for score in listed))
        for number, score in enumerate(listed, 1):
            head = "score" if number == 1 else ""
            is_chosen = score is self._chosen
            mark = ">" if is_chosen else " "
            arrow = _ARROWS[self._direction if is_chosen else score.direction]
            lines.append(
                f"{head:5} {mark}{number}  {score.name:{width}}  {score.value:<10.5g} {arrow}  "
                f"{score.about}, cell {score.cell}"
            )
        return lines


def _width() -> int | None:
    """Return the width of the terminal in characters. None if the output is no terminal."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
