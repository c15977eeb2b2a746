"""A sweep on one host whose trials run on another one, where the machine has network namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from commands import Command
from dask_clusters import certificates
from studies import until

from sweeper.notebooks.metadata import read_metadata
from sweeper.study.study import Study
from sweeper.testing import write_notebook
from sweeper.tracking import free_port
from sweeper.trials import StudyPaths, TrialState

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("started_kernels")]

TRIALS = 6
TRAIN = """\
import os, pathlib, time, beside, sweeper
trial, events = sweeper.trial(), pathlib.Path(os.environ["EVENTS"])
def note(event):
    with open(events / "events.txt", "a") as file:
        file.write(f"{event} {trial.run_id}\\n")
saved = sweeper.load_checkpoint()
note("begins" if saved is None else "goes-on")
sweeper.save_checkpoint(x=x)
sweeper.report(0, val=x / 2)
while (events / "slow").exists():
    time.sleep(0.05)
sweeper.report(1, val=beside.score(x) + float(open("data.txt").read()))
note("ends")
"""
PARAMETERS = """\
objective: {{val: maximize}}
space: {{x: {{low: 0.0, high: 1.0}}}}
study: {{name: far, trials: {trials}, sampler: random}}
kernels: cold
cluster: tls://{address}
"""
#: The command line on a host; what writes to MLflow for it stays outside of the host's network.
ENTER = """\
import ctypes, os, sys

network = os.open("{network}", os.O_RDONLY)
if ctypes.CDLL(None, use_errno=True).setns(network, 0) != 0:
    raise OSError(ctypes.get_errno(), "setns")
from sweeper.cli import main

sys.exit(main())
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """Network namespaces that a bridge connects, each with an address of its own."""

    NET = "10.213.77"

    def __init__(self, *names: str) -> None:
        self._stack = ExitStack()
        self._bridge = f"hpo{os.getpid()}"
        self.address = f"{self.NET}.1"
        self.addresses = {name: f"{self.NET}.{10 + i}" for i, name in enumerate(names)}

    def open(self) -> None:
        ip("link", "add", self._bridge, "type", "bridge")
        self._stack.callback(ip, "link", "del", self._bridge)
        ip("address", "add", f"{self.address}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for name, address in self.addresses.items():
            space, here = self._space(name), f"{self._bridge}{name}"
            ip("netns", "add", space)
            self._stack.callback(ip, "netns", "del", space)
            ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", here, "master", self._bridge, "up")
            ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def close(self) -> None:
        self._stack.close()

    def file(self, name: str) -> str:
        """The file of a host's network, which a process opens to enter it."""
        return f"/run/netns/{self._space(name)}"

    def _space(self, name: str) -> str:
        return f"{self._bridge}{name}"


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, and the program ip")
    hosts = Hosts("a", "b")
    with closing(hosts):
        try:
            hosts.open()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine has no network namespaces: {error.stderr.decode().strip()}")
        yield hosts


def on_host(
    hosts: Hosts, hidden: Path, *words: str, env: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program of Dask on the second host, which has nothing of the first one's folder."""
    script = f'mount -t tmpfs none "{hidden}" && exec "$@"'
    enter = ["nsenter", f"--net={hosts.file('b')}", "unshare", "--mount", "sh", "-c", script, "sh"]
    python = [sys.executable, "-m", f"distributed.cli.dask_{words[0]}", *words[1:]]
    return subprocess.Popen(
        [*enter, *python], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def test_trials_on_another_host_survive_their_worker_and_bring_all_their_files_home(
    hosts: Hosts, tmp_path: Path
) -> None:
    home, events = tmp_path / "home", tmp_path / "events"
    events.mkdir()
    write_notebook(home / "nb.ipynb", TRAIN, parameters="x = 0.5")
    (home / "beside.py").write_text("def score(x):\n    return 2 * x\n")
    (home / "data.txt").write_text("3")
    address = f"{hosts.addresses['b']}:{free_port(24_000)}"
    (home / "p.yml").write_text(PARAMETERS.format(trials=TRIALS, address=address))
    (home / "enter.py").write_text(ENTER.format(network=hosts.file("a")))
    (events / "slow").touch()

    def times(event: str) -> Counter[str]:
        file = events / "events.txt"
        rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return Counter(run_id for what, run_id in rows if what == event)

    env = {**os.environ, **certificates(tmp_path), "EVENTS": str(events)}
    host, port = address.split(":")
    own = ["--host", host, "--no-dashboard"]
    with ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[bytes]:
            process = on_host(hosts, home, *words, env=env)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        start("scheduler", "--protocol", "tls", "--port", port, *own)
        options = ["--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path), *own]
        first, _ = (start("worker", f"tls://{address}", *options) for _ in range(2))
        words = ["-i", "nb.ipynb", "-o", "out/{run_id}.ipynb", "-p", "p.yml"]
        with open(tmp_path / "log", "w") as log:
            sweep = Command(
                *words,
                cwd=home,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
                script=home / "enter.py",
            )
        stack.callback(sweep.kill)
        until(lambda: len(times("begins")) == 2, "no trials have begun")
        checkpoints = home / "out" / "far" / "checkpoints"
        until(lambda: len([*checkpoints.glob("*/*.ckpt")]) == 2, "no checkpoints came home")
        first.send_signal(signal.SIGKILL)
        # By then no kernel of the dead worker runs any more.
        until(lambda: "worker_lost" in (tmp_path / "log").read_text(), "no trial is lost")
        (events / "slow").unlink()
        assert sweep.wait(timeout=300) == 0, (tmp_path / "log").read_text()
    run_ids = [f"{number:04}" for number in range(TRIALS)]
    assert times("ends") == Counter(run_ids)
    assert sum(times("goes-on").values()) == 1
    paths = StudyPaths.parse(str(home / "out" / "{run_id}.ipynb"), study="far")
    records = Study.load(f"sqlite:///{paths.storage}", "far").records()
    assert [record.run_id for record in records] == run_ids
    assert {record.state for record in records} == {TrialState.COMPLETED}
    for record in records:
        assert record.scores["val"] == 2 * record.params["x"] + 3  # type: ignore[operator]
        assert (read_metadata(record.notebook) or {})["host"] == os.uname().nodename
