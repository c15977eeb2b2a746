"""What a fleet of a thousand slots costs its coordinator, and whether the slots stay busy.

    TMPDIR=/dev/shm uv run benchmarks/fleet.py [--slots 1000] [--trials 10000] [--postgres]

Scheduler, study, pruner, sampler and tracker are those of a sweep, with a real storage and a real
MLflow; workers and time are simulated (`fleet_simulation.py`). Trials take ten minutes with a
spread of a quarter, two of a hundred three times as long; each reports ten times, and the median
pruner may end it. Each hour two of a hundred machines of eight slots are lost; the machine's trials
go on from their last checkpoint elsewhere. The process that writes to MLflow has a core of its own
and may use as much CPU as simulated time has passed; `--away` is how long MLflow takes nothing,
from a third of the sweep on.

Each call of the scheduler takes as much simulated time as it takes CPU in reality, of the
coordinator and of PostgreSQL's session for it: CPU is what a loaded machine measures as well as an
idle one. What the coordinator only waits for, disks and the network, is not in it, and neither is a
cluster's traffic (`cluster.py`). "ask" and "tell" are what a slot waits for before a trial and
after one, medians and 95th percentiles of CPU; "wait" how long a slot is idle between two trials,
behind all others. "CPU" is the coordinator's in all, per trial; "ahead" of one proposal and "judge"
of one report are parts of it. "table" is one look of the live table at the study, which comes on
top once a second. "busy" is the share of the slots' time with a trial, as long as there are trials
for all. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psutil
from fleet_simulation import Coordinator, Figures, FleetExecutor, WatchedStudy
from postgres_servers import PostgresServer

from sweeper import Settings, Sweep
from sweeper.sweep import opening
from sweeper.testing import write_notebook
from sweeper.tracking import Tracker

SPACE = {
    "lr": {"low": 1e-5, "high": 1.0, "log": True},
    "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
    "dropout": {"low": 0.0, "high": 0.6},
    "width": {"type": "int", "low": 64, "high": 1024, "step": 64},
    "batch_size": [64, 128, 256, 512],
    "optimizer": ["sgd", "adam"],
    "momentum": {"low": 0.8, "high": 0.99, "when": {"optimizer": "sgd"}},
}
PARAMETERS = (
    "lr = 0.1\nweight_decay = 1e-4\ndropout = 0.1\nwidth = 256\nbatch_size = 128\n"
    "optimizer = 'adam'\nmomentum = 0.9"
)
HOUR_S = 3600.0


class WatchedTracker(Tracker):
    """A tracker whose backlog is known, and whose process can be stopped for a while."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        WatchedTracker.latest = self
        self._stopped_at_s: float | None = None
        #: The simulated time of the last look, and the CPU that its process had used by then.
        self._looked = 0.0, 0.0

    latest: WatchedTracker

    @property
    def backlog(self) -> int:
        """How many messages MLflow has not taken."""
        return self._delivery._n_waiting

    @property
    def cpu_s(self) -> float:
        """Of the process that writes."""
        times = psutil.Process(self._delivery._process.pid).cpu_times()
        return times.user + times.system

    def stop_at(self, now_s: float) -> None:
        """Have MLflow take nothing from this simulated time on."""
        self._stopped_at_s = now_s
        os.kill(self._delivery._process.pid, signal.SIGSTOP)

    def go_on_at(self, now_s: float) -> None:
        """Have MLflow take messages again."""
        self._looked, self._stopped_at_s = (now_s, self.cpu_s), None
        os.kill(self._delivery._process.pid, signal.SIGCONT)

    def catch_up(self, now_s: float) -> int:
        """Wait for its process, which may use as much CPU as simulated time has passed.

        Returns:
            how many messages are left then.
        """
        if self._stopped_at_s is not None:
            return self.backlog
        looked_at_s, had_used_s = self._looked
        while self.backlog and self.cpu_s - had_used_s < now_s - looked_at_s:
            time.sleep(0.02)
        self._looked = now_s, self.cpu_s
        return self.backlog


