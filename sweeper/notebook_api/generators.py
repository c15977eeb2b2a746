"""Save, restore and seed the global random generators of `random`, numpy and torch.

States of numpy and torch are saved only if the notebook has imported these libraries. Restoring
such states imports them. `seed_generators` and `as_in_a_worker` always need torch.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def random_states(*, of_cuda: bool = True) -> dict[str, Any]:
    """Return the states of the global random generators.

    Args:
        of_cuda: Whether to include the states of CUDA, if it is initialized.
    """
    states: dict[str, Any] = {"python": random.getstate()}
    if numpy := sys.modules.get("numpy"):
        states["numpy"] = numpy.random.get_state()
    if torch := sys.modules.get("torch"):
        states["torch"] = torch.get_rng_state()
        if of_cuda and torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_random_states(states: Mapping[str, Any]) -> None:
    """Set the global random generators to states that `random_states` has returned."""
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy as np

        np.random.set_state(states["numpy"])
    if "torch" in states:
        import torch

        torch.set_rng_state(states["torch"])
        if "cuda" in states and torch.cuda.is_available():
            for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(state, device)


def seed_generators(*key: object) -> None:
    """Seed `random`, numpy and torch (CPU), but not CUDA's generator.

    Args:
        *key: Values whose hash is the seed, such as a seed and an epoch.
    """
    import torch

    digest = hashlib.blake2b(repr(key).encode(), digest_size=20).digest()
    random.seed(digest[:8])
    # Seed only torch's default generator. `torch.manual_seed` would also seed the CUDA generator,
    # which the training uses.
    torch.default_generator.manual_seed(int.from_bytes(digest[8:16], "big"))
    if numpy := sys.modules.get("numpy"):  # torch imports numpy if it is installed.
        # torch and numpy use the same algorithm, Mersenne Twister. With the same seed, they would
        # draw the same numbers. So numpy's seed is another part of the digest.
        numpy.random.seed(int.from_bytes(digest[16:], "big"))


@contextmanager
def random_states_kept(*, of_cuda: bool = True) -> Iterator[None]:
    """Restore the global random states after the block.

    Args:
        of_cuda: Whether to restore the states of CUDA, too, if it was initialized before the block.
    """
    states = random_states(of_cuda=of_cuda)
    try:
        yield
    finally:
        restore_random_states(states)


@contextmanager
def as_in_a_worker() -> Iterator[None]:
    """Run a block that loads data as it would run in a worker process of a loader.

    torch uses one thread. After the block, the global random states are as before the block, except
    those of CUDA. In a worker process, the block runs unchanged.
    """
    import torch

    if torch.utils.data.get_worker_info() is not None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # The number of threads can change the bits of a sum.
    try:
        with random_states_kept(of_cuda=False):
            yield
    finally:
        torch.set_num_threads(threads)
