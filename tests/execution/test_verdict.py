"""What the end of an execution means for a trial."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_notebook

from sweeper.execution.verdict import judge
from sweeper.kernels import Ending, KernelResult
from sweeper.notebooks import ExecutedNotebook
from sweeper.settings import Settings
from sweeper.testing import trial_spec
from sweeper.trials import Reason, RunningTrial, TrialState

SETTINGS = Settings.from_mapping(
    {"objective": {"val": "maximize"}, "space": {"x": {"low": 0.0, "high": 1.0}}}
)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("cell 4: OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out_of_memory"),
        ("cell 4: RuntimeError: CUDA error: out of memory", "out_of_memory"),
        ("cell 4: RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when", "out_of_memory"),
        ("cell 4: XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while", "out_of_memory"),
        ("cell 4: ResourceExhaustedError: OOM when allocating tensor", "out_of_memory"),
        ("cell 4: OutOfMemoryError: Out of memory allocating 1,024 bytes", "out_of_memory"),
        ("cell 4: ValueError: the queue is out of memory slots", "cell_error"),
    ],
)
def test_a_gpu_without_memory_is_recognised_in_the_words_of_each_library(
    error: str, reason: str
) -> None:
    file = ExecutedNotebook(new_notebook(), trial_spec(), started_at="")
    result = KernelResult(ending=Ending.CELL_FAILED, error=error)
    outcome = judge(file, result, RunningTrial(), SETTINGS)
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason(reason))
    assert outcome.message == error
