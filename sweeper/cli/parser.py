"""The commands and their flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import SettingsError
from ..settings.messages import nearest
from . import drafts, replays, run, studies

COMMANDS = (
    *("run", "init", "schema", "status", "stop", "enqueue", "retry"),
    *("replay", "diff", "ui", "export"),
)
#: Commands and flags that are planned and not in this version.
PLANNED_COMMANDS = ("check", "data")
PLANNED_FLAGS = ("--cluster", "--confirm", "--seeds", "--shared")


class _Parser(argparse.ArgumentParser):
    """A parser that raises one message for a wrong command line, instead of printing its usage."""

    def __init__(self, **options: Any) -> None:
        self.flags: list[str] = []
        super().__init__(**options)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument, and remember its flags for messages."""
        self.flags += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **options)

    def error(self, message: str) -> NoReturn:
        """Refuse the command line.

        Raises:
            SettingsError: always.
        """
        problem = message.replace("the following arguments are required", "missing")
        raise SettingsError(f"{problem}; see {self.prog} --help")

    def refuse_rest(self, rest: Sequence[str]) -> None:
        """Refuse words of a command line that no argument takes.

        Raises:
            SettingsError: there is such a word; the text names the first.
        """
        if not rest:
            return
        word = rest[0]
        flag = word.partition("=")[0]
        if flag in PLANNED_FLAGS:
            raise SettingsError(f"{flag} is planned, and not part of version {_version()} yet")
        if word.startswith("-"):
            raise SettingsError(
                f"unknown option {flag!r}; {_nearest_or(flag, self.flags, f'see {self.prog} -h')}"
            )
        self.error(f"nothing is expected at {word!r}")


class _PrintVersion(argparse.Action):
    """Prints the version and exits, as `--help` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"notebook-hpo {_version()}")
        parser.exit()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read a command line; `command` of the result is the function to call.

    Args:
        arguments: the words of the command line; `run` is the command where none is named.

    Raises:
        SettingsError: the command line is wrong; the text is one line with the remedy.
    """
    words = list(arguments) or ["--help"]
    if not words[0].startswith("-"):
        _refuse_unknown(words[0])
    elif words[0] not in ("-h", "--help", "--version"):
        words.insert(0, "run")
    parser, commands = make_parsers()
    options, rest = parser.parse_known_args(words)
    commands[words[0]].refuse_rest(rest)
    return options


def _refuse_unknown(command: str) -> None:
    if command in COMMANDS:
        return
    if command in PLANNED_COMMANDS:
        raise SettingsError(
            f"the command {command!r} is planned, and not part of version {_version()} yet; "
            f"there are: {', '.join(COMMANDS)}"
        )
    if command.endswith(".ipynb"):
        raise SettingsError(f"a notebook is given with -i: -i {command}")
    raise SettingsError(f"unknown command {command!r}; {nearest(command, COMMANDS)}")


def _nearest_or(word: str, known: Sequence[str], otherwise: str) -> str:
    hint = nearest(word, known)
    return hint if hint.startswith("did you mean") else otherwise


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("notebook-hpo")
    except PackageNotFoundError:
        return "unknown: it is not installed"


