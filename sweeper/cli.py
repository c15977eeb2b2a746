"""The command line: flags in, one frozen `Settings` and its parts, exit codes out.

The only room that prints.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from .errors import SweepError
from .results import SweepResult
from .trials import TrialRecord, TrialState, shown

if TYPE_CHECKING:
    from .loop import Event
    from .sweep import Sweep

OK, NOTHING_COMPLETED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
_COMMANDS = ("run", "status")
_FATAL_SIGNALS = {"SIGTERM": 143, "SIGHUP": 129}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] not in (*_COMMANDS, "-h", "--help"):
        given.insert(0, "run")
    options = _parser().parse_args(given or ["--help"])
    command: Callable[[argparse.Namespace], int] = options.command
    _quiet_libraries(verbose=options.verbose)
    try:
        return command(options)
    except SweepError as error:
        print(f"notebook_hpo.py: {error}", file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:  # before the sweep has begun: nothing to end, nothing to lose
        print("notebook_hpo.py: stopped by Ctrl-C before anything had started", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        return NOTHING_COMPLETED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="notebook_hpo.py",
        description="Hyperparameter sweeps over a Jupyter notebook. `run` is the default command.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="sweep a notebook", description="Sweep a notebook.")
    run.set_defaults(command=_run)
    run.add_argument("-i", "--input", required=True, metavar="PATH", help="the research notebook")
    run.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="TEMPLATE",
        help="executed notebook per trial, such as './out/digits.{run_id}.ipynb'",
    )
    run.add_argument(
        "-p", "--parameters", required=True, metavar="PATH", help="the parameters file (YAML)"
    )
    run.add_argument(
        "-j", "--jobs", default="1", metavar="N|auto", help="trials at once (default: 1)"
    )
    run.add_argument("--trials", metavar="N", help="total trials of the study, over all calls")
    run.add_argument("--study", metavar="NAME", help="default: study.name, else the file's stem")
    run.add_argument("--storage", metavar="URL", help="Optuna storage (default: beside outputs)")
    run.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow (default: MLFLOW_TRACKING_URI, else a store beside the outputs)",
    )
    run.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="fix a parameter for this call; may be repeated",
    )
    run.add_argument(
        "--timeout", metavar="DURATION", help="wall-clock limit of the sweep: 90s, 15m, 8h"
    )
    run.add_argument(
        "-k", "--kernel", metavar="NAME", help="kernel to use instead of the notebook's own"
    )
    run.add_argument(
        "--cold",
        action="store_true",
        help="start every kernel anew (execution: {kernels: cold} of the parameters file)",
    )
    _add_talk(run)

    status = commands.add_parser(
        "status",
        help="state of a study, also while it runs",
        description="State of a study, from its storage.",
    )
    status.set_defaults(command=_status)
    status.add_argument("study", metavar="STUDY_OR_FOLDER")
    status.add_argument("--storage", metavar="URL", help="Optuna storage of the named study")
    _add_talk(status)
    return parser


def _add_talk(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="last line of stdout is one JSON object"
    )
    parser.add_argument("--quiet", action="store_true", help="say only what went wrong")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")


# --- run ----------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    talk = _Talk(options)
    sweep = _build(options, talk)
    with _signals(sweep, talk) as received:
        result = sweep.run()
    talk.summary(result)
    talk.json(result.to_json())
    if received:
        return received[-1]
    completed = result.counts[TrialState.COMPLETED]
    return OK if completed else NOTHING_COMPLETED


def _build(options: argparse.Namespace, talk: _Talk) -> Sweep:
    from .flags import read_duration_flag, read_trials_flag, read_value
    from .settings import Settings

    settings = Settings.load(options.parameters).with_overrides(
        study=options.study,
        trials=read_trials_flag(options.trials),
        fixed=dict(read_value(text) for text in options.set),
        cold=options.cold,
    )
    from .sweep import Sweep

    sweep = Sweep.from_settings(
        settings,
        notebook=options.input,
        output=options.output,
        jobs=options.jobs,
        storage=options.storage,
        tracking_uri=options.tracking_uri,
        kernel=options.kernel,
        timeout_s=read_duration_flag("--timeout", options.timeout),
        observer=talk.observe,
    )
    talk.begin(sweep)
    return sweep


@contextmanager
def _signals(sweep: Sweep, talk: _Talk) -> Iterator[list[int]]:
    """Ctrl-C: no new trials; again: stop the running ones. SIGTERM, SIGHUP: stop all now.

    Yields:
        the exit codes of the signals that came, filled while the block runs.
    """
    received: list[int] = []

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        received.append(INTERRUPTED)
        sweep.stop("Ctrl-C", now=len(received) > 1)

    def terminate(number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        received.append(_FATAL_SIGNALS[name])
        sweep.stop(name, now=True)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {signal.SIGINT: signal.signal(signal.SIGINT, interrupt)}
    for name in _FATAL_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None:
            before[number] = signal.signal(number, terminate)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- status -------------------------------------------------------------------------------------


def _status(options: argparse.Namespace) -> int:
    from .status import find_storages, look

    talk = _Talk(options)
    found = []
    for storage_url, name in find_storages(options.study, storage=options.storage):
        result, owner = look(storage_url, name)
        talk.status(result, owner)
        found.append({**result.to_json(), "running": owner is not None})
    talk.json(found[0] if len(found) == 1 else found)
    return OK


# --- talking to people --------------------------------------------------------------------------


class _Talk:
    """What people read: progress on stderr, the summary on stdout (on stderr with `--json`)."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._quiet = options.quiet
        self._verbose = options.verbose
        self._json = options.json
        self._lock = threading.RLock()
        self._started = time.monotonic()
        self._sweep: Sweep | None = None

    def begin(self, sweep: Sweep) -> None:
        self._sweep = sweep

    def observe(self, event: Event, record: TrialRecord | None) -> None:
        assert self._sweep is not None
        match event:
            case "sweep_started":
                self._tell_plan(self._sweep)
            case "trial_started" if record is not None:
                again = f" (attempt {record.attempt})" if record.attempt > 1 else ""
                self._progress(f"{record.run_id} started{again}: {_params(record)}")
            case "trial_ended" if record is not None:
                objectives = self._sweep.settings.objective
                self._progress(f"{record.run_id} {_ending(record, objectives)}")
            case "stopping":
                by = self._sweep.admission.closed_by
                self._progress(
                    f"stopping ({by}): the running trials are being stopped"
                    if self._sweep.admission.is_stopping_all
                    else f"stopping ({by}): no new trials; running ones finish "
                    "(Ctrl-C again to stop them now)"
                )

    def summary(self, result: SweepResult) -> None:
        if self._quiet and result.counts[TrialState.COMPLETED]:
            return
        lines = [f"\n{_counted(result)} in {_duration(result.duration_s)}"]
        if result.cost is not None:
            lines.append(f"cost of the study so far: {result.cost:.2f}")
        if result.stopped_by is not None:
            lines.append(f"stopped by {result.stopped_by}; the same command goes on from here")
        lines += _best_lines(result)
        lines += _failure_lines(result)
        if result.tracking_uri.startswith("http"):
            lines.append(f"MLflow: {result.tracking_uri}")
        else:
            lines.append(f"MLflow: mlflow ui --backend-store-uri {result.tracking_uri}")
        if result.compare_url:
            lines.append(f"  parallel coordinates of all runs: {result.compare_url}")
        if result.untold:
            lines.append(
                f"  {result.untold} messages did not reach MLflow; "
                "the same command tells them again"
            )
        self._say("\n".join(lines))

    def status(self, result: SweepResult, owner: str | None) -> None:
        if self._quiet:
            return
        lines = [f"study {result.study}: {_counted(result)}"]
        lines.append(f"swept by {owner}" if owner else "no sweep is running")
        for record in result.records:
            ending = _ending(record, result.objectives)
            lines.append(f"  {record.run_id}  {ending}  {_params(record)}")
        lines += _best_lines(result)
        self._say("\n".join(lines) + "\n")

    def json(self, data: Any) -> None:
        if self._json:
            print(json.dumps(data, allow_nan=False), flush=True)

    def _tell_plan(self, sweep: Sweep) -> None:
        settings = sweep.settings
        gpus = f", {len(sweep.devices.gpus)} GPU" if sweep.devices.gpus else ""
        self._progress(
            f"study {settings.name}: {settings.study.trials} trials of {sweep.notebook.shown}, "
            f"{sweep.jobs} at once{gpus}, sampler {sweep.samplers.name}"
        )
        if self._verbose:
            self._progress(
                f"storage {sweep.storage_url}; kernel {sweep.kernel_name}; "
                f"{settings.resources.threads} thread(s) per kernel; seed {settings.study.seed}"
            )

    def _progress(self, line: str) -> None:
        if not self._quiet:
            with self._lock:
                print(f"[{_duration(time.monotonic() - self._started):>6}] {line}", file=sys.stderr)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr if self._json else sys.stdout, flush=True)


