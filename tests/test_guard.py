"""Ends processes, whatever else runs on the machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from studies import until

from sweeper.guard import kill_session


def test_a_session_is_ended_beside_a_process_whose_name_is_no_text(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    program = tmp_path / "тренировка"  # cut after 15 bytes, within a letter
    shutil.copy(sleep, program)
    with (
        subprocess.Popen([program, "60"], start_new_session=True) as other,
        subprocess.Popen([sleep, "60"], start_new_session=True) as leader,
    ):
        until(lambda: b"\xd0)" in Path(f"/proc/{other.pid}/stat").read_bytes())
        kill_session(leader.pid)
        assert leader.wait(timeout=10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
