"""A first sweep of a notebook without a parameters file: proposed, kept as a file, asked for."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import OutputError, SettingsError, first_line
from ..files import write_atomically
from .console_output import ConsoleOutput
from .run_options import RunOptions

#: A first look at a notebook; `init` drafts a longer sweep.
_TRIALS = 12


def propose(options: RunOptions, console: ConsoleOutput) -> None:
    """Draft a parameters file where none is named and there is none, show it, and ask for a key.

    Raises:
        NotebookError: there is nothing to sweep, or no score.
        OutputError: the file cannot be written.
        SettingsError: nobody is there to be asked; the file is kept.
    """
    file = Path(options.parameters)
    if not options.proposes or file.exists():
        return
    from ..drafting.draft import draft
    from ..notebooks.research import ResearchNotebook

    notebook = ResearchNotebook(options.input)
    text = draft(notebook, trials=_TRIALS, needs_score=True)
    try:
        write_atomically(file, text)
    except OSError as error:
        raise OutputError(f"{file}: cannot be written: {first_line(error)}") from error
    sections = (part.splitlines() for part in text.split("\n\n"))
    shown = [part for part in sections if part[0] in ("objective:", "space:")]
    lines = [f"  {line}" for part in shown for line in part if not line.lstrip().startswith("#")]
    for line in [
        f"{notebook.display_name}: {_TRIALS} trials of this sweep, kept in {file} for edits:",
        *lines,
        f"  the executed notebooks: {options.output}",
    ]:
        console.line(line)
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise SettingsError(
            f"{file} was written, and nobody is there to be asked: give the same command again, or "
            "--yes"
        )
    console.line("Enter begins; Ctrl-C leaves, to edit the file first")
    sys.stdin.readline()
