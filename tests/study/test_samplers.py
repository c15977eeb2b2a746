"""The names of samplers and pruners in a parameters file, and the classes behind them."""

from __future__ import annotations

import pytest

from sweeper import Settings
from sweeper.settings.sections import PRUNERS, SAMPLERS
from sweeper.study import SamplerFactory, make_pruner


def settings(**study: str) -> Settings:
    space = {"x": {"low": 0, "high": 3}}
    return Settings.from_mapping({"study": study, "objective": {"y": "maximize"}, "space": space})


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_that_can_be_named_can_be_made(name: str) -> None:
    if name == "cmaes":
        pytest.importorskip("cmaes")  # a package of its own, which the message names
    assert SamplerFactory(settings(sampler=name)).make(0)


@pytest.mark.parametrize("name", sorted({*PRUNERS} - {"threshold"}))
def test_every_pruner_that_can_be_named_can_be_made(name: str) -> None:
    """`threshold` needs a bound, which has no sensible default."""
    assert make_pruner(settings(pruner=name))
