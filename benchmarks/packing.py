"""Compare the time of sweeps with the least time that a simulated GPU allows.

    uv run benchmarks/packing.py [--regimes host,gpu] [--jobs 2,4,8] [--trials 24] [--rounds 3]

Kernels and memory limits are real; the GPU of 40 GB is simulated. A regime is a kind of trial: how
long a step takes on the host and on the GPU, and how much GPU memory the trial uses. The least time
of a sweep is the largest of these four:

- The time of one trial alone, measured as a script with the same steps. It is longer than the
  steps' waits, by 5 % on a quiet machine.
- The time of the GPU's work for all trials.
- The time of the host's work for all trials, divided by the number of slots (trials at once).
- The time of the fewest rounds in which the trials fit into the GPU's memory. All trials take
  equally long, so no order of trials is faster than such rounds.

"D" is the time of a sweep divided by the least time. "regret" is by how much a sweep with `-j auto`
takes longer than one with the best fixed number of slots. The time of a sweep is that from its
first trial's start to its last trial's end. It contains the proof that forked kernels give the same
results as started ones. "refused" is how often a trial asked the GPU for memory and did not get it.
"lost" is the number of trials that did not complete. The last line is one JSON object, with medians
over the rounds.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import numpy as np
from scipy.optimize import LinearConstraint, milp
from simulated_gpu import DEVICE_CELL, SimulatedGpus

from sweeper import Settings, Sweep
from sweeper.execution.local import LocalExecutor
from sweeper.machine.claims import Claims
from sweeper.machine.gpus import usable_bytes
from sweeper.machine.nvml import Gpu
from sweeper.machine.places import Places
from sweeper.testing import write_notebook
from sweeper.trials import Event, SweepResult, TrialRecord

GB = 10**9
GPU_BYTES = 40 * GB
#: Bytes of the GPU that trials may use together. The rest stays free, because libraries choose
#: other algorithms if memory is short, and results would then change.
SHARED_BYTES = usable_bytes(Gpu(uuid="0", memory_bytes=GPU_BYTES), keeps_spare=True)
#: Number of slots that stands for `-j auto`. The number of cores does not limit it, because trials
#: only wait and do not compute.
MOST_SLOTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """A kind of trial.

    Attributes:
        host_s: Seconds of a step on the host.
        gpu_s: Seconds of a step on the GPU.
        share: Share of the GPU's processors that a step uses, from 0 to 1.
        least: Smallest GPU memory of a trial, in GB.
        most: Largest GPU memory of a trial, in GB.
        mode: Mode of the simulated GPU: `slice` runs one step at a time, `mps` steps of several
            trials, and `crowd` two steps at full speed.
        trials: Number of trials in a sweep.
        trial_s: Seconds that a trial takes alone.
    """

    host_s: float
    gpu_s: float
    share: float = 1.0
    least: float = 8.4
    most: float = 8.4
    mode: str = "slice"
    trials: int = 24
    trial_s: float = 15.0

    @property
    def alone_s(self) -> float:
        """The seconds of GPU time in a trial."""
        return self.trial_s * self.gpu_s / (self.host_s + self.gpu_s)


REGIMES = {
    "host": Regime(host_s=0.040, gpu_s=0.004, least=4.2, most=4.2, trial_s=40.0),
    "gpu": Regime(host_s=0.004, gpu_s=0.040, trial_s=6.0),
    "mixed": Regime(host_s=0.030, gpu_s=0.015),
    "memory": Regime(host_s=0.040, gpu_s=0.004, least=4, most=17, trials=48, trial_s=30.0),
    "processors": Regime(host_s=0.010, gpu_s=0.030, share=0.4, mode="mps"),
    # Two trials at once are the fastest. Each further trial slows all of them down by 35 %.
    "interference": Regime(host_s=0.002, gpu_s=0.040, share=0.25, mode="crowd", trial_s=12.0),
}
#: Number of trials that the GPU's processors run at full speed at the same time, by mode.
_AT_FULL_PACE = {"slice": 1, "crowd": 2}
TRAIN = """
import time
device.take(int(({least} + ({most} - {least}) * (batch - 1) / 7) * 10**9))
for step in range({steps}):
    time.sleep({host_s})
    device.work({gpu_s}, {share})
    if step % 5 == 4:
        sweeper.report(step, val=x * step)
