"""Test the memory reservations on GPUs that the sweeps of one user see of each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from studies import until

from sweeper.machine.claims import Claim, Claims

ONE = Claim(claim_bytes=9, used_bytes=8)
#: The memory reservation `ONE` as another sweep reads it.
SEEN = replace(ONE, pid=os.getpid())

OTHER = """
import sys, time
from pathlib import Path
from sweeper.machine.claims import Claim, Claims
claims = Claims(Path(sys.argv[1]))
with claims.gate() as is_mine:
    claims.write({"GPU-a": [Claim(claim_bytes=5, used_bytes=5)]})
print(is_mine, flush=True)
time.sleep(60)
"""


def test_a_sweep_sees_the_memory_reservations_of_other_sweeps_but_not_its_own(
    tmp_path: Path,
) -> None:
    here, there = Claims(tmp_path / "c"), Claims(tmp_path / "c")
    here.write({"GPU-a": [ONE, ONE]})
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700, (
        "other users could write reservations there"
    )
    assert there.of_others("GPU-a") == [SEEN, SEEN]
    assert there.of_others("GPU-b") == []
    assert here.of_others("GPU-a") == []
    here.write({})
    assert there.of_others("GPU-a") == []
    here.write({"GPU-a": [ONE]})
    here.close()
    assert there.of_others("GPU-a") == []


def test_writing_memory_reservations_updates_the_times_of_a_sweeps_files(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "c")
    claims.write({"GPU-a": [ONE]})
    files = [*(tmp_path / "c").iterdir()]
    assert {file.suffix for file in files} == {".alive", ".json"}
    for file in files:
        os.utime(file, (0, 0))
    claims.write({"GPU-a": [ONE]})
    assert all(file.stat().st_mtime > 0 for file in files)
    claims.close()


def test_the_memory_reservations_of_a_killed_sweep_no_longer_count(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OTHER, str(tmp_path / "c")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        claims = Claims(tmp_path / "c")
        assert claims.of_others("GPU-a") == [Claim(claim_bytes=5, used_bytes=5, pid=other.pid)]
        other.send_signal(signal.SIGKILL)
        until(lambda: claims.of_others("GPU-a") == [])
    assert [path.name for path in (tmp_path / "c").glob("*.json")] == []


def test_a_sweep_does_not_wait_while_another_sweep_is_reserving_gpu_memory(tmp_path: Path) -> None:
    here, there = Claims(tmp_path / "c"), Claims(tmp_path / "c")
    with here.gate() as is_mine:
        assert is_mine
        with there.gate() as is_theirs:
            assert not is_theirs
    with there.gate() as is_theirs:
        assert is_theirs


def test_sweeps_use_another_common_folder_if_the_usual_one_is_a_link_of_another_user(
    tmp_path: Path,
) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (tmp_path / "c").symlink_to(target)
    here, there = Claims(tmp_path / "c"), Claims(tmp_path / "c")
    here.write({"GPU-a": [ONE]})
    with there.gate() as is_theirs, here.gate() as is_mine:
        assert (is_theirs, is_mine) == (True, False)
    assert there.of_others("GPU-a") == [SEEN]
    assert list(target.iterdir()) == []
