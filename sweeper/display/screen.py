"""Format lines about trials and studies, and the live table of running trials."""

from __future__ import annotations

import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TextIO

from ..settings.addresses import study_words
from ..settings.units import duration, size
from ..trials import (
    Chore,
    ChoreKind,
    Confirmation,
    ConfirmedTrial,
    Notice,
    Progress,
    Reason,
    Snapshot,
    StopCause,
    SweepResult,
    TrialRecord,
    TrialState,
    Value,
    counts_line,
    display_path,
    params_line,
    short_text,
    some_of,
    value_text,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: A list of names or of ranked params has at most `_MOST_NAMES` entries. The live table has at most
#: `_MOST_NOTES` lines about frozen (paused) and waiting trials (chosen, not measured).
_MOST_NAMES, _MOST_NOTES = 5, 3
#: Number of runs that MLflow's UI draws: the first page of its table. In the view that the sweep
#: makes, the table is sorted by the first objective, so these are the best runs.
_MOST_DRAWN = 100
_CHORES = {
    ChoreKind.PROVING: "proving that kernels can be forked",
    ChoreKind.ENDING: "ending the kernels",
    ChoreKind.TRACKING: "writing trials to MLflow",
    ChoreKind.IMPORTANCES: "computing which params mattered",
    ChoreKind.PAGE: "writing the comparison page",
}
#: Smallest width of a column with scores or other floats, in characters (chosen).
_OF_A_FLOAT = 8
#: In a table that is at most this many characters wide, the columns have no smallest width.
_NARROW = 60
#: Numbers of characters: `_GAP` between two columns, at most `_WIDEST` for a value, and at least
#: `_SHORT_NAME` for the name of a param if whole names do not fit (chosen).
_GAP, _WIDEST, _SHORT_NAME = 2, 14, 8


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the live table: its name, and a text for each running trial."""

    name: str
    texts: Sequence[str]

    @property
    def width(self) -> int:
        """Number of characters, with the gap before the column."""
        return max(map(len, (self.name, *self.texts))) + _GAP


def ending_line(record: TrialRecord, objectives: Iterable[str]) -> str:
    """Describe the end of a trial in one line: state, time and scores, or why it has no scores."""
    took = f" in {duration(record.duration_s)}" if record.duration_s else ""
    if record.host:
        took += f" on {record.host}"
    if record.reason is Reason.PRUNED:  # The message already says that it was pruned.
        return f"{record.first_line} ({took.strip()})" if took else record.first_line
    if record.reason is not None:
        return f"{record.state}{took} ({record.reason}): {record.first_line}"
    scores = [f"{name}={record.scores[name]:.6g}" for name in objectives if name in record.scores]
    line = f"{record.state}{took}"
    return f"{line}: {', '.join(scores)}" if scores else line


def _best_lines(snapshot: Snapshot) -> list[str]:
    """List the best trial so far, or the first of the Pareto-optimal trials, with its notebook."""
    if not snapshot.best:
        return []
    first, n_best = snapshot.best[0], len(snapshot.best)
    scores = ", ".join(f"{name}={first.scores[name]:.6g}" for name in snapshot.objectives)
    line = f"best: {first.run_id}  {scores}  ({params_line(first.params)})"
    if n_best > 1:
        line += f"  (1 of {n_best} Pareto-optimal)"
    return [line, f"  notebook: {display_path(first.notebook)}"]


def answer_lines(result: SweepResult) -> list[str]:
    """List what a study has shown, such as its best trial and the params that mattered.

    Each line is a topic and a sentence, as in `best: …`. The line about params has no topic. If
    there is only one best trial, a line with its notebook follows the line about its params. The
    list is empty if the study was not analysed.
    """
    if result.insights is None:
        return []
    lines = []
    for topic, text in result.insights.sentences:
        lines.append(f"  {text}" if topic == "params" else f"{topic}: {text}")
        if topic == "params" and len(result.best) == 1:
            lines.append(f"  notebook: {display_path(result.best[0].notebook)}")
    return lines


def confirmation_lines(confirmation: Confirmation | None, storage: str) -> list[str]:
    """List the mean scores of trials that ran on several seeds, and reasons to doubt their ranking.

    For an ablation, improvements by params are listed instead of mean scores. The list is empty if
    there is no confirmation.

    Args:
        confirmation: Ranking of the trials by their mean scores.
        storage: URL of the storage of the study whose trials are ranked.
    """
    if confirmation is None:
        return []
    if confirmation.ablated is not None:
        return _ablation_lines(confirmation, storage)
    if confirmation.repeats is not None:
        return _repeats_lines(confirmation, storage)
    first = (
        f"run again on {len(confirmation.seeds)} fresh seeds ({confirmation.study}): mean of "
        f"{confirmation.objective}, with its 95 % interval"
    )
    lines = [first]
    for number, ranked in enumerate(confirmation.ranking, 1):
        rank = f"{number}." if ranked.is_complete else "–"
        lines.append(f"  {rank} {_line(ranked, confirmation)}")
    return [*lines, *_doubts(confirmation, storage)]


def _repeats_lines(repeats: Confirmation, storage: str) -> list[str]:
    """List the proposals with the best mean scores, and reasons to doubt their ranking.

    A proposal is a choice of params, which runs several times with different seeds.
    """
    if not repeats.ranking:
        return []
    lines = [f"mean of {repeats.objective} over {len(repeats.seeds)} runs, with its 95 % interval"]
    for rank, ranked in enumerate(repeats.ranking[:_MOST_NAMES], 1):
        lines.append(f"  {rank}. {_line(ranked, repeats)}")
    n_more = len(repeats.ranking) - _MOST_NAMES
    if n_more > 0:
        lines.append(f"  … and {n_more} more")
    return [*lines, *_doubts(repeats, storage)]


def _ablation_lines(ablation: Confirmation, storage: str) -> list[str]:
    """List by how much each param of the ablated trial improves the score, the largest gain first.

    An ablated trial runs again with one param at a time at the notebook's original value.
    """
    all_params = {trial.run_id: trial.params for trial in ablation.ranking}
    params = all_params[str(ablation.ablated)]
    lines = [
        f"improvement of trial {ablation.ablated} by each param over the notebook's original value "
        f"({ablation.study}): {ablation.objective}, mean of {len(ablation.seeds)} seeds with its "
        "95 % interval"
    ]
    for run_id, (low, high) in ablation.worths.items():
        own = all_params[run_id]
        changed = [name for name in params if name in own and own[name] != params[name]]
        doubt = "; cannot be told apart from 0" if low <= 0 <= high else ""
        gain = f"{(low + high) / 2:+.4g} ± {(high - low) / 2:.2g}"
        best = params_line({name: params[name] for name in changed})
        instead = ", ".join(value_text(own[name]) for name in changed)
        lines.append(f"  {gain}  {best} instead of {instead}{doubt}")
    return [*lines, *_doubts(ablation, storage)]


def _line(trial: ConfirmedTrial, confirmation: Confirmation) -> str:
    if trial.mean is None:
        mean = "no score"
    elif trial.interval is None:
        mean = f"{trial.mean:.6g}" + (" on each seed" if trial.std == 0 else "")
    else:
        low, high = trial.interval
        mean = f"{trial.mean:.6g}, {low:.6g} to {high:.6g} (std {trial.std:.2g})"
    line = f"{trial.run_id}  {mean}"
    if trial.search_score is not None:
        line += f"; {trial.search_score:.6g} in the search"
    if trial.is_complete:
        return line
    return f"{line}; it has {len(trial.scores)} of {len(confirmation.seeds)} scores and cannot win"


def _doubts(confirmation: Confirmation, storage: str) -> list[str]:
    """List why a ranking by mean scores may be wrong or is not complete, with remedies."""
    lines = []
    if confirmation.has_no_effect:
        lines.append(
            "  every seed gives the same score: the notebook draws no random numbers, or sets a "
            "seed that is not replaced (pass sweeper.trial().seed there), or the score is too "
            "coarse; so nobody can tell how much of the score is luck"
        )
    if confirmation.n_missing:
        lines.append(
            f"  {confirmation.n_missing} of {confirmation.n_wanted} runs on fresh seeds are "
            "missing; the same command runs them"
        )
    elif any(not ranked.is_complete for ranked in confirmation.ranking):
        words = ["notebook_hpo.py", "retry", *study_words(confirmation.study, storage), "--failed"]
        lines.append(f"  `{shlex.join(words)}` runs the trials without a score again")
    return lines


def infeasible_lines(records: Iterable[TrialRecord]) -> list[str]:
    """List the trials that ran out of memory although no other trial ran at the same time."""
    found = [record.run_id for record in records if record.is_infeasible]
    if not found:
        return []
    return [
        f"trials that do not fit into memory, even alone: {some_of(found, _MOST_NAMES)}; the "
        "samplers tpe and gp avoid similar params"
    ]


def summary(result: SweepResult, fold: Callable[[Iterable[str]], Iterable[str]] = tuple) -> str:
    """Return the summary of a sweep that has ended.

    Args:
        result: Result of the sweep.
        fold: Function that wraps long lines. It is not applied to lines with commands and
            addresses, because people copy them.
    """
    answer = [
        f"\n{_counts(result)}",
        *_stopped_lines(result),
        *answer_lines(result),
        *confirmation_lines(result.confirmation, result.storage),
        *infeasible_lines(result.records),
    ]
    lines = [*fold(answer)]
    if result.page is not None:
        lines.append(f"compare: {display_path(result.page)}")
    if result.confirmation_page is not None:
        lines.append(f"  the runs on fresh seeds: {display_path(result.confirmation_page)}")
    lines += _mlflow_lines(result)
    lines += _behind_lines(result)
    notes = notice_lines(result.records)
    notes += [f"note: {finding}" for finding in result.findings]
    return "\n".join([*lines, *fold(notes)])


def _counts(result: SweepResult) -> str:
    """Return a line with the number of trials that this sweep ran, and the time that it took.

    If the study has other trials, too, the line also has the number of all its trials.
    """
    ran = []
    if any(result.counts_here.values()):
        ran.append(counts_line(result.counts_here))
    if any(result.confirmed_here.values()):
        ran.append(f"{counts_line(result.confirmed_here)} on fresh seeds")
    if ran:
        line = f"{', and '.join(ran)} in {duration(result.duration_s)}"
    else:
        line = "this call ran no trials"
    if result.counts == result.counts_here:
        return line
    return f"{line}; the study has {counts_line(result.counts)}"


def trouble_lines(result: SweepResult) -> list[str]:
    """List what went wrong in a sweep of a study with completed trials.

    These are the reason why the sweep is not complete, if that counts as a failure, and the results
    that are missing in the remote copy or in MLflow.
    """
    stopped = _stopped_lines(result) if result.is_failure else []
    return [*stopped, *_behind_lines(result)]


def _stopped_lines(result: SweepResult) -> list[str]:
    """List why the sweep ended early, or did not run the best trials again on fresh seeds."""
    why = result.why_incomplete
    if why is None:
        return []
    if result.not_confirmed is not None:
        return [why]
    if result.stop_cause is StopCause.WORTHLESS:
        return [f"ended early: {result.stopped_by}"]
    if_raised = " with a greater budget" if result.stop_cause is StopCause.BUDGET else ""
    return [f"{why}; the same command{if_raised} resumes from here"]


def _behind_lines(result: SweepResult) -> list[str]:
    """List which results are missing in the remote copy and in MLflow."""
    lines = []
    if result.sync_lag_s:
        lines.append(
            f"remote copy: not complete, {duration(result.sync_lag_s)} behind; the rest is on this "
            "machine, and the same command here copies it"
        )
    if result.undelivered:
        because = f": {result.undelivered_because}" if result.undelivered_because else ""
        lines.append(
            f"  {result.undelivered} trials did not reach MLflow{because}; when MLflow accepts "
            "them, the same command sends them again"
        )
    return lines


def _mlflow_lines(result: SweepResult) -> list[str]:
    """List where MLflow shows the runs: at its server, or by the command that starts its UI."""
    is_server = result.tracking_uri.startswith("http")
    if is_server or result.page is None:
        lines = [f"MLflow: {result.tracking_uri}"]
    else:
        words = ["notebook_hpo.py", "ui", *study_words(result.study, result.storage)]
        lines = [f"MLflow and page: {shlex.join(words)}"]
    if result.compare_url is not None and len(result.records) > _MOST_DRAWN:
        lines.append(f"  MLflow's parallel coordinates draw the {_MOST_DRAWN} best runs")
    if result.compare_url is not None and is_server:
        lines.append(f"  parallel coordinates: {result.compare_url}")
    return lines


#: Message about each kind of notice, with a remedy.
_NOTICES = {
    Notice.NOT_REPLICABLE: "{trials} used operations that may not repeat bit for bit: {names}; "
    "seed_everything(seed, strict=True) raises an error for these operations",
    Notice.OVERWRITTEN_FILES: "{trials} overwrote files next to the notebook: {names}; each file "
    "is from the trial that wrote it last, and a trial may have read another trial's file; "
    "sweeper.trial().artifact_dir is a folder for this trial only",
}


def notice_lines(records: Iterable[TrialRecord]) -> list[str]:
    """Return a line for each kind of notice (a fact that users should know) that a trial has.

    The line says how many trials have the notice, what the notice names, and what to do.
    """
    records = list(records)
    lines = []
    for notice, line in _NOTICES.items():
        found = [record.notices[notice] for record in records if notice in record.notices]
        if found:
            names = [*dict.fromkeys(chain.from_iterable(found))]
            trials = "1 trial" if len(found) == 1 else f"{len(found)} trials"
            lines.append(line.format(trials=trials, names=some_of(names, _MOST_NAMES)))
    return lines


def chore_line(chore: Chore) -> str:
    """Describe a chore, with its predicted duration or its progress.

    A chore is a task of the sweep besides its trials, such as writing the comparison page.
    """
    line = _CHORES[chore.kind]
    if chore.expected_s is not None:
        line += f" (about {duration(chore.expected_s)})"
    done, of = chore.progress or (0, 0)
    return f"{line}: {done:,} of {of:,}" if of else line


def table(snapshot: Snapshot, width: int, height: int | None = None) -> RenderableType:
    """Return the live table: the study's state, a row for each running trial, and the best trial.

    Args:
        snapshot: State to draw.
        width: Number of characters in a line. A column `+N` counts the params that do not fit.
        height: Largest number of lines. If it is given, long lines are cut. None for any number of
            lines. Then long lines are wrapped.
    """
    from rich.console import Group
    from rich.text import Text

    is_cut = height is not None
    line = partial(Text, no_wrap=is_cut, overflow="ellipsis" if is_cut else "fold")
    best = _best_lines(snapshot)
    notes = _notes(snapshot.running)
    shown = [trial for trial in snapshot.running if not trial.is_frozen]
    if height is not None:
        notes = notes[:_MOST_NOTES]
        taken = 3  # The first line, the header, and the line that counts hidden trials.
        room = max(1, height - len(notes) - len(best) - len(snapshot.doing) - taken)
        if len(shown) > room:
            notes.insert(0, f"… and {len(shown) - room} more")
            shown = shown[:room]
    parts: list[RenderableType] = [line(_head(snapshot), "bold")]
    if shown:
        parts.append(_grid(_columns(shown, snapshot, width)))
    parts += [line(note) for note in notes]
    parts += [line(text, "green") for text in best]
    now_s = time.monotonic()
    for chore in snapshot.doing:
        parts.append(line(f"{chore_line(chore)} · {now_s - chore.since_s:.0f}s"))
    return Group(*parts)


def _grid(columns: Sequence[_Column]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="dim")
    # Use `Text`, because rich would interpret plain strings: `[cls]` as markup, `:smile:` as an
    # emoji.
    for number, column in enumerate(columns):
        grid.add_column(Text(column.name), no_wrap=True, justify="right" if number else "left")
    for row in zip(*(column.texts for column in columns), strict=True):
        grid.add_row(*map(Text, row))
    return grid


def _notes(running: Sequence[Progress]) -> list[str]:
    """Return a line with the frozen trials, and a line for each reason why trials wait.

    There is no line if no trial is frozen or waits.

    Args:
        running: Progress of the running trials.
    """
    lines = []
    frozen = [trial.run_id for trial in running if trial.is_frozen]
    if frozen:
        lines.append(f"frozen, and may continue: {some_of(frozen, _MOST_NAMES)}")
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    for trial in running:
        if trial.waits_for:
            waiting[trial.waits_for].append(trial.run_id)
    for reason, names in waiting.items():
        wait = "waits" if len(names) == 1 else "wait"
        lines.append(f"{some_of(names, _MOST_NAMES)} {wait} for {reason}")
    return lines


def _columns(shown: Sequence[Progress], snapshot: Snapshot, width: int) -> list[_Column]:
    """Return the columns of the table: trials, params that fit, and facts such as step and time.

    Args:
        shown: Progress of the trials in the table.
        snapshot: State of the sweep.
        width: Number of characters in a line.
    """
    # All trials have the same facts in the same order. They are not looked up by name, because the
    # score may have the name of another column, such as `time`.
    facts = [_facts(trial, snapshot) for trial in shown]
    columns = []
    for same in zip(*facts, strict=True):
        name, least, _ = same[0]
        at_least = least if width > _NARROW else 0
        columns.append(_Column(name.rjust(at_least), [text for _, _, text in same]))
    of_trials, *others = columns
    room = width + _GAP - _width(columns)  # The first column of the table has no gap before it.
    return [of_trials, *_columns_of_params(shown, room), *others]


def _columns_of_params(shown: Sequence[Progress], room: int) -> list[_Column]:
    """Return a column for each param that fits. A last column counts those that do not fit.

    Args:
        shown: Progress of the trials in the table.
        room: Number of characters for these columns and the gaps before them.
    """
    names = dict.fromkeys(name for trial in shown for name in trial.params)
    owners = {name.rpartition(".")[0] for name in names}
    # Leave out a prefix that all params have, such as `Config` if they are attributes of one class.
    are_of_one = len(names) > 1 and len(owners) == 1
    columns = []
    for name in names:
        title = name.rpartition(".")[2] if are_of_one else name
        columns.append(_column_of_param(title, [trial.params.get(name, "") for trial in shown]))
    fitting = [_shortened(column, _SHORT_NAME) for column in columns]
    counted: list[_Column] = []
    while fitting and _width([*fitting, *counted]) > room:
        fitting.pop()
        counted = [_Column(f"+{len(names) - len(fitting)}", [""] * len(shown))]
    whole = columns[: len(fitting)]
    longest = max((len(column.name) for column in whole), default=0)
    for length in range(longest, _SHORT_NAME, -1):  # Make the names as long as space allows.
        longer = [_shortened(column, length) for column in whole]
        if _width([*longer, *counted]) <= room:
            return [*longer, *counted]
    return [*fitting, *counted]


def _shortened(column: _Column, length: int) -> _Column:
    """Return a column whose name is cut to the width of its widest value.

    If no value is as wide as `length`, the name is cut to `length` characters.
    """
    return replace(column, name=_cut(column.name, max(length, *map(len, column.texts))))


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.width for column in columns)


def _column_of_param(title: str, values: Sequence[Value]) -> _Column:
    texts = [_cut(short_text(value), _WIDEST) for value in values]
    if any(isinstance(value, float) for value in values):
        title = title.rjust(_OF_A_FLOAT)
    return _Column(title, texts)


def _cut(text: str, width: int) -> str:
    """Remove the middle of a long text, because names often differ only at their ends."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def print_table(snapshot: Snapshot, stream: TextIO) -> None:
    """Print the live table once, as wide as the terminal."""
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    console.print(table(snapshot, console.width))


def _head(snapshot: Snapshot) -> str:
    head = f"{snapshot.study} · {snapshot.n_ended} of {snapshot.trials} trials"
    if snapshot.left_s:  # None if the time cannot be predicted yet, 0 at the end of a sweep.
        head += f" · about {duration(snapshot.left_s)} left"
    counts = dict(snapshot.counts)
    waiting = sum(bool(trial.waits_for) and not trial.is_frozen for trial in snapshot.running)
    running = counts.get(TrialState.RUNNING, 0)
    if waiting and running:
        counts |= {TrialState.RUNNING: max(0, running - waiting), "waiting": waiting}
    if any(counts.values()):
        head += f" · {counts_line(counts)}"
    return head


def _facts(trial: Progress, snapshot: Snapshot) -> list[tuple[str, int, str]]:
    """Return a trial's values in the live table, except its params: score, step, time and so on.

    Returns:
        For each column its name, its smallest width in characters, and the text of this trial. The
        smallest width keeps the columns in place when a value changes.
    """
    again = "" if trial.attempt == 1 else f" ({trial.attempt})"
    metric = snapshot.objectives[0] if snapshot.objectives else "score"
    value = trial.metrics.get(metric)
    facts = [
        ("trial", 4, trial.run_id + again),
        (_cut(metric, _WIDEST), _OF_A_FLOAT, "" if value is None else f"{value:.4g}"),
        ("step", 4, "" if trial.step is None else str(trial.step)),
        ("cell", 5, f"{trial.cell}/{trial.cells}" if trial.cells else "start"),
        ("time", 6, duration(trial.elapsed_s)),
        ("memory", 7, "" if trial.memory_bytes is None else size(trial.memory_bytes)),
    ]
    if any(running.host for running in snapshot.running):
        facts.append(("host", _OF_A_FLOAT, trial.host))
    return facts
