"""Define the commands of the command line, and their options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..settings.units import parse_duration
from ..trials import run_id_of
from . import agents, checks, data, init, run, studies

#: An argument of the command line: its names, and the options of argparse's `add_argument`.
Argument: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of the command line.

    Attributes:
        does: Description of the command, for the help.
        function: Called with the parsed options. Returns the exit code.
        example: Example of a call, without the name of the program.
        arguments: Arguments of the command.
    """

    does: str
    function: Callable[[argparse.Namespace], int]
    example: str
    arguments: tuple[Argument, ...] = ()


def _argument(names: str, metavar: str, help: str, **options: Any) -> Argument:
    """Return an argument of the command line that has a value.

    Args:
        names: Names of the argument, separated by spaces.
        metavar: Name of its value in the help.
        help: Description, for the help.
        **options: Further options of `add_argument`.
    """
    return tuple(names.split()), {"metavar": metavar, "help": help, **options}


def _flag(names: str, help: str, **options: Any) -> Argument:
    return tuple(names.split()), {"action": "store_true", "help": help, **options}


def _jobs(what: str, *, default: str) -> Argument:
    does = f"{what}; auto: as many as cores and memory allow (default: {default})"
    return _argument("-j --jobs", "N|auto", does)


def _study(help: str) -> Argument:
    return _argument("study", "STUDY_OR_FOLDER", help, nargs="?")


def _whole_run_id(text: str) -> str:
    """Return the run id for a number, such as 0007 for `7`. Return any other text unchanged.

    A number that is also the name of a folder is returned unchanged, too.
    """
    is_short = text.isascii() and text.isdigit() and not os.path.exists(text)
    return run_id_of(int(text)) if is_short else text


def _count(names: str, metavar: str, help: str, *, least: int = 1, **options: Any) -> Argument:
    """Return an argument of the command line whose value is a whole number.

    Args:
        names: Names of the argument, separated by spaces.
        metavar: Name of its value in the help.
        help: Description, for the help.
        least: Smallest allowed number.
        **options: Further options of `add_argument`.
    """

    def read(text: str) -> int:
        if not (text.isdecimal() and int(text) >= least):
            of_two = ", because a confidence interval needs two seeds" if least == 2 else ""
            why = f"expected a whole number of {least} or more{of_two}; got {text!r}"
            raise argparse.ArgumentTypeError(why)
        return int(text)

    return _argument(names, metavar, help, type=read, **options)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _command(
    does: str, function: Callable[[argparse.Namespace], int], example: str, *arguments: Argument
) -> Command:
    return Command(does=does, function=function, example=example, arguments=arguments)


VERSION = _flag("--version", "print the version")

_INPUT = _argument("-i --input", "PATH", "the research notebook", required=True)
_PARAMETERS = _argument(
    "-p --parameters",
    "PATH",
    "the parameters file (YAML)",
    required=True,
    type=os.path.expanduser,  # A shell does not expand the `~` in `--parameters=~/my.yml`.
)
_JOBS = _jobs("trials at once", default="1, on a cluster as many as it offers")
_KERNEL = _argument(
    "-k --kernel",
    "NAME|PATH",
    "kernel, environment folder or interpreter to use instead of the notebook's kernel",
)
#: Arguments of `run` and `check`.
_OF_SWEEP = (
    _PARAMETERS,
    _JOBS,
    _count("--trials", "N", "total trials of the study, over all calls (default: study.trials)"),
    _argument(
        "--study", "NAME", "name of the study (default: study.name, else the name of the file)"
    ),
    _argument(
        "--storage", "URL", "Optuna's storage (default: an SQLite file in the study's folder)"
    ),
    _argument(
        "--tracking-uri",
        "URI",
        "MLflow (default: MLFLOW_TRACKING_URI, else an SQLite store next to the outputs)",
    ),
    _argument(
        "--set",
        "NAME=VALUE",
        "fix a parameter for this call; may be repeated",
        action="append",
        default=[],
    ),
    _count(
        "--confirm",
        "K",
        "after the search, run the K best trials again on fresh seeds; the means decide",
    ),
    _count(
        "--seeds", "S", "number of fresh seeds for each trial of --confirm (default: 5)", least=2
    ),
    _KERNEL,
    _flag("--cold", "start every kernel anew (kernels: cold of the parameters file)"),
)
_CLUSTER = _argument(
    "--cluster",
    "URL|local:N",
    "run the trials on a Dask cluster: its scheduler, such as tls://host:8786, or N workers on "
    "this machine (default: the section cluster of the parameters file)",
)
_STORAGE = _argument(
    "--storage", "URL", "Optuna's storage, where the study is not in a folder below this one"
)
_ONE_STUDY = _study("the study's name or folder, if there are several studies")
_OUTPUT = (
    _flag("--json", "last line of stdout is one JSON object"),
    _flag("--quiet", "print only what went wrong"),
    _flag("-v --verbose", "print more, such as why a kernel is started and not forked"),
)
_ALLOW_CHANGES = _flag(
    "--allow-changes", "resume a study although notebook, code or space have changed since"
)
#: Arguments of the commands about an existing study.
_OF_STUDY = (
    _STORAGE,
    _argument(
        "--tracking-uri",
        "URI",
        "MLflow with its password, which no study stores (default: MLFLOW_TRACKING_URI)",
    ),
    *_OUTPUT,
)

