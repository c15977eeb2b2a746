"""The same seed gives the same bits, with any number of loading workers."""

from __future__ import annotations

import os
import pickle
import random
import sys
import warnings
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, WeightedRandomSampler

from sweeper.notebook_api.determinism import seed_everything, seeded_loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("started_kernels")]

EPOCHS = 2
SAMPLES = 23  # so that the last batch is smaller


class Augmented:
    """A dataset whose samples are their index and a random number of each global generator."""

    classes = ("even", "odd")

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        draws = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return torch.tensor([float(index), *draws], dtype=torch.float64)


class ThreadCounts(Augmented):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(torch.get_num_threads())


class RawDraws(Augmented):
    """A dataset of eight 32-bit random numbers of numpy and eight of torch."""

    def __getitem__(self, index: int) -> torch.Tensor:
        draws = np.random.randint(2**32, size=8, dtype=np.int64)
        return torch.cat([torch.from_numpy(draws), torch.randint(2**32, (8,))])


def add_noise(samples: list[torch.Tensor]) -> torch.Tensor:
    """A collate function that uses random numbers itself, as MixUp does."""
    batch = torch.stack(samples)
    return batch + torch.rand_like(batch)


def epochs(**options: Any) -> list[torch.Tensor]:
    """Return the rows of two epochs in order, one tensor for each epoch."""
    options = {"batch_size": 4, "shuffle": True, "seed": 7} | options
    loader = seeded_loader(Augmented(), **options)
    return [torch.cat(list(loader)) for _ in range(EPOCHS)]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.fixture(autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False
    torch.set_float32_matmul_precision("highest")
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


# Torch warns on a machine with two cores.
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker")
@pytest.mark.parametrize(
    "workers",
    [
        {"num_workers": 2},
        {"num_workers": 3, "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    ],
    ids=["two", "three-persistent", "spawned"],
)
def test_the_batches_of_a_seeded_loader_do_not_depend_on_its_workers(
    workers: dict[str, Any],
) -> None:
    assert same(epochs(num_workers=0), epochs(**workers))


def test_random_numbers_of_a_collate_function_do_not_depend_on_the_number_of_workers() -> None:
    alone = epochs(num_workers=0, collate_fn=add_noise)
    assert same(alone, epochs(num_workers=2, collate_fn=add_noise))
    assert not same(alone, epochs(num_workers=0))


def test_a_seeded_loader_without_workers_loads_samples_with_one_thread_as_a_worker_does() -> None:
    torch.set_num_threads(2)
    [[count, *_], *_] = seeded_loader(ThreadCounts(), batch_size=4)
    assert count == 1
    assert torch.get_num_threads() == 2


def test_the_epochs_of_a_seeded_loader_differ_in_order_and_augmentation() -> None:
    first, second = epochs()
    assert not same([first, second], epochs(seed=8))
    assert first[:, 0].tolist() != second[:, 0].tolist()
    by_index = first[first[:, 0].argsort()], second[second[:, 0].argsort()]
    assert bool((by_index[0][:, 0] == by_index[1][:, 0]).all())
    assert not bool((by_index[0][:, 1:] == by_index[1][:, 1:]).any())


def test_in_a_seeded_loader_numpy_and_torch_draw_different_numbers() -> None:
    draws = next(iter(seeded_loader(RawDraws())))[0].tolist()
    assert not set(draws[:8]) & set(draws[8:])


def test_the_augmentation_of_a_sample_does_not_depend_on_its_position_in_the_epoch() -> None:
    shuffled, ordered = epochs()[0], epochs(shuffle=False, batch_size=5)[0]
    assert same([shuffled[shuffled[:, 0].argsort()]], [ordered])
    assert same([*seeded_loader(Augmented(), batch_size=None, seed=7)][:1], [ordered[0]])


def test_set_epoch_decides_at_which_epoch_a_seeded_loader_continues() -> None:
    loader = seeded_loader(Augmented(), batch_size=4, shuffle=True, seed=7)
    loader.sampler.set_epoch(1)  # type: ignore[attr-defined]
    assert same([torch.cat(list(loader))], epochs()[1:])


@pytest.mark.parametrize(
    "workers", [{}, {"num_workers": 2, "persistent_workers": True}], ids=["none", "two-persistent"]
)
def test_a_seeded_loader_that_loads_the_state_of_another_loader_continues_at_its_epoch(
    workers: dict[str, Any],
) -> None:
    first: Any = seeded_loader(Augmented(), batch_size=4, shuffle=True, seed=7, **workers)
    list(first)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    then: Any = seeded_loader(Augmented(), batch_size=4, shuffle=True, seed=7)
    then.load_state_dict(state)
    assert same([torch.cat(list(then))], epochs()[1:])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_seeded_loader_does_not_change_the_random_states_of_the_training(
    num_workers: int,
) -> None:
    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    seed_everything(3)
    expected = [draw() for _ in range(3)]
    seed_everything(3)
    drawn = [draw()]
    batches = iter(seeded_loader(Augmented(), batch_size=4, shuffle=True, num_workers=num_workers))
    next(batches)
    drawn.append(draw())
    list(batches)
    drawn.append(draw())
    assert drawn == expected


def test_a_seeded_loader_follows_the_order_of_a_given_sampler() -> None:
    order = [5, 3, 3, 11]
    first, second = epochs(shuffle=False, sampler=order)
    assert first[:, 0].tolist() == second[:, 0].tolist() == order
    assert len(seeded_loader(Augmented(), batch_size=3, sampler=order)) == 2
    assert first[1, 1:].tolist() != first[2, 1:].tolist(), "a repeated sample has its own draws"


def test_a_seeded_loader_seeds_a_given_random_sampler() -> None:
    def run() -> list[torch.Tensor]:
        sampler = WeightedRandomSampler([1.0] * SAMPLES, num_samples=40)
        return epochs(shuffle=False, sampler=sampler)

    random_order = run()
    assert same(random_order, run())
    assert random_order[0][:, 0].tolist() != random_order[1][:, 0].tolist()


def test_a_seeded_loader_follows_a_given_batch_sampler() -> None:
    plan = [[4, 2], [9], [0, 1, 4]]
    loader = seeded_loader(Augmented(), batch_sampler=plan)
    assert [batch[:, 0].tolist() for batch in loader] == plan
    assert len(loader) == 3


def test_a_seeded_loader_refuses_shuffle_together_with_a_sampler() -> None:
    with pytest.raises(ValueError, match="leave out shuffle"):
        seeded_loader(Augmented(), shuffle=True, sampler=[1, 2])


def test_an_iterable_dataset_gives_the_same_batches_again_with_the_same_number_of_workers() -> None:
    class Stream(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            for _ in range(6):
                yield torch.rand(())

    def build() -> Any:
        return seeded_loader(Stream(), batch_size=2, num_workers=2, seed=1)

    loader, again, resumed = build(), build(), build()
    first = torch.cat(list(loader))
    resumed.load_state_dict(loader.state_dict())
    second = torch.cat(list(loader))
    assert not torch.equal(first, second)
    assert same([first, second], [torch.cat(list(again)) for _ in range(EPOCHS)])
    assert same([second], [torch.cat(list(resumed))])


def test_the_attributes_of_a_dataset_can_be_read_and_set_through_its_seeded_loader() -> None:
    augmented: Any = Augmented()
    dataset: Any = seeded_loader(augmented, batch_size=4).dataset
    dataset.epoch = 3
    assert augmented.epoch == dataset.epoch == 3
    assert len(dataset) == SAMPLES
    assert dataset.classes == ("even", "odd")
    assert dataset[2][0] == 2
    assert len(pickle.loads(pickle.dumps(dataset))) == SAMPLES
    assert not hasattr(dataset, "transform")


def test_seed_everything_seeds_the_random_generators_of_python_numpy_and_torch() -> None:
    draws: list[Callable[[], float]] = [
        random.random,
        np.random.rand,
        lambda: float(torch.rand(())),
    ]
    for draw in draws:
        seed_everything(2**40 + 1)  # numpy accepts only 32 bits, so the seed must be reduced
        first = draw()
        seed_everything(2**40 + 1)
        assert draw() == first
        assert draw() != first


def test_seed_everything_makes_torch_deterministic_with_warnings_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    seed_everything(0)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8", "as the user has set it"
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    seed_everything(0)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert not torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def test_seed_everything_sets_full_precision_of_matrix_products_and_warns_about_tf32() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seed_everything(0)
    assert torch.get_float32_matmul_precision() == "highest"
    changes: list[Callable[[], object]] = [
        lambda: torch.set_float32_matmul_precision("high"),
        lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    ]
    for change in changes:
        change()
        with pytest.warns(UserWarning, match="to use TF32, call torch.set_float32_matmul"):
            seed_everything(0)
        assert torch.get_float32_matmul_precision() == "highest"


def test_seed_everything_seeds_tensorflow_if_it_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds: list[int] = []
    tensorflow: Any = ModuleType("tensorflow")
    tensorflow.random = SimpleNamespace(set_seed=seeds.append)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    seed_everything(2**40 + 1)
    assert seeds == [1]
