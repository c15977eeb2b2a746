"""Test trials while a sweep runs: their reports, and how they are pruned, stopped and resumed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from studies import mlflow_client, scored, sweep_of, until

from sweeper import Sweep, SweepResult
from sweeper.cli import main
from sweeper.testing import write_notebook
from sweeper.trials import (
    Event,
    Observer,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("here")]

FOREVER = """
import time, sweeper
for i in range(10**6):
    sweeper.report(i, val=x)
    time.sleep(0.05)
"""
RunTrial = Callable[[TrialSpec, RunningTrial], TrialOutcome]


class Running:
    """A sweep on its own thread, with the trials that have started and ended."""

    def __init__(self, sweep: Callable[[Observer], Sweep]) -> None:
        self.ended: list[TrialRecord] = []
        self.started: list[str] = []
        self.result: SweepResult | None = None
        self.sweep = sweep(self._observe)

    def _observe(self, event: Event, record: TrialRecord | None) -> None:
        if event is Event.TRIAL_STARTED and record is not None:
            self.started.append(record.run_id)
        if event is Event.TRIAL_ENDED and record is not None:
            self.ended.append(record)

    def run(self) -> None:
        self.result = self.sweep.run()

    def metrics(self) -> dict[str, float]:
        """Return the values that the first running trial has reported so far."""
        seen = self.sweep.snapshot()
        return dict(seen.running[0].metrics) if seen is not None and seen.running else {}


@contextmanager
def running(
    name: str, *cells: str, jobs: int = 1, run_trial: RunTrial | None = None, **changes: Any
) -> Iterator[Running]:
    """Run a sweep of a notebook with these cells, or of a function in place of kernels."""
    changes["study"] = {"trials": 1, **changes.get("study", {})}
    parameters = "x = 0.5\nkind = 'a'\ny = 0.5"
    notebook = write_notebook(Path(f"{name}.ipynb"), *cells, parameters=parameters)
    # Some tests resume a study with another notebook, which a sweep refuses otherwise.
    options: dict[str, Any] = {"allow_changes": True}
    how: dict[str, Any] = {"output": "out/{study}.{run_id}.ipynb", "jobs": jobs, **changes}
    it = Running(
        lambda observer: sweep_of(
            notebook, name, run_trial, options={**options, "observer": observer}, **how
        )
    )
    thread = threading.Thread(target=it.run, daemon=True)
    thread.start()
    try:
        yield it
    finally:
        it.sweep.stop("the end of the test", now=True)
        thread.join(60)
        assert not thread.is_alive()


def metadata(name: str, run_id: str = "0000") -> dict[str, Any]:
    text = Path(f"out/{name}.{run_id}.ipynb").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)["metadata"]["sweeper"]
    return found


def last_step(name: str) -> int | None:
    if not Path(f"out/{name}.0000.ipynb").exists():
        return None
    series = metadata(name)["series"]
    return series["val"]["steps"][-1] if series else None


# --- reports -------------------------------------------------------------------------------------

#: A thread, a child process and others: each reports a metric of its own.
SOURCES = """
import multiprocessing, os, subprocess, sys, threading, time, sweeper
t = threading.Thread(target=lambda: [sweeper.report(i, thread=i) for i in range(50)])
t.start(); t.join()
pid = os.fork()
if pid == 0:
    [sweeper.report(i, fork=i) for i in range(50)]
    os._exit(0)
os.waitpid(pid, 0)
def work(i):
    sweeper.report(i, pool=i)
with multiprocessing.get_context('fork').Pool(1) as pool:
    pool.map(work, range(50))
code = 'import sweeper; [sweeper.report(i, script=i) for i in range(50)]'
subprocess.run([sys.executable, '-c', code], check=True)
process = multiprocessing.get_context('spawn').Process(
    target=sweeper.report, args=(49,), kwargs={'spawn': 49.0})
