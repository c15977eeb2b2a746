"""Test the lease of a remote copy: it names the one process that may write the copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sweeper.errors import StoppedError, SyncError
from sweeper.object_storage.store import Store
from sweeper.sync.lease import RemoteLease
from sweeper.sync.manifest import LocalMarker, Owner

NAME = "owner.json"
#: Seconds between two renewals of a lease: so long that no renewal happens during a test.
EVERY_S = 1000.0


class Leases:
    """Makes the leases of several processes on one store, and ends their threads."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._made: list[RemoteLease] = []

    def __call__(self, folder: str = "one") -> RemoteLease:
        lease = RemoteLease(Store(self.url), every_s=EVERY_S, folder=folder)
        self._made.append(lease)
        return lease

    def owner(self) -> Owner:
        return Owner.read(Store(self.url).get(NAME) or b"")

    def expire(self) -> None:
        """Make the lease look as if its process had died long ago."""
        # Below zero: the age of the object may be 0 s or less.
        owner = replace(self.owner(), every_s=-3600.0)
        Store(self.url).put(NAME, owner.text.encode())

    def close(self) -> None:
        for lease in self._made:
            lease.release()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def leases(request: pytest.FixtureRequest) -> Iterator[Leases]:
    if request.param == "s3":
        url = f"{request.getfixturevalue('s3')}/{abs(hash(request.node.nodeid))}"
    else:
        url = "memory://bucket"
    leases = Leases(url)
    yield leases
    leases.close()


def test_the_earlier_of_two_processes_learns_that_the_later_one_holds_the_lease(
    leases: Leases,
) -> None:
    first, second = leases(), leases()
    first.wait_until_free(None)
    second.wait_until_free(None)
    first.take("one")
    second.take("two")
    with pytest.raises(SyncError, match="was taken over by process"):
        first.check()
    second.check()
    first.release()
    assert leases.owner().copy_id == "two"
    assert not leases.owner().has_ended, "the release of a lost lease changes nothing"


def test_a_damaged_lease_can_be_taken(leases: Leases) -> None:
    Store(leases.url).put(NAME, b"{")
    leases().wait_until_free(None)


def test_an_expired_lease_can_be_taken_and_is_no_longer_renewed_by_its_process(
    leases: Leases,
) -> None:
    suspended, other = leases(), leases()
    suspended.wait_until_free(None)
    suspended.take("one")
    leases.expire()
    other.wait_until_free(None)
    other.take("two")
    with pytest.raises(SyncError, match="was taken over by process"):
        suspended._replace(replace(leases.owner(), copy_id="one"))
    assert leases.owner().copy_id == "two"


def test_a_lease_that_is_renewed_cannot_be_taken_and_a_released_lease_can(leases: Leases) -> None:
    first, second = leases(), leases()
    first.take("one")
    renewed = replace(leases.owner(), n_renewals=1)
    renewing = threading.Timer(3.0, lambda: first._replace(renewed))
    renewing.start()
    with pytest.raises(SyncError, match=r"renewed its lease \d+ s ago.*--study"):
        second.wait_until_free(None)
    renewing.join()
    # The folder from which the copy was made need not wait until the lease expires.
    second.wait_until_free(LocalMarker(copy_id="one", generation=1))
    first.release()
    second.wait_until_free(None)
    second.take("two")
    assert leases.owner().copy_id == "two"


def test_a_sweep_waits_until_the_lease_of_a_killed_process_expires(
    leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    killed, other = leases(), leases()
    killed.take("one")
    Store(leases.url).put(NAME, replace(leases.owner(), every_s=1.5).text.encode())
    began_s = time.monotonic()
    other.wait_until_free(None)
    assert time.monotonic() - began_s > 1.5  # S3 has times in whole seconds
    assert caplog.text.count("for another renewal") == 1
    other.take("two")


def test_a_stop_ends_the_wait_for_a_lease(leases: Leases) -> None:
    leases().take("one")
    with pytest.raises(StoppedError):
        leases().wait_until_free(None, is_stopped=lambda: True)


def test_a_copy_of_the_studys_folder_does_not_own_the_lease_of_the_original(leases: Leases) -> None:
    leases("study").take("one")
    with pytest.raises(StoppedError):
        copied = LocalMarker(copy_id="one", generation=1)
        leases("copy of study").wait_until_free(copied, is_stopped=lambda: True)
