"""Fixtures and hooks for the tests of several folders."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import quick_imports  # noqa: F401
from commands import hasten_sqlite, launch_writer, read_migrations_once
from hypothesis import settings as hypothesis_settings
from jupyter_client.launcher import launch_kernel
from jupyter_client.provisioning import local_provisioner
from kernel_boots import STARTS, boot_forked

from sweeper.display import frames
from sweeper.notebook_api.messages import TRIAL_VARIABLE
from sweeper.testing import trial_spec
from sweeper.tracking import writer
from sweeper.trials import TrialSpec

pytest_plugins = ["s3_server", "postgres_servers"]

#: The slowest test files, the slowest one first, each measured alone on a machine.
LONGEST = (
    *("test_tutorial.py", "test_dask_executor.py", "test_cluster.py", "test_corpus.py"),
    "test_sweep.py",
    *("test_in_a_terminal.py", "test_stops.py"),
    *("test_sharing.py", "test_warm.py", "test_live.py", "test_sync.py", "test_worker.py"),
    *("test_servers.py", "test_examples.py", "test_chaos.py", "test_checkpoints.py"),
    *("test_storage.py", "test_determinism.py", "test_executors.py"),
)

#: Patterns for an option `-m` that only excludes markers, and for the line with a file's markers.
_LEAVES_OUT = re.compile(r"not \w+( and not \w+)*")
_MARKS_OF_FILE = re.compile(r"^pytestmark = (\[[^]]*\]|.*)$", re.MULTILINE)

# On a busy machine, an example can take longer than the 200 ms that Hypothesis allows.
hypothesis_settings.register_profile("any machine", deadline=None)
hypothesis_settings.load_profile("any machine")

# Imported modules stay, so the garbage collector is off until all tests are collected.
gc.disable()

# Bytecode is written even if it is turned off. Otherwise each process would compile all test files,
# and each kernel, or process from which kernels are forked, all files of the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A process that a shell starts with `&` or nohup ignores SIGINT or SIGHUP, and so do the sweeps
# that it starts. The tests need sweeps that handle these signals.
for _signal, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, None)):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, _usual or signal.SIG_DFL)

# Tests run in parallel. Threads of a matrix library would wait for each other on busy cores, which
# uses CPU time. Kernels of a sweep set their own number of threads.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests of many minutes, too")
    parser.addoption(
        "--kernelspec",
        metavar="NAME",
        default="python3",
        help="the kernelspec in which the corpus runs; its "
        "environment needs numpy, pandas, matplotlib, joblib, tqdm and torch (default: python3)",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files whose tests are all left out by `-m`, because importing them takes long.

    Only the literal markers of `pytestmark` count. Other files are imported, and pytest deselects
    their tests.
    """
    expression = config.option.markexpr
    if collection_path.suffix != ".py" or not _LEAVES_OUT.fullmatch(expression):
        return None
    marks = _MARKS_OF_FILE.search(collection_path.read_text("utf-8"))
    if marks is None:
        return None
    left_out = {*expression.split()} - {"not", "and"}
    return True if left_out & {*re.findall(r"mark\.(\w+)", marks[1])} else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Files are given to processes in this order: slow files first, so that none of them runs last.
    # Quick files, which take a second, fill the rest of the time.
    takes_long = {item.path for item in items if {"kernel", "slow"} & {*item.keywords}}
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))
    items.sort(key=lambda item: item.path not in takes_long)


def pytest_collection_finish() -> None:
    """Call `gc.freeze`, so that the garbage collector does not scan all imported modules again."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Return two processes more than there are cores, because tests wait for half of the time."""
    return (os.cpu_count() or 1) + 2


@pytest.fixture(autouse=True)
def outside_of_any_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove variables of a surrounding trial or MLflow server from the environment."""
    monkeypatch.delenv(TRIAL_VARIABLE, raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(autouse=True)
def each_table_is_drawn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test if the live table could not be drawn, which is only a warning for users."""
    if "tables_may_fail" in request.keywords:
        yield
        return
    failures: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: failures.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(frames.__name__)
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    assert not failures


@pytest.fixture(scope="session")
def kernelspec(request: pytest.FixtureRequest) -> str:
    """Return the name of the kernelspec for tests that can run with any kernelspec."""
    return str(request.config.getoption("--kernelspec"))


@pytest.fixture(scope="session", autouse=True)
def mlflow_is_imported_once() -> Iterator[None]:
    """Fork the processes that write to MLflow from one that has imported it, to save seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "launch", launch_writer)
        yield


@pytest.fixture(scope="session", autouse=True)
def sqlite_waits_for_no_disk() -> None:
    """Make SQLite not wait for the disk, which takes most of a second for each study."""
    hasten_sqlite()


@pytest.fixture(scope="session", autouse=True)
def optunas_migrations_are_read_once() -> None:
    """Read Optuna's migrations once, because this takes most of the time of opening a storage."""
    read_migrations_once()


@pytest.fixture(scope="session", autouse=True)
def ipykernel_is_imported_once() -> Iterator[None]:
    """Fork kernels from a process that has imported ipykernel; see `kernel_boots`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_provisioner, "launch_kernel", launch_kernel)
        boot_forked()
        yield


@pytest.fixture
def started_kernels_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off `kernel_boots`, which forks kernels to save time, for a test and its commands.

    A sweep may still fork kernels itself.
    """
    monkeypatch.setenv(STARTS, "1")


@pytest.fixture(scope="module")
def started_kernels() -> Iterator[None]:
    """Turn off `kernel_boots`, as `started_kernels_here` does, for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STARTS, "1")
        yield


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Change to one folder for all tests of a module, because a new MLflow store takes seconds."""
    folder = tmp_path_factory.mktemp("sweeps")
    before = Path.cwd()
    os.chdir(folder)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    yield folder
    os.chdir(before)


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., TrialSpec]:
    """Return a function that makes a trial's spec, with defaults for what is not stated."""

    def make(**stated: Any) -> TrialSpec:
        files = {
            "notebook": tmp_path / "out" / "digits.0007.ipynb",
            "checkpoint_dir": tmp_path / "out" / "digits" / "checkpoints" / "0007",
        }
        return trial_spec(**{**files, **stated})

    return make
