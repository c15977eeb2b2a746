"""Check that other people's notebooks give the same results in forked kernels as in started ones.

    uv run --with plotly --with ipywidgets --with scrapbook benchmarks/foreign.py [CLONES]

CLONES is a folder with clones of repositories as `owner/name`, by default `data/foreign`. Missing
repositories are cloned from GitHub. Each notebook is swept twice by the real command with the same
params and seeds: once with kernels that are forked from a process which has done the imports
("warm"), and once with `--cold`, which starts each kernel like any Jupyter kernel. Scores must be
equal to the last bit. Outputs must be equal cell by cell, except for times and memory addresses. If
they differ, the notebook is swept with `--cold` once more, which shows whether its results can be
reproduced at all. The exit code is 1 if forking changed a result of a notebook, if none of its
trials was forked, or if one of them did not complete. Of a notebook that also fails in Jupyter,
only changed results count.

    benchmarks/foreign.py --only micrograd       # notebooks whose repository or path contains this
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from foreign_notebooks import NOTEBOOKS, Foreign
from nbformat import NotebookNode

from sweeper.notebooks.compare import Execution, compare
from sweeper.notebooks.reading import read_notebook

ROOT = Path(__file__).resolve().parent.parent
SEED = 7
_NO_NUMBERS: Mapping[str, Any] = {"scores": {}, "series": {}}
#: Larger files of a repository, such as weights, films and archives, are not copied (chosen).
_LARGEST_BYTES = 5_000_000


class NotRunnableError(Exception):
    """A notebook cannot be swept here: its repository or a package is missing, or it changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The results of one sweep of a notebook.

    Attributes:
        trials: Trials in the format of `--json`, by run id.
        notebooks: Paths of the executed notebooks, by run id.
        wall_s: Wall time of the whole command in seconds.
        ending: Exit code, and the message of the first trial that has one.
    """

    trials: Mapping[str, Mapping[str, Any]]
    notebooks: Mapping[str, Path]
    wall_s: float
    ending: str

    def ways(self) -> str:
        """Return how kernels were made, as text for the table.

        The text has the number of trials in forked kernels, the number of trials with shared cells
        (which run once for several trials), and how the sweep proved that forking changes nothing.
        """
        noted = [_noted(path) for path in self.notebooks.values()]
        forked = sum(note.get("kernel") == "warm" for note in noted)
        shared = sum(bool(note.get("shared_cells")) for note in noted)
        proofs = sorted({str(note["proof"]) for note in noted if note.get("proof") is not None})
        return f"{forked} / {shared}" + (f" ({', '.join(proofs)})" if proofs else "")


def _noted(path: Path) -> Mapping[str, Any]:
    noted: Mapping[str, Any] = json.loads(path.read_text())["metadata"].get("sweeper", {})
    return noted


def main() -> int:
    """Compare the notebooks, and print the table and the differences. Return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clones", type=Path, nargs="?", default=ROOT / "data" / "foreign")
    parser.add_argument(
        "--only", default="", help="notebooks whose repository or path contains this"
    )
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for one sweep")
    parser.add_argument("--keep", type=Path, help="where executed notebooks are left")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # `finished` then ends its sweep.
    chosen = [one for one in NOTEBOOKS if options.only in f"{one.repo}/{one.path}"]
    needs = sorted({need for one in chosen for need in one.needs})
    if missing := [need for need in needs if importlib.util.find_spec(need) is None]:
        print(f"not installed, so some are left out: {', '.join(missing)}", file=sys.stderr)
    print(
        "| notebook | trials | equal scores | equal outputs | forked / shared | warm s | cold s |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    changed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="foreign-") as scratch:
        folder = options.keep.resolve() if options.keep else Path(scratch)
        for foreign in chosen:
            try:
                row, found = compared(foreign, folder, options)
            except NotRunnableError as error:
                row, found = f"| {name_of(foreign)} | – | {error} | | | | |", []
            print(row, flush=True)
            for line in found:
                print(f"{name_of(foreign)}: {line}", file=sys.stderr)
            changed += found
    return 1 if changed else 0


def compared(foreign: Foreign, folder: Path, options: argparse.Namespace) -> tuple[str, list[str]]:
    """Sweep a notebook with forked and with fresh kernels, and compare the results.

    Args:
        foreign: The notebook.
        folder: Folder for copies of notebooks and for results.
        options: Options of the command line.

    Returns:
        The notebook's row of the table, and lines about what forking has changed.

    Raises:
        NotRunnableError: The notebook cannot be swept here.
    """
    if missing := [need for need in foreign.needs if importlib.util.find_spec(need) is None]:
        raise NotRunnableError(f"needs {', '.join(missing)}")
    clone = cloned(foreign.repo, options.clones)
    place = folder / _slug(foreign)
    ran = {way: swept(foreign, clone, place, way, options) for way in ("cold", "warm")}
    cold, warm = ran["cold"], ran["warm"]
    scores = list(_unequal_scores(cold, warm, foreign.tolerance))
    outputs = list(_unequal_outputs(cold, warm))
    note = ""
    if scores or outputs:
        # Find the differences that also appear between two sweeps without forking.
        again = swept(foreign, clone, place, "cold again", options)
        by_itself = list(_unequal_scores(cold, again, foreign.tolerance))
        if by_itself:
            note, scores = " (nor cold to cold)", []
        unsteady = {where(line) for line in _unequal_outputs(cold, again)}
        outputs = [line for line in outputs if where(line) not in unsteady]
    completed = sum(trial["state"] == "completed" for trial in warm.trials.values())
    row = [
        name_of(foreign),
        f"{completed} of {options.trials}" + (" (it fails)" if foreign.fails else ""),
        f"no{note}" if scores or note else "yes",
        f"no, {len(outputs)} differ" if outputs else "yes",
        warm.ways(),
        f"{warm.wall_s:.0f}",
        f"{cold.wall_s:.0f}",
    ]
    if completed != options.trials and not foreign.fails:
        scores.append(f"not all trials completed: warm {warm.ending}; cold {cold.ending}")
    if warm.ways().startswith("0 ") and not foreign.fails:
        scores.append("no trial was forked; its notebooks have the reason (--keep)")
    return f"| {' | '.join(row)} |", [*scores, *outputs]


def _unequal_scores(expected: Ran, found: Ran, tolerance: float) -> Iterator[str]:
    for run_id in sorted({*expected.trials, *found.trials}):
        theirs, ours = expected.trials.get(run_id, {}), found.trials.get(run_id, {})
        if theirs.get("params") != ours.get("params"):
            yield f"{run_id}: params {ours.get('params')} instead of {theirs.get('params')}"
        if theirs.get("state") != ours.get("state"):
            yield f"{run_id}: {ours.get('state')} instead of {theirs.get('state')}"
        scores = [trial.get("scores") or {} for trial in (theirs, ours)]
        for name in sorted({*scores[0], *scores[1]}):
            right, value = (float(each.get(name, math.nan)) for each in scores)
            if repr(right) != repr(value) and not (
                tolerance and math.isclose(right, value, rel_tol=tolerance)
            ):
                yield f"{run_id}: {name} is {value!r} instead of {right!r}"


def _unequal_outputs(expected: Ran, found: Ran) -> Iterator[str]:
    for run_id in sorted({*expected.notebooks} & {*found.notebooks}):
        seen = [
            Execution(cells=read_notebook(ran.notebooks[run_id]).cells, **_NO_NUMBERS)
            for ran in (expected, found)
        ]
        for it in compare(*seen).outputs:
            yield f"{run_id}: cell {it.cell}: {it}"


def where(line: str) -> str:
    """Return the cell that a line about a difference in the outputs names, such as `cell 3`."""
    return line.split(": ")[1]


# --- one sweep ----------------------------------------------------------------------------------


def swept(foreign: Foreign, clone: Path, place: Path, way: str, options: argparse.Namespace) -> Ran:
    """Run the sweep's command on a fresh copy of the repository, always at the same path.

    Args:
        foreign: The notebook.
        clone: Folder of the repository's clone.
        place: Folder for the copy and the results.
        way: `warm` for forked kernels, otherwise the command gets `--cold`.
        options: Options of the command line.

    Raises:
        NotRunnableError: No trial has run.
    """
    results = place / way
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    notebook = fresh_copy(foreign, clone, place / "copy")
    parameters = place / "parameters.yml"
    study = {"name": _slug(foreign), "seed": SEED, "trials": options.trials, "sampler": "random"}
    file = {
        "study": {**study, "stop_after_failures": options.trials + 1},
        "objective": {foreign.objective: "minimize"},
        "space": foreign.space,
        **({"scores": foreign.scores} if foreign.scores else {}),
    }
    parameters.write_text(json.dumps(file))
    command = [sys.executable, str(ROOT / "notebook_hpo.py"), "-i", str(notebook)]
    command += ["-o", str(results / "{run_id}.ipynb"), "-p", str(parameters)]
    command += ["-j", str(options.jobs), "--json"] + ([] if way == "warm" else ["--cold"])
    command += ["--study", f"{study['name']} {way}"]
    # One MLflow store for all sweeps, because it takes seconds to create a store.
    command += ["--tracking-uri", f"sqlite:///{place.parent}/mlflow.db"]
    started_s = time.monotonic()
    output, complaint, code = finished(command, cwd=place, limit_s=options.limit)
    took_s = time.monotonic() - started_s
    lines = output.splitlines()
    result = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {"trials": []}
    if not result["trials"]:
        last = complaint.strip().splitlines() or ["nothing"]
        raise NotRunnableError(f"{way}, exit code {code}: {last[-1][:200]}")
    trials = {trial["run_id"]: trial for trial in result["trials"]}
    notebooks = {run_id: results / f"{run_id}.ipynb" for run_id in trials}
    notebooks = {run_id: path for run_id, path in notebooks.items() if path.exists()}
    messages = [_noted(path).get("message") for path in notebooks.values()]
    reason = next((message for message in messages if message), "no reason given")
    return Ran(
        trials=trials,
        notebooks=notebooks,
        wall_s=took_s,
        ending=f"exit code {code}, {reason[:200]}",
    )


def finished(command: Sequence[str], *, cwd: Path, limit_s: float) -> tuple[str, str, int]:
    """Run a command, and return its stdout, its stderr and its exit code.

    Args:
        command: Words of the command.
        cwd: Folder in which it runs.
        limit_s: Seconds after which it is ended.
    """
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )
    try:
        output, complaint = running.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        running.terminate()  # At SIGTERM, the sweep ends its kernels itself.
        output, complaint = running.communicate()
        complaint += f"\nit did not end within {limit_s:.0f} s"
    finally:
        running.terminate()
    return output, complaint, running.returncode


