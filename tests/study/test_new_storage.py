"""Optuna's tables in a new file: out of the cache as by Optuna itself, whatever the cache holds."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from optuna.storages import RDBStorage

from sweeper.errors import StudyError
from sweeper.study.access import open_storage
from sweeper.study.files import make_tables


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "notebook-hpo"


def content(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as made:
        return sorted(made.iterdump())


def opened(file: Path) -> list[str]:
    """What a storage consists of that we have opened."""
    storage = open_storage(f"sqlite:///{file}")
    assert storage.get_all_studies() == []
    storage.engine.dispose()
    return content(file)


@pytest.mark.slow
def test_a_storage_out_of_the_cache_is_as_optuna_makes_it_and_a_broken_cache_is_made_again(
    tmp_path: Path, cache: Path
) -> None:
    RDBStorage(f"sqlite:///{tmp_path}/optuna.db").engine.dispose()
    by_optuna = content(tmp_path / "optuna.db")
    assert opened(tmp_path / "first.db") == by_optuna
    (kept,) = cache.iterdir()
    for damage in (b"", b"no database", kept.read_bytes()[:9_000]):
        kept.write_bytes(damage)
        assert opened(tmp_path / f"after-{len(damage)}.db") == by_optuna
        assert len(kept.read_bytes()) > 9_000
    assert [*cache.iterdir()] == [kept]


def test_without_a_cache_that_can_be_written_optuna_makes_its_tables_itself(
    tmp_path: Path, cache: Path
) -> None:
    with_cache = opened(tmp_path / "a.db")
    for file in cache.iterdir():
        file.unlink()
    cache.rmdir()
    cache.write_text("in the way")
    assert opened(tmp_path / "b.db") == with_cache


def test_a_storage_of_another_version_of_optuna_is_refused(tmp_path: Path, cache: Path) -> None:
    opened(tmp_path / "new.db")
    assert cache.exists()
    with closing(sqlite3.connect(tmp_path / "new.db")) as made, made:
        made.execute("UPDATE alembic_version SET version_num = 'v99.0.0.a'")
    with pytest.raises(StudyError, match="no longer compatible"):
        open_storage(f"sqlite:///{tmp_path}/new.db")


def test_processes_that_make_a_storage_at_once_find_it_whole(tmp_path: Path, cache: Path) -> None:
    assert not cache.exists()
    at_once = threading.Barrier(4)

    def make() -> None:
        at_once.wait()
        make_tables(tmp_path / "many.db")

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert content(tmp_path / "many.db") == opened(tmp_path / "one.db")
