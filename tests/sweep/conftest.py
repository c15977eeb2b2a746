"""Fixtures: a study, a tracker, and a scheduler that uses both, without any kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opened_studies import empty_storage, storage

from sweeper.search.samplers import SamplerFactory
from sweeper.settings import Settings
from sweeper.settings.addresses import Address
from sweeper.study.study import Study
from sweeper.sweep.planning.plan import SweepPlan
from sweeper.sweep.scheduling.scheduler import TrialScheduler
from sweeper.sweep.scheduling.stop_switch import StopSwitch
from sweeper.sweep.scheduling.trial_log import TrialLog
from sweeper.tracking import Store, Tracker
from sweeper.trials import Events, StudyPaths

__all__ = ["empty_storage", "storage"]


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[Tracker]:
    """A tracker that writes to an MLflow store of its own for each test."""
    paths = StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="s")
    address = Address.of(f"sqlite:///{paths.tracking}")
    tracker = Tracker(Store(address=address, study="s", study_id="1", paths=paths))
    yield tracker
    tracker.close()


@pytest.fixture
def make_scheduler(tracker: Tracker, tmp_path: Path) -> Callable[..., TrialScheduler]:
    """Return a function that builds a scheduler for a study."""

    def make(
        study: Study,
        settings: Settings,
        *,
        jobs: int = 2,
        can_freeze: bool = False,
        adopt: Any = None,
        stop_switch: StopSwitch | None = None,
        **options: Any,
    ) -> TrialScheduler:
        paths = StudyPaths.parse(f"{tmp_path}/{{study}}.{{run_id}}.ipynb", study=settings.name)
        events = Events()
        plan: Any = SimpleNamespace(
            settings=settings,
            notebook=None,
            inputs={},
            samplers=SamplerFactory(settings),
            paths=paths,
            storage_url=Address.of_file(paths.storage),
            executor=SimpleNamespace(jobs=jobs, can_freeze=can_freeze),
            adopt=adopt,
            workload=None,
            confirming=None,
            allow_changes=False,
        )
        plan.located = partial(SweepPlan.located, plan)
        return TrialScheduler(
            plan,
            study,
            log=TrialLog(study, tracker, settings, paths=paths, tags={}),
            stop_switch=stop_switch or StopSwitch(events),
            events=events,
            **options,
        )

    return make
