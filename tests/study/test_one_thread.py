"""Proposals of the Gaussian process beside trials that need the cores."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from sweeper.study.samplers.gp import on_one_thread


def threads() -> set[int]:
    """Of all libraries for matrices that this process has loaded."""
    return {library["num_threads"] for library in threadpool_info()}


def test_a_proposal_uses_one_thread_and_leaves_the_others_to_the_process() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("scipy.linalg")  # what is not loaded has no number of threads yet
    torch.set_num_threads(2)
    with threadpool_limits(limits=2, user_api="blas"):
        with on_one_thread():
            assert threads() == {1}
            assert torch.get_num_threads() == 1
        of_matrices = {it["num_threads"] for it in threadpool_info() if it["user_api"] == "blas"}
        assert of_matrices == {2}
        assert torch.get_num_threads() == 2
