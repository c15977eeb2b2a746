#!/usr/bin/env python3
"""Ends a rented machine that is idle or has spent its budget.

It needs Python 3.9 and nothing else (fsspec only where the ledger is a URL). A sweep is never
interrupted for idleness. When the budget is spent, running sweeps are stopped first, with their own
command, so that trials save and the remote copy is completed.

    machine_guard.py watch --out out --idle 30m --budget-hours 48 --shutdown 'sudo shutdown -h now'
    machine_guard.py health --out out       # exit 0, or 1 where a sweep has died
"""

from __future__ import annotations

import argparse
import enum
import fcntl
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

#: A sweep touches its `sweep.json` every 10 s and counts as alive for 60 s.
ALIVE_S = 60.0
#: What counts as work: so many processor cores, per cent of a GPU, bytes of network traffic per
#: second. A machine with Jupyter, an SSH daemon and a cloud's agents stays below these.
BUSY_CORES, BUSY_GPU_PERCENT, BUSY_NETWORK_BYTES_PER_S = 0.5, 5.0, 1e6
#: How long to wait for a command that stops a sweep; between two of them; between two ways to end
#: the machine; between two lines about the state; between two writes of the ledger.
STOP_TIMEOUT_S, STOP_AGAIN_S, SHUTDOWN_AGAIN_S, REPORT_S, LEDGER_S = (
    120.0,
    60.0,
    300.0,
    3600.0,
    60.0,
)

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


# ---- the decision ----


class Decision(enum.Enum):
    """What the guard does now."""

    WAIT = "wait"
    STOP_SWEEPS = "stop sweeps"
    SHUT_DOWN = "shut down"


@dataclass(frozen=True)
class Limits:
    """When a machine has to go.

    Attributes:
        idle_s: for how long it may do nothing.
        hours: how many hours of all machines with this ledger may be spent; infinite without limit.
        grace_s: how long sweeps get to end when the hours are spent.
    """

    idle_s: float
    hours: float
    grace_s: float


@dataclass(frozen=True)
class Look:
    """The state of the machine at one moment.

    Attributes:
        at_s: on the monotonic clock.
        spent_hours: of all machines with this ledger, until now.
        sweeps: the folders of studies that are being swept.
        is_busy: whether processor, GPU or network have worked since the last look.
        is_kept: whether somebody has asked to keep the machine.
    """

    at_s: float
    spent_hours: float
    sweeps: tuple[Path, ...] = ()
    is_busy: bool = False
    is_kept: bool = False


@dataclass
class Guard:
    """Decides at each look. It has no effects, so that every case can be tested."""

    limits: Limits
    _quiet_since_s: float | None = None
    _over_since_s: float | None = None

    def decide(self, look: Look) -> tuple[Decision, str]:
        """What to do, and why."""
        if look.spent_hours >= self.limits.hours:
            return self._over_budget(look)
        self._over_since_s = None
        if look.sweeps or look.is_busy or look.is_kept:
            self._quiet_since_s = None
            what = "a sweep runs" if look.sweeps else "busy" if look.is_busy else "kept"
            return Decision.WAIT, what
        if self._quiet_since_s is None:
            self._quiet_since_s = look.at_s
        quiet_s = look.at_s - self._quiet_since_s
        why = f"idle for {quiet_s / 60:.0f} of {self.limits.idle_s / 60:.0f} minutes"
        return (Decision.SHUT_DOWN if quiet_s >= self.limits.idle_s else Decision.WAIT), why

    def _over_budget(self, look: Look) -> tuple[Decision, str]:
        if self._over_since_s is None:
            self._over_since_s = look.at_s
        why = f"{look.spent_hours:.2f} of {self.limits.hours:.2f} hours are spent"
        over_s = look.at_s - self._over_since_s
        if not look.sweeps:
            return Decision.SHUT_DOWN, why
        if over_s < self.limits.grace_s:
            return Decision.STOP_SWEEPS, why
        return (
            Decision.SHUT_DOWN,
            f"{why}, and the sweep has not ended within {self.limits.grace_s / 60:.0f} minutes",
        )


# ---- what the machine does ----


def live_sweeps(outs: Sequence[Path]) -> tuple[Path, ...]:
    """The folders of studies below folders of outputs in which a sweep is alive."""
    return tuple(file.parent for file in _owner_files(outs) if _is_alive(file))


