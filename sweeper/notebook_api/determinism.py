"""Seed the global random generators, and build loaders whose batches depend on the seed alone.

These functions run in the kernel.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .generators import as_in_a_worker, seed_generators
from .replicability import observe_warnings

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def seed_everything(seed: int, strict: bool = False) -> None:
    """Seed `random`, numpy and torch, as far as installed, and make torch deterministic.

    Call it first, before anything uses a GPU. The call itself does not start CUDA. torch then uses
    the deterministic version of each operation that has one. For other operations, torch only
    warns, and a sweep names them in its summary and in the tag `sweeper.not_replicable` of the run.

    Matrix products of float32 on GPUs are set to torch's default, full precision. Environment
    variables of some containers change it, and the same trial would then differ between machines.
    For another precision, call `torch.set_float32_matmul_precision` afterwards.

    TensorFlow is seeded if the notebook has imported it already. JAX has no global generator: pass
    `seed` to `jax.random.key`.

    Args:
        seed: Integer of up to 64 bits for torch. numpy and TensorFlow get the lowest 32 bits.
        strict: Whether torch raises an error for an operation without a deterministic version.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read at the first cuBLAS call
    random.seed(seed)
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.random.set_seed(seed % 2**32)
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        np.random.seed(seed % 2**32)
    try:
        import torch
    except ImportError:
        return
    torch.manual_seed(seed)  # seeds CUDA, too: now, or when it is initialized
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    # Deterministic algorithms also fill new memory, which costs time and is not needed here. mypy
    # does not know this property of torch's module.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_num_threads(torch.get_num_threads())  # stops MKL from using fewer threads
    _set_float32_precision(torch)
    observe_warnings()


def _set_float32_precision(torch: Any) -> None:
    """Set matrix products of float32 on GPUs to full precision. Warn if they had TF32."""
    matmul = torch.backends.cuda.matmul
    # In torch 2.9 and later, this setting has another name, and the older names may cause warnings.
    before = getattr(matmul, "fp32_precision", None) or matmul.allow_tf32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_float32_matmul_precision("highest")
    if before in ("tf32", True):
        warnings.warn(
            "seed_everything: turned TF32 off for matrix products of float32, so that they have "
            "torch's default again, full precision; to keep TF32, set it after seed_everything",
            stacklevel=3,
        )


def seeded_loader(
    dataset: Any,
    *,
    batch_size: int | None = 1,
    shuffle: bool = False,
    num_workers: int = 0,
    seed: int = 0,
    **loader_options: Any,
) -> DataLoader[Any]:
    """Build a torch DataLoader whose batches are the same bits for any `num_workers`.

    The order of an epoch depends on (seed, epoch). Before each sample, the global generators of
    `random`, numpy and torch (CPU) are seeded with (seed, epoch, index). So augmentation is the
    same for the same seed, and differs between epochs. A generator of the dataset itself is not
    seeded. The random states of the training do not change. A `sampler` or `batch_sampler` among
    the options decides the order. An IterableDataset gives the same batches only for the same
    number of workers.

    Each `for` over the loader is the next epoch, from 0. `state_dict()` contains the next epoch, so
    that a loader saved by `save_checkpoint(loader=loader)` between two epochs continues there.
    `set_epoch(n)` of `loader.sampler` (of `loader.batch_sampler` if that is an option) sets the
    next epoch. `loader.dataset` is a wrapper, through which the attributes of `dataset` can be
    read.

    Args:
        dataset: Object with `__len__` and `__getitem__`, or an IterableDataset.
        batch_size: Samples in a batch. None for single samples without a batch dimension.
        shuffle: Whether each epoch has a new order.
        num_workers: Number of worker processes. 0 loads in the kernel itself.
        seed: Any integer.
        loader_options: Other arguments of `torch.utils.data.DataLoader`.

    Raises:
        ValueError: `shuffle` is combined with a sampler.
    """
    import torch
    from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert

    # Without a generator of its own, a loader would draw from the global one at every epoch.
    options = {"generator": torch.Generator().manual_seed(seed), **loader_options}
    options |= {"batch_size": batch_size, "num_workers": num_workers}
    if isinstance(dataset, IterableDataset):
        return _with_state(DataLoader(dataset, shuffle=shuffle or None, **options), None)

    sampler, batch_sampler = options.get("sampler"), options.get("batch_sampler")
    if shuffle and not (sampler is None and batch_sampler is None):
        raise ValueError("shuffle=True and a sampler exclude each other: drop one of them")
    in_batches = batch_sampler is not None
    drawn_from = batch_sampler if in_batches else sampler
    keys = _KeySampler(dataset, seed, drawn_from, shuffle=shuffle, in_batches=in_batches)
    options["batch_sampler" if in_batches else "sampler"] = keys
    if in_batches:
        del options["batch_size"]
    one_by_one = batch_size is None and not in_batches
    collate = options.get("collate_fn") or (default_convert if one_by_one else default_collate)
    samples: Any = _SeededDataset(dataset, seed, collate)  # has all methods of a torch Dataset
    return _with_state(DataLoader(samples, **(options | {"collate_fn": _unchanged})), keys)