COMMANDS = {
    "run": _command(
        "sweep a notebook",
        run.run,
        "-i my.ipynb -o './out/my.{run_id}.ipynb' -p my.yml -j 4",
        _INPUT,
        _argument(
            "-o --output",
            "TEMPLATE",
            "executed notebook per trial, such as './out/digits.{run_id}.ipynb'",
            required=True,
        ),
        *_OF_SWEEP,
        _CLUSTER,
        _flag(
            "--yes",
            "with `notebook_hpo.py my.ipynb`: sweep without asking, if it is clear which score "
            "is meant",
        ),
        _argument(
            "--score",
            "NAME",
            "with `notebook_hpo.py my.ipynb`: the score, with :min or :max where its direction "
            "is not known",
        ),
        _flag(
            "--dry-run",
            "with `notebook_hpo.py my.ipynb`: list what could be swept, and run nothing",
        ),
        _argument(
            "--timeout", "DURATION", "wall-clock limit of the sweep: 90s, 15m, 8h", type=_seconds
        ),
        _argument("--events", "FILE", "append one JSON object per event, also to /dev/fd/3"),
        _ALLOW_CHANGES,
        *_OUTPUT,
        VERSION,
    ),
    "init": _command(
        "print a parameters file made from a notebook",
        init.init,
        "init my.ipynb --run > my.yml",
        _INPUT,
        _flag("--run", "run the notebook once as it is, and state the scores that it shows"),
        _KERNEL,
    ),
    "schema": _command(
        "print the JSON schema of the parameters file, for editors",
        init.schema,
        "schema > sweep.schema.json",
    ),
    "check": _command(
        "find mistakes before you pay for a sweep",
        checks.check,
        "check my.ipynb -j 4",
        _INPUT,
        _argument(
            "-o --output",
            "TEMPLATE",
            "where the sweep will write: its disk is checked for free space",
            default="./out/{run_id}.ipynb",
        ),
        *_OF_SWEEP,
        _flag("--dry-run", "only what can be checked without a kernel"),
        *_OUTPUT,
    ),
    "status": _command(
        "print the state of a study, also while it runs",
        studies.status,
        "status out/",
        _study(
            "the study's name, its folder, or a folder up to three above it (default: this folder)"
        ),
        _argument(
            "--sort",
            "NAME",
            "sort ended trials: by an objective, the best first, or by another score or a param, "
            "the smallest first; NaN and null are last",
        ),
        _count(
            "--best", "N", "print only the first N sorted trials (without --sort: by the objective)"
        ),
        *_OF_STUDY,
    ),
    "stop": _command(
        "stop a running trial, or the sweep, from another terminal",
        studies.stop,
        "stop out/digits 0007",
        _argument(
            "targets",
            "[STUDY_OR_FOLDER] [RUN_ID…]",
            "trials to stop, which run again only after `retry`; without any: the whole sweep, "
            "which the same command resumes",
            nargs="*",
            type=_whole_run_id,
        ),
        _flag("--finish", "start no more trials, and let the running ones complete"),
        *_OF_STUDY,
    ),
    "enqueue": _command(
        "add a trial by hand to a study, also while it runs",
        studies.enqueue,
        "enqueue out/digits lr=0.02 --like 0011",
        _argument(
            "targets",
            "[STUDY_OR_FOLDER] NAME=VALUE…",
            "params of the trial; the sampler chooses those that are missing",
            nargs="*",
        ),
        _argument(
            "--like",
            "RUN_ID",
            "a trial, from which all params that are not stated are copied",
            type=_whole_run_id,
        ),
        *_OF_STUDY,
    ),
    "retry": _command(
        "queue failed trials again with the same parameters",
        studies.retry,
        "retry out/digits --failed",
        _argument(
            "targets",
            "[STUDY_OR_FOLDER] [RUN_ID…]",
            "failed or stopped trials to try again, with the same params, seed and checkpoints",
            nargs="*",
            type=_whole_run_id,
        ),
        _flag("--failed", "all failed trials that were not retried yet"),
        *_OF_STUDY,
    ),
    "replay": _command(
        "run trials again as they were, and compare every score",
        studies.replay,
        "replay out/digits.0007.ipynb",
        _argument(
            "targets",
            "EXECUTED_NOTEBOOK | [STUDY_OR_FOLDER] [RUN_ID…]",
            "the executed notebook of a trial, or a study and the run ids of some of its trials",
            nargs="*",
            type=_whole_run_id,
        ),
        _flag("--all", "all trials of the study that completed"),
        _count("--sample", "N", "only N completed trials, evenly spread over the study"),
        _flag("--here", "replay also on a machine without the trials' kernel or GPU"),
        _jobs("replays at once", default="1"),
        *_OF_STUDY,
    ),
    "ablate": _command(
        "find out by how much each param of the best trial improves the score over the notebook's "
        "original value",
        run.ablate,
        "ablate out/digits -j 4",
        _ONE_STUDY,
        _JOBS,
        _CLUSTER,
        _count("--seeds", "S", "number of fresh seeds (default: that of confirm, else 5)", least=2),
        _ALLOW_CHANGES,
        *_OF_STUDY,
    ),
    "diff": _command(
        "print what differs between two trials",
        studies.diff,
        "diff out/digits 0003 0007",
        _argument(
            "targets",
            "[STUDY_OR_FOLDER] RUN_ID RUN_ID",
            "the two trials, and the study's name or folder where several could be meant",
            nargs="+",
            type=_whole_run_id,
        ),
        _STORAGE,
        *_OUTPUT,
    ),
    "ui": _command(
        "serve the comparison page and MLflow's UI of a study, until Ctrl-C",
        studies.ui,
        "ui out/digits",
        _ONE_STUDY,
        _argument(
            "--port",
            "N",
            "port of the page and of MLflow's UI (default: the first free one from 8800)",
            type=int,
        ),
        *_OF_STUDY,
    ),
    "export": _command(
        "write a study's comparison page, its trials as a table, figures, or the code of a trial",
        studies.export,
        "export out/digits --csv digits.csv",
        _ONE_STUDY,
        _argument(
            "--code",
            "RUN_ID",
            "write the notebook and the modules next to it as this trial had them, into "
            "code/RUN_ID in the study's folder",
            type=_whole_run_id,
        ),
        _argument("--csv", "FILE", "one row for each trial, as text"),
        _argument("--parquet", "FILE", "the same with its types"),
        _argument(
            "--table",
            "FORMAT",
            "print a table for a paper, in latex, markdown or csv: mean scores with intervals, of "
            "the confirmed trials, or else by the values of params",
            choices=("latex", "markdown", "csv"),
        ),
        _argument(
            "--by", "NAME[,NAME]", "params whose values are the rows of the table (default: each)"
        ),
        _argument(
            "--figure",
            "FILE",
            "draw the figure of this name: parallel.svg, history.pdf, importances.png, slice.svg",
        ),
        _STORAGE,
        *_OUTPUT,
    ),
    "rebuild": _command(
        "rebuild a study's damaged database from its executed notebooks",
        studies.rebuild,
        "rebuild out/digits",
        _argument("folder", "FOLDER", "the study's folder, or the folder of its outputs"),
        *_OUTPUT,
    ),
    "doctor": _command(
        "describe this machine for a bug report: versions, kernels, GPUs, limits",
        checks.doctor,
        "doctor",
        *_OUTPUT,
    ),
    "mcp": _command(
        "serve sweeps to a coding agent: Model Context Protocol on standard input and output",
        agents.mcp,
        "mcp -p my.yml --budget 60 -j 4",
        _PARAMETERS,
        _count(
            "--budget",
            "N",
            "most trials that all studies in out/agent, next to the parameters file, may have "
            "together, including runs that confirm",
            required=True,
        ),
        _JOBS,
    ),
    "data": _command(
        "push the data of trials to where other machines fetch it",
        data.data,
        "data push -i my.ipynb -p my.yml",
        _argument(
            "action",
            "push",
            "send data.path to data.from as the newest version, which a sweep fetches",
            choices=("push",),
        ),
        _argument(
            "-i --input",
            "PATH",
            "the research notebook; a relative data.path begins in its folder "
            "(default: the folder of the parameters file)",
        ),
        _PARAMETERS,
        *_OUTPUT,
    ),
}
