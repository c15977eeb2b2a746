"""What GPUs do is added up over the time in which trials hold them, as far as it is known."""

from __future__ import annotations

import pytest
from gpu_drivers import StatedDriver

from sweeper.execution.gpus import Gpu, GpuActivity
from sweeper.execution.gpus.measures.usage import GpuUsage, Holding
from sweeper.trials import GpuSample, GpuTotal, GpuUse, samples_in, to_metadata, total_of, use_in

A, B = (Gpu(name=name, uuid=name, memory_bytes=None) for name in ("GPU-a", "GPU-b"))
GB = 10**9


class Bench:
    """GPUs whose clock a test sets.

    Attributes:
        now_s: the clock.
    """

    def __init__(self, *gpus: Gpu, width_s: float = 1.0) -> None:
        self.now_s = 100.0
        self.driver = StatedDriver(*(gpu.name for gpu in gpus))
        self.usage = GpuUsage(gpus, self.driver, width_s=width_s, clock=lambda: self.now_s)

    def begin(self, *gpus: Gpu) -> Holding:
        return self.usage.begin(gpus)

    def read(
        self,
        after_s: float,
        busy: float | None,
        power_w: float | None = None,
        *,
        gpu: Gpu = A,
        used_bytes: int = 0,
        used_by: dict[Holding, int] | None = None,
    ) -> None:
        """Let time pass, and look at a GPU then."""
        self.now_s += after_s
        self.driver.used[gpu.name] = used_bytes
        self.driver.activities[gpu.name] = GpuActivity(busy_share=busy, power_w=power_w)
        self.usage.look(gpu, used_by or {})

    def total(self) -> GpuTotal:
        """What the first GPU did."""
        return self.usage.totals()[0]


def test_a_reading_stands_for_the_time_since_the_one_before_it() -> None:
    bench = Bench(A)
    trial = bench.begin(A)
    bench.read(1, 1.0, 300)
    bench.read(3, 0.5, 100)
    assert trial.use(7) == GpuUse(peak_bytes=7, held_s=4, busy_share=0.625, energy_j=600)
    expected = GpuTotal(name="GPU-a", held_s=4, busy_share=0.625, energy_j=600)
    assert bench.total() == expected


def test_trials_that_share_a_gpu_share_its_energy_and_each_sees_how_busy_it_is() -> None:
    bench = Bench(A)
    first = bench.begin(A)
    bench.read(2, 0.5, 100)
    second = bench.begin(A)
    bench.now_s += 1
    bench.usage.end(first)  # between two readings: half of the second one's time is both's
    bench.read(1, 1.0, 300)
    expected = GpuUse(peak_bytes=0, held_s=3, busy_share=0.6667, energy_j=200 + 150)
    assert first.use(0) == expected
    assert second.use(0) == GpuUse(peak_bytes=0, held_s=2, busy_share=1, energy_j=150 + 300)
    assert bench.total().held_s == 4
    assert bench.total().energy_j == 200 + 600


def test_what_a_gpu_does_while_no_trial_holds_it_does_not_count() -> None:
    bench = Bench(A)
    bench.usage.end(bench.begin(A))
    bench.read(50, 1.0, 300)
    bench.begin(A)
    bench.read(2, 0.25, 100)
    assert bench.total() == GpuTotal(name="GPU-a", held_s=2, busy_share=0.25, energy_j=200)


def test_unknown_values_leave_the_known_ones_as_they_are() -> None:
    bench = Bench(A)
    trial = bench.begin(A)
    bench.read(1, 0.8, None)
    bench.read(1, None, None)
    bench.read(2, 0.2, 50)
    assert trial.use(0) == GpuUse(peak_bytes=0, held_s=4, busy_share=0.4, energy_j=100)


def test_of_a_gpu_that_nobody_can_read_the_time_is_known() -> None:
    nameless = Gpu(name="0", uuid=None, memory_bytes=None)
    bench = Bench(nameless, B)
    trial = bench.begin(nameless)
    bench.now_s += 5
    assert bench.usage.totals() == [
        GpuTotal(name="0", held_s=5),
        GpuTotal(name="GPU-b", held_s=0),
    ]
    assert trial.use(3) == GpuUse(peak_bytes=3, held_s=5)
    assert trial.samples() == []


def test_a_look_that_comes_late_does_not_count_for_all_the_time_before_it() -> None:
    bench = Bench(A)
    trial = bench.begin(A)
    bench.read(1, 0.0, 0)
    bench.read(3600, 1.0, 100)
    use = trial.use(0)
    assert use.held_s == 3601
    assert use.energy_j == 1000, "of ten seconds"
    assert use.busy_share == pytest.approx(10 / 11, abs=1e-4)


def test_memory_is_averaged_over_the_time_in_which_a_trial_held_some() -> None:
    bench = Bench(A)
    trial, other = bench.begin(A), bench.begin(A)
    bench.read(5, None)  # imports, and data that is read
    bench.read(1, None, used_by={trial: 4 * GB, other: 0})
    bench.read(3, None, used_by={trial: 8 * GB, other: 0})
    assert trial.use(0).mean_bytes == 7 * GB
    assert other.use(0).mean_bytes is None


def test_a_trial_with_two_gpus_has_the_seconds_of_both_and_the_energy_of_both() -> None:
    bench = Bench(A, B)
    trial = bench.begin(A, B)
    bench.read(2, 1.0, 200)
    bench.read(0, 0.5, 100, gpu=B)
    assert trial.use(0) == GpuUse(peak_bytes=0, held_s=4, busy_share=0.75, energy_j=600)
    assert [(s.gpu, s.power_w) for s in trial.samples()] == [(0, 200), (1, 100)]
    together = total_of(bench.usage.totals())
    assert together == GpuTotal(name="", held_s=4, busy_share=0.75, energy_j=600)


@pytest.mark.parametrize("seconds", [2, 59, 60, 61, 10_000])
def test_a_trial_keeps_few_samples_however_long_it_runs(seconds: int) -> None:
    bench = Bench(A)
    trial = bench.begin(A)
    for second in range(seconds):
        bench.read(1, float(second >= seconds / 2), 100)
    samples = trial.samples()
    assert min(seconds, 30) <= len(samples) <= 60
    assert samples[0].busy_share == 0
    assert samples[-1].busy_share == 1
    assert {sample.power_w for sample in samples} == {100}


def test_looks_in_quick_succession_make_one_sample() -> None:
    bench = Bench(A)
    trial = bench.begin(A)
    for _ in range(16):
        bench.read(0.125, 0.5, used_bytes=8 * GB)
    assert [(s.busy_share, s.used_bytes) for s in trial.samples()] == [(0.5, 8 * GB)] * 2


def test_an_executed_notebook_keeps_what_is_known_and_gives_it_back() -> None:
    samples = [GpuSample(at_s=1.5, busy_share=0.5), GpuSample(at_s=2.5, busy_share=None)]
    use = GpuUse(peak_bytes=7, held_s=2.0, busy_share=0.5)
    metadata = to_metadata(use, samples)
    assert metadata == {
        "gpu_peak_bytes": 7,
        "gpu_held_s": 2.0,
        "gpu_busy_share": 0.5,
        "gpu_samples": {"at_s": [1.5, 2.5], "gpu": [0, 0], "busy_share": [0.5, None]},
    }
    assert use_in(metadata) == use
    assert samples_in(metadata) == samples
    assert use_in({"state": "completed"}) is None
    assert samples_in({"state": "completed"}) == []
    # As earlier versions wrote it.
    assert use_in({"gpu_peak_bytes": 7}) == GpuUse(peak_bytes=7)
