"""The command line: which commands there are, and one message for a wrong one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import SettingsError
from ..settings.messages import nearest
from . import init, options

COMMANDS = (
    *("run", "init", "schema", "check", "status", "stop", "enqueue", "retry"),
    *("replay", "diff", "ui", "export", "data"),
)


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
        flag = rest[0].partition("=")[0]
        if not flag.startswith("-"):
            self.error(f"nothing is expected at {rest[0]!r}")
        raise SettingsError(f"unknown option {flag!r}; {nearest(flag, self.flags)}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read a command line; `command` of the result is the function to call.

    Args:
        arguments: the words of the command line; `run` is the command where none is named.

    Raises:
        SettingsError: the command line is wrong; the text is one line with the remedy.
    """
    words = list(arguments) or ["--help"]
    if not words[0].startswith("-"):
        if words[0].endswith(".ipynb"):
            raise SettingsError(f"a notebook is given with -i: -i {words[0]}")
        if words[0] not in COMMANDS:
            raise SettingsError(f"unknown command {words[0]!r}; {nearest(words[0], COMMANDS)}")
    elif words[0] not in ("-h", "--help", "--version"):
        words.insert(0, "run")
    parser, commands = make_parsers()
    parsed, rest = parser.parse_known_args(words)
    commands[words[0]].refuse_rest(rest)
    return parsed


def make_parsers() -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of the whole command line, and those of its commands."""
    parser = _Parser(
        prog="notebook_hpo.py",
        description="Hyperparameter sweeps over a Jupyter notebook. `run` is the default command.",
    )
    options.add_version(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    made: dict[str, _Parser] = {}

    def command(name: str, does: str) -> _Parser:
        described = f"{does[0].upper()}{does[1:]}."
        made[name] = commands.add_parser(name, help=does, description=described)
        return made[name]

    options.add_run(command("run", "sweep a notebook"))
    options.add_init(
        command("init", "print a parameters file made from a notebook's parameters cell")
    )
    schema = command("schema", "print the JSON schema of the parameters file, for editors")
    schema.set_defaults(command=init.schema)
    schema.epilog = "Example: notebook_hpo.py schema > sweep.schema.json"
    options.add_check(command("check", "find out what is wrong before a sweep is paid for"))
    options.add_status(command("status", "print the state of a study, also while it runs"))
    options.add_stop(command("stop", "stop a running trial, or the sweep, from another terminal"))
    options.add_enqueue(command("enqueue", "add a trial by hand to a study, also while it runs"))
    options.add_retry(command("retry", "queue failed trials again with the same parameters"))
    options.add_replay(command("replay", "run trials again as they were, and compare every score"))
    options.add_diff(command("diff", "print what differs between two trials"))
    options.add_ui(
        command("ui", "serve the comparison page and MLflow's UI of a study, until Ctrl-C")
    )
    options.add_export(
        command(
            "export",
            "write the comparison page of a study, its trials as a table, or the code of one",
        )
    )
    options.add_data(command("data", "push the data of trials, or fetch it before a sweep"))
    return parser, made
