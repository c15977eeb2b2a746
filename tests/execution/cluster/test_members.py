"""The scheduler of a coordinator that leads, and the workers that join it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from studies import until

from sweeper.errors import SettingsError
from sweeper.execution.cluster.members.member import Member
from sweeper.execution.cluster.members.own_scheduler import OwnScheduler, reachable_address

pytestmark = pytest.mark.slow


@pytest.fixture
def scheduler() -> Iterator[OwnScheduler]:
    with closing(OwnScheduler.open("127.0.0.1")) as scheduler:
        yield scheduler


def test_a_member_joins_with_its_slots_and_ends_with_the_scheduler(scheduler: OwnScheduler) -> None:
    member = Member(address=scheduler.address, security=scheduler.security, slots=3)
    with closing(member):
        (worker,) = until(scheduler.cluster.workers)
        assert worker.threads == 3
        assert str(worker.name).startswith(f"process {os.getpid()} on ")
        until(lambda: member.has_joined)
        assert scheduler.address.startswith("tls://127.0.0.1:")
        scheduler.close()
        assert member.has_ended(60.0)
        assert not member.failure


def test_a_member_that_is_closed_leaves_nothing(scheduler: OwnScheduler) -> None:
    member = Member(address=scheduler.address, security=scheduler.security, slots=1)
    until(lambda: member.has_joined)
    folder = Path(member._folder)
    assert folder.is_dir()
    member.close()
    assert not folder.exists()
    until(lambda: not scheduler.cluster.workers())


def test_a_member_ends_when_its_coordinator_is_killed(scheduler: OwnScheduler) -> None:
    order = {"address": scheduler.address, "security": scheduler.security, "slots": 1}
    code = (
        "import sys, time, json\n"
        "from sweeper.execution.cluster.members.member import Member\n"
        "member = Member(**json.loads(sys.argv[1]))\nprint(member._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    coordinator = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(order)], stdout=subprocess.PIPE, text=True
    )
    assert coordinator.stdout is not None
    pid = int(coordinator.stdout.readline())
    until(scheduler.cluster.workers)
    coordinator.kill()
    coordinator.communicate()
    until(lambda: not scheduler.cluster.workers())
    until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_who_has_another_certificate_is_not_accepted(scheduler: OwnScheduler) -> None:
    with closing(OwnScheduler.open("127.0.0.1")) as another:
        member = Member(address=scheduler.address, security=another.security, slots=1)
        assert not member.has_ended(3.0) or member.failure
        assert not scheduler.cluster.workers()
        member.close()
        assert not member.has_joined


def test_an_address_that_the_machine_has_not_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"--shared 192\.0\.2\.1: .* an address of this machi"):
        OwnScheduler.open("192.0.2.1")


def test_the_address_towards_this_machine_is_its_own() -> None:
    assert reachable_address("") == reachable_address("127.0.0.1") == "127.0.0.1"


def test_a_member_whose_process_is_killed_has_ended(scheduler: OwnScheduler) -> None:
    member = Member(address=scheduler.address, security=scheduler.security, slots=1)
    until(lambda: member.has_joined)
    os.kill(member._process.pid, signal.SIGKILL)
    assert member.has_ended(30.0)
    member.close()
