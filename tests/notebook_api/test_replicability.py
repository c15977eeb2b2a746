"""Operations that are not replicable are named in the kernel and by the sweep."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from sklearn.utils.parallel import Parallel, delayed

from sweeper.notebook_api import replicability
from sweeper.notebook_api.determinism import seed_everything
from sweeper.notebook_api.replicability import not_replicable, observe_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow  # with torch


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    monkeypatch.setattr(replicability, "_observer", replicability._Observer())
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with warnings.catch_warnings():
        yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False


def put() -> None:
    """Call an operation that has no deterministic version, not even on a CPU."""
    torch.zeros(3).put_(torch.tensor([0, 1]), torch.ones(2))


def unpool() -> None:
    torch.nn.MaxUnpool2d(2)(torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int64))


def test_operations_that_are_not_replicable_are_named_once_and_their_warnings_displayed() -> None:
    with warnings.catch_warnings(record=True) as displayed:
        warnings.simplefilter("always")
        seed_everything(0)
        assert not_replicable() == []
        for operation in (put, unpool, put):
            operation()
    assert not_replicable() == ["put_", "max_unpooling2d_forward_out"]
    # Warnings of other categories are ignored: they are about objects of earlier tests, such as
    # sockets.
    texts = [str(each.message) for each in displayed if each.category is UserWarning]
    assert [text.split()[0] for text in texts] == ["put_", "max_unpooling2d_forward_out", "put_"]
    assert "put_ does not have a deterministic implementation" in texts[0]


def test_operations_that_are_not_replicable_are_named_even_if_warnings_are_hidden() -> None:
    with warnings.catch_warnings(record=True) as displayed:
        warnings.filterwarnings("ignore")
        seed_everything(0)
        seed_everything(1)  # a second call must not add a second filter
        put()
        patterns: list[Any] = [pattern for _, pattern, *_ in warnings.filters]
    assert (not_replicable(), displayed) == (["put_"], [])
    assert patterns.count(replicability._observer) == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "Memory Efficient attention defaults to a non-deterministic algorithm. To explicitly "
            "enable determinism call torch.use_deterministic_algorithms(True, warn_only=False).",
            ["Memory Efficient attention"],
        ),
        (
            "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms("
            "True)` or `at::Context::setDeterministicAlgorithms(true)`, but this operation is not "
            "deterministic because it uses CuBLAS and you have CUDA >= 10.2.",
            ["CuBLAS"],
        ),
        ("this model does not converge", []),
    ],
    ids=["attention", "cublas", "other"],
)
def test_operations_that_torch_warns_are_not_deterministic_on_gpus_are_recognized(
    text: str, names: list[str]
) -> None:
    with pytest.warns(UserWarning, match="^") as displayed:
        observe_warnings()
        warnings.warn(text, UserWarning, stacklevel=1)
    assert not_replicable() == names
    assert [str(warning.message) for warning in displayed] == [text]


def test_parallel_workers_of_scikit_learn_still_run_while_warnings_are_observed() -> None:
    observe_warnings()
    calls = (delayed(abs)(number) for number in (-1, -2))
    assert Parallel(n_jobs=2)(calls) == [1, 2]