def _ending(record: TrialRecord, objectives: Iterable[str]) -> str:
    known = [(name, record.scores[name]) for name in objectives if name in record.scores]
    scores = ", ".join(f"{name}={value:.6g}" for name, value in known)
    took = f" in {_duration(record.duration_s)}" if record.duration_s else ""
    if record.reason is None:
        return f"{record.state}{took}" + (f": {scores}" if scores else "")
    first_line = record.message.strip().partition("\n")[0]
    return f"{record.state}{took} ({record.reason}): {first_line}"


def _params(record: TrialRecord) -> str:
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in record.params.items()
    )


def _counted(result: SweepResult) -> str:
    return ", ".join(f"{n} {state}" for state, n in result.counts.items() if n) or "no trials"


def _best_lines(result: SweepResult) -> list[str]:
    if not result.best:
        return ["no trial completed"]
    lines = []
    for record in result.best:
        scores = ", ".join(f"{name}={record.scores[name]!r}" for name in result.objectives)
        lines.append(f"best: {record.run_id}  {scores}  ({_params(record)})")
        lines.append(f"  notebook: {shown(record.notebook)}")
    return lines


def _failure_lines(result: SweepResult) -> list[str]:
    failed = [r for r in result.records if r.state is TrialState.FAILED]
    reasons = Counter(str(record.reason) for record in failed).most_common()
    counted = ", ".join(f"{n} {reason}" for reason, n in reasons)
    lines = [f"  {r.run_id} {_ending(r, ())}\n    {shown(r.notebook)}" for r in failed[:5]]
    more = [f"  … and {len(failed) - 5} more"] if len(failed) > 5 else []
    return [f"failed: {counted}", *lines, *more] if failed else []


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def _quiet_libraries(*, verbose: bool) -> None:
    """The libraries below talk to their own users; ours hear from us."""
    level = logging.INFO if verbose else logging.ERROR
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    logging.getLogger("sweeper").setLevel(logging.INFO if verbose else logging.WARNING)
    for name in ("papermill", "traitlets", "asyncio", "optuna"):
        logging.getLogger(name).setLevel(level)
    # nbclient logs the deaths and failures that every outcome tells anyway.
    logging.getLogger("sweeper.kernels").setLevel(level if verbose else logging.CRITICAL)
    warnings.simplefilter("ignore")
