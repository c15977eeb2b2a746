"""Calls are repeated while a disk or a database is unavailable."""

from __future__ import annotations

import errno
import time
from unittest.mock import Mock

import pytest
import zmq

from sweeper.errors import StudyError
from sweeper.study_folder import patience
from sweeper.study_folder.patience import Patience, is_of_the_machine

NUMBERS = (
    "ENOSPC EDQUOT EROFS EIO ESTALE EACCES EPERM ENOENT ENOTDIR EMFILE ENFILE EAGAIN ENOMEM "
    "ENOTCONN ECONNABORTED ESHUTDOWN ETIMEDOUT EHOSTDOWN EHOSTUNREACH"
)


@pytest.mark.parametrize("number", NUMBERS.split())
def test_certain_error_numbers_of_the_system_count_as_faults_of_the_machine(number: str) -> None:
    assert is_of_the_machine(OSError(getattr(errno, number), "…"))
    assert is_of_the_machine(zmq.ZMQError(getattr(errno, number)))


def test_lack_of_memory_or_threads_is_a_fault_of_the_machine_and_a_bug_is_not() -> None:
    assert is_of_the_machine(MemoryError())
    assert is_of_the_machine(RuntimeError("can't start new thread"))
    assert not is_of_the_machine(RuntimeError("dictionary changed size during iteration"))
    assert not is_of_the_machine(KeyError("x"))
    assert not is_of_the_machine(OSError(errno.ENAMETOOLONG, "File name too long"))


def test_a_failed_call_is_repeated_if_the_disk_is_full_but_not_if_a_name_is_too_long() -> None:
    patience = Patience("the outputs in out", may_pass=is_of_the_machine)
    failures = [OSError(28, "No space left on device")] * 3

    def write() -> str:
        if failures:
            raise failures.pop()
        return "written"

    with pytest.raises(OSError, match="No space"):
        patience.insist(write)
    patience.limit_s = lambda: 30.0
    patience.attempt(write)
    assert patience.insist(write) == "written"
    failures.append(OSError(errno.ENAMETOOLONG, "File name too long"))
    with pytest.raises(OSError, match="too long"):
        patience.insist(write)


def test_no_call_is_made_if_another_sweep_has_taken_over_the_study() -> None:
    patience = Patience("the outputs in out", may_pass=is_of_the_machine)
    patience.check = Mock(side_effect=StudyError("taken over"))
    for repeat in (patience.insist, patience.attempt):
        with pytest.raises(StudyError):
            repeat(pytest.fail)


def test_a_call_that_fails_is_repeated_only_until_the_time_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    patience = Patience("db", may_pass=lambda error: isinstance(error, TimeoutError))
    patience.limit_s = lambda: 0.2
    calls = []

    def fail() -> None:
        calls.append(1)
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError):
        patience.insist(fail)
    assert len(calls) > 1
    assert [r.getMessage() for r in caplog.records] == [
        "db: no answer; trials continue, and the sweep tries again for 0.2 s"
    ]


def test_a_database_change_whose_answer_was_lost_is_looked_up_and_not_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    patience = Patience("db", may_pass=lambda error: isinstance(error, TimeoutError))
    patience.limit_s = lambda: 30.0

    def lose_the_answer() -> str:
        raise TimeoutError("no answer")

    assert patience.insist(lose_the_answer, lambda: "found") == "found"
    assert caplog.records[-1].getMessage() == "db can be used again"


def test_a_disk_that_fails_again_at_once_is_reported_twice_and_then_only_after_it_is_stable(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_SETTLED_S", 0.3)
    disk = Patience("disk", may_pass=is_of_the_machine)
    disk.limit_s = lambda: 30.0

    def fail() -> None:
        raise OSError(errno.ENOSPC, "full")

    for _ in range(7):
        disk.attempt(fail)
        disk.attempt(lambda: None)
    said = [record.getMessage().endswith("used again") for record in caplog.records]
    assert said == [False, True, False]
    time.sleep(0.35)
    disk.attempt(lambda: None)
    assert caplog.records[-1].getMessage() == "disk can be used again"
    assert len(caplog.records) == 4
