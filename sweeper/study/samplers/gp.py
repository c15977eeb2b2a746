"""Has a Gaussian process compute beside trials that do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Have torch, NumPy and SciPy use one thread of this process while the block runs.

    A proposal's matrices are small: with two threads of OpenBLAS it takes more than three times as
    much CPU, which trials lack. Its last bits do not depend on the machine's cores then.
    """
    # What is imported later has no limit. The imports take seconds, for which a study's first
    # trials need not wait.
    import scipy.linalg  # noqa: F401  what Optuna calls
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:  # a notebook that sweeps may train afterwards
        torch.set_num_threads(before)
