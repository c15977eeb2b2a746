"""A storage for all tests of studies, and a study of the test's own in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opened_studies import RANGE, Opened
from optuna.storages import RDBStorage
from studies import small_settings


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> RDBStorage:
    """One SQLite file for all tests, because creating its tables takes most of a second.

    The object itself caches no trials, so a study that is opened again reads them from the file.
    """
    return RDBStorage(f"sqlite:///{tmp_path_factory.mktemp('storage') / 'study.db'}")


@pytest.fixture
def begin(storage: RDBStorage, request: pytest.FixtureRequest) -> Any:
    """Opens a study of the test's own, with these parts of a parameters file."""
    begun = []

    def begin(
        space: Mapping[str, Any] = RANGE,
        *,
        objective: Mapping[str, str] | None = None,
        start: Sequence[Mapping[str, Any]] = (),
        **study: Any,
    ) -> Opened:
        begun.append(1)
        name = f"{abs(hash(request.node.nodeid))} {len(begun)}"
        sections = {"space": space, "objective": objective or {"acc": "maximize"}, "start": start}
        return Opened(storage, small_settings(name, **sections, study={"trials": 100, **study}))

    return begin
