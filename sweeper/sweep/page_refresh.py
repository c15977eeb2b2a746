"""Keeps the comparison page of a study up to date while a sweep runs."""

from __future__ import annotations

import logging
import threading
import time

from ..errors import first_line
from ..page import Page, content_of
from ..study import Study
from .plan import SweepPlan

#: The page is written every 5 s; where that would take more than 2 % of a core, up to every minute.
_INTERVAL_S, _LONGEST_S, _CORES = 5.0, 60.0, 0.02

_log = logging.getLogger(__name__)


class PageRefresh:
    """Writes the page of one sweep's study now and again, from a thread of its own.

    What goes wrong costs no trial: it is logged once.
    """

    def __init__(self, plan: SweepPlan, study: Study) -> None:
        self._plan, self._study = plan, study
        self._page = Page(plan.paths.page, plan.paths.page_files)
        self._has_failed = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        self._thread.start()

    def finish(self, compare_url: str | None) -> None:
        """Write the page for the last time, when the trials have ended.

        Args:
            compare_url: the study in MLflow's UI; None where there is none.
        """
        self.close()
        self._write(compare_url, is_running=False)

    def close(self) -> None:
        """Write no more."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            began_s = time.thread_time()  # a disk that hangs once takes no CPU
            self._write(None, is_running=True)
            pause_s = (time.thread_time() - began_s) / _CORES
            pause_s = min(max(_INTERVAL_S, pause_s), _LONGEST_S)

    def _write(self, compare_url: str | None, *, is_running: bool) -> None:
        study, plan = self._study, self._plan
        try:
            content = content_of(
                study.name,
                study.records(),
                settings=plan.settings,
                notebook=plan.notebook.path.name,
                best=study.best(),
                importances=study.insights.importances(),
                confirmation=study.confirmation,
                compare_url=compare_url,
                is_running=is_running,
            )
            self._page.write(content)
        except Exception as error:  # noqa: BLE001  a full disk, a folder that is gone, a sampler
            if not self._has_failed:
                page = plan.paths.page
                _log.warning("%s cannot be written: %s; export does it", page, first_line(error))
            self._has_failed = True
