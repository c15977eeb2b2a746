"""Test for which studies the command `rebuild` is refused. No kernel runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from opened_studies import opened_in
from studies import small_settings

from sweeper.control.rebuilding import rebuild
from sweeper.errors import OutputError, StudyError
from sweeper.study_folder.ownership import held_folder
from sweeper.trials import StudyPaths


@pytest.fixture
def swept(tmp_path: Path) -> Iterator[StudyPaths]:
    """Yield the paths of a study while a sweep holds the lock of its folder."""
    paths = StudyPaths.parse(f"{tmp_path}/out/{{run_id}}.ipynb", study="swept")
    settings = small_settings("swept")
    study = opened_in(paths, settings, settings=settings.as_mapping)
    study.facts.write(paths.facts, study="swept")
    study.close()
    with held_folder(paths):
        yield paths


def test_the_refusal_to_rebuild_a_sound_database_in_use_says_that_it_is_not_damaged(
    swept: StudyPaths,
) -> None:
    with pytest.raises(StudyError, match="not damaged, so nothing was rebuilt"):
        rebuild(swept.root)


def test_a_damaged_database_is_not_rebuilt_while_a_sweep_uses_it(swept: StudyPaths) -> None:
    swept.storage.write_bytes(b"damaged" * 100)
    with pytest.raises(StudyError, match=r"is being swept by process \d+"):
        rebuild(swept.root)


def test_the_refusal_of_a_rebuild_in_a_folder_that_cannot_be_written_says_so(
    swept: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept.storage.write_bytes(b"damaged" * 100)
    can_write = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != swept.folder and can_write(path, mode)
    )
    with pytest.raises(OutputError, match="cannot be written"):
        rebuild(swept.root)
