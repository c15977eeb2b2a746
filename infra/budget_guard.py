#!/usr/bin/env python3
"""Run a sweep, and stop it when its machines have used a limited number of hours.

    budget_guard.py --hours 24 --ledger s3://bucket/ledgers/digits.json -- notebook_hpo.py -i …

A ledger is a file with the hours of each machine. The hours of all machines with the same ledger
are added up, including those of preempted machines. The hours of this machine count from the start
of this script. With `--since boot` they count from the start of the machine, so that its setup
counts, too. When the hours are spent, the sweep gets SIGTERM: its trials save their state, and the
remote copy is completed. The script needs Python 3.9, and fsspec if the ledger is a URL.

Exit codes: that of the sweep; 143 if this machine was interrupted; 0 if the hours are spent, so
that the job is not restarted; 2 if the ledger is damaged.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

#: Seconds between two updates of the ledger (chosen). If a machine is lost, at most this much of
#: its time is not counted.
EVERY_S = 60.0
#: Seconds between SIGTERM and SIGKILL, in which the sweep can end by itself (chosen).
GRACE_S = 900.0


class DamagedLedger(Exception):
    """The file or object of the ledger cannot be read as a ledger."""


class Ledger:
    """The hours of each machine by its name, in a file or an object storage.

    Args:
        place: Path of the ledger, or a URL for fsspec.
        machine: Name of this machine. After a restart, the machine has another name, because its
            hours then count from 0.
    """

    def __init__(self, place: str, machine: str) -> None:
        self.place = place
        self.machine = machine
        self._others: dict[str, float] = {}
        self._is_away = False

    def spent_hours(self, own_hours: float) -> float:
        """Write the hours of this machine to the ledger, and return the hours of all machines.

        If the ledger is unavailable, a message is printed, and the last known hours of the other
        machines are used. The next call tries again.

        Args:
            own_hours: Hours of this machine so far.

        Raises:
            DamagedLedger: The file or object is no ledger. It is not changed.
        """
        try:
            self._others.update(self._read())
            self._others.pop(self.machine, None)
            hours = {**self._others, self.machine: round(own_hours, 6)}
            self._write(json.dumps({"hours": hours}, indent=1))
            self._is_away = False
        except DamagedLedger:
            raise
        except Exception as error:  # noqa: BLE001  Each storage has exceptions of its own.
            if not self._is_away:
                say(f"the ledger {self.place} cannot be read or written now ({error})")
            self._is_away = True
        return sum(self._others.values()) + own_hours

    def _read(self) -> dict[str, float]:
        try:
            if "://" in self.place:
                import fsspec

                store, path = fsspec.core.url_to_fs(self.place)
                store.invalidate_cache()
                text = bytes(store.cat_file(path)).decode()
            else:
                text = Path(self.place).read_text("utf-8")
        except FileNotFoundError:
            return {}
        try:
            return {str(name): float(hours) for name, hours in json.loads(text)["hours"].items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedLedger(
                f"the ledger {self.place} is damaged; it should read "
                '{"hours": {"NAME OF A MACHINE": 1.5}}. Correct it, or remove it to count from 0'
            ) from error

    def _write(self, text: str) -> None:
        if "://" in self.place:
            import fsspec

            store, path = fsspec.core.url_to_fs(self.place)
            store.makedirs(store._parent(path), exist_ok=True)
            store.pipe_file(path, text.encode())  # An object storage replaces an object atomically.
            return
        file = Path(self.place)
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        beside.write_text(text, "utf-8")
        os.replace(beside, file)


def watch(
    command: Sequence[str],
    ledger: Ledger,
    limit_hours: float,
    every_s: float,
    *,
    since_hours: float,
) -> int:
    """Run the sweep until it ends by itself, is interrupted, or the hours are spent.

    Args:
        command: Command line of the sweep.
        ledger: Ledger with the hours of all machines.
        limit_hours: Hours that all machines together may use.
        every_s: Seconds between two updates of the ledger.
        since_hours: Uptime of this machine, in hours, from which its hours count.

    Returns:
        The exit code for this process.
    """
    spent_hours = ledger.spent_hours(uptime_hours() - since_hours)
    if spent_hours >= limit_hours:
        say(f"{spent_hours:.2f} of {limit_hours:g} hours are spent: the sweep is not started")
        return 0
    sweep = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sweep.send_signal(number))
    while True:
        try:
            code = sweep.wait(every_s)
            ledger.spent_hours(uptime_hours() - since_hours)
            return code
        except subprocess.TimeoutExpired:
            spent_hours = ledger.spent_hours(uptime_hours() - since_hours)
        if spent_hours >= limit_hours:
            break
    say(f"{spent_hours:.2f} of {limit_hours:g} hours are spent: the sweep is stopped")
    sweep.terminate()
    try:
        sweep.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        say(f"the sweep has not ended within {GRACE_S / 60:.0f} minutes and is killed")
        sweep.kill()
        sweep.wait()
    ledger.spent_hours(uptime_hours() - since_hours)
    return 0


def uptime_hours() -> float:
    """Return the hours since this machine started, including times in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) / 3600


def say(text: str) -> None:
    """Print one line with the time to stderr, without buffering."""
    print(f"[guard {time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the command line."""
    about = (__doc__ or "").split("\n", maxsplit=1)[0]
    parser = argparse.ArgumentParser(prog="budget_guard.py", description=about)
    parser.add_argument("--hours", type=float, required=True, help="of all machines together")
    parser.add_argument("--ledger", required=True, metavar="PATH_OR_URL")
    parser.add_argument(
        "--since",
        choices=("start", "boot"),
        default="start",
        help="count this machine's hours from the start of this script, or of the machine",
    )
    parser.add_argument("--every", type=float, default=EVERY_S, metavar="SECONDS")
    parser.add_argument("command", nargs="+", help="the sweep, after --")
    options = parser.parse_args()
    machine = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    since_hours = 0.0
    if options.since == "start":
        # Each start of this script gets its own entry in the ledger, so that its hours are added.
        since_hours = uptime_hours()
        machine = f"{machine} {socket.gethostname()} {since_hours:.6f}"
    ledger = Ledger(options.ledger, machine)
    try:
        return watch(options.command, ledger, options.hours, options.every, since_hours=since_hours)
    except DamagedLedger as error:
        print(f"budget_guard.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
