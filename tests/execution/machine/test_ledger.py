"""Claims on GPUs, which all sweeps of a machine see and which end with their processes."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from small_disks import small_disk
from studies import until

from sweeper.execution.machine.ledger import Claim, Ledger

CLAIM = Claim(device="GPU-a", memory_bytes=8_400_000_000)
HOLD = """
import sys, time
from pathlib import Path
from sweeper.execution.machine.ledger import Claim, Ledger
ledger = Ledger(Path(sys.argv[1]))
with ledger.gate():
    held = ledger.add(Claim(device="GPU-b", memory_bytes=17, session=3))
print("held", flush=True)
time.sleep(600)
"""


def test_a_claim_counts_until_it_is_released(tmp_path: Path) -> None:
    ledger, other = Ledger(tmp_path / "claims"), Ledger(tmp_path / "claims")
    with ledger.gate():
        assert ledger.claims() == []
        held = ledger.add(CLAIM)
    with other.gate():
        assert other.claims() == [CLAIM]
    smaller = Claim(device="GPU-a", memory_bytes=9, is_alone=True, session=7)
    held.change(smaller)
    with other.gate():
        assert other.claims() == [smaller]
    held.release()
    with other.gate():
        assert other.claims() == []
    assert [file.name for file in (tmp_path / "claims").iterdir()] == ["gate"]


def test_the_claim_of_a_process_ends_with_it_however_it_dies(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with ledger.gate():
        assert ledger.claims() == [Claim(device="GPU-b", memory_bytes=17, session=3)]
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with ledger.gate():
        assert ledger.claims() == []


def test_only_one_process_at_a_time_is_within_the_gate(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from sweeper.execution.machine.ledger import Ledger\n"
        "with Ledger(Path(sys.argv[1])).gate():\n"
        "    print('in', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    first, second = (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    )
    # Whichever is in, the other one is not until it leaves.
    until(lambda: is_inside(first) or is_inside(second))
    holder, other = (first, second) if is_inside(first) else (second, first)
    time.sleep(0.5)
    assert not is_inside(other)
    holder.communicate("")
    until(lambda: is_inside(other))
    other.communicate("")


def is_inside(process: subprocess.Popen[str]) -> bool:
    """Whether a process has written something."""
    return bool(select.select([process.stdout], [], [], 0)[0])  # type: ignore[type-var]


def test_every_user_of_the_machine_can_lock_what_is_there(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        ledger = Ledger(tmp_path / "claims")
        with ledger.gate():
            held = ledger.add(CLAIM)
    finally:
        os.umask(before)
    files = sorted((tmp_path / "claims").iterdir())
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o666, 0o666]
    assert stat.S_IMODE((tmp_path / "claims").stat().st_mode) == 0o1777
    held.release()


def test_a_claim_that_another_version_wrote_keeps_nobody_from_claiming(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with ledger.gate():
        held = ledger.add(CLAIM)
    next(tmp_path.glob("*.claim")).write_text('{"gpu": "GPU-a", "cores": 3}'.ljust(512))
    with ledger.gate():
        assert ledger.claims() == []
    held.release()
    assert not list(tmp_path.glob("*.claim"))


def test_a_claim_that_a_full_disk_cannot_keep_is_refused_and_not_made_in_vain(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "small", "64k") as disk:
        ledger = Ledger(disk / "claims")
        with ledger.gate():
            kept = ledger.add(Claim(device="GPU-a", memory_bytes=1))
        with (disk / "filling").open("wb", buffering=0) as filling, suppress(OSError):
            while True:
                filling.write(bytes(4096))
        with ledger.gate(), pytest.raises(OSError, match="No space left on device"):
            ledger.add(Claim(device="GPU-a", memory_bytes=2))
        assert ledger.claims() == [kept.claim]
        assert len(list(disk.glob("claims/*.claim"))) == 1
        kept.release()
