"""The lease of a remote copy: of processes that take it at the same time, exactly one gets it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sweeper.errors import SyncError
from sweeper.sync.lease import RemoteLease
from sweeper.sync.manifest import LocalMarker, Owner
from sweeper.sync.store import ConflictError, Store

NAME = "digits/owner.json"
#: No lease is renewed by its thread during a test.
EVERY_S = 1000.0


class Leases:
    """Makes the leases of several processes on one store, and ends their threads."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._made: list[RemoteLease] = []

    def __call__(self) -> RemoteLease:
        lease = RemoteLease(Store(self.url), study="digits", every_s=EVERY_S)
        self._made.append(lease)
        return lease

    def owner(self) -> Owner:
        return Owner.read(Store(self.url).get(NAME) or b"")

    def expire(self) -> None:
        """Make the lease look as if its process had died long ago."""
        owner = replace(self.owner(), every_s=-3600.0)  # the age may be 0 s, or less
        Store(self.url).put(NAME, owner.text.encode())

    def close(self) -> None:
        for lease in self._made:
            lease.release()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def leases(request: pytest.FixtureRequest) -> Iterator[Leases]:
    """On a store that can create, and on one that can also replace under a condition."""
    if request.param == "s3":
        url = f"{request.getfixturevalue('s3')}/{abs(hash(request.node.nodeid))}"
    else:
        url = "memory://bucket"
    leases = Leases(url)
    yield leases
    leases.close()


@pytest.fixture
def on_s3(s3: str, request: pytest.FixtureRequest) -> Iterator[Leases]:
    leases = Leases(f"{s3}/{abs(hash(request.node.nodeid))}")
    yield leases
    leases.close()


def take_both(leases: Leases) -> None:
    """Two processes look, both find the copy free, and both take it: the second is refused."""
    first, second = leases(), leases()
    first.refuse_if_alive(None)
    second.refuse_if_alive(None)
    first.take("one")
    with pytest.raises(SyncError, match="has begun to sweep this study at the same time; wait"):
        second.take("two")
    assert leases.owner().copy_id == "one"
    first.check()


def test_of_two_that_take_a_new_copy_at_once_one_gets_it(leases: Leases) -> None:
    take_both(leases)


def test_a_damaged_lease_is_free(leases: Leases) -> None:
    Store(leases.url).put(NAME, b"{")
    leases().refuse_if_alive(None)


@pytest.mark.slow  # a server
@pytest.mark.parametrize("how", ["ended", "expired"])
def test_of_two_that_take_an_abandoned_copy_at_once_one_gets_it(on_s3: Leases, how: str) -> None:
    before = on_s3()
    before.refuse_if_alive(None)
    before.take("before")
    if how == "ended":
        before.release()
    else:
        on_s3.expire()
    take_both(on_s3)


@pytest.mark.slow  # a server
def test_a_suspended_process_does_not_renew_a_lease_that_was_taken_over(
    on_s3: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended, other = on_s3(), on_s3()
    suspended.refuse_if_alive(None)
    suspended.take("one")
    check = suspended.check

    def check_and_sleep() -> None:
        check()
        monkeypatch.setattr(suspended, "check", check)
        on_s3.expire()
        other.refuse_if_alive(None)
        other.take("two")

    monkeypatch.setattr(suspended, "check", check_and_sleep)
    with pytest.raises(ConflictError):
        suspended._replace(on_s3.owner())
    assert on_s3.owner().copy_id == "two"
    with pytest.raises(SyncError, match="was taken over by process"):
        suspended.check()
    suspended.release()
    assert not on_s3.owner().has_ended, "the release of a lost lease changes nothing"


def test_a_live_lease_is_refused_and_an_ended_one_is_free(leases: Leases) -> None:
    first, second = leases(), leases()
    first.refuse_if_alive(None)
    first.take("one")
    words = r"sweeps this study and gave a sign of life \d+ s ago.*, wait \d+ s and .* --study"
    with pytest.raises(SyncError, match=words):
        second.refuse_if_alive(None)
    second.refuse_if_alive(LocalMarker(copy_id="one", generation=1))  # the same folder
    first.release()
    second.refuse_if_alive(None)
    second.take("two")
    assert leases.owner().copy_id == "two"


def test_a_lease_whose_answer_was_lost_is_taken(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Store.put_if_unchanged

    def repeated(store: Store, *arguments: Any) -> None:
        put(store, *arguments)
        raise ConflictError("the first attempt arrived, and the second found it")

    monkeypatch.setattr(Store, "put_if_unchanged", repeated)
    lease = leases()
    lease.refuse_if_alive(None)
    lease.take("one")
    assert leases.owner().copy_id == "one"
