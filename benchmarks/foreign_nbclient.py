"""Do other people's notebooks look as nbclient leaves them, in every kind of kernel?

    PYTHONPATH=tests uv run --with plotly --with ipywidgets --with scrapbook \\
        benchmarks/foreign_nbclient.py [CLONES] [--kernelspec NAME]

The notebooks of `foreign.py`, each executed in a started kernel, in a forked one and in one that was
forked after the shared cells, and by nbclient in a kernel of the same kernelspec. Outputs are
compared cell by cell, times and addresses aside. Where any differs, nbclient runs the notebook once
more: a cell in which its two runs differ does not count. Exit code 1 says that something differed.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from foreign import ROOT, NotRunnableError, cloned, example, fresh_copy, name_of, where
from foreign_notebooks import NOTEBOOKS, Foreign
from foreign_outputs import Seen, differences
from kernels_alone import ENVIRONMENT, kernel_pool, run_alone, share_cells
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from sweeper.kernels import KernelPool, Way
from sweeper.kernels.specs import command_of


def main() -> int:
    """Compare, and print the table and the differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clones", type=Path, nargs="?", default=ROOT / "data" / "foreign")
    parser.add_argument("--kernelspec", metavar="NAME", default="python3")
    parser.add_argument("--only", default="", help="those whose repository or path contains this")
    options = parser.parse_args()
    chosen = [one for one in NOTEBOOKS if options.only in f"{one.repo}/{one.path}"]
    missing = not_importable(options.kernelspec, sorted({n for one in chosen for n in one.needs}))
    if missing:
        print(f"not installed, so some are left out: {', '.join(missing)}", file=sys.stderr)
    print("| notebook | kernels | equal outputs | s |\n|---|---|---|---|", flush=True)
    has_differed = False
    with tempfile.TemporaryDirectory(prefix="foreign-") as scratch:
        for foreign in chosen:
            started_s = time.monotonic()
            try:
                if lacking := [need for need in foreign.needs if need in missing]:
                    raise NotRunnableError(f"needs {', '.join(lacking)}")
                clone = cloned(foreign.repo, options.clones)
                kinds, found = compared(foreign, clone, Path(scratch), options.kernelspec)
                row = [", ".join(kinds), f"no, {len(found)} differ" if found else "yes"]
            except NotRunnableError as error:
                row, found = ["–", str(error)], []
            took = f"{time.monotonic() - started_s:.0f}"
            print(f"| {' | '.join([name_of(foreign), *row, took])} |", flush=True)
            for line in found:
                print(f"{name_of(foreign)}: {line}", file=sys.stderr, flush=True)
            has_differed = has_differed or bool(found)
    return 1 if has_differed else 0


def not_importable(kernelspec: str, modules: Sequence[str]) -> Sequence[str]:
    """Those of the modules that the kernels' environment does not have."""
    code = (
        "import importlib.util, json, sys\n"
        "print(json.dumps([m for m in sys.argv[1:] if importlib.util.find_spec(m) is None]))"
    )
    interpreter = command_of(kernelspec)[0]
    printed = subprocess.check_output([interpreter, "-c", code, *modules], text=True)
    missing: list[str] = json.loads(printed)
    return missing


def compared(
    foreign: Foreign, clone: Path, folder: Path, kernelspec: str
) -> tuple[Sequence[str], Sequence[str]]:
    """Execute a notebook in all ways.

    Returns:
        The kinds of kernels in which it ran, and what looks different in any of them.

    Raises:
        NotRunnableError: it is not the version that the table knows.
    """
    place = folder / "copy"
    source = fresh_copy(foreign, clone, place)
    own = {name: example(dimension) for name, dimension in foreign.space.items()}
    with kernel_pool(source.parent, imports=None, kernelspec=kernelspec, learns=True) as pool:
        executed = dict(by_us(source, pool, own))
    cold = executed["cold"]
    source = fresh_copy(foreign, clone, place)
    theirs = by_nbclient(cold, source.parent, kernelspec)
    found = list(all_differences(theirs, executed, folder))
    if found:
        again = by_nbclient(cold, source.parent, kernelspec)
        unsteady = {where(line) for line in all_differences(theirs, {"again": again}, folder)}
        found = [line for line in found if where(line) not in unsteady]
    return list(executed), found


def by_us(
    source: Path, pool: KernelPool, own: Mapping[str, Any]
) -> Iterator[tuple[str, NotebookNode]]:
    """The executed notebook by the kind of its kernel, for each kind that there is."""
    cold, result = run_alone(source, pool, own=own)
    yield "cold", cold
    pool.wait_until_warm()
    if not pool.offer.can_fork:
        print(f"not forked: {result.error or pool.offer.obstacle}", file=sys.stderr, flush=True)
        return
    warm, result = run_alone(source, pool, own=own)
    assert result.way is Way.FORKED
    yield "warm", warm
    share_cells(source, pool, swept=list(own))
    if pool.offer.shared is not None:
        shared, result = run_alone(source, pool, own=own)
        assert result.way is Way.SHARED
        yield f"after {result.shared_cells} cells", shared


def by_nbclient(executed: NotebookNode, cwd: Path, kernelspec: str) -> NotebookNode:
    """The same cells as a fresh kernel of nbclient's leaves them."""
    node = copy.deepcopy(executed)
    node.metadata.pop("widgets", None)
    for cell in node.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        node, kernel_name=kernelspec, resources={"metadata": {"path": str(cwd)}}, timeout=None
    )
    with tempfile.TemporaryDirectory() as ipython, suppress(CellExecutionError):
        client.execute(env={**ENVIRONMENT, "IPYTHONDIR": ipython})
    return node


def all_differences(
    expected: NotebookNode, found: Mapping[str, NotebookNode], folder: Path
) -> Iterator[str]:
    """Each cell that looks different in any of the notebooks, in a line."""
    seen = {}
    for kind, node in {"": expected, **found}.items():
        path = folder / "executed.ipynb"
        nbformat.write(node, path)
        seen[kind] = Seen(path)
    for kind in found:
        for line in differences(seen[""], seen[kind]):
            yield f"{kind}: {line}"


if __name__ == "__main__":
    sys.exit(main())
