"""Each check finds its kind of bug, and does not change the training that follows."""

from __future__ import annotations

import copy
import random
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from sweeper import checks, seeded_loader
from sweeper.notebook_api.checks import _differing, _digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow  # with torch

SAMPLES = 10


@pytest.fixture(autouse=True)
def _quick_and_quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    torch.set_num_threads(threads)


class Net(nn.Module):
    """A network with everything that a check could change: a buffer, dropout, modes, gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = F.dropout(self.norm(self.first(inputs)).relu(), 0.1, self.training)
        return self.last(hidden)  # type: ignore[no-any-return]


def loss_of(model: Any, batch: Any) -> Any:
    return F.cross_entropy(model(batch[0]), batch[1])


class Training:
    """A model, its optimizer and its data in the middle of a training, as in a notebook."""

    def __init__(self) -> None:
        torch.manual_seed(5)
        self.model = Net()
        self.model.norm.eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.batch = torch.randn(8, 4), torch.arange(8) % 3
        self.loader: Any = seeded_loader(Noisy(), batch_size=4, shuffle=True, seed=1)
        step(**self.parts)
        self.model.zero_grad()
        # Leave gradients that no optimizer step has used yet.
        loss_of(self.model, self.batch).backward()

    @property
    def parts(self) -> dict[str, Any]:
        names = ("model", "optimizer", "schedule", "loader")
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, bytes]:
        """Return digests of everything on which the rest of the training depends."""
        states = {name: part.state_dict() for name, part in self.parts.items()}
        gradients = [parameter.grad for parameter in self.model.parameters()]
        modes = [part.training for part in self.model.modules()]
        rngs = random.getstate(), np.random.get_state(), torch.get_rng_state()
        return _digests([states, gradients, modes, rngs, self.batch])


class Noisy:
    """A dataset with noise from torch's global generator."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(4) + index, index % 3


def step(model: Any, optimizer: Any, schedule: Any, loader: Any, **_: Any) -> float:
    """Train for one epoch."""
    for batch in loader:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
    schedule.step()
    return float(loss.item())


def test_a_check_result_is_true_if_the_check_passed_and_shows_figures_and_a_remedy() -> None:
    good, bad = checks.near_chance(1.1, 3), checks.near_chance(9, 3)
    assert (bool(good), bool(bad)) == (True, False)
    assert repr(good) == "✓ near_chance: loss 1.1, by chance ln(3) = 1.099"
    assert repr(bad).startswith("✗ near_chance: loss 9, by chance ln(3) = 1.099; normalise")


@pytest.mark.parametrize(
    ("loss", "options", "passed", "remedy"),
    [
        (torch.tensor([2.0], requires_grad=True), {}, True, ""),
        (0.1, {}, False, "no input contains its label"),
        (float("nan"), {}, False, "normalise"),
        (3.4, {"tolerance": 0.5}, True, ""),
    ],
)
def test_the_first_loss_is_compared_with_the_loss_of_guessing(
    loss: Any, options: Any, passed: bool, remedy: str
) -> None:
    result = checks.near_chance(loss, 10, **options)
    assert result.passed == passed
    assert remedy in result.remedy


def test_a_model_that_can_fit_one_batch_passes_the_check() -> None:
    training = Training()
    assert checks.overfits_one_batch(training.model, training.batch, loss_of)
    assert checks.overfits_one_batch(training.model, training.batch, loss_of, target=99, steps=0)


def test_a_model_that_cannot_fit_one_batch_fails_the_check_with_a_remedy() -> None:
    training = Training()
    model, (inputs, labels) = training.model.eval(), training.batch
    before = training.state()
    for batch, loss_fn, n_steps in (
        ((torch.zeros_like(inputs), labels), loss_of, 9),
        (training.batch, lambda _, batch: loss_of(model, batch), 9),
        (training.batch, lambda *both: loss_of(*both).detach(), 0),
        (training.batch, lambda *both: loss_of(*both) * float("nan"), 0),
    ):
        result = checks.overfits_one_batch(model, batch, loss_fn, steps=9)
        assert not result
        assert f" in {n_steps} steps, target " in result.finding
        assert "from the model that it gets" in result.remedy
        assert _differing(before, training.state()) == []


def test_the_gradient_check_names_parameters_without_a_proper_gradient() -> None:
    training = Training()
    model = training.model
    loss = loss_of(model, training.batch)
    assert checks.gradients_flow(model, loss)
    loss.backward()  # raises if the check has freed the graph of the loss
    model.unused = nn.Linear(2, 2)
    model.frozen = nn.Linear(2, 2).requires_grad_(False)
    nn.init.zeros_(model.last.weight)  # zero weights give all earlier layers zero gradients
    result = checks.gradients_flow(model, loss_of(model, training.batch))
    assert result.finding.startswith(
        "6 of 8 parameters lack a proper gradient: first.weight (zero)"
    )
    infinite = loss_of(model, training.batch) + model.unused.weight.sum().sub(1e9).exp().log()
    finding = checks.gradients_flow(model.unused, infinite).finding
    assert finding.endswith("gradient: weight (not finite), bias (none)")


