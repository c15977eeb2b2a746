"""What trials that have ended let expect of the memory of another one."""

from __future__ import annotations

from sweeper.execution.peak_memory import PeakMemory
from sweeper.trials import Params

GB = 10**9


def peaks(*taken: tuple[Params, float]) -> PeakMemory:
    memory = PeakMemory()
    for params, n_gb in taken:
        memory.add(params, round(n_gb * GB))
    return memory


def expected_gb(memory: PeakMemory, params: Params) -> float:
    expected = memory.expected_bytes(params)
    assert expected is not None
    return round(expected / GB, 3)


def test_a_trial_is_expected_to_take_a_tenth_more_than_the_largest() -> None:
    assert PeakMemory().expected_bytes({"lr": 0.1}) is None
    assert expected_gb(peaks(({"lr": 0.1}, 4.0), ({"lr": 0.2}, 6.0)), {"lr": 0.3}) == 6.6


def test_running_trials_count_that_have_shown_theirs() -> None:
    for memory in (PeakMemory(), peaks(({}, 2.0))):
        assert memory.expected_bytes({}, [4 * GB]) == round(4.4 * GB)


def test_where_sizes_explain_the_peaks_a_line_through_them_counts() -> None:
    memory = peaks(*(({"batch": n, "lr": 0.1 * n}, 1.0 + n) for n in (1, 2, 4)))
    assert expected_gb(memory, {"batch": 3, "lr": 0.5}) == 4.4
    assert expected_gb(memory, {"batch": 8, "lr": 0.5}) == 9.9, "also beyond those that were seen"


def test_two_sizes_need_four_trials() -> None:
    known = [(1, 1), (2, 1), (1, 2), (2, 2)]
    taken = [({"batch": b, "width": w}, 1.0 + b + 3 * w) for b, w in known]
    assert expected_gb(peaks(*taken[:3]), {"batch": 1, "width": 1}) == 8.8
    assert expected_gb(peaks(*taken), {"batch": 1, "width": 1}) == 5.5


def test_sizes_that_do_not_explain_the_peaks_do_not_count() -> None:
    memory = peaks(({"depth": 1}, 5.0), ({"depth": 2}, 1.0), ({"depth": 3}, 4.0))
    assert expected_gb(memory, {"depth": 2}) == 5.5
    alike = peaks(*(({"batch": 8, "flag": bool(n % 2)}, 2.0) for n in range(4)))
    assert expected_gb(alike, {"batch": 16, "flag": True}) == 2.2
