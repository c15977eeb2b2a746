"""A trial whose kernel was paused ends with the same results as a trial that was not."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import nbformat
import psutil
import pytest
from studies import workload_of

from sweeper.execution.local import LocalExecutor
from sweeper.machine.places import Places
from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.testing import trial_spec, write_notebook
from sweeper.testing.executor_contract import ListedTrials
from sweeper.trials import RunningTrial, TrialSpec, TrialState

pytestmark = pytest.mark.kernel

#: A notebook with everything that a pause of the process could disturb: workers of a DataLoader, a
#: thread, an open connection to a child process, a progress bar, a random generator.
TRAIN = """
import queue, socket, subprocess, sys, threading
import numpy as np, sweeper, torch
from tqdm import tqdm
torch.manual_seed(seed)
loader = sweeper.seeded_loader(
    torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True, num_workers=2,
    seed=seed)
net, inbox, (here, there) = torch.nn.Linear(4, 1), queue.Queue(), socket.socketpair()
threading.Thread(target=lambda: [inbox.put(there.recv(8)) for _ in range(6)], daemon=True).start()
echo = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in tqdm(range(6), file=sys.stderr, bar_format="{n}"):
    for (batch,) in loader:
        loss = net(batch).square().mean() + net.bias.square().sum()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    here.send(str(epoch).encode())
    print(inbox.get(), loss.item().hex(), np.random.default_rng(epoch).random())
    print(epoch, file=echo.stdin, flush=True)
    sweeper.report(epoch, val=loss.item() + int(echo.stdout.readline()))
"""


class FrozenOnce(ListedTrials):
    """Gives two trials to an executor with one slot. Trial 0 is frozen until trial 1 has ended."""

    def __init__(self, specs: list[TrialSpec]) -> None:
        super().__init__(specs, on_point=self._freeze)
        self.first: tuple[TrialSpec, RunningTrial] | None = None
        self.frozen_metadata = BLANK

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        if (trial := super().next_trial()) is None and 0 not in self.outcomes:
            assert self.first is not None
            (spec, running) = trial = self.first
            assert _is_still(running.points.pid)
            self.frozen_metadata = read_metadata(spec.notebook) or BLANK
            running.control.thaw()
        self.first = self.first or trial
        return trial

    def _freeze(self, spec: TrialSpec, running: RunningTrial) -> None:
        if spec.number == 0 and running.points.step == 3 and 1 not in self.outcomes:
            assert running.control.freeze()


def _is_still(pid: int | None) -> bool:
    """Return whether a kernel and its child processes are paused, except for those that ended."""
    kernel = psutil.Process(pid)
    found = {one.status() for one in (kernel, *kernel.children(recursive=True))}
    return found - {psutil.STATUS_ZOMBIE} == {psutil.STATUS_STOPPED}


def _printed(spec: TrialSpec) -> str:
    outputs = nbformat.read(spec.notebook, 4).cells[-1].outputs
    return "".join(it.text for it in outputs if it.get("name") == "stdout")


def test_a_trial_that_was_frozen_prints_and_scores_the_same_as_one_that_was_not(
    tmp_path: Path,
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", TRAIN, parameters="seed = 1")
    workload = workload_of(notebook, objective={"val": "minimize"}, kernels="cold")
    specs = [trial_spec(n, seed=7, notebook=tmp_path / f"{n:04d}.ipynb") for n in range(2)]
    source, began_s = FrozenOnce(specs), time.monotonic()
    LocalExecutor(workload, places=Places(), jobs=1).run(source)
    took_s = time.monotonic() - began_s
    first, second = (replace(source.outcomes[n], kernel=None, environment="") for n in range(2))
    assert first.state is TrialState.COMPLETED
    duration_s, ended_at_s = first.duration_s, first.ended_at_s
    assert first == replace(second, duration_s=duration_s, ended_at_s=ended_at_s)
    assert _printed(specs[0]) == _printed(specs[1]) != ""
    assert source.frozen_metadata.state is TrialState.FROZEN
    assert first.duration_s + second.duration_s < took_s + 0.5
