#!/usr/bin/env python3
"""The tracker and the worker of machines.yaml, with SkyPilot: one command up, one command down.

    machines.py up              # the tracker, and the worker with the sweep of machines.env
    machines.py up --notebook   # the tracker, and a worker with JupyterLab
    machines.py tunnel          # MLflow (and JupyterLab) on this computer, until Ctrl-C
    machines.py status
    machines.py down            # save, and end everything that costs money by the hour

It needs Python 3.9 and the `sky` command. `--dry-run` prints what it would run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

INFRA = Path(__file__).resolve().parent
#: Managed jobs that are over.
_ENDED = {"SUCCEEDED", "CANCELLED", "FAILED", "FAILED_SETUP", "FAILED_PRECHECKS"} | {
    "FAILED_NO_RESOURCE",
    "FAILED_CONTROLLER",
}
_CANCEL_S, _POLL_S = 900.0, 10.0


class MachinesError(Exception):
    """Something that the user has to put right."""


@dataclass(frozen=True)
class Sky:
    """Runs commands of SkyPilot.

    Args:
        is_dry: print them instead.
    """

    is_dry: bool

    def run(self, *arguments: str, text: str | None = None) -> None:
        """Run one.

        Raises:
            MachinesError: it has failed; its own output says why.
        """
        command = ["sky", *arguments] if arguments[0] != "ssh" else list(arguments)
        print("$", shlex.join(command), file=sys.stderr, flush=True)
        if self.is_dry:
            return
        # From the top of the repository, which is the workdir of both tasks.
        code = subprocess.run(
            command, input=text, text=True, cwd=INFRA.parent, check=False
        ).returncode
        if code:
            raise MachinesError(f"{shlex.join(command[:3])} … has failed (exit code {code})")

    def names(self, *arguments: str, field: str) -> dict[str, str]:
        """Names and states of clusters or jobs; of equal names the newest, which comes first."""
        if self.is_dry:
            return {}
        answer = subprocess.run(
            ["sky", *arguments, "-o", "json"], capture_output=True, text=True, check=False
        )
        start = answer.stdout.find("[")
        try:
            if answer.returncode:
                raise ValueError(answer.stderr.strip().rsplit("\n", 1)[-1])
            rows, _ = json.JSONDecoder().raw_decode(answer.stdout[start:] if start >= 0 else "[]")
            found: dict[str, str] = {}
            for row in rows:
                found.setdefault(str(row[field]), str(row["status"]).rsplit(".", 1)[-1].upper())
            return found
        except (ValueError, KeyError, TypeError) as error:
            raise MachinesError(f"sky {' '.join(arguments)} -o json: {error}") from error


@dataclass(frozen=True)
class Machines:
    """What up and down work on."""

    sky: Sky
    values: Mapping[str, str]

    @property
    def tracker(self) -> str:
        """The name of the tracker's cluster. It is not that of a sweep: sweeps share it."""
        return "sweep-tracker"

    @property
    def worker(self) -> str:
        """The name of the worker: of its managed job, or of its cluster with JupyterLab."""
        return f"sweep-{self.values['SWEEP_NAME']}"

    def up(self, *, is_notebook: bool) -> None:
        """Start the tracker where there is none, then the worker."""
        with _documents() as (tracker, worker):
            common = ["--config", str(INFRA / "sky.config.yaml"), "--infra", self.values["INFRA"]]
            common += ["-y", "-d", *_environment(self.values)]
            if self.sky.names("status", field="name").get(self.tracker) == "UP":
                print(f"{self.tracker} is up", file=sys.stderr)
            else:
                self.sky.run("launch", "-c", self.tracker, *common, str(tracker))
            if is_notebook:
                ends = ["-i", "10", "--wait-for", "jobs", "--down"]
                task = ["--env", "WORKER_TASK=notebook"]
                self.sky.run("launch", "-c", self.worker, *ends, *common, *task, str(worker))
            else:
                self._refuse_a_second_job()
                self.sky.run("jobs", "launch", "-n", self.worker, *common, str(worker))
        print("MLflow:   infra/machines.py tunnel", file=sys.stderr)
        what = f"sky logs {self.worker}" if is_notebook else f"sky jobs logs -n {self.worker}"
        print(f"worker:   {what}", file=sys.stderr)
        print("the end:  infra/machines.py down", file=sys.stderr)

    def _refuse_a_second_job(self) -> None:
        state = self._job()
        if state is not None and state not in _ENDED:
            raise MachinesError(
                f"the worker {self.worker} is {state} already; `machines.py down` ends it, and "
                "another SWEEP_NAME is another worker"
            )

    def _job(self) -> str | None:
        """The state of the worker's managed job; None where there has never been one."""
        try:
            return self.sky.names("jobs", "queue", "-a", field="job_name").get(self.worker)
        except MachinesError:
            if self._controllers():
                raise
            return None  # before the first job there is no controller that could answer

    def _controllers(self) -> list[str]:
        clusters = self.sky.names("status", field="name")
        return [name for name in clusters if name.startswith("sky-jobs-controller")]

    def down(self, *, is_saved: bool) -> None:
        """End the worker, save the tracker's state and end it, then the jobs controller."""
        clusters = self.sky.names("status", field="name")
        self._end_job()
        if self.sky.is_dry or self.worker in clusters:
            self.sky.run("down", "-y", self.worker)
        if self.sky.is_dry or self.tracker in clusters:
            if is_saved:
                self._save()
            self.sky.run("down", "-y", self.tracker)
        for name in self._controllers():
            try:  # it asks for this word even with -y, and refuses while other jobs run
                self.sky.run("down", name, text="delete\n")
            except MachinesError as error:
                print(f"{error}; it ends by itself 10 minutes after its last job", file=sys.stderr)
        if self.sky.is_dry:
            return
        bucket = self.values["SWEEP_BUCKET"]
        print(f"ended; results and the tracker's data are in {bucket}", file=sys.stderr)

    def _end_job(self) -> None:
        state = None if self.sky.is_dry else self._job()
        if not self.sky.is_dry and (state is None or state in _ENDED):
            return
        self.sky.run("jobs", "cancel", "-y", "-n", self.worker)
        end_s = time.monotonic() + _CANCEL_S
        while not self.sky.is_dry and (state := self._job()) not in {None, *_ENDED}:
            if time.monotonic() > end_s:
                raise MachinesError(
                    f"the worker {self.worker} is still {state} after "
                    f"{_CANCEL_S / 60:.0f} minutes; look at `sky jobs queue` and call down again"
                )
            time.sleep(_POLL_S)

    def _save(self) -> None:
        bucket = shlex.quote(self.values["SWEEP_BUCKET"])
        command = f"cd sky_workdir && SWEEP_BUCKET={bucket} infra/tracker.sh save"
        try:
            self.sky.run("ssh", "-o", "BatchMode=yes", self.tracker, command)
        except MachinesError as error:
            raise MachinesError(
                f"{error}: the tracker's last minute may not be saved, and it still runs; "
                "`machines.py down --without-saving` ends it nevertheless"
            ) from error

    def tunnel(self) -> None:
        """Bring MLflow, and JupyterLab where there is one, to this computer's loopback."""
        clusters = self.sky.names("status", field="name")
        if not self.sky.is_dry and self.tracker not in clusters:
            raise MachinesError("there is no tracker; start one with `machines.py up`")
        keep = ["-N", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15"]
        print("MLflow: http://127.0.0.1:5000", file=sys.stderr)
        with contextlib.ExitStack() as opened:
            if self.worker in clusters:
                print(f"JupyterLab: the address in `sky logs {self.worker}`", file=sys.stderr)
                jupyter = subprocess.Popen(
                    ["ssh", *keep, "-L", "127.0.0.1:8888:127.0.0.1:8888", self.worker]
                )
                opened.callback(jupyter.wait)
                opened.callback(jupyter.terminate)
            self.sky.run("ssh", *keep, "-L", "127.0.0.1:5000:127.0.0.1:5000", self.tracker)

    def status(self) -> None:
        """Print what runs, machines and jobs."""
        self.sky.run("status")
        self.sky.run("jobs", "queue", "--skip-finished")


@contextlib.contextmanager
def _documents() -> Iterator[tuple[Path, Path]]:
    """The two tasks of machines.yaml, each in a file of its own: sky reads one at a time."""
    texts = re.split(r"(?m)^---\s*$", (INFRA / "machines.yaml").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, "tracker.yaml"), Path(folder, "worker.yaml")]
        for path, text in zip(paths, texts):
            path.write_text(text, "utf-8")
        yield paths[0], paths[1]


