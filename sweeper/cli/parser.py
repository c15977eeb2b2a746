"""The commands and their flags."""

from __future__ import annotations

import argparse

from . import drafts, run, studies

COMMANDS = ("run", "init", "schema", "status", "stop", "enqueue", "retry")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; `command` is the function to call."""
    parser = argparse.ArgumentParser(
        prog="notebook_hpo.py",
        description="Hyperparameter sweeps over a Jupyter notebook. `run` is the default command.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, does: str) -> argparse.ArgumentParser:
        described = f"{does[0].upper()}{does[1:]}."
        return commands.add_parser(name, help=does, description=described)

    _add_run(command("run", "sweep a notebook"))
    _add_init(command("init", "print a parameters file made from a notebook's parameters cell"))
    schema = command("schema", "print the JSON schema of the parameters file, for editors")
    schema.set_defaults(command=drafts.schema)
    _add_status(command("status", "state of a study, also while it runs"))
    _add_stop(command("stop", "stop a running trial, or the sweep, from another terminal"))
    _add_enqueue(command("enqueue", "add a trial by hand to a study, also while it runs"))
    _add_retry(command("retry", "queue failed trials again with the same parameters"))
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=run.run)
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
    parser.add_argument(
        "-j", "--jobs", default="1", metavar="N|auto", help="trials at once (default: 1)"
    )
    parser.add_argument("--trials", metavar="N", help="total trials of the study, over all calls")
    parser.add_argument("--study", metavar="NAME", help="default: study.name, else the file's stem")
    _add_storage(parser, "Optuna storage (default: beside outputs)")
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow (default: MLFLOW_TRACKING_URI, else a store beside the outputs)",
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
    _add_talk(parser)


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=drafts.init)
    _add_notebook(parser)


def _add_status(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.status)
    parser.add_argument("study", metavar="STUDY_OR_FOLDER")
    _add_storage(parser, "Optuna storage of the named study")
    _add_talk(parser)


def _add_stop(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.stop)
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
    _add_storage(parser, "Optuna storage of the named study")
    _add_talk(parser)


def _add_enqueue(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.enqueue)
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="[STUDY_OR_FOLDER] NAME=VALUE…",
        help="params of the trial; the sampler chooses those that are not given",
    )
    parser.add_argument(
        "--like", metavar="RUN_ID", help="a trial whose params it has where nothing else is said"
    )
    _add_storage(parser, "Optuna storage of the named study")
    _add_talk(parser)


def _add_retry(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=studies.retry)
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="[STUDY_OR_FOLDER] [RUN_ID…]",
        help="failed or stopped trials to try again, with the same params, seed and checkpoints",
    )
    parser.add_argument(
        "--failed", action="store_true", help="all failed trials that were not retried yet"
    )
    _add_storage(parser, "Optuna storage of the named study")
    _add_talk(parser)


def _add_notebook(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i", "--input", required=True, metavar="PATH", help="the research notebook"
    )


def _add_storage(parser: argparse.ArgumentParser, does: str) -> None:
    parser.add_argument("--storage", metavar="URL", help=does)


def _add_talk(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="last line of stdout is one JSON object"
    )
    parser.add_argument("--quiet", action="store_true", help="say only what went wrong")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
