"""A sweep sends a message when it has ended. A real server on this machine receives it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_servers import Handler, started
from studies import sweep_of, until

from sweeper.settings.sections import Notify
from sweeper.sweep import notifying
from sweeper.sweep.notifying import Notifier
from sweeper.testing import write_notebook
from sweeper.trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A server's address, and the headers and bodies that it has received.

    A request to the path `/hang` gets no answer before the test ends.
    """
    received: list[tuple[dict[str, str], bytes]] = []
    ends = threading.Event()

    class Receiving(Handler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((dict(self.headers), body))
            if self.path.startswith("/hang"):
                ends.wait()
            self.send_response(200)
            self.end_headers()

    with started(Receiving) as port:
        yield f"http://127.0.0.1:{port}", received
        ends.set()


def test_a_notification_to_ntfy_has_a_title_and_a_text(server: Any) -> None:
    notifier = Notifier(Notify(url=f"{server[0]}/ntfy"), "größe")
    notifier.send("end", "3 completed, best 0.97 ± 0.01")
    notifier.close()
    [(headers, body)] = server[1]
    assert headers["Title"] == "gr??e: end"
    assert body.decode() == "3 completed, best 0.97 ± 0.01"


def test_a_notification_server_that_does_not_answer_delays_no_trial(
    server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifying, "_LIMIT_S", 0.2)
    notifier = Notifier(Notify(url=f"{server[0]}/hang?key=mine"), "study")
    began_s = time.monotonic()
    notifier.send("end", "done")
    assert time.monotonic() - began_s < 0.1
    notifier.close()
    until(lambda: "the message did not arrive" in caplog.text)
    assert "mine" not in caplog.text


@pytest.mark.slow
def test_a_webhook_receives_the_first_failure_and_the_end(tmp_path: Path, server: Any) -> None:
    def run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        if spec.number in (1, 2):
            return TrialOutcome(
                state=TrialState.FAILED, reason=Reason.CELL_ERROR, message="In [2]: boom"
            )
        return TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5})

    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x", parameters="x = 0.5")
    sweep = sweep_of(
        notebook, "told", run_trial, study={"trials": 4}, notify={"url": f"{server[0]}/hook-secret"}
    )
    sweep.run()
    failure, end = (json.loads(body) for _, body in server[1])
    assert (failure["event"], failure["study"]) == ("failure", "told")
    assert "trial 0001 has failed: In [2]: boom" in failure["text"]
    assert (end["event"], end["best"]["run_id"]) == ("end", "0000")
    stored = (tmp_path / "out" / "told" / "study.db").read_bytes()
    assert b"hook-secret" not in stored
