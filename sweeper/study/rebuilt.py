"""Rebuild a study's database from its executed notebooks.

An executed notebook contains what Optuna stored when its trial began. The file `study.json` in the
study's folder contains the facts about the study, such as its settings.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ..errors import StudyError
from ..notebooks.metadata import TrialMetadata
from ..notebooks.scores import scrape
from ..search.repeats import REPEAT
from ..search.samplers import as_queued
from ..search.trial_codec import RECORD, decode, encode
from ..settings import Settings
from ..settings.addresses import Address
from ..trials import Proposal, TrialRecord, TrialState, display_path
from .access import close_storage, open_storage
from .endings import has_all_scores, left_open, name_objectives
from .facts import ATTRIBUTE, StudyFacts
from .proposals import BY_HAND, FIRST, QUEUED, RETRY

_ENDED = {
    TrialState.COMPLETED: OptunaState.COMPLETE,
    TrialState.PRUNED: OptunaState.PRUNED,
}


def proposal_of(trial: FrozenTrial, noted: Mapping[str, Any]) -> Proposal:
    """Return what Optuna has stored about a trial that begins.

    The trial's executed notebook keeps it, so that a lost database can be rebuilt.

    Args:
        trial: The trial in Optuna's form.
        noted: Attributes that samplers have stored in the study.
    """
    distributions = trial.distributions.items()
    return Proposal(
        params=trial.params,
        distributions={name: distribution_to_json(part) for name, part in distributions},
        user_attrs={name: part for name, part in trial.user_attrs.items() if name != RECORD},
        system_attrs=trial.system_attrs,
        noted=noted,
    )


def write_study(
    file: Path,
    name: str,
    facts: StudyFacts,
    notebooks: Mapping[int, tuple[Path, TrialMetadata]],
) -> list[TrialRecord]:
    """Write a study into a new database.

    Args:
        file: SQLite file to write.
        name: Name of the study.
        facts: Facts about the study.
        notebooks: Path and metadata of each executed notebook, by trial number.

    Returns:
        Records of the study's trials.

    Raises:
        StudyError: An executed notebook lacks data that the study needs.
    """
    settings = Settings.from_mapping(facts.settings)
    storage = open_storage(Address.of_file(file))
    try:
        study = optuna.create_study(
            study_name=name,
            storage=storage,
            # Use the order in the facts. The settings of a later sweep may have another one.
            directions=[settings.objective[name].direction for name in facts.objectives],
        )
        name_objectives(study, facts.objectives)
        # MLflow's store may be lost, too, so state that it may lack the ends of trials.
        study.set_user_attr(ATTRIBUTE, replace(facts, tracking_is_behind=True).encode())
        _, latest = notebooks[max(notebooks)]
        noted = {} if latest.proposal is None else latest.proposal.noted
        for key, value in noted.items():
            storage.set_study_system_attr(study._study_id, key, value)
        queued = [as_queued(params) for params in settings.start_params]
        records = []
        for number in range(1 + max(notebooks)):
            if number in notebooks:
                trial, record = _trial(number, *notebooks[number], facts, settings)
                records.append(record)
            elif number < len(queued):
                trial = _not_begun(OptunaState.WAITING, queued[number])
            elif facts.confirms is not None:  # The next sweep queues all runs that are missing.
                trial = _not_begun(OptunaState.FAIL, {})
            else:  # The trial counts as killed with its sweep, so it runs again with its number.
                trial = _not_begun(OptunaState.RUNNING, {})
            storage.create_new_trial(study._study_id, trial)
        return records
    finally:
        close_storage(storage)


def _not_begun(state: OptunaState, queued: Mapping[str, Any]) -> FrozenTrial:
    if not queued:
        return optuna.trial.create_trial(state=state)
    return optuna.trial.create_trial(
        state=state, user_attrs={FIRST: True}, system_attrs={QUEUED: queued}
    )


def _trial(
    number: int,
    notebook: Path,
    metadata: TrialMetadata,
    facts: StudyFacts,
    settings: Settings,
) -> tuple[FrozenTrial, TrialRecord]:
    try:
        own = metadata.proposal
        if own is None or metadata.started_at is None or metadata.attempt == 0:
            raise ValueError("it does not state how the trial was started")
        if own.params and not metadata.params:
            raise ValueError("it does not state its params")
        if not has_all_scores(metadata, facts.objectives):
            raise ValueError("it does not state its scores")
        distributions = {
            name: json_to_distribution(stored) for name, stored in own.distributions.items()
        }
        for name, value in own.params.items():
            # An invalid value raises an error here, before it is in the storage.
            distributions[name].to_internal_repr(value)
        began = metadata.started_at.astimezone()
        record = TrialRecord(
            number=number,
            state=TrialState.RUNNING,
            params=_in_order(metadata.params, settings),
            seed=metadata.seed,
            attempt=metadata.attempt,
            notebook=notebook,
            started_at_s=began.timestamp(),
            retry_of=own.user_attrs.get(RETRY),
            repeat_of=own.user_attrs.get(REPEAT),
            by_hand=bool(own.user_attrs.get(BY_HAND)),
        )
        # Read the record as a resumed sweep reads it.
        record = decode(number, encode(left_open(record, facts)))
        reports = _reports(notebook, metadata, settings)
        state, values = OptunaState.RUNNING, None
        if record.is_final:
            state = _ENDED.get(record.state, OptunaState.FAIL)
        if state is OptunaState.COMPLETE:
            values = [record.scores[name] for name in facts.objectives]
        elif state is OptunaState.PRUNED and reports:
            last = reports[max(reports)]
            # Optuna's `tell` stores the last report of a pruned trial as its score.
            values = None if math.isnan(last) else [last]
        ended = began + datetime.timedelta(seconds=record.duration_s)
        trial = FrozenTrial(
            number=number,
            trial_id=-1,
            state=state,
            value=None,
            values=values,
            datetime_start=began.replace(tzinfo=None),
            datetime_complete=ended.replace(tzinfo=None) if record.is_final else None,
            params=_in_order(own.params, settings),
            distributions=_in_order(distributions, settings),
            user_attrs={**own.user_attrs, RECORD: encode(record)},
            system_attrs=dict(own.system_attrs),
            intermediate_values=reports,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise StudyError(
            f"{display_path(notebook)} lacks data that its study needs ({error!r}); move it away, "
            "and the trial is run again"
        ) from error
    return trial, record


def _in_order(params: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return params in the order of the search space.

    A notebook keeps them in alphabetical order.
    """
    known = {name: params[name] for name in settings.search_space if name in params}
    return {**known, **params}


def _reports(notebook: Path, metadata: TrialMetadata, settings: Settings) -> dict[int, float]:
    """Return the values that a trial reported to the pruner, by step."""
    if settings.study.pruner.name == "none":
        return {}
    # Import late: nbformat takes 10 % of the time of `status`.
    from ..notebooks.reading import read_notebook

    cells = read_notebook(notebook).cells
    found = scrape(cells, metadata, sources=settings.scores, objectives=settings.objective)
    points = found.series.get(next(iter(settings.objective)), [])
    return {step: value for step, value in points if step >= 0}