def _owner_files(outs: Sequence[Path]) -> list[Path]:
    found: set[Path] = set()
    for out in outs:
        for pattern in ("sweep.json", "*/sweep.json", "*/*/sweep.json"):
            with suppress(OSError):  # a folder that is removed meanwhile
                found.update(out.glob(pattern))
    return sorted(found)


def _is_alive(owner: Path) -> bool:
    """Whether a sweep holds its lock, or has touched its file a moment ago.

    The lock is exact, also for a sweep that is suspended; it is not seen across containers.
    """
    with suppress(OSError), open(owner.with_name("sweep.lock"), "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(lock, fcntl.LOCK_UN)
    age_s = _age_s(owner)
    return age_s is not None and age_s < ALIVE_S


def _age_s(file: Path) -> float | None:
    try:
        return abs(time.time() - file.stat().st_mtime)
    except OSError:
        return None


@dataclass
class Activity:
    """How busy processor, GPU and network were since the last measurement.

    Args:
        busy_cores: how many processor cores count as work.
    """

    busy_cores: float = BUSY_CORES
    _last: tuple[float, float, float] | None = None
    _has_gpu: bool = field(default_factory=lambda: shutil.which("nvidia-smi") is not None)

    def is_busy(self) -> bool:
        """Whether anything has worked since the last call; the first call says no."""
        now = (time.monotonic(), _cpu_seconds(), _network_bytes())
        last, self._last = self._last, now
        if self._has_gpu and _gpu_percent() >= BUSY_GPU_PERCENT:
            return True
        if last is None or now[0] <= last[0]:
            return False
        elapsed_s = now[0] - last[0]
        cores, rate = ((now[i] - last[i]) / elapsed_s for i in (1, 2))
        return cores >= self.busy_cores or rate >= BUSY_NETWORK_BYTES_PER_S


def _cpu_seconds() -> float:
    """The seconds that all processors have worked since the machine started."""
    with suppress(OSError, ValueError, IndexError):
        user, nice, system, _idle, _wait, irq, soft_irq = (
            int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
        )
        return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _network_bytes() -> float:
    """The bytes that have come in and gone out since the machine started, loopback left out."""
    total = 0.0
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
            name, counters = line.split(":", 1)
            if name.strip() != "lo":
                numbers = counters.split()
                total += int(numbers[0]) + int(numbers[8])
    return total


def _gpu_percent() -> float:
    """How busy the busiest GPU is; 0 where the driver does not answer, as nothing can use it."""
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return max((float(n) for n in re.findall(r"[\d.]+", answer.stdout)), default=0.0)
    return 0.0


def _is_kept(file: Path | None, idle_s: float) -> bool:
    """Whether the file's time is in the future or not longer ago than the idle time."""
    if file is None:
        return False
    with suppress(OSError):
        return time.time() - file.stat().st_mtime < idle_s
    return False


# ---- what has been spent ----


@dataclass
class Ledger:
    """The hours of all machines that have worked under one name, in a file or an object storage.

    Nothing is written before what is there has been read, so a store that is away for a while, or
    a file that is damaged, loses no hour.
    """

    place: str | None
    machine: str
    started_s: float
    _others: dict[str, float] = field(default_factory=dict)
    _wrote_at_s: float = -math.inf
    _complaint: str = ""

    @property
    def spent_hours(self) -> float:
        """Of all machines, this one included, until now."""
        return sum(self._others.values()) + self._own_hours

    @property
    def _own_hours(self) -> float:
        return (_boot_clock_s() - self.started_s) / 3600

    def update(self, *, is_last: bool = False) -> None:
        """Read what other machines have spent, and add this one, once a minute and at the end."""
        now_s = time.monotonic()
        is_due = is_last or now_s - self._wrote_at_s >= LEDGER_S
        if self.place is None or not is_due:
            return
        self._wrote_at_s = now_s
        try:
            self._others = {**self._others, **self._read(self.place)}
            self._others.pop(self.machine, None)
            _write(self.place, {"hours": {**self._others, self.machine: self._own_hours}})
            self._complaint = ""
        except DamagedLedger:
            raise
        except Exception as error:  # noqa: BLE001  each store has errors of its own
            complaint = f"the ledger {self.place} cannot be read or written ({_line(error)})"
            if complaint != self._complaint:
                say(f"{complaint}; it is tried again every minute")
            self._complaint = complaint

    def _read(self, place: str) -> dict[str, float]:
        try:
            text = _read(place)
        except FileNotFoundError:
            return {}
        try:
            return {str(k): float(v) for k, v in json.loads(text)["hours"].items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedLedger(
                f"the ledger {place} is damaged; it should read "
                '{"hours": {"NAME OF A MACHINE": 1.5}}. Correct it, or remove it to count from 0'
            ) from error


class DamagedLedger(Exception):
    """What lies at the ledger's place is no ledger."""


def _read(place: str) -> str:
    if "://" not in place:
        return Path(place).read_text("utf-8")
    import fsspec

    store, path = fsspec.core.url_to_fs(place)
    store.invalidate_cache()
    return bytes(store.cat_file(path)).decode()


def _write(place: str, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=1, sort_keys=True)
    if "://" in place:
        import fsspec

        store, path = fsspec.core.url_to_fs(place)
        store.pipe_file(path, text.encode())
        return
    file = Path(place)
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(text, "utf-8")
    os.replace(beside, file)


def _boot_clock_s() -> float:
    """Seconds since the machine started, the time in which it was suspended included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _machine_name(started_s: float) -> str:
    """A name for this machine until it is started again."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = os.uname().nodename
    return boot if started_s == 0 else f"{boot}-{started_s:.0f}"


# ---- acting ----


@dataclass
class Actions:
    """Stops sweeps and ends the machine, each again after a while where it had no effect."""

    stop: str
    shutdowns: Sequence[str]
    _stopped_at_s: dict[Path, float] = field(default_factory=dict)
    _shut_at_s: float = -math.inf
    _shut_count: int = 0

    def stop_sweeps(self, sweeps: Sequence[Path], why: str) -> None:
        """Ask each sweep to end; one that cannot be asked gets SIGTERM, which it treats alike."""
        for folder in sweeps:
            now_s = time.monotonic()
            if now_s - self._stopped_at_s.get(folder, -math.inf) < STOP_AGAIN_S:
                continue
            self._stopped_at_s[folder] = now_s
            say(f"{why}: stopping the sweep in {folder}")
            failure = _run([*shlex.split(self.stop), str(folder)])
            if failure:
                say(f"{self.stop} {folder}: {failure}; sending SIGTERM to the sweep")
                _terminate(folder / "sweep.json")

    def shut_down(self, why: str) -> None:
        """End the machine. Where it is still there after five minutes, in the next way."""
        now_s = time.monotonic()
        if now_s - self._shut_at_s < SHUTDOWN_AGAIN_S:
            return
        self._shut_at_s = now_s
        command = self.shutdowns[min(self._shut_count, len(self.shutdowns) - 1)]
        self._shut_count += 1
        say(f"{why}: ending this machine: {command}")
        failure = _run(["sh", "-c", command])
        if failure:
            say(f"{command}: {failure}")
            self._shut_at_s = -math.inf if self._shut_count < len(self.shutdowns) else now_s


def _run(command: Sequence[str]) -> str:
    """Run a command; returns why it failed, or nothing."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=STOP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return _line(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return f"exit code {done.returncode}{': ' + lines[-1] if lines else ''}"


def _terminate(owner: Path) -> None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(owner.read_text("utf-8"))
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        if content["machine"] == boot_id:  # else the pid is that of another machine
            os.kill(int(content["pid"]), signal.SIGTERM)


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def say(text: str) -> None:
    """Print one line, with the time, at once."""
    print(f"[guard {time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


# ---- the command ----


def watch(options: argparse.Namespace) -> int:
    """Look every few seconds until the machine ends."""
    started_s = 0.0 if options.count_from == "boot" else _boot_clock_s()
    ledger = Ledger(options.ledger, _machine_name(started_s), started_s)
    limits = Limits(idle_s=options.idle, hours=_hours(options), grace_s=options.grace)
    guard, activity = Guard(limits), Activity(options.busy_cores)
    actions = Actions(options.stop, options.shutdown)
    keep = None if options.keep is None else Path(options.keep).expanduser()

    def look() -> Look:
        ledger.update()
        return Look(
            at_s=time.monotonic(),
            spent_hours=ledger.spent_hours,
            sweeps=live_sweeps(options.out),
            is_busy=activity.is_busy(),
            is_kept=_is_kept(keep, options.idle),
        )

    try:
        _work(options, guard, actions, look)
    except DamagedLedger as error:
        return _refuse(str(error))
    finally:
        with suppress(DamagedLedger):
            ledger.update(is_last=True)


def _work(
    options: argparse.Namespace, guard: Guard, actions: Actions, look: Callable[[], Look]
) -> NoReturn:
    """Look, decide and act, for ever."""
    reported_at_s, price, limits = -math.inf, options.price_per_hour, guard.limits
    while True:
        now = look()
        decision, why = guard.decide(now)
        if decision is Decision.STOP_SWEEPS:
            actions.stop_sweeps(now.sweeps, why)
        elif decision is Decision.SHUT_DOWN:
            actions.shut_down(why)
        elif now.at_s - reported_at_s >= REPORT_S:
            reported_at_s = now.at_s
            cost = "" if price is None else f", {now.spent_hours * price:.2f} at {price} an hour"
            limit = "" if math.isinf(limits.hours) else f" of {limits.hours:.2f}"
            say(f"{why}; {now.spent_hours:.2f}{limit} hours spent{cost}")
        time.sleep(options.every)


def health(options: argparse.Namespace) -> int:
    """Exit code 1 where a sweep has left its file and shows no sign of life."""
    dead = [str(f.parent) for f in _owner_files(options.out) if not _is_alive(f)]
    if dead:
        print(f"no sign of life from the sweep in {', '.join(dead)}")
        return 1
    print("healthy")
    return 0


def _hours(options: argparse.Namespace) -> float:
    limits = [math.inf if options.budget_hours is None else options.budget_hours]
    if options.budget is not None:
        limits.append(options.budget / options.price_per_hour)
    return float(min(limits))


def _duration(text: str) -> float:
    match = re.fullmatch(r"([0-9.]+)([smhd])", text.strip())
    with suppress(ValueError):
        if match:
            return float(match[1]) * _UNITS_S[match[2]]
    raise argparse.ArgumentTypeError(f"{text!r} is no duration; write it as 90s, 30m, 8h or 2d")


def _positive(text: str) -> float:
    with suppress(ValueError):
        number = float(text)
        if 0 < number < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")


def _refuse(message: str) -> int:
    print(f"machine_guard.py: {message}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="machine_guard.py", description=(__doc__ or "").split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in (("watch", watch), ("health", health)):
        command = commands.add_parser(name, help=(function.__doc__ or "").split("\n")[0])
        command.set_defaults(function=function)
        command.add_argument(
            "--out",
            type=Path,
            action="append",
            required=True,
            metavar="FOLDER",
            help="a folder of outputs, in which sweeps are looked for (repeatable)",
        )
        if name == "watch":
            _add_watch_options(command)
    return parser


def _add_watch_options(command: argparse.ArgumentParser) -> None:
    add: Callable[..., Any] = command.add_argument
    add(
        "--shutdown",
        action="append",
        required=True,
        metavar="COMMAND",
        help="what ends the machine; a second one is tried if it is still there after 5 minutes",
    )
    add("--idle", type=_duration, default=1800.0, metavar="DURATION", help="default: 30m")
    add("--budget-hours", type=_positive, metavar="HOURS")
    add("--budget", type=_positive, metavar="AMOUNT", help="needs --price-per-hour")
    add("--price-per-hour", type=_positive, metavar="AMOUNT", help="what the machine costs")
    add(
        "--ledger",
        metavar="PATH_OR_URL",
        help="where the hours are kept, so that those of preempted machines count",
    )
    add(
        "--busy-cores",
        type=_positive,
        default=BUSY_CORES,
        metavar="CORES",
        help=f"how many busy processor cores count as work; default: {BUSY_CORES}",
    )
    add(
        "--keep",
        metavar="FILE",
        help="no idleness for --idle after the file's time: touch -d '+3 hours' FILE",
    )
    add(
        "--stop",
        default="notebook_hpo.py stop",
        metavar="COMMAND",
        help="what stops a sweep, before its folder; default: notebook_hpo.py stop",
    )
    add(
        "--grace",
        type=_duration,
        default=900.0,
        metavar="DURATION",
        help="how long a sweep gets to end when the budget is spent; default: 15m",
    )
    add("--every", type=_duration, default=20.0, metavar="DURATION", help="default: 20s")
    add(
        "--count-from",
        choices=["boot", "start"],
        default="boot",
        help="whether hours count from the machine's start or the guard's; default: boot",
    )


def main() -> int:
    """Run the command line."""
    parser = _parser()
    options = parser.parse_args()
    if options.command == "watch" and options.budget is not None and options.price_per_hour is None:
        parser.error("--budget needs --price-per-hour, what an hour of this machine costs")
    return int(options.function(options))


def _end(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    sys.exit(main())
