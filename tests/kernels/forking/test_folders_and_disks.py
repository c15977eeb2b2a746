"""After a folder was removed or a disk has hung, later kernels are still forked."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Timer

import pytest
from hanging_disks import hanging_disk
from kernels_alone import ENVIRONMENT, hasten_ends, kernel_pool, run_alone

from sweeper.guard import MARK_VARIABLE
from sweeper.kernels import Finished, Stopped
from sweeper.notebook_api.messages import StopReason
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]

#: A module that removes the folder of the first process that forks kernels (zygote), while that
#: process imports it.
LOSES_ITS_FOLDER = f"""
import os, pathlib, shutil
if "zygote" in os.environ["{MARK_VARIABLE}"] and not pathlib.Path("lost").exists():
    pathlib.Path("lost").touch()
    shutil.rmtree(pathlib.Path(os.environ["IPYTHONDIR"]).parent)
"""


def test_kernels_are_still_forked_after_the_socket_folder_was_removed_or_a_fork_hangs(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of sockets is removed during the imports. Later, SIGKILL does not end a fork."""
    hasten_ends(monkeypatch)
    library = tmp_path_factory.mktemp("env") / "site-packages"
    library.mkdir()
    (library / "lost_once.py").write_text(LOSES_ITS_FOLDER)
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", str(library))
    usual = write_notebook(tmp_path / "nb.ipynb", "import lost_once")
    with (
        kernel_pool(tmp_path, imports="import lost_once") as pool,
        hanging_disk(tmp_path / "disk") as disk,
    ):
        assert (tmp_path / "lost").exists()
        running = RunningTrial(trials_left=1)
        Timer(1.0, running.control.stop, args=[StopReason.BY_HAND, "stopped"]).start()
        hanging = write_notebook(tmp_path / "hanging.ipynb", f"open('{disk}/data')")
        _, result = run_alone(hanging, pool, running=running, grace_s=2.0)
        assert (result.ending, result.origin.is_forked) == (Stopped(), True)
        _, result = run_alone(usual, pool)
        assert (result.ending, result.origin.is_forked) == (Finished(), True)
