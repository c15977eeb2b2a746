"""Keeps the comparison page of a study up to date while a sweep runs."""

from __future__ import annotations

import logging
import threading
import time

from ..errors import first_line
from ..page import Page, content_of
from ..study import Study
from .plan import SweepPlan

#: How often, and how long writing may take at most, as a share of the time.
_INTERVAL_S, _SHARE = 5.0, 0.02

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
            began_s = time.monotonic()
            self._write(None, is_running=True)
            pause_s = max(_INTERVAL_S, (time.monotonic() - began_s) / _SHARE)

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
