"""Seed the global random generators, and build loaders whose batches depend only on the seed.

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
    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # cuBLAS reads this variable at its first call.
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
    torch.manual_seed(seed)  # This also seeds CUDA, now or when it is initialized.
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    # `use_deterministic_algorithms` also makes torch fill new memory, which costs time and does not
    # change results. mypy does not know this property of torch's module.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # This call keeps MKL from using fewer threads at times, which could change the bits of a sum.
    torch.set_num_threads(torch.get_num_threads())
    _set_float32_precision(torch)
    observe_warnings()


def _set_float32_precision(torch: Any) -> None:
    """Make torch compute matrix products of float32 on GPUs in full precision, without TF32.

    Warn if TF32 was allowed before.
    """
    matmul = torch.backends.cuda.matmul
    # Since torch 2.9, the setting for TF32 has a new name, and the old names may cause warnings.
    before = getattr(matmul, "fp32_precision", None) or matmul.allow_tf32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_float32_matmul_precision("highest")
    if before in ("tf32", True):
        warnings.warn(
            "seed_everything: turned TF32 off for matrix products of float32, so that they have "
            "full precision again, torch's default; to use TF32, call "
            "torch.set_float32_matmul_precision('high') after seed_everything",
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
    """Build a torch DataLoader whose batches are equal to the last bit for any `num_workers`.

    The order of an epoch depends on (seed, epoch). Before each sample, the global generators of
    `random`, numpy and torch (CPU) are seeded with (seed, epoch, index). If a sampler is given, the
    position of the sample (or of its batch) in the epoch is part of this seed, too. So augmentation
    is the same for the same seed, and differs between epochs. A generator of the dataset itself is
    not seeded. The random states of the training do not change. A `sampler` or `batch_sampler`
    among the options decides the order. An IterableDataset gives the same batches only for the same
    number of workers.

    Each `for` loop over the loader is the next epoch, from 0. `state_dict()` contains the next
    epoch, so that a loader saved by `save_checkpoint(loader=loader)` between two epochs resumes
    there. `loader.sampler.set_epoch(n)` sets the next epoch, or `loader.batch_sampler.set_epoch(n)`
    if `batch_sampler` is among the options. `loader.dataset` is a wrapper that passes on the
    attributes of `dataset`.

    Args:
        dataset: Object with `__len__` and `__getitem__`, or an IterableDataset.
        batch_size: Samples in a batch. None for single samples without a batch dimension.
        shuffle: Whether each epoch has a new order.
        num_workers: Number of worker processes. 0 loads in the kernel itself.
        seed: Any integer.
        loader_options: Other arguments of `torch.utils.data.DataLoader`.

    Raises:
        ValueError: `shuffle` and a sampler are both given.
    """
    import torch
    from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert

    # Without this generator, the loader would draw from the global generator at every epoch.
    options = {"generator": torch.Generator().manual_seed(seed), **loader_options}
    options |= {"batch_size": batch_size, "num_workers": num_workers}
    if isinstance(dataset, IterableDataset):
        return _with_state(DataLoader(dataset, shuffle=shuffle or None, **options), None)

    sampler, batch_sampler = options.get("sampler"), options.get("batch_sampler")
    if shuffle and not (sampler is None and batch_sampler is None):
        raise ValueError(
            "seeded_loader(shuffle=True): a sampler already decides the order; leave out shuffle "
            "or the sampler"
        )
    in_batches = batch_sampler is not None
    drawn_from = batch_sampler if in_batches else sampler
    keys = _KeySampler(dataset, seed, drawn_from, shuffle=shuffle, in_batches=in_batches)
    options["batch_sampler" if in_batches else "sampler"] = keys
    if in_batches:
        del options["batch_size"]
    one_by_one = batch_size is None and not in_batches
    collate = options.get("collate_fn") or (default_convert if one_by_one else default_collate)
    samples: Any = _SeededDataset(dataset, seed, collate)  # It behaves as a torch Dataset.
    return _with_state(DataLoader(samples, **(options | {"collate_fn": _unchanged})), keys)


def _with_state(loader: Any, keys: _KeySampler | None) -> DataLoader[Any]:
    state = _LoaderState(keys, loader.generator)
    loader.state_dict, loader.load_state_dict = state.state_dict, state.load_state_dict
    return loader  # type: ignore[no-any-return]


class _Key(NamedTuple):
    """Key of a sample, which the sampler passes to the dataset in place of an index.

    Attributes:
        epoch: Number of the epoch, from 0.
        index: Index of the sample in the user's dataset.
        turn: Position of the sample in the epoch, from 0, if the user has given a `sampler`. With a
            `batch_sampler`, position of the batch. Otherwise 0. A sample that is repeated within an
            epoch gets other random numbers, unless it is repeated in the same batch of a
            `batch_sampler`.
    """

    epoch: int
    index: Any
    turn: int


class _KeySampler:
    """Yields the keys (see `_Key`) of an epoch's samples. Each iteration is the next epoch.

    If the user has given a `batch_sampler`, it yields a list of keys for each batch.
    """

    def __init__(
        self, dataset: Any, seed: int, sampler: Any, *, shuffle: bool, in_batches: bool
    ) -> None:
        self._dataset, self._seed, self._sampler = dataset, seed, sampler
        self._shuffle, self._in_batches = shuffle, in_batches
        self.epoch = 0  # Number of the next epoch.

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch, counted from 0."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._dataset if self._sampler is None else self._sampler)

    def __iter__(self) -> Iterator[_Key | list[_Key]]:
        # This method is a generator, so its code runs at the first `next`, not at the call of
        # `iter`. Otherwise, a loader with workers, which calls `iter` twice per epoch, would count
        # two epochs.
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
            if self._sampler is not None:  # A sampler without a length may be infinite.
                return list(self._sampler) if hasattr(self._sampler, "__len__") else self._sampler
            length = len(self._dataset)
            return torch.randperm(length).tolist() if self._shuffle else range(length)


class _LoaderState:
    """The methods `state_dict` and `load_state_dict` of a loader.

    They save and restore its next epoch, and the generator that seeds its workers.
    """

    def __init__(self, keys: _KeySampler | None, generator: Any) -> None:
        self._keys, self._generator = keys, generator

    def state_dict(self) -> dict[str, Any]:
        """Return the next epoch, and the generator that seeds the workers of an IterableDataset."""
        epoch = None if self._keys is None else self._keys.epoch
        return {"epoch": epoch, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the epoch that was next when the state was saved."""
        if self._keys is not None:
            self._keys.epoch = state["epoch"]
        self._generator.set_state(state["generator"])


class _SeededDataset:
    """Wraps a dataset, to seed the global generators before each sample.

    It also collates the batches, because a collate function such as MixUp may be random too. The
    class is at module level, because spawned workers unpickle it.
    """

    def __init__(self, dataset: Any, seed: int, collate: Any) -> None:
        self._dataset, self._seed, self._collate = dataset, seed, collate

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, _Key):  # A user has written `loader.dataset[3]`.
            return self._dataset[key]
        with as_in_a_worker():
            return self._collate(self._sample(key))

    def __getitems__(self, keys: list[_Key]) -> Any:
        with as_in_a_worker():
            return self._collate([self._sample(key) for key in keys])

    def __getattr__(self, name: str) -> Any:  # Users write `loader.dataset.classes`.
        if name.startswith("_"):  # Unpickling reads attributes before there is a dataset.
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:  # Users set `loader.dataset.transform`.
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._dataset, name, value)

    def _sample(self, key: _Key) -> Any:
        seed_generators(self._seed, *key)
        return self._dataset[key.index]


def _unchanged(batch: Any) -> Any:
    return batch
