"""Check that the batches of a loader depend on its seed alone."""

from __future__ import annotations

import copy
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from ..generators import seed_generators
from .bits import differing, digests
from .result import CheckResult, listed, settled
from .undisturbed import generators_kept, undisturbed


def loader_is_seeded(
    loader: Any,
    *,
    batches: int | None = 10,
    num_workers: int | None = None,
    raises: bool = False,
) -> CheckResult:
    """Check that a loader gives the same batches whatever the global seeds and its workers are.

    The first batches of the loader's next epoch are read twice: with its own number of workers,
    and with another one and other states of the global random generators. The loader is then at
    the epoch at which it was, and its workers go on.

    Args:
        loader: a torch DataLoader, such as a `seeded_loader`.
        batches: how many of them to read; None for a whole epoch.
        num_workers: for the second time; default: 0, or 2 where the loader has none. The number
            that it has compares the seeds only, which an IterableDataset needs, and a dataset that
            cannot be used in workers, such as one on a GPU.
        raises: raise where the check does not pass.

    Raises:
        TypeError: this is not a DataLoader.
        ValueError: there are no batches to read.
        CheckFailed: with `raises`.
    """
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(loader, DataLoader):
        kind = type(loader).__name__
        raise TypeError(f"loader_is_seeded(loader=…): expected a DataLoader, got a {kind}")
    if batches is not None and batches < 1:
        raise ValueError(f"loader_is_seeded(batches=…): expected 1 or more, got {batches!r}")
    own = loader.num_workers
    other = num_workers if num_workers is not None else (0 if own else 2)
    with undisturbed(), generators_kept(loader) as generators, _at_epoch(loader) as go_back:
        first = _read(loader, batches, num_workers=own, seed=1)
        go_back()
        second = _read(loader, batches, num_workers=other, seed=2)
        differ = differing(first, second)
        if differ and own != other:
            go_back()
            only_seed = differing(first, _read(loader, batches, num_workers=own, seed=2))
        else:
            only_seed = differ
    n_read = len({place.partition("]")[0] for place in first})
    if not n_read:
        raise ValueError("loader_is_seeded(loader=…): it has no batches")
    workers = f" and with {own} or {other} workers" if own != other else ""
    if not differ:
        finding = f"{n_read} batches are the same bits with other global seeds{workers}"
    elif only_seed:
        finding = f"batches differ with other global seeds: {listed(only_seed)}"
    else:
        finding = f"batches differ between {own} and {other} workers: {listed(differ)}"
    remedy = ""
    if differ and isinstance(loader.dataset, IterableDataset) and not only_seed:
        remedy = (
            "an IterableDataset repeats for the same number of workers only: fix num_workers, and "
            f"pass num_workers={own} to this check"
        )
    elif differ:
        remedy = "use sweeper.seeded_loader, which seeds the global generators for each sample"
        if unseeded := [name for name in generators if name.startswith("dataset")]:
            remedy += f", and draw from these instead of {listed(unseeded)}"
    figures = {"batches": n_read, "differing": len(differ)}
    result = CheckResult("loader_is_seeded", not differ, finding, remedy, figures)
    return settled(result, raises=raises)


def _read(loader: Any, batches: int | None, *, num_workers: int, seed: int) -> dict[str, str]:
    """The digests of the next batches."""
    # A loader cannot be given another number of workers, but a copy can be made with one.
    view = copy.copy(loader)
    view.__dict__.update(
        num_workers=num_workers,
        prefetch_factor=(loader.prefetch_factor or 2) if num_workers else None,
        timeout=loader.timeout if num_workers else 0,
        persistent_workers=False,
        pin_memory=False,
        _iterator=None,
    )
    if num_workers and not loader.num_workers:
        # Classes of a notebook exist in forked processes only.
        methods = multiprocessing.get_all_start_methods()
        view.multiprocessing_context = "fork" if "fork" in methods else None
    seed_generators("check", seed)
    found: dict[str, str] = {}
    for index, batch in enumerate(islice(view, batches)):
        found |= digests(batch, f"batch[{index}]")
    return found


@contextmanager
def _at_epoch(loader: Any) -> Iterator[Callable[[], None]]:
    """Put the loader back to its epoch after the block; the value does so within it."""
    state = loader.state_dict() if hasattr(loader, "state_dict") else None
    samplers = loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None)
    found = [getattr(sampler, "generator", None) for sampler in samplers]
    generators = [(generator, generator.get_state()) for generator in found if generator]

    def go_back() -> None:
        if state is not None:
            loader.load_state_dict(state)
        for generator, before in generators:
            generator.set_state(before)

    try:
        yield go_back
    finally:
        go_back()
