"""What more trials of a study are expected to be good for."""

from __future__ import annotations

import optuna
import pytest

from sweeper.settings import Settings
from sweeper.settings.space import SearchSpace
from sweeper.study import SamplerFactory
from sweeper.study.insights import Insights
from sweeper.study.insights.outlook import outlook_of
from sweeper.trials import Outlook

pytest.importorskip("torch")

SPACE = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}, "z": ["a", "b"]}


def settings_of(sampler: str = "gp") -> Settings:
    return Settings.from_mapping(
        {"objective": {"acc": "maximize"}, "space": SPACE, "study": {"sampler": sampler}}
    )


def space() -> SearchSpace:
    return settings_of().search_space


def study_of(
    points: list[tuple[float, float]], *, sign: float = 1.0, factor: float = 1.0
) -> optuna.Study:
    """Trials of a hill whose top, 1, is at 0.3 and 0.7."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize" if sign > 0 else "minimize")
    unit = optuna.distributions.FloatDistribution(0.0, 1.0)
    choice = optuna.distributions.CategoricalDistribution(["a", "b"])
    for number, (x, y) in enumerate(points):
        study.add_trial(
            optuna.trial.create_trial(
                params={"x": x, "y": y, "z": "ab"[number % 2]},
                distributions={"x": unit, "y": unit, "z": choice},
                value=sign * factor * (1 - (x - 0.3) ** 2 - (y - 0.7) ** 2),
            )
        )
    return study


GRID = [(x / 10, y / 10) for x in (0, 5, 6, 8, 10) for y in (0, 4, 9, 10)]
AT_THE_TOP = [(0.3 + dx / 100, 0.7 + dy / 100) for dx in (-2, 0, 2) for dy in (-2, 0, 2)]


def known(outlook: Outlook | None) -> Outlook:
    assert outlook is not None
    return outlook


def test_a_search_that_has_found_the_top_promises_less_than_one_that_has_not() -> None:
    before = known(outlook_of(study_of(GRID), space(), seed=0))
    after = known(outlook_of(study_of(GRID + AT_THE_TOP), space(), seed=0))
    assert before.trials == after.trials == 10
    best = max(trial.value or 0.0 for trial in study_of(GRID).trials)
    assert 0.02 < before.improvement < 0.3, f"there are {1 - best} left"
    assert before.chance > 0.9
    assert after.improvement < before.improvement / 10


def test_the_outlook_has_the_unit_of_the_objective_and_knows_its_direction() -> None:
    plain = known(outlook_of(study_of(GRID), space(), seed=0))
    large = known(outlook_of(study_of(GRID, factor=1000.0), space(), seed=0))
    least = known(outlook_of(study_of(GRID, sign=-1.0), space(), seed=0))
    assert large.improvement == pytest.approx(1000 * plain.improvement, rel=1e-3)
    assert least == plain


def test_the_same_trials_have_the_same_outlook() -> None:
    first, again = (outlook_of(study_of(GRID), space(), seed=0) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("points", [GRID[:19], [(0.5, 0.5)] * 20], ids=["few", "alike"])
def test_where_trials_say_too_little_nothing_is_promised(points: list[tuple[float, float]]) -> None:
    assert outlook_of(study_of(points), space(), seed=0) is None


def test_only_the_process_that_proposes_the_trials_is_asked() -> None:
    insights = Insights(study_of(GRID), ["acc"])
    for sampler, is_known in (("gp", True), ("tpe", False), ("random", False)):
        settings = settings_of(sampler)
        found = insights.outlook(settings, SamplerFactory(settings))
        assert (found is not None) is is_known, sampler
    settings = settings_of()
    two = Insights(optuna.create_study(directions=["maximize"] * 2), ["acc", "size"])
    assert two.outlook(settings, SamplerFactory(settings)) is None