sweeper.score(val=x)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The results of one sweep.

    Attributes:
        took_s: Seconds from the first trial's start to the last trial's end.
        least_s: Least seconds that the same trials can take.
        n_refused: How often the GPU had not the memory that a trial asked for.
        n_lost: Number of trials that did not complete.
        peak_bytes: Largest GPU memory that was in use.
    """

    took_s: float
    least_s: float
    n_refused: int
    n_lost: int
    peak_bytes: int

    @property
    def distance(self) -> float:
        """The time of the sweep divided by the least time."""
        return self.took_s / self.least_s


def cells_of(regime: Regime, gpus: SimulatedGpus) -> tuple[str, str]:
    """Return the two cells of a trial: one that opens the simulated GPU, one that trains on it."""
    steps = round(regime.trial_s / (regime.host_s + regime.gpu_s))
    begin = f"{DEVICE_CELL}\nimport sweeper\ndevice = Device({str(gpus.folder)!r})"
    return begin, TRAIN.format(steps=steps, **asdict(regime))


def sweep(
    regime: Regime, gpus: SimulatedGpus, folder: Path, *, jobs: int | None, claims: Path
) -> tuple[SweepResult, float]:
    """Run a sweep with trials of a regime, or resume the sweep that the folder contains.

    Args:
        regime: The kind of trial.
        gpus: The simulated GPUs.
        folder: Folder for this sweep only.
        jobs: Number of slots. None for `MOST_SLOTS`.
        claims: Folder in which processes record their memory reservations.

    Returns:
        The result, and the seconds from the first trial's start to the last trial's end. The
        trials' records do not have this time: their durations lack the waits for a GPU.
    """
    notebook = folder / "nb.ipynb"
    write_notebook(notebook, *cells_of(regime, gpus), parameters="x = 0.5\nbatch = 1")
    space = {"x": {"low": 0.0, "high": 1.0}, "batch": {"type": "int", "low": 1, "high": 8}}
    data = {
        "objective": {"val": "maximize"},
        "space": space,
        "study": {"name": "packing", "trials": regime.trials, "sampler": "random"},
    }
    places = Places(
        gpus.installed(), driver=gpus, claims=Claims(claims), look_s=0.05, settled_s=0.5
    )
    slots = jobs or MOST_SLOTS
    at_s: dict[Event, list[float]] = {Event.TRIAL_STARTED: [], Event.TRIAL_ENDED: []}

    def observe(event: Event, _: TrialRecord | None) -> None:
        if event in at_s:
            at_s[event].append(time.monotonic())

    result = Sweep.from_settings(
        Settings.from_mapping(data),
        notebook=notebook,
        output=f"{folder}/out/{{run_id}}.ipynb",
        executor=lambda workload: LocalExecutor(workload, places=places, jobs=slots),
        observer=observe,
    ).run()
    starts, ends = at_s[Event.TRIAL_STARTED], at_s[Event.TRIAL_ENDED]
    return result, max(ends, default=0.0) - min(starts, default=0.0)


def script_s(regime: Regime) -> float:
    """Return the seconds that a trial's steps take in a script that has the GPU for itself."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as root,
        SimulatedGpus(Path(root), memory_bytes=GPU_BYTES, mode=regime.mode) as gpus,
    ):
        begin, train = cells_of(regime, gpus)
        timed = f"import time\nx, batch = 0.5, 1\n{begin}\nbegan = time.monotonic()\n{train}"
        timed += "\nprint(time.monotonic() - began)"
        variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-0"}
        command = [sys.executable, "-c", timed]
        return float(subprocess.check_output(command, env=variables, text=True))