process.start(); process.join()
time.sleep(120)
"""


def test_reports_of_threads_and_child_processes_arrive_live() -> None:
    with running("sources", SOURCES) as it:
        until(lambda: it.metrics().get("spawn") == 49.0)
        main(["stop", "sources", "0000", "--quiet"])
    steps = {name: series["steps"] for name, series in metadata("sources")["series"].items()}
    assert steps.pop("spawn") == [49]
    assert steps == {name: list(range(50)) for name in ("thread", "fork", "pool", "script")}


def test_a_report_arrives_within_a_second_and_updates_one_display() -> None:
    cell = (
        "import time, sweeper\nfor i in range(3000):\n"
        "    sweeper.report(i, val=x, sent=time.time())\ntime.sleep(120)"
    )
    with running("fast", cell) as it:
        until(lambda: it.metrics().get("sent"))
        late = [time.time() - it.metrics()["sent"] for _ in range(3)]
        until(lambda: last_step("fast") == 2999)
        main(["stop", "fast", "0000", "--quiet"])
    assert min(late) < 1.0
    assert metadata("fast")["series"]["val"]["steps"] == list(range(3000))
    node = json.loads(Path("out/fast.0000.ipynb").read_text("utf-8"))
    (display,) = (o for o in node["cells"][-1]["outputs"] if o["output_type"] == "display_data")
    assert "step 2999" in "".join(display["data"]["text/plain"])


PRINTED: dict[str, Any] = {"scores": {"val": {"pattern": r"val=([0-9.]+)"}}}


def test_printed_scores_are_read_live_and_prune_a_notebook_without_sweeper() -> None:
    cell = (
        "import os, time\nfor i in range(10**6):\n"
        "    print(f'epoch {i} val={1.0 if not os.path.exists(\"first\") else 0.1}')\n"
        "    time.sleep(0.05)\n"
        "    if i == 8 and not os.path.exists('first'):\n        break"
    )
    pruner = {"name": "median", "n_startup_trials": 1, "n_warmup_steps": 5}
    study = {"trials": 2, "pruner": pruner}
    with running("printed", cell, "open('first', 'w')", study=study, **PRINTED) as it:
        until(lambda: it.result is not None)
    assert it.result is not None
    assert [str(record.state) for record in it.result.records] == ["completed", "pruned"]
    pruned = it.result.records[1]
    assert "pruned at step 5" in pruned.message
    assert pruned.duration_s < 30
    assert metadata("printed", "0001")["printed"]["val"]["values"][:2] == [0.1, 0.1]
    outputs = json.loads(Path("out/printed.0001.ipynb").read_text("utf-8"))["cells"][-2]["outputs"]
    assert "[sweeper: pruned at step 5" in "".join(outputs[-1]["text"])


def test_scores_of_an_unfinished_progress_bar_and_of_scrapbook_arrive_while_the_cell_runs() -> None:
    glue = (
        "from IPython.display import display\nscrap = {'name': 'glued', 'data': 0.75}\n"
        "display({'application/scrapbook.scrap.json+json': scrap}, raw=True)"
    )
    bar = (
        "import sys, time\nfor i in range(3):\n"
        "    sys.stderr.write(f'\\r{i}/3 [00:01<00:02, val=0.{i}]'); sys.stderr.flush()\n"
        "    time.sleep(0.3)\ntime.sleep(120)"
    )
    with running("bar", glue, bar, **PRINTED) as it:
        until(lambda: it.metrics().get("glued") == 0.75)
        until(lambda: it.metrics().get("val") == 0.2)
        main(["stop", "bar", "0000", "--quiet"])
    assert metadata("bar")["printed"]["val"]["values"] == [0.0, 0.1, 0.2]
    assert it.ended[0].scores["val"] == 0.2


# --- stopping ------------------------------------------------------------------------------------


def test_a_trial_stopped_by_hand_is_not_run_again_but_one_stopped_with_its_sweep_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running("one", FOREVER, jobs=2, study={"trials": 2}) as it:
        until(lambda: len(it.started) == 2 and it.metrics())
        assert main(["stop", "one", "0001"]) == 0
        assert "stopped 0001" in capsys.readouterr().out
        until(lambda: it.ended)  # the observer is called on a thread of its own, a moment later
        (record,) = it.ended
        assert main(["stop", "out/one", "--quiet"]) == 0
        until(lambda: it.result is not None)
    assert (record.run_id, record.state) == ("0001", TrialState.STOPPED)
    assert (record.reason, record.message) == (Reason.BY_HAND, "stopped by the command stop")
    assert metadata("one", "0001")["state"] == "stopped"
    assert it.result is not None
    assert it.result.stopped_by == "the command stop"
    reasons = [record.reason for record in it.result.records]
    assert reasons == [Reason.INTERRUPTED, Reason.BY_HAND]
    with running("one", run_trial=scored, study={"trials": 2}) as again:
        until(lambda: again.result is not None)
    # 0000 was stopped with its sweep, so it runs again; 0001 was stopped by hand.
    assert [r.run_id for r in again.ended] == ["0000"]


def test_the_command_stop_with_finish_lets_running_trials_complete_and_ends_the_sweep() -> None:
    go = threading.Event()

    def wait(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        assert go.wait(60)
        return scored(spec, running)

    with running("finish", run_trial=wait, study={"trials": 3}) as it:
        until(lambda: it.started)
        assert main(["stop", "finish", "--finish", "--quiet"]) == 0
        until(lambda: it.sweep.stopped_by is not None)
        go.set()
        until(lambda: it.result is not None)
    assert it.result is not None
    assert it.result.counts == {"completed": 1, "pruned": 0, "failed": 0, "stopped": 0}


# --- a trial that ends by itself after a stop -----------------------------------------------------

SAVING = """
import pathlib, time, sweeper
seen = pathlib.Path(f"{sweeper.trial().run_id}.seen")
"""


def test_a_trial_that_asks_should_stop_may_save_and_end_by_itself_after_a_stop() -> None:
    cell = (
        "for i in range(10**6):\n    sweeper.score(val=i)\n    time.sleep(0.05)\n"
        "    if sweeper.should_stop():\n        time.sleep(1)\n"
        "        seen.write_text('saved')\n        break"
    )
    with running("asks", SAVING, cell, "val = 1") as it:
        until(lambda: it.metrics().get("val", 0) > 3)
        it.sweep.stop("the test", now=True)
        until(lambda: it.result is not None)
    (record,) = it.ended
    assert (record.state, record.reason) == (TrialState.STOPPED, Reason.INTERRUPTED)
    assert Path("0000.seen").read_text() == "saved"
    assert record.attempt == 1
    node = json.loads(Path("out/asks.0000.ipynb").read_text("utf-8"))
    assert [c["metadata"]["papermill"]["status"] for c in node["cells"][-2:]] == [
        "completed",
        "pending",
    ]


@pytest.fixture(autouse=True)
def nothing_seen(here: Path) -> None:
    (here / "0000.seen").unlink(missing_ok=True)


def test_a_trial_whose_loop_ends_early_because_of_a_stop_has_not_completed() -> None:
    cell = "while not sweeper.should_stop():\n    time.sleep(0.05)\n    seen.touch()\nval = x"
    with running("lastcell", SAVING, cell) as it:
        until(Path("0000.seen").exists)
        it.sweep.stop("the test", now=True)
        until(lambda: it.result is not None)
    assert it.ended[0].state is TrialState.STOPPED


# --- resuming from a checkpoint ------------------------------------------------------------------


def test_a_trial_resumed_from_a_checkpoint_has_each_step_once_in_notebook_and_mlflow() -> None:
    cell = (
        "import pathlib, time, sweeper\n"
        "saved = sweeper.load_checkpoint() or {'epoch': -1}\n"
        "for epoch in range(saved['epoch'] + 1, 6):\n"
        "    sweeper.report(epoch, val=[5, 9, 1, 2, 3, 4][epoch] + x)\n"
        "    sweeper.save_checkpoint(epoch=epoch)\n"
        "    if epoch == 2 and sweeper.trial().attempt == 1:\n        time.sleep(120)"
    )
    objective = {"val": {"direction": "maximize", "take": "best"}}
    with running("resumed", cell, objective=objective):
        until(lambda: last_step("resumed") == 2)
        assert main(["stop", "resumed", "--quiet"]) == 0
    with running("resumed", cell, objective=objective) as again:
        until(lambda: again.result is not None)
    assert again.result is not None
    (record,) = again.result.records
    assert (record.attempt, record.scores["val"]) == (2, 9 + record.params["x"])  # type: ignore[operator]
    series = metadata("resumed")["series"]["val"]
    assert series["steps"] == [0, 1, 2, 3, 4, 5]
    client = mlflow_client(again.result.tracking_uri)
    (run_id,) = again.result.mlflow_run_ids.values()
    history = client.get_metric_history(run_id, "val")
    assert [metric.step for metric in history][:6] == [0, 1, 2, 3, 4, 5]
    assert [metric.value for metric in history][:6] == series["values"]
