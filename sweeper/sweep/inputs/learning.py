"""Let a study use the best trials of earlier studies with the same params (`learn_from`)."""

from __future__ import annotations

from ...errors import SettingsError, StudyError
from ...settings.addresses import Address
from ...settings.messages import nearest
from ...settings.space import SearchSpace
from ...study.files import is_storage
from ...study.study import Study
from ...trials import LearnedTrial, TrialRecord, has_score
from ..planning.plan import SweepPlan
from .upstream import find_upstream

#: At most this number of trials of one earlier study is used (chosen, not measured). Further trials
#: would add little.
_MOST_TRIALS = 100


def to_learn(plan: SweepPlan, study: Study) -> list[list[LearnedTrial]] | None:
    """Return the best trials of the earlier studies in `learn_from`, to be stored in this study.

    A study stores these trials when it begins. They are read again only if `learn_from` has changed
    since.

    Returns:
        The trials of each earlier study, the best first. None if the study has stored the trials of
        exactly these studies already. None also if it only runs trials of a search again, and so
        proposes no params.

    Raises:
        SettingsError: An earlier study does not exist, or none of its trials fits this study.
    """
    if plan.confirming is not None:  # A confirming study proposes nothing.
        return None
    if study.facts.has_learned_from(plan.settings):
        return None
    return [_found(wanted, plan) for wanted in plan.settings.learn_from]


def _found(wanted: str, plan: SweepPlan) -> list[LearnedTrial]:
    """Return the completed trials of an earlier study that fit this study, the best trial first.

    Args:
        wanted: Entry of `learn_from`: the name, folder or storage of the earlier study.
        plan: Plan of this sweep.

    Raises:
        SettingsError: The earlier study does not exist, or none of its trials fits this study.
    """
    settings, shown = plan.settings, str(Address.of(wanted))
    where = f"{settings.file or 'settings'}: learn_from: {shown!r}"
    space = settings.proposed_space  # Without the fold of `repeat`: samplers do not choose it.
    ((name, goal),) = settings.objective.items()
    try:
        if "://" in wanted:
            address = Address.of(wanted)
            if address.file is not None and not is_storage(address.file):
                raise SettingsError(
                    "no study is there; give a study's storage, as in sqlite:///out/NAME/study.db"
                )
            studies = Study.all_in(address)
        else:
            paths, storage_url = plan.paths, plan.storage_url
            studies = [find_upstream(wanted, paths=paths, storage_url=storage_url).study]
    except (SettingsError, StudyError) as error:
        raise SettingsError(f"{where}: {error}") from error
    known = {score for study in studies for score in study.facts.objectives}
    records = [record for study in studies for record in study.records() if has_score(record, name)]
    if not records:
        hint = f"; {nearest(name, sorted(known))}" if known and name not in known else ""
        raise SettingsError(
            f"{where}: none of its trials has completed with the score {name}{hint}"
        )
    fitting = [record for record in records if _fits(record, space)]
    if not fitting:
        raise SettingsError(
            f"{where}: none of its {len(records)} completed trials has all params of this space "
            f"({', '.join(space)}) within their ranges; leave it out of learn_from"
        )
    sign = -1.0 if goal.direction == "maximize" else 1.0
    fitting.sort(key=lambda record: sign * record.scores[name])
    return [
        LearnedTrial(
            params={n: record.params[n] for n in space if n in record.params},
            score=record.scores[name],
        )
        for record in fitting[:_MOST_TRIALS]
    ]


def _fits(record: TrialRecord, space: SearchSpace) -> bool:
    """Return whether a trial has an allowed value for each param of this space that it needs.

    A param with a condition `when` is needed only if the trial's other params meet the condition.
    """
    params = record.params
    for name, dimension in space.items():
        if not space.exists(name, params):
            continue
        if name not in params or not dimension.allows(params[name]):
            return False
    return True
