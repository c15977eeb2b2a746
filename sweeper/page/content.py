"""Collect the data of a study's comparison page, as values that can be written as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..answer import without_effect
from ..notebook_api.messages import encode_float
from ..search.samplers import can_predict
from ..settings import Settings
from ..settings.space import AnyDimension, ChoiceDimension
from ..trials import (
    Confirmation,
    Importance,
    Insights,
    Params,
    TrialRecord,
    trial_json,
    value_text,
)

if TYPE_CHECKING:
    from ..study.study import Study


def facts_of(
    study: Study,
    records: Sequence[TrialRecord],
    settings: Settings,
    *,
    importances: Mapping[str, Mapping[str, Importance]],
    surfaces: Mapping[str, Sequence[Mapping[str, Any]]],
    insights: Insights | None,
    confirmation: Confirmation | None,
    runs_page: str | None,
    is_running: bool,
) -> dict[str, Any]:
    """Return the facts about a study as a whole that its page displays, as JSON data.

    Args:
        study: The study.
        records: Records of all trials of the study.
        settings: Settings of the study.
        importances: How much each param matters for each objective, by objective and param. Empty
            if unknown.
        surfaces: Scores predicted over pairs of params, by objective. Empty if unknown.
        insights: What the study has shown, such as the winner and the params that mattered. None
            if unknown.
        confirmation: Ranking of the study's best trials by runs on fresh seeds. None if there is
            none.
        runs_page: URL of the page of the study that ran these trials on fresh seeds, relative to
            this page. None if there is no such study.
        is_running: Whether a sweep runs on the study or confirms it.
    """
    best = study.best()
    if confirmation is not None and confirmation.study != study.name:
        best = confirmation.best_of(records, best)
    return {
        "study": study.name,
        "notebook": Path(study.facts.notebook).name,
        "trials": settings.study.trials,
        "written_at_s": round(time.time(), 1),
        "is_running": is_running,
        "objectives": [
            {"name": name, "direction": goal.direction} for name, goal in settings.objective.items()
        ],
        "params": params_of(settings),
        "fixed": _plain(settings.fixed),
        "best": [record.run_id for record in best],
        "insights": None if insights is None else insights.to_json(),
        "importances": importances,
        "surfaces": surfaces,
        "is_predicting": can_predict(),
        # `without_effect` finds params that made no difference. It compares executed notebooks,
        # which would take time at each write of the page while trials run.
        "remark": "" if is_running else " ".join(without_effect(records)),
        "confirmation": None if confirmation is None else confirmation.to_json(),
        "runs_page": runs_page,
        "compare_url": study.facts.compare_url,
    }


def trial_of(record: TrialRecord, *, has_notebook: bool) -> dict[str, Any]:
    """Return the facts about one trial that the page of its study displays.

    These are the facts that `status --json` prints, without those that are None, and a few more.

    Args:
        record: Record of the trial.
        has_notebook: Whether the trial's executed notebook has been rendered.
    """
    known = {name: fact for name, fact in trial_json(record).items() if fact is not None}
    if record.state.has_ended:
        # Compute the end from the duration only if the end was not recorded. The duration leaves
        # out waits, in which the trial may have been frozen (paused) for hours.
        ended_at_s = record.ended_at_s or record.started_at_s + record.duration_s
        known["ended_at_s"] = round(ended_at_s, 3)
    return {
        **known,
        "params": _plain(record.params),
        "started_at_s": round(record.started_at_s, 3),
        "has_notebook": has_notebook,
    }


def params_of(settings: Settings) -> list[dict[str, Any]]:
    """Return the search space in the format of the page: choices or bounds of each param."""
    return [_param(name, dimension) for name, dimension in settings.search_space.items()]


def _plain(params: Params) -> dict[str, Any]:
    """Convert params to JSON values that the page shows without further formatting."""

    return {name: _plain_value(value) for name, value in params.items()}


def _plain_value(value: Any) -> Any:
    """Return a finite number as it is, and any other value as the text that messages show.

    A browser would write `true` instead of `True`, and `null` instead of `None`.
    """
    if isinstance(value, float):
        return encode_float(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number else value_text(value)


def _param(name: str, dimension: AnyDimension) -> dict[str, Any]:
    if isinstance(dimension, ChoiceDimension):
        return {"name": name, "choices": [_plain_value(value) for value in dimension.choices]}
    return {
        "name": name,
        "low": dimension.low,
        "high": dimension.high,
        "is_log": dimension.log,
        "is_whole": dimension.type == "int",
    }