def make_parsers() -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of the whole command line, and those of its commands."""
    parser = _Parser(
        prog="notebook_hpo.py",
        description="Hyperparameter sweeps over a Jupyter notebook. `run` is the default command.",
    )
    _add_version(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    made: dict[str, _Parser] = {}

    def command(name: str, does: str) -> _Parser:
        described = f"{does[0].upper()}{does[1:]}."
        made[name] = commands.add_parser(name, help=does, description=described)
        return made[name]

    _add_run(command("run", "sweep a notebook"))
    _add_init(command("init", "print a parameters file made from a notebook's parameters cell"))
    schema = command("schema", "print the JSON schema of the parameters file, for editors")
    schema.set_defaults(command=drafts.schema)
    schema.epilog = "Example: notebook_hpo.py schema > sweep.schema.json"
    _add_status(command("status", "print the state of a study, also while it runs"))
    _add_stop(command("stop", "stop a running trial, or the sweep, from another terminal"))
    _add_enqueue(command("enqueue", "add a trial by hand to a study, also while it runs"))
    _add_retry(command("retry", "queue failed trials again with the same parameters"))
    _add_replay(command("replay", "run trials again as they were, and compare every score and step"))
    _add_diff(command("diff", "print what differs between two trials"))
    _add_ui(command("ui", "serve the comparison page and MLflow's UI of a study, until Ctrl-C"))
    _add_export(command("export", "write the comparison page of a study, or its trials as a table"))
    return parser, made


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=run.run)
    parser.epilog = (
        "Example: notebook_hpo.py -i my.ipynb -o './out/my.{run_id}.ipynb' -p my.yml -j 4"
    )
    _add_notebook(parser)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="TEMPLATE",
        help="executed notebook per trial, such as './out/digits.{run_id}.ipynb'",
    )
    parser.add_argument(
        "-p", "--parameters", required=True, metavar="PATH", help="the parameters file (YAML)"
    )
    _add_jobs(parser, "trials at once")
    parser.add_argument(
        "--trials",
        metavar="N",
        help="total trials of the study, over all calls (default: study.trials)",
    )
    parser.add_argument(
        "--study", metavar="NAME", help="name of the study (default: study.name, else the file's)"
    )
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="Optuna's storage (default: an SQLite file in the study's folder)",
    )
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow (default: MLFLOW_TRACKING_URI, else an SQLite store beside the outputs)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="fix a parameter for this call; may be repeated",
    )
    parser.add_argument(
        "--timeout", metavar="DURATION", help="wall-clock limit of the sweep: 90s, 15m, 8h"
    )
    parser.add_argument(
        "-k", "--kernel", metavar="NAME", help="kernel to use instead of the notebook's own"
    )
    parser.add_argument(
        "--cold",
        action="store_true",
        help="start every kernel anew (execution: {kernels: cold} of the parameters file)",
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="go on with a study although notebook, code or space have changed since",
    )
    _add_output(parser)
    _add_version(parser)


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=drafts.init)
    parser.epilog = "Example: notebook_hpo.py init -i my.ipynb > my.yml"
    _add_notebook(parser)


def _add_status(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.status)
    parser.epilog = "Example: notebook_hpo.py status out/"
    parser.add_argument(
        "study",
        metavar="STUDY_OR_FOLDER",
        help="the study's name, its folder, or a folder above it",
    )
    _add_stores_of_study(parser)
    _add_output(parser)


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.diff)
    parser.epilog = "Example: notebook_hpo.py diff out/digits 0003 0007"
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="[STUDY_OR_FOLDER] RUN_ID RUN_ID",
        help="the two trials, and the study's name or folder where several could be meant",
    )
    _add_storage_of_study(parser)
    _add_output(parser)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=replays.replay)
    parser.epilog = "Example: notebook_hpo.py replay out/digits.0007.ipynb"
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="EXECUTED_NOTEBOOK… | [STUDY_OR_FOLDER] [RUN_ID…]",
        help="executed notebooks of trials, or a study and the run ids of some of its trials",
    )
    parser.add_argument(
        "--all", action="store_true", help="all trials of the study that completed or were pruned"
    )
    parser.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="only N of them: the best, and others evenly spread over the study",
    )
    parser.add_argument(
        "--here",
        action="store_true",
        help="on a machine without the trials' kernel or GPU, too",
    )
    _add_jobs(parser, "replays at once")
    parser.add_argument("--cold", action="store_true", help="start every kernel anew")
    _add_stores_of_study(parser)
    _add_output(parser)


def _add_ui(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.ui)
    parser.epilog = "Example: notebook_hpo.py ui out/digits"
    _add_study(parser)
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="port of the page, MLflow's UI behind it (default: the first free from 8800 and 5000)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    _add_stores_of_study(parser)
    _add_output(parser)


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.export)
    parser.epilog = "Example: notebook_hpo.py export out/digits --csv digits.csv"
    _add_study(parser)
    parser.add_argument(
        "--to",
        metavar="FOLDER",
        help="copy the page into this folder, which can be zipped or put on any web server",
    )
    parser.add_argument("--csv", metavar="FILE", help="one row for each trial, as text")
    parser.add_argument("--parquet", metavar="FILE", help="the same with its types")
    _add_storage_of_study(parser)
    _add_output(parser)


def _add_stop(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.stop)
    parser.epilog = "Example: notebook_hpo.py stop out/digits 0007"
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="[STUDY_OR_FOLDER] [RUN_ID…]",
        help="trials to stop for good; none for the whole sweep, which the same command continues",
    )
    parser.add_argument(
        "--finish",
        action="store_true",
        help="start no more trials, and let the running ones come to their end",
    )
    _add_stores_of_study(parser)
    _add_output(parser)


def _add_enqueue(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.enqueue)
    parser.epilog = "Example: notebook_hpo.py enqueue out/digits lr=0.02 --like 0011"
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="[STUDY_OR_FOLDER] NAME=VALUE…",
        help="params of the trial; the sampler chooses those that are missing",
    )
    parser.add_argument("--like", metavar="RUN_ID", help="a trial to take all other params from")
    _add_stores_of_study(parser)
    _add_output(parser)


def _add_retry(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.retry)
    parser.epilog = "Example: notebook_hpo.py retry out/digits --failed"
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="[STUDY_OR_FOLDER] [RUN_ID…]",
        help="failed or stopped trials to try again, with the same params, seed and checkpoints",
    )
    parser.add_argument(
        "--failed", action="store_true", help="all failed trials that were not retried yet"
    )
    _add_stores_of_study(parser)
    _add_output(parser)


def _add_notebook(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i", "--input", required=True, metavar="PATH", help="the research notebook"
    )


def _add_jobs(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "-j",
        "--jobs",
        default="1",
        metavar="N|auto",
        help=f"{what}; auto is as many as cores and memory carry (default: 1)",
    )


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version")


def _add_storage_of_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="Optuna's storage, where the study is not in a folder below this one",
    )


def _add_stores_of_study(parser: argparse.ArgumentParser) -> None:
    _add_storage_of_study(parser)
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow with its password, which no study stores (default: MLFLOW_TRACKING_URI)",
    )


def _add_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "study",
        nargs="?",
        metavar="STUDY_OR_FOLDER",
        help="the study's name or folder, where several could be meant",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="last line of stdout is one JSON object"
    )
    parser.add_argument("--quiet", action="store_true", help="print only what went wrong")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print more, such as where the shared cells end and why",
    )
