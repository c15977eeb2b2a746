"""Test commands for a study on PostgreSQL that another machine sweeps."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from opened_studies import asked
from postgres_servers import PostgresServer
from studies import small_settings, until

from sweeper.control import steering
from sweeper.control.lookup import clean_up_after_crash, find_study
from sweeper.control.status import look
from sweeper.errors import StudyError
from sweeper.study.study import Study
from sweeper.trials import StudyPaths, TrialState

pytestmark = pytest.mark.slow

SETTINGS = small_settings("afar")


@pytest.fixture
def sweeping(postgres: PostgresServer, tmp_path: Path) -> Iterator[Study]:
    """Make a study with a running trial that another machine sweeps.

    This machine has a folder with the study's name, but no sweep runs in it.
    """
    paths = StudyPaths.parse(str(tmp_path / "out" / "{run_id}.ipynb"), study="afar")
    paths.folder.mkdir(parents=True)
    with closing(Study.open(postgres.url, SETTINGS)) as study:
        study.note_facts(
            template=paths.template,
            tracking_uri="http://127.0.0.1:1",
            settings=SETTINGS.as_mapping,
        )
        asked(study, SETTINGS, paths)
        yield study


def test_the_cleanup_after_a_crash_changes_no_trial_while_another_machine_sweeps_the_study(
    postgres: PostgresServer, sweeping: Study
) -> None:
    existing = find_study("afar", storage=postgres.url)
    assert (existing.swept_by() or "").startswith("process ")
    clean_up_after_crash(existing)
    result, snapshot = look(find_study("afar", storage=postgres.url))
    assert [record.state for record in result.records] == [TrialState.RUNNING]
    assert len(snapshot.running) == 1
    sweeping.close()
    until(lambda: existing.swept_by() is None)
    clean_up_after_crash(existing)
    stopped = find_study("afar", storage=postgres.url).study.records()
    assert [record.state for record in stopped] == [TrialState.STOPPED]


def test_the_command_stop_refuses_a_sweep_on_another_machine_and_names_that_machine(
    postgres: PostgresServer, sweeping: Study
) -> None:
    existing = find_study("afar", storage=postgres.url)
    with pytest.raises(StudyError, match=r"process \d+ on .*run this command on the machine"):
        steering.stop(existing, [], running_finish=False)
    assert not existing.paths.requests.exists()


def test_a_study_that_was_only_read_leaves_no_connection_open(
    postgres: PostgresServer, sweeping: Study
) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        assert find_study("afar", storage=postgres.url).study.records()
        gc.collect()
    assert [str(one.message) for one in warned] == []