class Storage:
    """The storage of the study, as far as the benchmark looks at it.

    Args:
        server: None for SQLite.
    """

    def __init__(self, folder: Path, server: PostgresServer | None) -> None:
        self._file = folder / "out" / "fleet" / "study.db"
        self._server = server
        self._session: Path | None = None

    @property
    def url(self) -> str | None:
        """For the sweep; None for the usual file."""
        return None if self._server is None else self._server.url

    def server_s(self) -> float:
        """The CPU that the session of the sweep has used; 0 for SQLite, and before there is one."""
        if self._server is None:
            return 0.0
        if self._session is None:
            asked = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'sweep %'"
            found = self._query(asked)
            if found is None:
                return 0.0
            self._session = Path(f"/proc/{found}/schedstat")
        return int(self._session.read_text().split()[0]) / 1e9

    def size_mb(self) -> float:
        """Of the database."""
        if self._server is None:
            return _size_mb(self._file)
        return int(self._query("SELECT pg_database_size(current_database())") or 0) / 1e6

    def _query(self, question: str) -> Any:
        import psycopg

        assert self._server is not None
        with psycopg.connect(self._server.url.replace("+psycopg", "")) as connection:
            row = connection.execute(question.encode()).fetchone()
        return None if row is None else row[0]


def _size_mb(file: Path) -> float:
    beside = [file, file.with_name(file.name + "-wal")]
    return sum(it.stat().st_size for it in beside if it.exists()) / 1e6


class Report:
    """Prints a row for each part of the trials.

    Args:
        size: trials of a part.
        snapshot: what the live table calls.
    """

    def __init__(self, size: int, figures: Figures, storage: Storage, mlflow: Path) -> None:
        self._size = size
        self._figures = figures
        self._storage = storage
        self._mlflow = mlflow
        self._seen = Figures()
        self.snapshot: Callable[[], object] = lambda: None
        self.backlog = self.most_backlog = 0
        self.caught_up_s = self.mlflow_ms = 0.0
        self.rows: list[dict[str, float]] = []
        head = "trials|CPU|ask|tell|ahead|judge|table|wait s|storage MB|MLflow MB|backlog"
        print(f"| {' | '.join(head.split('|'))} |\n{'|---' * 11}|", flush=True)

    def trial_ended(self, now_s: float) -> None:
        """Print a row after the last trial of a part."""
        if self._figures.n_ended - self._seen.n_ended >= self._size:
            self.add_row()

    def catch_up(self, now_s: float) -> None:
        """Let MLflow work, and note its backlog."""
        before, self.backlog = self.backlog, WatchedTracker.latest.catch_up(now_s)
        self.most_backlog = max(self.most_backlog, self.backlog)
        if before and not self.backlog:
            self.caught_up_s = now_s
        if self._figures.n_ended and not self.backlog:
            self.mlflow_ms = 1e3 * WatchedTracker.latest.cpu_s / self._figures.n_ended

    def rows_left(self) -> bool:
        """Whether trials have ended since the last row."""
        return self._figures.n_ended > self._seen.n_ended

    def add_row(self) -> None:
        """Print a row about the trials since the last one."""
        before, now = self._seen, self._figures
        n_trials = now.n_ended - before.n_ended

        def since(name: str) -> Sequence[float]:
            values: list[float] = getattr(now, name)[len(getattr(before, name)) :]
            return [1e3 * value for value in values] or [0.0]

        row = {"trials": now.n_ended, "cpu_ms": 1e3 * (now.cpu - before.cpu) / max(n_trials, 1)}
        for name in ("ask", "tell", "propose", "judge", "wait"):
            values = since(name)
            row[f"{name}_ms"] = statistics.median(values)
            row[f"{name}_p95_ms"] = sorted(values)[int(0.95 * len(values))]
        began_s = time.thread_time()
        self.snapshot()
        row["table_ms"] = 1e3 * (time.thread_time() - began_s)
        row["storage_mb"], row["mlflow_mb"] = self._storage.size_mb(), _size_mb(self._mlflow)
        row["backlog"] = self.backlog
        self.rows.append({name: round(value, 2) for name, value in row.items()})
        self._seen = Figures(**{f.name: _copy(getattr(now, f.name)) for f in fields(Figures)})
        pairs = {n: f"{row[f'{n}_ms']:.1f} / {row[f'{n}_p95_ms']:.1f}" for n in ("ask", "tell")}
        waits = f"{row['wait_ms'] / 1e3:.2f} / {row['wait_p95_ms'] / 1e3:.2f}"
        print(
            f"| {before.n_ended} to {now.n_ended} | {row['cpu_ms']:.0f} | {pairs['ask']} "
            f"| {pairs['tell']} | {row['propose_ms']:.1f} | {row['judge_ms']:.1f} "
            f"| {row['table_ms']:.0f} | {waits} | {row['storage_mb']:.1f} "
            f"| {row['mlflow_mb']:.1f} | {self.backlog} |",
            flush=True,
        )