def _environment(values: Mapping[str, str]) -> list[str]:
    known = re.findall(r"(?m)^  ([A-Z_]+):", (INFRA / "machines.yaml").read_text("utf-8"))
    return [
        part
        for name, value in values.items()
        if value and name in known
        for part in ("--env", f"{name}={value}")
    ]


def read_values(file: Path) -> dict[str, str]:
    """The values of machines.env.

    Raises:
        MachinesError: a line that is none, or a value that is missing or wrong.
    """
    values = {}
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if not line:
            continue
        name, equals, value = line.partition("=")
        if not equals or not re.fullmatch(r"[A-Z_]+", name):
            raise MachinesError(f"{file}, line {number}: {line!r} should read NAME=VALUE")
        values[name] = value.strip()
    _check(values, file)
    return values


def _check(values: Mapping[str, str], file: Path) -> None:
    required = ("INFRA", "SWEEP_BUCKET", "SWEEP_NAME", "SWEEP_OUTPUT")
    for name in (*required, "SWEEP_NOTEBOOK", "SWEEP_PARAMETERS"):
        if not values.get(name):
            raise MachinesError(f"{file}: {name} has no value")
    cloud, bucket = values["INFRA"].split("/")[0], values["SWEEP_BUCKET"]
    schemes = {"gcp": "gs://", "aws": "s3://"}
    if cloud not in schemes:
        raise MachinesError(f"{file}: INFRA={values['INFRA']}: write gcp or aws, or gcp/REGION")
    if not re.fullmatch(schemes[cloud] + r"[a-z0-9][a-z0-9._/-]+[a-z0-9]", bucket):
        raise MachinesError(
            f"{file}: SWEEP_BUCKET={bucket}: with INFRA={cloud} write {schemes[cloud]}NAME, "
            "because the machines' identity opens buckets of their own cloud"
        )
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", values["SWEEP_NAME"]):
        raise MachinesError(
            f"{file}: SWEEP_NAME={values['SWEEP_NAME']}: write small letters, digits and '-'"
        )
    if not (values.get("BUDGET_HOURS") or values.get("BUDGET")):
        raise MachinesError(f"{file}: neither BUDGET_HOURS nor BUDGET has a value; set a limit")
    if values.get("BUDGET") and not values.get("PRICE_PER_HOUR"):
        raise MachinesError(
            f"{file}: BUDGET needs PRICE_PER_HOUR, what an hour of the worker costs"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="machines.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("command", choices=["up", "down", "tunnel", "status"])
    parser.add_argument("--notebook", action="store_true", help="up: JupyterLab, no sweep")
    parser.add_argument(
        "--without-saving", action="store_true", help="down: a tracker that is lost"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    parser.add_argument("--env-file", type=Path, default=INFRA / "machines.env", metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        values = read_values(options.env_file)
        if not options.dry_run and shutil.which("sky") is None:
            raise MachinesError("there is no `sky` command: pip install 'skypilot[gcp,aws]'")
        machines = Machines(Sky(options.dry_run), values)
        if options.command == "up":
            machines.up(is_notebook=options.notebook)
        elif options.command == "down":
            machines.down(is_saved=not options.without_saving)
        elif options.command == "tunnel":
            machines.tunnel()
        else:
            machines.status()
    except MachinesError as error:
        print(f"machines.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"machines.py: {error.filename or ''}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
