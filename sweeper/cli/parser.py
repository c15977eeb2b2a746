"""Parse the command line. Refuse a wrong command line with one message."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ..errors import SettingsError
from ..settings.messages import nearest
from ..trials import as_template, is_utf8
from .options import COMMANDS, VERSION, Command

#: Suffixes of notebooks: Jupyter's format, or a script in jupytext's percent format.
_NOTEBOOKS = (".ipynb", ".py")
_USAGE_OF_RUN = (
    "notebook_hpo.py NOTEBOOK [OPTION ...]\n"
    "       notebook_hpo.py -i NOTEBOOK -o TEMPLATE -p PARAMETERS [OPTION ...]"
)


class _Parser(argparse.ArgumentParser):
    """A parser that raises one message for a wrong command line, instead of printing its usage.

    Attributes:
        example: Example of a call of the command. None for the parser of all commands.
    """

    def __init__(self, *, example: str | None = None, **options: Any) -> None:
        super().__init__(epilog=None if example is None else f"Example: {example}", **options)
        self.example = example

    def error(self, message: str) -> NoReturn:
        """Raise an error with an example of a right command line.

        Raises:
            SettingsError: Always.
        """
        problem = message.replace("the following arguments are required", "missing")
        raise SettingsError(f"{problem}; as in: {self.example}" if self.example else problem)


def _refuse_other_encodings(words: Sequence[str]) -> None:
    for word in words:
        if not is_utf8(word):
            raise SettingsError(
                f"{word!r} is not UTF-8, and neither notebooks nor databases can contain such a "
                "name; rename the file or folder"
            )


def _with_notebook_named(command: str, notebook: str, *rest: str) -> list[str]:
    """Return the whole command line for a notebook that is named without the option `-i`.

    `-i` is added, and for `run` and `check` also `-o` and `-p` with their default files. The user's
    options in `rest` have priority, because they come last.
    """
    if command == "init":
        return [command, "-i", notebook, *rest]
    path = Path(notebook)
    has_study = any(word.partition("=")[0] == "--study" for word in rest)
    name = "{study}" if has_study else as_template(path.stem)
    output = f"out/{name}.{{run_id}}.ipynb"
    parameters = str(path.with_suffix(".yml"))
    return [command, "-i", notebook, "-o", output, "-p", parameters, *rest]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Args:
        arguments: Words of the command line. If they name no command, the command is `run`.

    Returns:
        The options. `command` is the function to call.

    Raises:
        SettingsError: The command line is wrong. The message is one line with a remedy.
        SystemExit: The help or the version was requested and printed.
    """
    words = list(arguments) or ["--help"]
    with suppress(FileNotFoundError):  # The working folder was removed.
        _refuse_other_encodings([*words, str(Path.cwd())])
    if "--version" in words:
        from importlib.metadata import version

        print(f"notebook-hpo {version('notebook-hpo')}")
        raise SystemExit
    proposes = False
    if not words[0].startswith("-"):
        if words[0].endswith(_NOTEBOOKS):
            words.insert(0, "run")
        names_notebook = len(words) > 1 and words[1].endswith(_NOTEBOOKS)
        if names_notebook and words[0] in ("run", "init", "check"):
            proposes = words[0] == "run"
            words = _with_notebook_named(*words)
        if words[0] not in COMMANDS:
            raise SettingsError(f"unknown command {words[0]!r}; {_hint(words[0])}")
    elif words[0] not in ("-h", "--help"):
        words.insert(0, "run")
    parser, commands = make_parsers()
    if words[0] not in commands:
        parser.parse_args(words)  # Prints the help, and raises SystemExit.
    command = commands[words[0]]
    if proposes:
        command.example = "notebook_hpo.py my.ipynb -j 4"
    # Words such as run ids may be between options.
    parsed, rest = command.parse_known_intermixed_args(words[1:])
    if rest:
        _refuse(rest[0], command, COMMANDS[words[0]])
    parsed.proposes = proposes
    return parsed


def _hint(word: str) -> str:
    """Return advice for a message about a word that is no command, such as a similar command."""
    if os.path.isfile(f"{word}.ipynb"):
        return f"did you mean the notebook '{word}.ipynb'?"
    if word in ("resume", "continue"):
        return "the command that began a study also resumes it"
    return nearest(word, COMMANDS)


def _refuse(word: str, parser: _Parser, command: Command) -> NoReturn:
    """Refuse a word that the parser of a command does not know.

    Raises:
        SettingsError: Always.
    """
    flag = word.partition("=")[0]
    if not flag.startswith("-"):
        parser.error(f"unexpected argument {word!r}")
    names = [name for names, _ in command.arguments for name in names]
    flags = ["--help", *(name for name in names if name.startswith("--"))]
    # Import this only for unknown options, because the import takes as long as all other work of
    # this module.
    from ..settings.sections import StudySettings

    key = flag.lstrip("-").replace("-", "_")
    if key in StudySettings.model_fields and flag not in flags:
        raise SettingsError(f"unknown option {flag!r}; set study.{key} in the parameters file")
    raise SettingsError(f"unknown option {flag!r}; {nearest(flag, flags)}")


def make_parsers() -> tuple[_Parser, dict[str, _Parser]]:
    """Return the parser of the whole command line, and the parser of each command by name."""
    parser = _Parser(
        prog="notebook_hpo.py",
        usage="notebook_hpo.py NOTEBOOK [OPTION ...]\n       notebook_hpo.py COMMAND ...",
        description="Hyperparameter sweeps over a Jupyter notebook. With a notebook in place of a "
        "command, it runs once, and you choose the sweep. `run -h` lists the options.",
    )
    names, options = VERSION
    parser.add_argument(*names, **options)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    made: dict[str, _Parser] = {}
    for name, command in COMMANDS.items():
        made[name] = commands.add_parser(
            name,
            help=command.does,
            description=f"{command.does[0].upper()}{command.does[1:]}.",
            example=f"notebook_hpo.py {command.example}",
            usage=_USAGE_OF_RUN if name == "run" else None,
        )
        made[name].set_defaults(command=command.function)
        for names, options in command.arguments:
            made[name].add_argument(*names, **options)
    return parser, made