def test_a_loader_whose_batches_depend_on_the_global_seeds_fails_the_check() -> None:
    assert checks.loader_is_seeded(Training().loader)
    shuffled = checks.loader_is_seeded(DataLoader(Noisy(), shuffle=True))  # type: ignore[arg-type]
    assert "seeds: batch[0][0], batch[0][1]" in repr(shuffled)
    assert "use sweeper.seeded_loader" in shuffled.remedy


def test_the_checkpoint_check_passes_if_all_parts_of_a_training_are_restored() -> None:
    training = Training()
    result = checks.checkpoint_round_trip(step=step, **training.parts, epoch=3)
    assert result.finding.startswith(
        "model, optimizer, schedule, loader, epoch are restored, and a"
    )


class Forgetful(nn.Linear):
    """A layer whose state is complete, but which restores only a part of it."""

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> None:
        with torch.no_grad():
            self.weight.copy_(state_dict["weight"])


class Averaged:
    """Averaged weights without a `state_dict()`."""

    mean = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def test_the_checkpoint_check_names_the_state_that_is_not_restored() -> None:
    result = checks.checkpoint_round_trip(
        layer=Forgetful(2, 2), step=lambda layer: nn.init.ones_(layer.bias).sum()
    )
    assert result.finding == "differ after loading: layer.bias"
    assert "load_state_dict" in result.remedy


def test_the_checkpoint_check_fails_if_a_step_uses_state_outside_of_the_checkpoint() -> None:
    training = Training()

    def averaging(averaged: Any, **parts: Any) -> float:
        averaged.mean = 0.9 * averaged.mean + step(**parts)
        return float(averaged.mean)

    own = np.random.default_rng(0)
    for result in (
        checks.checkpoint_round_trip(step=averaging, averaged=Averaged(), **training.parts),
        checks.checkpoint_round_trip(model=Net(), step=lambda model: own.random()),
    ):
        assert result.finding == "differ after one more step: what step returns"
        assert "seed its random numbers" in result.remedy


def round_trip(training: Training) -> None:
    parameters = list(training.model.parameters())
    gradients = [parameter.grad for parameter in parameters]
    checks.checkpoint_round_trip(step=step, **training.parts)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


@pytest.mark.parametrize(
    "check",
    [
        lambda t: checks.overfits_one_batch(t.model, t.batch, loss_of, steps=3),
        lambda t: checks.overfits_one_batch(t.model, t.batch, lambda *_: 1 // 0),
        lambda t: checks.gradients_flow(t.model, loss_of(t.model, t.batch)),
        lambda t: checks.loader_is_seeded(t.loader),
        round_trip,
    ],
    ids=["overfits", "overfits-raising", "gradients", "loader", "round-trip"],
)
def test_no_check_changes_the_training_that_follows_it(check: Callable[[Training], Any]) -> None:
    checked, alone = Training(), Training()
    checked.model.eval()
    alone.model.eval()
    before = checked.state()
    with suppress(ZeroDivisionError):
        check(checked)
    assert _differing(before, checked.state()) == []
    results = []
    for training in (checked, alone):
        torch.manual_seed(1)
        results.append((step(**training.parts), training.state()))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: checks.near_chance(1.0, 1), ValueError, r"n_classes=…\): expected 2 or more"),
        (
            lambda: checks.overfits_one_batch(
                Net(), 1, lambda model, _: -model.last.bias.exp().sum()
            ),
            ValueError,
            "state the loss to reach",
        ),
        (lambda: checks.checkpoint_round_trip(step=step), ValueError, "as in model=model"),
    ],
)
def test_checks_refuse_wrong_arguments_with_an_explanation(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def differing(left: Any, right: Any) -> list[str]:
    return _differing(_digests(left), _digests(right))


def test_checks_compare_values_bit_for_bit_and_name_the_parts_that_differ() -> None:
    nan = float("nan")
    value = {"a": [torch.tensor([1.0, nan]), np.arange(3)], "b": {1: nan, "c": slice(1, 2)}}
    assert differing(value, copy.deepcopy(value)) == []
    for place, other in (
        ("a[0]", {**value, "a": [torch.tensor([1.0, 2.0]), np.arange(3)]}),
        ("a[0]", {**value, "a": [torch.tensor([1.0, nan]).double(), np.arange(3)]}),
        ("a[1]", {**value, "a": [torch.tensor([1.0, nan]), np.arange(3)[::-1]]}),
        ("b.1", {**value, "b": {1: 0.0, "c": slice(1, 2)}}),
        ("b.c", {**value, "b": {1: nan}}),
    ):
        assert differing(value, other) == [place]
    assert differing([-0.0, torch.zeros(2, 3)], [0.0, torch.zeros(3, 2)]) == ["[0]", "[1]"]
    assert differing([slice(torch.ones(1))], [slice(torch.zeros(1))]) == ["[0]"]
