"""Every few seconds, store how long a study's sweeps have run, and write its comparison page."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from ..answer import answer_of_study, runs_page_of
from ..errors import StorageAwayError, StudyError, first_line
from ..page import Page
from ..study.study import Study
from ..trials import ChoreKind, Chores, Confirmation, Importance, Insights
from .planning.plan import SweepPlan
from .scheduling.scheduler import TrialScheduler
from .spending import Spending

_INTERVAL_S = 5.0
#: Writing the page may use the share `_CORES` of one processor core. So the pause after each
#: writing is as long as the used CPU time divided by `_CORES`, but at most `_LONGEST_S` seconds
#: (both chosen, not measured).
_CORES, _LONGEST_S = 0.02, 60.0

_log = logging.getLogger(__name__)


class Housekeeping:
    """Stores how long a study's sweeps have run, and writes its comparison page.

    The comparison page is an HTML page that compares the trials. A thread does both every 5 s. If
    writing the page takes long, it is written less often. If the study's storage is lost, or
    another sweep has taken over the study, the thread stops the sweep. If the page cannot be
    written, the sweep continues, and only the first such error is logged.

    Args:
        plan: Plan of the sweep.
        study: The study, open.
        scheduler: Scheduler of the sweep's trials. It ends the sweep if the storage is lost.
        spending: Time that the study's sweeps have spent.
        chores: Work of the sweep other than trials, which is shown to users while they wait. At the
            end of the sweep, writing the page is one of these chores.
    """

    def __init__(
        self,
        plan: SweepPlan,
        study: Study,
        *,
        scheduler: TrialScheduler,
        spending: Spending,
        chores: Chores,
    ) -> None:
        self._plan, self._study = plan, study
        self._scheduler, self._spending, self._chores = scheduler, spending, chores
        self._page = Page(plan.paths.page, plan.paths.page_files, plan.paths.notes)
        self._has_failed = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="housekeeping", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and store once more how long the study's sweeps have run."""
        self._closing.set()
        with self._chores.during(ChoreKind.PAGE):  # The thread may still be writing the page.
            self._thread.join()
        self._write_spending()

    def write_page(
        self,
        *,
        surfaces: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        is_running: bool = True,
        is_confirming: bool = False,
        insights: Insights | None = None,
        importances: Mapping[str, Mapping[str, Importance]] | None = None,
        confirmation: Confirmation | None = None,
    ) -> None:
        """Write the comparison page as the study is now. Log the first error, and raise none.

        Args:
            surfaces: Scores predicted over pairs of params, as `Study.surfaces` returns them.
            is_running: Whether trials run. If so, the other arguments are not known yet.
            is_confirming: Whether the sweep is about to run the best trials again.
            insights: The answer of the study: who has won, what mattered, what to do next.
            importances: Importance of each param, by objective, then by param.
            confirmation: Ranking of trials by their mean scores over several runs: those on fresh
                seeds, or those of `repeat`. None if there are no such runs.
        """
        study, plan = self._study, self._plan
        waits = nullcontext() if is_running else self._chores.during(ChoreKind.PAGE)
        try:
            with waits:
                self._page.write(
                    study,
                    plan.settings,
                    is_running=is_running or is_confirming,
                    importances=importances,
                    surfaces=surfaces,
                    insights=self._answer_so_far() if is_running else insights,
                    confirmation=confirmation,
                    runs_page=runs_page_of(plan.paths, confirmation),
                )
        except Exception as error:  # noqa: BLE001  for example a full disk or a removed folder
            if not self._has_failed:
                page = plan.paths.page
                _log.warning(
                    "%s cannot be written: %s; `export` writes it later", page, first_line(error)
                )
            self._has_failed = True

    def _answer_so_far(self) -> Insights | None:
        study, plan = self._study, self._plan
        return answer_of_study(
            plan.located(study),
            plan.settings,
            confirmation=study.confirmation,
            importances=None,
            is_running=True,
        )

    def _write_spending(self) -> None:
        try:
            self._spending.write()
        except StudyError as error:  # The storage was lost, or another sweep has taken it over.
            if not isinstance(error, StorageAwayError):
                self._scheduler.lose(error)
        except Exception as error:  # noqa: BLE001  the time is stored again after 5 s
            _log.info("the time that sweeps have taken was not stored: %s", first_line(error))

    def _work(self) -> None:
        page_at_s = 0.0
        while True:
            self._write_spending()
            if self._scheduler.broken is None and time.monotonic() >= page_at_s:
                # Measure CPU time, which a slow disk does not increase.
                began_s = time.thread_time()
                self.write_page()
                pause_s = min((time.thread_time() - began_s) / _CORES, _LONGEST_S)
                page_at_s = time.monotonic() + pause_s
            if self._closing.wait(_INTERVAL_S):
                return
