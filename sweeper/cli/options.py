"""The options of each command, with an example."""

from __future__ import annotations

import argparse
from typing import Any

from . import checks, data, init, replays, run, studies


class _PrintVersion(argparse.Action):
    """Prints the version and exits, as `--help` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"notebook-hpo {version()}")
        parser.exit()


def version() -> str:
    """The installed version, for people."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("notebook-hpo")
    except PackageNotFoundError:
        return "unknown: it is not installed"


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options of `run`."""
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
    _add_sweep(parser)
    parser.add_argument(
        "--cluster",
        metavar="URL|local:N",
        help="run the trials on a Dask cluster: its scheduler, such as tls://host:8786, or N "
        "workers on this machine (default: the section cluster of the parameters file)",
    )
    parser.add_argument(
        "--timeout", metavar="DURATION", help="wall-clock limit of the sweep: 90s, 15m, 8h"
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="go on with a study although notebook, code or space have changed since",
    )
    _add_output(parser)
    add_version(parser)


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check`."""
    parser.set_defaults(command=checks.check)
    parser.epilog = "Example: notebook_hpo.py check -i my.ipynb -p my.yml -j 4"
    _add_notebook(parser)
    parser.add_argument(
        "-o",
        "--output",
        default="./out/{run_id}.ipynb",
        metavar="TEMPLATE",
        help="where the sweep will write, for the checks of disk and MLflow",
    )
    _add_sweep(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only what can be checked without a kernel"
    )
    _add_output(parser)


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    """Add what a sweep and its check have in common."""
    parser.add_argument(
        "-p", "--parameters", required=True, metavar="PATH", help="the parameters file (YAML)"
    )
    _add_jobs(parser, "trials at once", default="1, on a cluster as many as it offers")
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
        "--confirm",
        metavar="K",
        help="after the search run the K best again on fresh seeds; their means decide",
    )
    parser.add_argument(
        "--seeds", metavar="S", help="on how many fresh seeds --confirm runs each (default: 5)"
    )
    parser.add_argument(
        "-k", "--kernel", metavar="NAME", help="kernel to use instead of the notebook's own"
    )
    parser.add_argument(
        "--cold",
        action="store_true",
        help="start every kernel anew (kernels: cold of the parameters file)",
    )


def add_init(parser: argparse.ArgumentParser) -> None:
    """Add the options of `init`."""
    parser.set_defaults(command=init.init)
    parser.epilog = "Example: notebook_hpo.py init -i my.ipynb > my.yml"
    _add_notebook(parser)


def add_status(parser: argparse.ArgumentParser) -> None:
    """Add the options of `status`."""
    parser.set_defaults(command=studies.status)
    parser.epilog = "Example: notebook_hpo.py status out/"
    parser.add_argument(
        "study",
        nargs="?",
        metavar="STUDY_OR_FOLDER",
        help="the study's name, its folder, or a folder above it (default: all studies in or "
        "below this folder)",
    )
    _add_stores_of_study(parser)
    _add_output(parser)


def add_diff(parser: argparse.ArgumentParser) -> None:
    """Add the options of `diff`."""
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


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add the options of `replay`."""
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
    _add_stores_of_study(parser)
    _add_output(parser)


def add_ui(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ui`."""
    parser.set_defaults(command=studies.ui)
    parser.epilog = "Example: notebook_hpo.py ui out/digits"
    _add_study(parser)
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="port of the page and of MLflow's UI (default: the first free one from 8800)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    _add_stores_of_study(parser)
    _add_output(parser)


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options of `export`."""
    parser.set_defaults(command=studies.export)
    parser.epilog = "Example: notebook_hpo.py export out/digits --csv digits.csv"
    _add_study(parser)
    parser.add_argument(
        "--to",
        metavar="FOLDER",
        help="copy the page into this folder, which can be zipped or put on any web server; with "
        "--code, write the code into it (default: code/RUN_ID in the study's folder)",
    )
    parser.add_argument(
        "--code",
        metavar="RUN_ID",
        help="write the notebook and the modules beside it as this trial had them",
    )
    parser.add_argument("--csv", metavar="FILE", help="one row for each trial, as text")
    parser.add_argument("--parquet", metavar="FILE", help="the same with its types")
    _add_storage_of_study(parser)
    _add_output(parser)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the options of `data`."""
    parser.set_defaults(command=data.data)
    parser.epilog = "Example: notebook_hpo.py data push -i my.ipynb -p my.yml"
    parser.add_argument(
        "action",
        choices=("push", "fetch"),
        metavar="push|fetch",
        help="push: put data.path at data.from, as its newest version; fetch: have here what a "
        "sweep would fetch",
    )
    parser.add_argument(
        "-i",
        "--input",
        metavar="PATH",
        help="the research notebook, in whose folder a relative data.path begins (default: the "
        "folder of the parameters file)",
    )
    parser.add_argument(
        "-p", "--parameters", required=True, metavar="PATH", help="the parameters file (YAML)"
    )
    _add_output(parser)


def add_stop(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stop`."""
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


def add_enqueue(parser: argparse.ArgumentParser) -> None:
    """Add the options of `enqueue`."""
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


def add_retry(parser: argparse.ArgumentParser) -> None:
    """Add the options of `retry`."""
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


def _add_jobs(parser: argparse.ArgumentParser, what: str, *, default: str = "1") -> None:
    parser.add_argument(
        "-j",
        "--jobs",
        metavar="N|auto",
        help=f"{what}; auto is as many as cores and memory carry (default: {default})",
    )


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
        help="print more, such as why a kernel is started and not forked",
    )


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add `--version`."""
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version")
