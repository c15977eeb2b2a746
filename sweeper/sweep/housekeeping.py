"""What a sweep does every few seconds beside its trials."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext

from ..errors import BrokenError, first_line
from ..page import Page
from ..study.study import Study
from ..trials import ChoreKind, Chores, Importance
from .planning.plan import SweepPlan
from .scheduling.scheduler import TrialScheduler
from .spending import Spending

_INTERVAL_S = 5.0
#: Where writing the page would take more than 2 % of a core, it is written every minute at least.
_CORES, _LONGEST_S = 0.02, 60.0

_log = logging.getLogger(__name__)


class Housekeeping:
    """Writes down the time spent, and writes the comparison page.

    That is done every 5 s, on a thread of its own, which so notices a study that was lost. What
    goes wrong with the page costs no trial: it is logged once.
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
        self._page = Page(plan.paths.page, plan.paths.page_files)
        self._has_failed = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="housekeeping", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and write the time spent once more."""
        self._closing.set()
        with self._chores.during(ChoreKind.PAGE):  # which it may be writing
            self._thread.join()
        self._write_spending()

    def write_page(self, importances: Mapping[str, Mapping[str, Importance]] | None = None) -> None:
        """Write the page as the study is now.

        Args:
            importances: as the page has them; None while trials run.
        """
        study, plan = self._study, self._plan
        is_running = importances is None
        waits = nullcontext() if is_running else self._chores.during(ChoreKind.PAGE)
        try:
            with waits:
                self._page.write(
                    study, plan.settings, is_running=is_running, importances=importances
                )
        except Exception as error:  # noqa: BLE001  a full disk, a folder that is gone, a sampler
            if not self._has_failed:
                page = plan.paths.page
                _log.warning("%s cannot be written: %s; export does it", page, first_line(error))
            self._has_failed = True

    def _write_spending(self) -> None:
        try:
            self._spending.write()
        except BrokenError as error:
            self._scheduler.lose(error)
        except Exception as error:  # noqa: BLE001  it is written again soon
            _log.info("the time spent was not written down: %s", first_line(error))

    def _work(self) -> None:
        page_at_s = 0.0
        while True:
            self._write_spending()
            if time.monotonic() >= page_at_s:
                began_s = time.thread_time()  # a disk that hangs once takes no CPU
                self.write_page()
                pause_s = min((time.thread_time() - began_s) / _CORES, _LONGEST_S)
                page_at_s = time.monotonic() + pause_s
            if self._closing.wait(_INTERVAL_S):
                return