def fresh_copy(foreign: Foreign, clone: Path, copy: Path) -> Path:
    """Copy the repository, and prepare the notebook in the copy for a sweep.

    Returns:
        Path of the prepared notebook.

    Raises:
        NotRunnableError: The notebook is not the version for which the entry in `NOTEBOOKS` was
            written.
    """
    shutil.rmtree(copy, ignore_errors=True)
    notebook = copy / foreign.path
    shutil.copytree(clone, copy, ignore=_unneeded, symlinks=True)
    notebook.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(prepared(foreign, notebook), str(notebook))
    if foreign.has_digits:
        write_digits(notebook.parent / "data" / "MNIST" / "raw")
    return notebook


def prepared(foreign: Foreign, path: Path) -> NotebookNode:
    """Return the notebook with a parameters cell, its edits, and a last cell that sets the score.

    Raises:
        NotRunnableError: The notebook is not the version for which the entry in `NOTEBOOKS` was
            written.
    """
    v4 = nbformat.v4
    if not path.exists():
        raise NotRunnableError("there is no such notebook in the clone")
    node = nbformat.read(str(path), as_version=4)
    if foreign.until:
        ends = [i for i, cell in enumerate(node.cells) if foreign.until in cell.source]
        if not ends:
            raise NotRunnableError(f"no cell holds {foreign.until!r}")
        node.cells = node.cells[: ends[0]]
    node.cells = [
        cell
        for cell in node.cells
        if cell.cell_type != "code" or not any(text in cell.source for text in foreign.leave_out)
    ]
    for old, new in foreign.edits:
        with_it = [c for c in node.cells if c.cell_type == "code" and old in c.source]
        if not with_it:
            raise NotRunnableError(f"no cell holds {old!r}")
        for cell in with_it:
            cell.source = cell.source.replace(old, new)
    if not any("parameters" in cell.metadata.get("tags", []) for cell in node.cells):
        first = "\n".join(f"{name} = {example(of)!r}" for name, of in foreign.space.items())
        tagged = v4.new_code_cell(first, metadata={"tags": ["parameters"]})
        node.cells.insert(0, tagged)
    if foreign.score:
        node.cells.append(v4.new_code_cell(f"score = {foreign.score}"))
    for cell in node.cells:
        cell.pop("id", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    node.nbformat, node.nbformat_minor = 4, 4
    node.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "3"}
    prepared: NotebookNode = node
    return prepared