def _copy(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def simulate(folder: Path, storage: Storage, options: argparse.Namespace) -> dict[str, Any]:
    """Run one sweep and print its table; the figures of it as JSON."""
    coordinator = Coordinator(storage.server_s)
    figures = coordinator.figures
    size = max(1, options.trials // options.rows)
    report = Report(size, figures, storage, folder / "out" / "mlflow.db")
    away_from_s = options.trials / options.slots * options.minutes * 60 * 0.6 / 3
    fleet = FleetExecutor(
        coordinator,
        jobs=options.slots,
        trial_s=60 * options.minutes,
        preempted_share=options.preempted,
        seed=options.seed,
        on_end=report.trial_ended,
        catch_up=report.catch_up,
        events=_outage(away_from_s, 60 * options.away),
    )
    sweep = Sweep.from_settings(
        Settings.from_mapping(
            {
                "objective": {"loss": "minimize"},
                "space": SPACE,
                "study": {
                    "name": "fleet",
                    "seed": options.seed,
                    "trials": options.trials,
                    "sampler": options.sampler,
                    "pruner": options.pruner,
                },
                "checkpoints": {"completed": "best", "pruned": "remove"},
                "cost": {"price_per_hour": 1000.0, "budget": 10**6},
            }
        ),
        notebook=write_notebook(folder / "nb.ipynb", "train()", parameters=PARAMETERS),
        output=f"{folder}/out/{{run_id}}.ipynb",
        storage=storage.url,
        executor=lambda _: fleet,
        observer=lambda *_: None,
    )
    report.snapshot = sweep.snapshot
    began_s = time.monotonic()
    result = sweep.run()
    took_s, end_cpu_s = time.monotonic() - began_s, time.process_time() - fleet.cpu_at_end_s
    if report.rows_left():
        report.add_row()
    full = fleet.full
    assert full is not None
    return {
        "slots": options.slots,
        "trials": figures.n_ended,
        "storage": "postgresql" if options.postgres else "sqlite",
        "counts": result.counts,
        "simulated_h": round(fleet.now_s / HOUR_S, 2),
        "busy": round(full.busy_share, 4),
        "idle_slot_h": round(full.idle_s / HOUR_S, 2),
        "slot_h": round(full.all_s / HOUR_S, 1),
        "away_slot_h": round(figures.away / HOUR_S, 2),
        "lost_attempts": figures.n_lost,
        "lost_slot_h": round(figures.lost / HOUR_S, 2),
        "coordinator_cpu_ms": round(1e3 * figures.cpu / figures.n_ended, 1),
        "of_a_core": round(figures.cpu / fleet.now_s, 3),
        "mlflow_cpu_ms": round(report.mlflow_ms, 1),
        "mlflow_most_backlog": report.most_backlog,
        "mlflow_caught_up_h": round(report.caught_up_s / HOUR_S, 2),
        "mlflow_undelivered": result.undelivered,
        "end_cpu_s": round(end_cpu_s, 1),
        "took_s": round(took_s),
        "rows": report.rows,
    }


def _outage(at_s: float, lasts_s: float) -> list[tuple[float, Callable[[], None]]]:
    if not lasts_s:
        return []
    return [
        (at_s, lambda: WatchedTracker.latest.stop_at(at_s)),
        (at_s + lasts_s, lambda: WatchedTracker.latest.go_on_at(at_s + lasts_s)),
    ]


@contextmanager
def _postgres() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # the server is another user's
        server = PostgresServer(Path(folder) / "s")
        server.start()
        try:
            yield server
        finally:
            server.stop()


def main() -> None:
    """Simulate one sweep, and print a table and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--slots", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--trials", type=int, default=10_000, help="(default: 10000)")
    parser.add_argument("--minutes", type=float, default=10, help="of a trial (default: 10)")
    parser.add_argument("--preempted", type=float, default=0.02, help="of machines, each hour")
    parser.add_argument("--away", type=float, default=0, help="minutes that MLflow takes nothing")
    parser.add_argument("--sampler", default="auto", help="(default: auto)")
    parser.add_argument("--pruner", default="median", help="(default: median)")
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL in place of SQLite")
    parser.add_argument("--rows", type=int, default=10, help="of the table (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with (
        tempfile.TemporaryDirectory() as folder,
        _postgres() if options.postgres else nullcontext() as server,
        mock.patch.object(opening, "Study", WatchedStudy),
        mock.patch.object(opening, "Tracker", WatchedTracker),
    ):
        print(json.dumps(simulate(Path(folder), Storage(Path(folder), server), options)))


if __name__ == "__main__":
    main()