def _with_state(loader: Any, keys: _KeySampler | None) -> DataLoader[Any]:
    state = _LoaderState(keys, loader.generator)
    loader.state_dict, loader.load_state_dict = state.state_dict, state.load_state_dict
    return loader  # type: ignore[no-any-return]


class _Key(NamedTuple):
    """Key of a sample, which the sampler passes to the dataset instead of an index."""

    epoch: int
    index: Any
    turn: int  # distinguishes repetitions of a sample within an epoch


class _KeySampler:
    """Yields the keys (or lists of keys) of one epoch after another."""

    def __init__(
        self, dataset: Any, seed: int, sampler: Any, *, shuffle: bool, in_batches: bool
    ) -> None:
        self._dataset, self._seed, self._sampler = dataset, seed, sampler
        self._shuffle, self._in_batches = shuffle, in_batches
        self.epoch = 0  # the next epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch, counted from 0."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._dataset if self._sampler is None else self._sampler)

    def __iter__(self) -> Iterator[_Key | list[_Key]]:
        # This method is a generator, so its code runs at the first batch and not at the call of
        # `iter`. A loader with workers calls `iter` twice, which would count as two epochs.
        epoch = self.epoch
        self.epoch += 1
        for turn, drawn in enumerate(self._order(epoch)):
            if self._in_batches:
                yield [_Key(epoch, index, turn) for index in drawn]
            else:
                yield _Key(epoch, drawn, 0 if self._sampler is None else turn)

    def _order(self, epoch: int) -> Any:
        import torch

        with as_in_a_worker():
            seed_generators(self._seed, epoch)
            if self._sampler is not None:  # a sampler without a length may be infinite
                return list(self._sampler) if hasattr(self._sampler, "__len__") else self._sampler
            length = len(self._dataset)
            return torch.randperm(length).tolist() if self._shuffle else range(length)


class _LoaderState:
    """The position of a loader between two epochs, with the methods of torch's objects."""

    def __init__(self, keys: _KeySampler | None, generator: Any) -> None:
        self._keys, self._generator = keys, generator

    def state_dict(self) -> dict[str, Any]:
        """Return the next epoch, and the generator that seeds the workers of an IterableDataset."""
        epoch = None if self._keys is None else self._keys.epoch
        return {"epoch": epoch, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of the loader that was saved."""
        if self._keys is not None:
            self._keys.epoch = state["epoch"]
        self._generator.set_state(state["generator"])


class _SeededDataset:
    """Seeds the global generators before each sample.

    Batches are collated here, because a collate function may be random, too (MixUp). The class is
    at module level because spawned workers unpickle it.
    """

    def __init__(self, dataset: Any, seed: int, collate: Any) -> None:
        self._dataset, self._seed, self._collate = dataset, seed, collate

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, _Key):  # a user has written loader.dataset[3]
            return self._dataset[key]
        with as_in_a_worker():
            return self._collate(self._sample(key))

    def __getitems__(self, keys: list[_Key]) -> Any:
        with as_in_a_worker():
            return self._collate([self._sample(key) for key in keys])

    def __getattr__(self, name: str) -> Any:  # for users: loader.dataset.classes
        if name.startswith("_"):  # unpickling reads attributes before the dataset is set
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def _sample(self, key: _Key) -> Any:
        seed_generators(self._seed, *key)
        return self._dataset[key.index]


def _unchanged(batch: Any) -> Any:
    return batch
