"""The commands about existing studies, from `status` to `rebuild`."""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import SettingsError
from ..trials import display_path, params_line
from .codes import DIFFERENT, OK
from .console_output import ConsoleOutput
from .signals import end_command, handled

if TYPE_CHECKING:
    from ..control.lookup import ExistingStudy
    from ..control.replay import Verdict

_RUN_ID = re.compile(r"\d{4,}")


def status(options: argparse.Namespace) -> int:
    """Print the state of studies."""
    from ..control.lookup import clean_up_after_crash, find_studies
    from ..control.status import look, sort

    console = ConsoleOutput.of(options)
    found = []
    for existing in find_studies(
        options.study, storage=options.storage, tracking_uri=options.tracking_uri
    ):
        clean_up_after_crash(existing)
        _, owner = existing.at_work()
        result, snapshot = look(existing)
        chosen = None
        if options.sort is not None or options.best is not None:
            chosen = sort(existing, result.records, by=options.sort)[: options.best]
        console.status(result, snapshot, owner=owner, chosen=chosen)
        found.append({**result.to_json(), "running": owner is not None})
    console.json(found[0] if len(found) == 1 else found)
    return OK


def stop(options: argparse.Namespace) -> int:
    """Stop running trials of a study, or its whole sweep."""
    from ..control import steering

    console = ConsoleOutput.of(options)
    existing, targets = _targeted(options, _is_run_id)
    if targets and options.finish:
        raise SettingsError(
            f"--finish lets all running trials finish, so no trials to stop can be given with it "
            f"({' '.join(targets)}); leave out --finish or the run ids"
        )
    name = steering.stop(existing, targets, running_finish=options.finish).study.name
    if options.finish:
        done = "no new trials; running ones finish"
    elif targets:
        done = f"stopped {', '.join(targets)}; retry runs them again"
    else:
        done = "the sweep was stopped; the same command resumes it"
    console.line(f"{name}: {done}")
    console.json({"study": name, "stopped": targets})
    return OK


def enqueue(options: argparse.Namespace) -> int:
    """Queue a trial with params that the user states."""
    from ..control import steering
    from ..settings.flags import read_value

    console = ConsoleOutput.of(options)
    existing, targets = _targeted(options, _is_param)
    stated = dict(read_value(text, flag="") for text in targets)
    run_id, params = steering.enqueue(existing, stated, like=options.like)
    line = f"{existing.study.name}: queued {run_id} ({params_line(params)})"
    console.line(f"{line}; {_when(existing)}")
    console.json({"study": existing.study.name, "run_id": run_id, "params": params})
    return OK


def retry(options: argparse.Namespace) -> int:
    """Queue failed or stopped trials of a study again."""
    from ..control import steering

    console = ConsoleOutput.of(options)
    existing, targets = _targeted(options, _is_run_id)
    if options.failed == bool(targets):
        raise SettingsError("say which trials to retry: either --failed or their run ids")
    queued = steering.retry(existing, targets)
    for before, now in queued:
        console.line(f"{existing.study.name}: queued {now}, which runs {before} again")
    none = "no failed trial is left to retry"
    console.line(_when(existing) if queued else none)
    console.json({"study": existing.study.name, "queued": dict(queued)})
    return OK


def replay(options: argparse.Namespace) -> int:
    """Run trials again and compare them with the originals.

    Return 0 if all numbers are equal bit for bit.
    """
    from ..control import replay as replaying
    from ..control.lookup import clean_up_after_crash

    console = ConsoleOutput.of(options)
    if options.targets and options.targets[0].endswith(".ipynb"):
        if len(options.targets) > 1:
            raise SettingsError("give `replay` one executed notebook, or a study with run ids")
        existing, run_ids = replaying.trial_of(
            Path(options.targets[0]), storage=options.storage, tracking_uri=options.tracking_uri
        )
        clean_up_after_crash(existing)
    else:
        existing, run_ids = _targeted(options, _is_run_id)
    targets = replaying.targets_of(existing, run_ids, takes_all=options.all, sample=options.sample)

    def announce(verdict: Verdict) -> None:
        for line in verdict.lines():
            console.line(line)

    with handled(end_command):
        verdicts = replaying.replay(
            existing, targets, jobs=options.jobs or 1, here=options.here, on_verdict=announce
        )
    if len(verdicts) > 1:
        counts = Counter(verdict.state for verdict in verdicts)
        parts = ", ".join(
            f"{counts[state]} {state}" for state in replaying.ReplayState if counts[state]
        )
        console.line(f"{existing.study.name}: {len(verdicts)} replays: {parts}")
    found = [verdict.to_json() for verdict in verdicts]
    console.json({"study": existing.study.name, "replays": found})
    is_same = all(verdict.state is replaying.ReplayState.EQUAL for verdict in verdicts)
    return OK if is_same else DIFFERENT


def diff(options: argparse.Namespace) -> int:
    """Print what differs between two trials."""
    from ..control.diff import diff_in_words, diff_trials
    from ..control.lookup import find_study

    console = ConsoleOutput.of(options)
    if len(options.targets) not in (2, 3):
        raise SettingsError("diff compares two trials; give two run ids: diff out/digits 0003 0007")
    *wanted, first, second = options.targets
    existing = find_study(wanted[0] if wanted else None, storage=options.storage)
    found = diff_trials(existing, first, second)
    for line in diff_in_words(first, second, found):
        console.line(line)
    run_ids = [first, second]
    console.json({"study": existing.study.name, "run_ids": run_ids, **found.to_json()})
    return OK


