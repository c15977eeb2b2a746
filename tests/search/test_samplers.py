"""A parameters file chooses samplers and pruners by name, with options."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from opened_studies import BRANCHES, RANGE
from studies import small_settings
from threadpoolctl import threadpool_info, threadpool_limits

from sweeper.errors import SettingsError
from sweeper.search.pruners import make_pruner
from sweeper.search.samplers import SamplerFactory, factory
from sweeper.search.samplers.padded_gp import on_one_thread
from sweeper.settings import Settings
from sweeper.settings.sections import PRUNERS, SAMPLERS

FINITE = {"x": {"low": 0, "high": 3}}


def settings(*, space: Any = FINITE, **study: Any) -> Settings:
    return small_settings("s", space=space, study={"sampler": "auto", **study})


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_can_be_made_for_each_name_that_a_parameters_file_allows(name: str) -> None:
    if name == "cmaes":
        pytest.importorskip("cmaes")  # cmaes is an optional package
    assert SamplerFactory(settings(sampler=name)).make(0, 0)


@pytest.mark.parametrize("name", sorted({*PRUNERS} - {"threshold"}))
def test_a_pruner_can_be_made_for_each_name_that_a_parameters_file_allows(name: str) -> None:
    """The pruner `threshold` is left out: it needs a bound, which has no sensible default."""
    assert make_pruner(settings(pruner=name))


@pytest.mark.parametrize(
    ("sampler", "space", "message"),
    [
        ("grid", RANGE, "grid needs a finite space, and x is continuous"),
        ("brute_force", BRANCHES, "momentum is continuous; give it a step"),
        (
            {"name": "tpe", "n_startup_trial": 3},
            RANGE,
            "tpe has no option 'n_startup_trial'; did you mean 'n_startup_trials'?",
        ),
        ({"name": "nsga2", "population_size": 1}, RANGE, "nsga2 cannot be made: "),
        (
            {"name": "tpe", "n_startup_trials": "ten"},
            RANGE,
            "tpe: n_startup_trials: expected a whole number; got 'ten'",
        ),
        ({"name": "gp", "deterministic_objective": 1}, RANGE, "expected true or false; got 1"),
        ({"name": "gp", "n_startup_trials": 0}, RANGE, "must be at least 1; got 0"),
        ({"name": "tpe", "gamma": 3}, RANGE, "tpe has no option 'gamma'"),
        ("grid", {"n": {"low": 1, "high": 10**9}}, "give a larger step, or use tpe"),
    ],
)
def test_a_sampler_with_a_wrong_option_or_an_unsuitable_space_is_refused_before_a_trial_runs(
    sampler: Any, space: Any, message: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        SamplerFactory(settings(space=space, sampler=sampler))
    assert str(raised.value).startswith("settings: study.sampler: ")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("trials", "space", "name"),
    [
        (250, RANGE, "gp"),
        (251, RANGE, "tpe"),
        (20, BRANCHES, "gp"),
        (20, {"shuffle_seed": {"low": 0, "high": 2**31 - 1}}, "gp"),
    ],
)
def test_sampler_auto_is_gp_up_to_250_trials_and_tpe_for_more(
    trials: int, space: Any, name: str
) -> None:
    assert SamplerFactory(settings(space=space, trials=trials)).name == name


def test_sampler_auto_uses_tpe_for_every_second_proposal_from_25_on_and_gp_never_does() -> None:
    auto, gp = (SamplerFactory(settings(sampler=name)) for name in ("auto", "gp"))
    # With one repeat each, proposal n has the trial number 2n.
    made = [auto.make(2 * index, index) for index in range(22, 29)]
    turns = [isinstance(sampler, optuna.samplers.TPESampler) for sampler in made]
    assert turns == [False, False, False, True, False, True, False]
    assert not isinstance(gp.make(25, 25), optuna.samplers.TPESampler)


@pytest.mark.parametrize("name", ["tpe", "gp"])
def test_a_sampler_accepts_options_of_its_class_and_its_optuna_base_except_reserved_ones(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base: Any = factory._CLASSES[name]

    class WithOwnOption(base):
        def __init__(self, *, patience: int = 1, **options: Any) -> None:
            super().__init__(**options)
            self.patience = patience

    monkeypatch.setattr(factory, "_CLASSES", {**factory._CLASSES, name: WithOwnOption})
    chosen = {"name": name, "patience": 5, "n_startup_trials": 3}
    sampler: Any = SamplerFactory(settings(sampler=chosen)).make(0, 0)
    assert (sampler.patience, sampler._n_startup_trials) == (5, 3)
    for reserved in ("seed", "memory", "options"):
        with pytest.raises(SettingsError, match=f"{name} has no option '{reserved}'"):
            SamplerFactory(settings(sampler={"name": name, reserved: 1}))


def test_a_pruner_with_a_wrong_option_or_several_objectives_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"no option 'n_warmup'.*n_warmup_steps"):
        make_pruner(settings(pruner={"name": "median", "n_warmup": 3}))
    with pytest.raises(SettingsError, match="threshold"):
        make_pruner(settings(pruner="threshold"))
    several = {"a": "maximize", "b": "minimize"}
    with pytest.raises(SettingsError, match="single objective"):
        make_pruner(small_settings("s", objective=several, study={"pruner": "median"}))


def threads() -> set[int]:
    """Return the numbers of threads of all matrix libraries in this process."""
    return {library["num_threads"] for library in threadpool_info()}


@pytest.mark.slow  # with torch
def test_a_proposal_uses_one_thread_and_restores_the_number_of_threads() -> None:
    torch = pytest.importorskip("torch")
    # The number of threads can be read only after the library is loaded.
    pytest.importorskip("scipy.linalg")
    torch.set_num_threads(2)
    with threadpool_limits(limits=2, user_api="blas"):
        with on_one_thread():
            assert threads() == {1}
            assert torch.get_num_threads() == 1
        of_matrices = {it["num_threads"] for it in threadpool_info() if it["user_api"] == "blas"}
        assert of_matrices == {2}
        assert torch.get_num_threads() == 2
