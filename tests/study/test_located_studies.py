"""A study is found together with the study that confirmed its trials."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeper.errors import StudyError
from sweeper.settings.addresses import Address
from sweeper.study.located import LocatedStudy
from sweeper.trials import StudyPaths


def test_finding_a_confirming_study_raises_if_it_is_damaged_and_returns_none_if_there_is_none(
    begin: Any, tmp_path: Path
) -> None:
    paths = StudyPaths.parse(str(tmp_path / "{study}.{run_id}.ipynb"), study="s")
    study: Any = SimpleNamespace(facts=SimpleNamespace(confirms=None))
    url = Address.of(str(begin().storage.url))
    located = LocatedStudy(study=study, paths=paths, storage_url=url)
    assert located.readable_following("confirm") is None
    damaged = paths.following("confirm").storage
    damaged.parent.mkdir()
    damaged.write_bytes(b"no database" * 1000)
    assert located.following("confirm") is None
    with pytest.raises(StudyError, match="is damaged"):
        located.readable_following("confirm")