def ui(options: argparse.Namespace) -> int:
    """Serve the comparison page and MLflow's UI until Ctrl-C."""
    from ..control.exporting import write_page
    from ..control.lookup import find_study
    from ..control.serving import StudyServer

    console = ConsoleOutput.of(options)
    existing = find_study(options.study, storage=options.storage, tracking_uri=options.tracking_uri)
    page = existing.paths.page
    if not (page.exists() and existing.swept_by()):  # A running sweep keeps its page up to date.
        write_page(existing, on_render=lambda n: console.line(f"{n} notebooks are rendered"))
    console.line(f"{existing.study.name}: starting MLflow's UI, which takes some seconds")
    with StudyServer(existing, port=options.port) as server:
        console.line(f"compare: {server.page}")
        console.line(f"MLflow: {server.mlflow}")
        console.json({"study": existing.study.name, "page": server.page, "mlflow": server.mlflow})
        console.line(
            "everybody who knows an address can read this study and change its runs; Ctrl-C ends "
            "the server"
        )
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return OK


def export(options: argparse.Namespace) -> int:
    """Write the comparison page of a study, a table of its trials, figures, or a trial's code."""
    from ..control.exporting import KINDS, write_code, write_figure, write_page, write_table
    from ..control.loaded import load
    from ..control.lookup import find_study

    console = ConsoleOutput.of(options)
    files = {kind: Path(text) for kind in KINDS if (text := getattr(options, kind))}
    existing = find_study(options.study, storage=options.storage)
    name = existing.study.name
    written = {kind: str(file) for kind, file in files.items()}
    if options.by and not options.table:
        raise SettingsError(f"--by {options.by}: needs --table, as in --table markdown")
    if options.table is not None:
        # Only the table is printed to stdout, because users redirect stdout to a file.
        from ..control.tables import paper_table

        by = [name.strip() for name in (options.by or "").split(",") if name.strip()]
        written["table"] = paper_table(existing, by=by, kind=options.table)
        console.line(written["table"])
    if options.figure is not None:
        write_figure(existing, Path(options.figure))
        console.progress(f"{name}: {options.figure}")
        written["figure"] = options.figure
    if options.code is not None:
        code = write_code(existing, options.code)
        written["code"] = display_path(code.notebook)
        console.line(f"{name}: the code of trial {options.code} is at {written['code']}")
        if code.parameters is not None:
            written["parameters"] = display_path(code.parameters)
            console.line(f"  its parameters file: {written['parameters']}")
    elif not written:
        page = write_page(existing, on_render=lambda n: console.line(f"{n} notebooks are rendered"))
        console.line(f"{name}: {display_path(page)}")
        written["page"] = display_path(page)
    for kind, file in files.items():
        table = load(options.study, storage=options.storage).dataframe()
        n_trials = write_table(table, file, kind=kind)
        console.line(f"{name}: {n_trials} trials in {file}")
    console.json({"study": name, **written})
    return OK


def rebuild(options: argparse.Namespace) -> int:
    """Rebuild damaged databases of studies from their executed notebooks."""
    from ..control.rebuilding import rebuild

    console = ConsoleOutput.of(options)
    found = rebuild(Path(options.folder))
    for made in found:
        counts = ", ".join(
            f"{count} {'to run again' if not state.has_ended else state}"
            for state, count in made.counts.items()
        )
        console.line(f"{made.study}: {display_path(made.storage)} was rebuilt: {counts}")
        for path in made.unreadable:
            console.line(
                f"  {display_path(path)} cannot be read: move it away, and its trial is run again"
            )
        if made.damaged is not None:
            console.line(f"  the damaged database is kept as {display_path(made.damaged)}")
    console.line("the command that began a study also resumes it")
    console.json([{"study": made.study, "counts": made.counts} for made in found])
    return OK


def _is_run_id(target: str) -> bool:
    return _RUN_ID.fullmatch(target) is not None and not os.path.exists(target)


def _is_param(target: str) -> bool:
    return "=" in target and not os.path.exists(target)


def _when(existing: ExistingStudy) -> str:
    """Return words about when queued trials of a study will run, for messages."""
    is_swept = existing.swept_by() is not None
    if is_swept:
        return "the next free slot runs it, or the next sweep if this one begins no more trials"
    return "the next sweep runs it first"


def _targeted(
    options: argparse.Namespace, is_target: Callable[[str], bool]
) -> tuple[ExistingStudy, list[str]]:
    """Find the study that a command changes, and the command's targets, such as run ids.

    The first word on the command line names the study, unless this word is a target. If a killed
    sweep has left processes, this function ends them. If it has left trials that are still
    `running`, this function corrects their states.

    Args:
        options: Options of the command line.
        is_target: Returns whether a word is a target.

    Returns:
        The study and the targets, which are all words but the study's name.
    """
    from ..control.lookup import clean_up_after_crash, find_study

    targets = list(options.targets)
    wanted = None if not targets or is_target(targets[0]) else targets.pop(0)
    existing = find_study(wanted, storage=options.storage, tracking_uri=options.tracking_uri)
    clean_up_after_crash(existing)
    return existing, targets
