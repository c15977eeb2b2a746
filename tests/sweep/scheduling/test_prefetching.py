"""Proposals that are made while trials run."""

from __future__ import annotations

import threading
import time

import pytest
from studies import PATIENCE_S, until

from sweeper.sweep.scheduling.prefetching import ProposalPrefetcher


def test_closing_never_waits_for_a_request_that_got_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    clear = threading.Event.clear

    def clear_late(event: threading.Event) -> None:
        time.sleep(0.02)  # a thread may be put aside at any moment, also before it clears an event
        clear(event)

    monkeypatch.setattr(threading.Event, "clear", clear_late)
    for n in range(50):
        prefetcher = ProposalPrefetcher(lambda: None)
        prefetcher.request()
        time.sleep(n * 1e-5)
        closing = threading.Thread(target=prefetcher.close, daemon=True)
        closing.start()
        closing.join(PATIENCE_S)
        assert not closing.is_alive(), "it waits for a wake-up that has come and gone"


def test_each_request_is_followed_by_a_proposal_and_none_comes_after_the_end() -> None:
    made: list[int] = []
    prefetcher = ProposalPrefetcher(lambda: made.append(1))
    for n in range(1, 4):
        prefetcher.request()
        until(lambda n=n: len(made) == n)  # type: ignore[misc]
    prefetcher.close()
    prefetcher.request()
    assert len(made) == 3
