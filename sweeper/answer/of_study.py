"""Make the answer of a stored study: collect the facts from its storage and call `answer_of`.

The facts include the results of the study that ran the best trials again on fresh seeds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from ..errors import SweepError, first_line
from ..settings import Settings
from ..settings.addresses import study_words
from ..study.located import LocatedStudy
from ..trials import Confirmation, Importance, Insights, StudyPaths
from .making import StudySoFar, answer_of

_log = logging.getLogger(__name__)


def answer_of_study(
    located: LocatedStudy,
    settings: Settings,
    *,
    confirmation: Confirmation | None,
    importances: Mapping[str, Mapping[str, Importance]] | None,
    is_running: bool = False,
    is_confirming: bool = False,
) -> Insights | None:
    """Return the answer of a study: its winner, which params mattered, what to do next.

    An error in the analysis is logged and not raised, so that it cannot end a sweep. Then the
    answer is None.

    Args:
        located: The study.
        settings: Its settings.
        confirmation: Ranking of trials by their mean scores over several runs. None if there is
            none.
        importances: Share of each objective's variance that each param explains. None while it is
            not known.
        is_running: Whether a sweep runs on the study.
        is_confirming: Whether a sweep runs its best trials again, or is about to.
    """
    study, facts = located.study, located.study.facts
    try:
        return answer_of(
            StudySoFar(
                settings=settings,
                records=study.records(),
                best=located.best(confirmation),
                words=study_words(study.name, located.storage_url),
                trials=facts.trials,
                by_hand=study.claimed()[1],
                confirmation=confirmation,
                importances=importances,
                noise=study.noise(),
                cost=located.cost(),
                ablated=located.ablated(),
                is_running=is_running,
                is_confirming=is_confirming,
                is_search=facts.confirms is None,
            )
        )
    except SweepError:  # The storage may be unavailable, which callers handle.
        raise
    except Exception as error:  # noqa: BLE001  an error in the analysis must not end a sweep
        _log.warning("the summary of the study's results cannot be made: %s", first_line(error))
        return None


def runs_page_of(paths: StudyPaths, confirmation: Confirmation | None) -> Path | None:
    """Return the path of the page of the study that ran the best trials again on fresh seeds.

    None if no trials ran again, or if they did so in the study itself, as with `repeat`.

    Args:
        paths: Paths of the study.
        confirmation: Ranking of its trials by means. None if there is none.
    """
    if confirmation is None or confirmation.study == paths.study:
        return None
    return paths.following("confirm").page
