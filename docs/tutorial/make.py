"""Make the tutorial: run every command of its page, and write down what each of them prints.

    uv run python docs/tutorial/make.py

The page `README.md` is the program. Its blocks are marked by a comment in the line above them:

- `cell`: a code cell of the notebook `simclr.ipynb`,
- `file: NAME`: the content of a file,
- `run`: commands behind `$ `, each followed by what it has printed.

All commands run one after the other in a new folder. `--small` makes each sweep a short one, for
the tests, and changes neither page nor notebook. Format the page first: `ruff format docs`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"
NOTEBOOK = "simclr.ipynb"
_BLOCK = re.compile(
    r"^<!-- (cell|run|file: \S+) -->\n```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
#: What makes sweeps short, as pairs of a text and its replacement.
_SMALL = [
    ("epochs = 12", "epochs = 2"),
    ("order[:1400]", "order[:256]"),
    ("study:\n  trials: 20", "study:\n  trials: 2"),
    ("--trials 22", "--trials 3"),
    (" -j 2 --yes", " -j 2 --yes --trials 2"),
    ("--confirm 2 --seeds 3", "--confirm 1 --seeds 2"),
]
#: A line about one trial, of a sweep or of `status`.
_OF_A_TRIAL = re.compile(r"(\[[ \dms.h]+\] \d{4} |  \d{4}  )")
#: Lines about trials that are kept at the beginning and at the end of a sweep.
_FIRST, _LAST = 4, 3


class Tutorial:
    """The page, and the folder in which its commands run.

    Attributes:
        folder: The folder of the next command.
    """

    def __init__(self, folder: Path, *, is_small: bool) -> None:
        self.folder = folder
        self._is_small = is_small

    def run(self, page: str) -> str:
        """Run the page. Return it with what its commands have printed."""
        notebook_at = self.folder / NOTEBOOK
        nbformat.write(notebook(self._short(page)), notebook_at)
        return _BLOCK.sub(self._block, page)

    def _block(self, match: re.Match[str]) -> str:
        kind, language, content = match.groups()
        if kind.startswith("file: "):
            (self.folder / kind.removeprefix("file: ")).write_text(self._short(content), "utf-8")
        if kind != "run":
            return match[0]
        commands = [line[2:] for line in content.splitlines() if line.startswith("$ ")]
        content = "".join(f"$ {command}\n{self._output(command)}" for command in commands)
        return f"<!-- {kind} -->\n```{language}\n{content}```"

    def _output(self, command: str) -> str:
        """Run a command in a shell. Return what it has printed."""
        sys.stderr.write(f"$ {command}\n")
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": sys.prefix,
        }
        place = self.folder / ".place"
        script = f"{self._short(command)}\ncode=$?\npwd > {shlex.quote(str(place))}\nexit $code"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        sys.stderr.write(f"{done.stdout}\n")
        if done.returncode != 0:
            raise SystemExit(f"{command} has ended with {done.returncode}:\n{done.stdout}")
        self.folder = Path(place.read_text("utf-8").strip())
        place.unlink()
        return "".join(f"{line}\n" for line in shortened(done.stdout.rstrip().splitlines()))

    def _short(self, text: str) -> str:
        for long, short in _SMALL if self._is_small else []:
            text = text.replace(long, short)
        return text


def notebook(page: str) -> nbformat.NotebookNode:
    """Return the notebook whose cells the page shows."""
    sources = [content.rstrip("\n") for kind, _, content in _BLOCK.findall(page) if kind == "cell"]
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{n}") for n, source in enumerate(sources)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made: nbformat.NotebookNode = nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": kernel}
    )
    return made


def shortened(lines: list[str]) -> list[str]:
    """Return the lines of a sweep without most of its trials."""
    of_trials = [number for number, line in enumerate(lines) if _OF_A_TRIAL.match(line)]
    left_out = set(of_trials[_FIRST:-_LAST])
    kept: list[str] = []
    for number, line in enumerate(lines):
        if number not in left_out:
            kept.append(line)
        elif kept[-1] != "…":
            kept.append("…")
    return kept


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file next to its place, and move it there."""
    part = path.with_name(f"{path.name}.part")
    write(part)
    part.replace(path)


def main() -> None:
    """Make the page and the notebook."""
    parser = argparse.ArgumentParser(description="Run the tutorial.")
    parser.add_argument("--small", action="store_true", help="short sweeps; change no file")
    parser.add_argument("--keep", type=Path, help="run in this folder, and keep it")
    options = parser.parse_args()
    page = PAGE.read_text("utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary)) / "simclr"
        folder.mkdir(parents=True)
        made = Tutorial(folder, is_small=options.small).run(page)
    if not options.small:
        replace(PAGE, lambda part: part.write_text(made, "utf-8"))
        replace(FOLDER / NOTEBOOK, lambda part: nbformat.write(notebook(page), part))


if __name__ == "__main__":
    main()
