"""Checks that need no kernel: disk, memory, the study's storage, MLflow, the remote copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from ...display.quantities import size
from ...errors import DataError, SweepError, first_line
from ...execution.machine.capacity import available_bytes, usable_cores
from ...execution.machine.shared_memory import advice
from ...study.access import call_server
from ...sweep.plan import SweepPlan
from ...tracking import sqlite_file, store_of
from .findings import Finding

#: Less free disk than this is too little for any sweep: databases, notebooks and their copies.
_LEAST_FREE_BYTES = 500 * 10**6


def check_surroundings(plan: SweepPlan) -> Iterator[Finding]:
    """Check what a sweep needs of its machine and of servers. Nothing is written."""
    yield _notebook(plan)
    yield from _inputs(plan)
    yield from _data(plan)
    yield _disk(plan.paths.root)
    yield _memory(plan)
    yield from _shared_memory(plan)
    yield from _storage(plan)
    yield _mlflow(plan)
    yield from _remote_copy(plan)


def _notebook(plan: SweepPlan) -> Finding:
    settings, notebook = plan.settings, plan.notebook
    n_names = len(settings.search_space)
    text = (
        f"{notebook.display_name} has {len(notebook.code)} code cells and assigns the "
        f"{n_names} swept parameter{'s' if n_names > 1 else ''}; kernel {plan.workload.kernel_name}"
    )
    return Finding(name="notebook", holds=True, text=text)


def _inputs(plan: SweepPlan) -> Iterator[Finding]:
    for name, files in plan.inputs.items():
        total = size(sum(file.size_bytes for file in files))
        which = ", ".join(file.run_id for file in files)
        text = (
            f"{name} is {files[0].artifact} of trial{'s' if len(files) > 1 else ''} {which} of the "
            f"study {files[0].study!r}, as saved ({total})"
        )
        yield Finding(name="inputs", holds=True, text=text)


def _data(plan: SweepPlan) -> Iterator[Finding]:
    if plan.data is None:
        return

    try:
        text = f"data {plan.data.version} of {plan.data.url}: {plan.data.look()}"
    except DataError as error:
        yield Finding(name="data", holds=False, text=str(error))
        return
    yield Finding(name="data", holds=True, text=text)


def free_disk_bytes(folder: Path) -> int:
    """How much can be written into a folder, which need not exist yet."""
    place = next(it for it in (folder, *folder.parents) if it.exists())
    return shutil.disk_usage(place).free


def _disk(root: Path) -> Finding:
    free = free_disk_bytes(root)
    text = f"{size(free)} of disk are free for the outputs in {root}"
    if free >= _LEAST_FREE_BYTES:
        return Finding(name="disk", holds=True, text=text)
    remedy = "make room, or choose another place with -o"
    return Finding(name="disk", holds=False, text=text, remedy=remedy)


def _memory(plan: SweepPlan) -> Finding:
    free, jobs = available_bytes(), plan.executor.jobs
    memory = "" if free is None else f" and {size(free)} of free memory"
    why = f" {plan.executor.description}" if plan.executor.description else ""
    text = f"{usable_cores()} cores{memory} for {jobs} at once{why}"
    return Finding(name="machine", holds=True, text=text)


def _shared_memory(plan: SweepPlan) -> Iterator[Finding]:
    shortage = advice(plan.workload.loader_workers, plan.executor.jobs)
    if shortage:
        yield Finding(name="shared memory", holds=False, text=shortage)


def _storage(plan: SweepPlan) -> Iterator[Finding]:
    url = plan.storage_url
    if sqlite_file(url.full) is not None:
        return
    try:
        call_server(url)
    except SweepError as error:
        yield Finding(name="storage", holds=False, text=first_line(error))
    else:
        yield Finding(name="storage", holds=True, text=f"the study's storage answers at {url}")


def _mlflow(plan: SweepPlan) -> Finding:
    embedded = plan.paths.tracking
    address = plan.tracking_uri or f"sqlite:///{embedded}"
    file = sqlite_file(str(address))
    if file is not None:
        is_new = not file.exists()
        text = f"MLflow's store {file} {'will be made' if is_new else 'is there'}"
        return Finding(name="mlflow", holds=True, text=text)
    try:
        store_of(
            plan.tracking_uri,
            study=plan.settings.name,
            study_id="",
            embedded=embedded,
            artifacts=plan.paths.artifacts,
            cells=plan.paths.page_notebooks,
        )
    except SweepError as error:
        return Finding(name="mlflow", holds=False, text=first_line(error))
    if plan.tracking_uri is not None and not plan.tracking_uri.is_http:
        text = f"MLflow's database at {address} is opened by the sweep only, before its first trial"
        return Finding(name="mlflow", holds=None, text=text)
    return Finding(name="mlflow", holds=True, text=f"MLflow answers at {address}")


def _remote_copy(plan: SweepPlan) -> Iterator[Finding]:
    if plan.remote is None:
        return
    try:
        plan.remote.probe()
    except SweepError as error:
        remedy = "check the address, the credentials and the network"
        yield Finding(name="sync", holds=False, text=first_line(error), remedy=remedy)
    else:
        yield Finding(name="sync", holds=True, text=f"sync: {plan.remote.display_url} answers")