def example(dimension: Any) -> Any:
    """Return one value of a dimension in the form of a parameters file: its least or first."""
    return dimension["low"] if isinstance(dimension, Mapping) else dimension[0]


def cloned(repo: str, clones: Path) -> Path:
    """Return the folder of a repository's clone. Clone the repository if the folder is missing.

    Raises:
        NotRunnableError: The folder is missing, and the repository cannot be cloned from GitHub.
    """
    clone: Path = clones.resolve() / repo
    if not clone.exists():
        url = f"https://github.com/{repo}.git"
        done = subprocess.run(
            ["git", "clone", "--quiet", "--depth", "1", url, str(clone)],
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode:
            raise NotRunnableError(f"no clone: {done.stderr.strip().splitlines()[-1]}")
    return clone


def _unneeded(folder: str, names: Sequence[str]) -> set[str]:
    large = {
        name
        for name in names
        if (path := Path(folder) / name).is_file() and path.stat().st_size > _LARGEST_BYTES
    }
    return large | ({".git"} & set(names))


def write_digits(folder: Path) -> None:
    """Write 1,400 of scikit-learn's digits in MNIST's format, so that nothing is downloaded."""
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.kron(digits.images, np.ones((3, 3)))  # 24 pixels wide
    images = np.pad(images * (255 / 16), ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
    folder.mkdir(parents=True)
    for prefix, part in (("train", slice(0, 1000)), ("t10k", slice(1000, 1400))):
        shape = images[part].shape
        for name, header, data in (
            ("images-idx3", struct.pack(">4i", 2051, *shape), images[part]),
            ("labels-idx1", struct.pack(">2i", 2049, shape[0]), digits.target[part]),
        ):
            content = header + data.astype(np.uint8).tobytes()
            (folder / f"{prefix}-{name}-ubyte").write_bytes(content)


def name_of(foreign: Foreign) -> str:
    """Return the name of a notebook in the table: repository and file."""
    return f"{foreign.repo.split('/')[-1]}: {Path(foreign.path).stem}"


def _slug(foreign: Foreign) -> str:
    kept = (c if c.isalnum() else "-" for c in f"{foreign.repo}-{foreign.path}".lower())
    return "".join(kept)


if __name__ == "__main__":
    sys.exit(main())
