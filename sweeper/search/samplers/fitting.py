"""Check that an existing study fits the settings with which it is to be resumed."""

from __future__ import annotations

import optuna
from optuna.distributions import check_distribution_compatibility

from ...errors import StudyError
from ...settings import Settings
from .distributions import distributions, in_words


def check_fits(study: optuna.Study, objectives: list[str], settings: Settings, place: str) -> None:
    """Check that settings do not contradict the objectives and dimensions of an existing study.

    Args:
        study: Optuna's study.
        objectives: Names of the study's stored objectives.
        settings: Settings of the sweep.
        place: Name of the storage, for messages.

    Raises:
        StudyError: The settings do not fit the study.
    """
    remedy = "choose another name with --study, and other outputs with -o"
    directions = [direction.name.lower() for direction in study.directions]
    stored = dict(zip(objectives, directions, strict=False))
    wanted = {name: objective.direction for name, objective in settings.objective.items()}
    if stored != wanted:
        had = ", ".join(f"{name}: {direction}" for name, direction in stored.items())
        raise StudyError(
            f"{place}: the study {study.study_name!r} exists with other objectives ({had}); "
            f"{remedy}"
        )
    known = distributions(settings.search_space)
    for trial in study.get_trials(deepcopy=False):
        for name, before in trial.distributions.items():
            distribution = known.get(name, before)
            try:
                check_distribution_compatibility(before, distribution)
            except ValueError as error:
                raise StudyError(
                    f"{place}: the study {study.study_name!r} has trials in which {name} was "
                    f"{in_words(before)}, now it is {in_words(distribution)}; {remedy}"
                ) from error
