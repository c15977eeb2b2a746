"""The sampler `gp` handles params that exist only in some trials, and first covers the space."""

from __future__ import annotations

import collections
from typing import Any

import optuna
import pytest
from opened_studies import completed
from studies import small_settings

from sweeper.search.samplers import distributions
from sweeper.search.samplers.padding import Padding

pytestmark = pytest.mark.slow  # Gaussian processes

SPACE = {
    "optimizer": ["sgd", "adam"],
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "nesterov": {"choices": [True, False], "when": {"optimizer": "sgd"}},
    "momentum": {"low": 0.5, "high": 0.9, "when": {"nesterov": True}},
    "warmup": {"low": 0, "high": 1000, "when": {"optimizer": "adam"}},
}
SGD, ADAM = 0.0, 1.0
NESTEROV, PLAIN = 0.0, 1.0


def padding_of(space: Any) -> Padding:
    return Padding(small_settings("s", space=space).search_space)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"optimizer": ADAM}, {"optimizer": ADAM, "nesterov": PLAIN, "momentum": 0.9}, True),
        ({"nesterov": PLAIN}, {"nesterov": PLAIN, "momentum": 0.9, "warmup": 0.9}, True),
        ({"nesterov": NESTEROV}, {"nesterov": NESTEROV, "momentum": 0.9}, False),
        ({"optimizer": ADAM}, {"optimizer": ADAM, "warmup": 0.9}, False),
        ({"optimizer": SGD}, {"optimizer": ADAM}, False),
    ],
)
def test_padding_makes_candidates_equal_only_if_they_differ_just_in_params_that_do_not_exist(
    one: dict[str, float], other: dict[str, float], is_same: bool
) -> None:
    torch = pytest.importorskip("torch")
    padding = padding_of(SPACE)
    rest = {"optimizer": SGD, "lr": 0.3, "nesterov": NESTEROV, "momentum": 0.3, "warmup": 0.3}
    pair = [[{**rest, **point}[name] for name in padding.distributions] for point in (one, other)]
    first, second = padding.padded(torch.tensor(pair, dtype=torch.float64))
    assert bool(torch.equal(first, second)) is is_same


def test_only_params_that_exist_in_a_candidate_get_a_gradient() -> None:
    torch = pytest.importorskip("torch")
    padding = padding_of(SPACE)
    shape = (1, len(padding.distributions))
    candidates = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    padding.padded(candidates).sum().backward()  # type: ignore[no-untyped-call]
    gradient = dict(zip(padding.distributions, candidates.grad[0].tolist(), strict=True))
    assert (gradient["lr"], gradient["momentum"], gradient["warmup"]) == (1, 1, 0)


def test_a_long_range_with_steps_is_modelled_as_continuous_and_its_values_are_rounded() -> None:
    padding = padding_of(
        {
            "width": {"low": 8, "high": 1024, "log": True},
            "dropout": {"low": 0.0, "high": 0.5, "step": 0.01},
            "layers": {"low": 1, "high": 4},
        }
    )
    steps = {name: getattr(d, "step", None) for name, d in padding.modelled.items()}
    assert steps == {"width": None, "dropout": None, "layers": 1}
    params = padding.as_params({"width": 7.6, "dropout": 0.504, "layers": 3})
    assert params == {"width": 8, "dropout": 0.5, "layers": 3}
    assert isinstance(params["width"], int)


def test_a_param_that_does_not_exist_in_a_trial_gets_a_value_at_the_middle_of_its_range() -> None:
    space = {
        "even": {"low": 64, "high": 1024, "step": 64},
        "rate": {"low": 0.0, "high": 0.3, "step": 0.1},
        "few": {"low": 1, "high": 4, "log": True},
    }
    values = padding_of(space).values
    assert values["even"] in (512, 576)
    assert values["rate"] == pytest.approx(0.1) or values["rate"] == pytest.approx(0.2)
    assert values["few"] == 2


def test_the_first_trials_cover_every_branch_and_every_part_of_a_range(begin: Any) -> None:
    opened = begin(SPACE, sampler={"name": "gp", "n_startup_trials": 99}, seed=4)
    tried = [opened.ask().params for _ in range(16)]
    assert collections.Counter(params["optimizer"] for params in tried) == {"sgd": 8, "adam": 8}
    decades = collections.Counter(
        sum(float(params["lr"]) > limit for limit in (1e-3, 1e-2, 1e-1)) for params in tried
    )
    assert decades == {0: 4, 1: 4, 2: 4, 3: 4}
    again = begin(SPACE, sampler={"name": "gp", "n_startup_trials": 99}, seed=5)
    assert [again.ask().params for _ in range(16)] != tried


def test_the_gaussian_process_finds_the_better_branch_and_its_best_params(begin: Any) -> None:
    pytest.importorskip("torch")
    opened = begin(SPACE, sampler={"name": "gp", "n_startup_trials": 8}, trials=22)
    tried = []
    for _ in range(22):
        record = opened.ask()
        tried.append(record.params)
        value = float(record.params.get("momentum", 0.4))
        opened.study.tell(record.number, completed(value))
    assert all(opened.settings.search_space.check_params(params) is None for params in tried)
    late = [params.get("momentum", 0.0) for params in tried[16:]]
    assert sum(float(momentum) > 0.8 for momentum in late) >= 4


def test_the_trial_whose_params_are_being_proposed_is_hidden_from_the_gaussian_process() -> None:
    study = optuna.create_study()
    _ran(study, optimizer="adam", lr=0.1, warmup=5)
    study.ask()
    seen = padding_of(SPACE).seen(study).get_trials()
    assert [trial.number for trial in seen] == [0]
    assert seen[0].params.keys() == SPACE.keys()


def test_the_gaussian_process_does_not_see_trials_that_lack_a_param_they_should_have() -> None:
    study = optuna.create_study()
    _ran(study, lr=0.1)
    _ran(study, lr=0.1, optimizer="adam")
    _ran(study, lr=0.1, optimizer="adam", warmup=5)
    _ran(study, lr=0.1, optimizer="sgd", nesterov=False)
    _ran(study, lr=0.1, optimizer="sgd", nesterov=True)
    seen = padding_of(SPACE).seen(study).get_trials()
    assert [trial.number for trial in seen] == [2, 3]


def _ran(study: optuna.Study, **params: Any) -> None:
    known = distributions(small_settings("s", space=SPACE).search_space)
    used = {name: known[name] for name in params}
    study.add_trial(optuna.trial.create_trial(params=params, distributions=used, value=0.5))
