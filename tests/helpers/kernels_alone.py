"""Kernels that run a notebook without a sweep."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from nbformat import NotebookNode
from studies import until

from sweeper.guard import Guard, kill_marked
from sweeper.kernels import (
    ExecutionRequest,
    KernelPool,
    KernelResult,
    KernelSetup,
    SharedCells,
    execute,
    inject,
    language_of,
)
from sweeper.kernels.forking.origins import Ready, Stage
from sweeper.machine.places import Places
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook
from sweeper.trials import Params, RunningTrial

ENVIRONMENT = {**os.environ, **Places().env}


@contextmanager
def kernel_pool(
    cwd: Path,
    *,
    imports: str | None,
    kernelspec: str = "python3",
    kernels: Literal["fork", "cold"] | None = None,
) -> Iterator[KernelPool]:
    """Make a pool of kernels that work in `cwd`. A guard process ends them if the test is killed.

    Args:
        imports: Source of a cell, which the first kernel runs. Later kernels are forked with its
            imports, without the proof that this changes no result. None for no such cell.
        kernelspec: Name of the kernelspec.
        kernels: `fork` to fork kernels after the first one has run, `cold` to fork none. None for
            `fork` with `imports`, and `cold` without.
    """
    runtime_folder = Path(tempfile.mkdtemp(prefix="sweep-", dir="/tmp"))
    guard = Guard(token=runtime_folder.name, folder=runtime_folder)
    setup = KernelSetup(
        name=kernelspec,
        env=ENVIRONMENT,
        cwd=cwd,
        runtime_folder=runtime_folder,
        token=runtime_folder.name,
        random_seed=0,
    )
    pool = KernelPool(setup, kernels=kernels or ("cold" if imports is None else "fork"))
    try:
        if imports is not None:
            run_alone(write_notebook(cwd / "imports.ipynb", imports), pool)
            wait_until_warm(pool)
        yield pool
    finally:
        pool.close()
        guard.close()


def install_kernel(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    argv: Sequence[str],
    *,
    language: str = "python",
    env: Mapping[str, str] | None = None,
) -> None:
    """Write a kernelspec into a folder, and let Jupyter look for kernelspecs there."""
    spec = folder / "kernels" / name
    spec.mkdir(parents=True)
    stated = {"argv": argv, "display_name": name, "language": language, "env": env or {}}
    (spec / "kernel.json").write_text(json.dumps(stated))
    monkeypatch.setenv("JUPYTER_PATH", str(folder))


def hasten_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for kernels that do not end."""
    hastened = {"SHUTDOWN_S": 0.2, "KILL_S": 0.2, "DELIVERY_MS": 100}
    for name, value in hastened.items():
        monkeypatch.setattr(f"sweeper.kernels.process.kernel._{name}", value)
    monkeypatch.setattr(
        "sweeper.kernels.process.kernel.kill_marked", partial(kill_marked, patience_s=0.1)
    )


def wait_until_warm(pool: KernelPool) -> None:
    """Wait until the pool can fork kernels. Fail if it never will."""

    def has_decided() -> bool:
        available = pool.fork_server.available
        return isinstance(available, Ready) or available.stage is Stage.NEVER

    until(has_decided)
    available = pool.fork_server.available
    assert isinstance(available, Ready), available.why


def share_cells(source: Path, pool: KernelPool, *, fixed: Params | None = None) -> None:
    """Run the cells with the tag `shared` once, and fork further kernels after them."""
    server = pool.fork_server
    assert server._zygote is not None
    node = ResearchNotebook(source).fresh_copy()
    node = inject(node, fixed or {}, kernel_name=pool.setup.name, language="python")
    server._shared_cells = SharedCells.of(node)
    server._fork_after_shared_cells(server._zygote, import_s=0.0)


def run_alone(
    source: Path,
    pool: KernelPool,
    *,
    own: Params | None = None,
    fixed: Params | None = None,
    env: Mapping[str, str] | None = None,
    variables: Sequence[str] = (),
    prepares_next: bool = False,
    gpu_fraction: float | None = None,
    running: RunningTrial | None = None,
    grace_s: float = 25.0,
) -> tuple[NotebookNode, KernelResult]:
    """Run a notebook in a kernel of the pool.

    Args:
        own: Parameters of this execution alone, like the params of a trial.
        fixed: Parameters of all executions, like `fixed` in a parameters file.
        env: Environment variables of this execution.
        variables: Top-level variables to read at the end.
        prepares_next: Whether to prepare the kernel of this thread's next notebook meanwhile. If
            not, wait until this kernel has ended.
        gpu_fraction: Share of a GPU's memory that the kernel may use at most.
        running: Trial by whose `control` the execution can be stopped.

    Returns:
        The executed notebook, and the result.
    """
    node = inject(
        ResearchNotebook(source).fresh_copy(),
        {**(fixed or {}), **(own or {})},
        kernel_name=pool.setup.name,
        language=language_of(pool.setup.name),
    )
    ended = threading.Event()
    request = ExecutionRequest(
        node=node,
        running=running or RunningTrial(trials_left=1),
        write=lambda: None,
        on_kernel_gone=lambda _: ended.set(),
        env=env or {},
        own_params=own or {},
        random_seed=0,
        prepares_next=prepares_next,
        variables=variables,
        gpu_fraction=gpu_fraction,
        cell_output_bytes=10**8,
        grace_s=grace_s,
    )
    result = execute(request, pool=pool)
    assert prepares_next or ended.wait(60)
    return node, result