def run(regime: Regime, *, jobs: int | None, alone_s: float | None = None) -> Run:
    """Run a sweep with trials of a regime, and return the measured results.

    Args:
        regime: The kind of trial.
        jobs: Number of slots. None for `MOST_SLOTS`, as with `-j auto`.
        alone_s: Seconds that a trial takes alone. Default: the sum of its waits.
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        folder = Path(root)
        with SimulatedGpus(folder / "g", memory_bytes=GPU_BYTES, mode=regime.mode) as gpus:
            result, took_s = sweep(regime, gpus, folder, jobs=jobs, claims=folder / "claims")
            state = gpus.state("GPU-0")
    return Run(
        took_s=took_s,
        least_s=_least_s(
            regime,
            [int(str(r.params["batch"])) for r in result.records],
            trial_s=alone_s or regime.trial_s,
        ),
        n_refused=state["n_refused"],
        n_lost=regime.trials - result.counts["completed"],
        peak_bytes=state["peak_bytes"],
    )


def _least_s(regime: Regime, batches: Sequence[int], *, trial_s: float) -> float:
    """Return the least seconds that these trials can take with `MOST_SLOTS` slots.

    Args:
        regime: The kind of trial.
        batches: Values of the param `batch` of all trials, which determine their GPU memory.
        trial_s: Seconds that a trial takes alone.
    """
    of_gpu_s = len(batches) * regime.alone_s
    of_gpu_s *= regime.share if regime.mode == "mps" else 1 / _AT_FULL_PACE[regime.mode]
    taken_bytes = [int(_taken_gb(regime, batch) * GB) for batch in batches]
    of_memory_s = _fewest_rounds(taken_bytes) * trial_s
    return max(trial_s, of_gpu_s, len(batches) * trial_s / MOST_SLOTS, of_memory_s)


def _taken_gb(regime: Regime, batch: int) -> float:
    """Return the GPU memory of a trial in GB, by its value of the param `batch`."""
    return regime.least + (regime.most - regime.least) * (batch - 1) / 7


def _fewest_rounds(taken_bytes: Sequence[int]) -> int:
    """Return the smallest number of rounds in which all trials fit into the GPU's memory.

    Each trial runs in one round. This is bin packing, which is solved exactly.

    Args:
        taken_bytes: GPU memory of each trial.
    """
    counts = Counter(taken_bytes)
    sizes = sorted(counts, reverse=True)
    rounds = np.array(list(_rounds(sizes, SHARED_BYTES, MOST_SLOTS))).T  # [size, kind of round]
    fewest = milp(
        np.ones(rounds.shape[1]),
        constraints=LinearConstraint(rounds, lb=[counts[size] for size in sizes]),
        integrality=np.ones(rounds.shape[1]),
    )
    n_rounds: float = fewest.fun
    return round(n_rounds)


def _rounds(sizes: Sequence[int], free_bytes: int, free_slots: int) -> Iterator[tuple[int, ...]]:
    """Yield every possible round, as the number of its trials of each size.

    Args:
        sizes: Different sizes of trials in GPU memory, in bytes.
        free_bytes: GPU memory for the round.
        free_slots: Largest number of trials in the round.
    """
    if not sizes:
        yield ()
        return
    for count in range(min(free_slots, free_bytes // sizes[0]) + 1):
        left = free_bytes - count * sizes[0]
        for others in _rounds(sizes[1:], left, free_slots - count):
            yield (count, *others)


def main() -> None:
    """Run the sweeps, print one table, and print the figures of `-j auto` as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--regimes", default=",".join(REGIMES), help="default: all")
    parser.add_argument("--jobs", default="2,4,8", help="fixed slots (default: 2,4,8), or none: ''")
    parser.add_argument("--trials", type=int, help="of each sweep (default: those of the regime)")
    parser.add_argument("--rounds", type=int, default=1, help="sweeps of each kind (default: 1)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the trials' time (default: 1)")
    logging.disable(logging.WARNING)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    options = parser.parse_args()
    fixed = [int(jobs) for jobs in options.jobs.split(",") if jobs]
    print("| regime | slots | seconds | D | refused | lost | most memory |\n" + "|---" * 7 + "|")
    figures = {}
    for name in options.regimes.split(","):
        regime = replace(
            REGIMES[name],
            trial_s=options.scale * REGIMES[name].trial_s,
            trials=options.trials or REGIMES[name].trials,
        )
        runs: dict[str, list[Run]] = {}
        alone_s = script_s(regime)
        # The numbers of slots take turns, so that a change of the machine's load affects all.
        for _ in range(options.rounds):
            for slots, jobs in [*((str(jobs), jobs) for jobs in fixed), ("auto", None)]:
                one = run(regime, jobs=jobs, alone_s=alone_s)
                runs.setdefault(slots, []).append(one)
                print(
                    f"| {name} | {slots} | {one.took_s:.1f} | {one.distance:.2f} | {one.n_refused} "
                    f"| {one.n_lost} | {one.peak_bytes / GB:.1f} GB |",
                    flush=True,
                )
        took_s = {slots: median(one.took_s for one in all_of) for slots, all_of in runs.items()}
        auto, auto_s = runs["auto"], took_s.pop("auto")
        best_s = min(took_s.values(), default=auto_s)
        figures[name] = {
            "D": round(median(one.distance for one in auto), 3),
            "regret": round(auto_s / best_s - 1, 3),
            "oversubscribed": sum(one.n_refused for one in auto),
            "lost": sum(one.n_lost for one in auto),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
