"""Open an Optuna storage, and distinguish a database's temporary errors from permanent ones."""

from __future__ import annotations

import os
import shlex
import sqlite3
import warnings
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from sqlalchemy import event
from sqlalchemy.engine import URL, Engine, ExceptionContext, make_url
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from ..errors import StorageAwayError, StudyError, first_line, root_cause
from ..files import PRIVATE
from ..settings.addresses import Address, driver_missing
from ..trials import display_path, facts_beside

#: Seconds to wait for another process's lock on a SQLite file (chosen, not measured).
_BUSY_TIMEOUT_S = 30
#: Settings of PostgreSQL's client library, with which a connection fails within a minute after its
#: server has vanished. Times are in seconds, `tcp_user_timeout` in milliseconds.
_POSTGRES = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
#: Permanent errors of SQLite, for which waiting is no use: the file is not a database, it is
#: damaged, or an SQL statement fails, for example because a table is missing.
_LASTING_ERRORS = ("SQLITE_ERROR", "SQLITE_NOTADB", "SQLITE_CORRUPT")
#: PostgreSQL's code for a read-only server. This error is temporary, because another server is
#: about to replace the read-only one.
_READ_ONLY = "25006"


def open_storage(url: str | Address, *, is_known: bool = False, **options: Any) -> RDBStorage:
    """Open a storage. Create its tables if there are none, unless `is_known` is set.

    The storage raises its temporary errors as `StorageAwayError`.

    Args:
        url: URL of the storage.
        is_known: Whether the storage was opened before, so that its tables and their version need
            not be checked.
        **options: Further options for SQLAlchemy's engine.

    Raises:
        StudyError: The storage cannot be opened.
        LostFileError: The storage is a damaged file.
    """
    url = Address.of(url)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        return _open(url.full, is_known=is_known, **options)
    except (
        SQLAlchemyError,
        optuna.exceptions.OptunaError,
        OSError,
        ImportError,
        ValueError,
        RuntimeError,
    ) as error:
        if url.file is not None and is_damage(_innermost(error)):
            raise LostFileError(url.file, root_cause(error)) from error
        raise StudyError(f"--storage {url}: {_why_closed(url, error)}") from error


def close_storage(storage: RDBStorage) -> None:
    """Close all connections to a storage."""
    storage.remove_session()
    storage.engine.dispose()


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _why_closed(url: Address, error: BaseException) -> str:
    """Return why a storage cannot be opened and what to do about it, for a message."""
    driver = driver_missing(error)
    if driver is not None:
        return driver
    problem = f"cannot be opened: {url.scrubbed(root_cause(error))}"
    if url.is_incomplete:
        return f"{problem}; its password is not stored: give it in --storage, or in PGPASSWORD"
    return f"{problem}; expected an SQLAlchemy URL such as sqlite:////folder/study.db"


def _open(url: str, *, is_known: bool, **options: Any) -> RDBStorage:
    file = Address.of(url).file
    if file is not None and not is_known and not file.exists():
        file.touch(mode=PRIVATE)  # SQLite's log gets the same mode.
    if file is not None and is_known and not os.access(file.parent, os.W_OK):
        options |= _options_without_writing(file)
    with warnings.catch_warnings(action="ignore"):
        storage = RDBStorage(
            # Optuna uses the URL as a template, in which a brace of a path must be doubled.
            url.replace("{", "{{").replace("}", "}}"),
            engine_kwargs={**_options_for(url), **options},
            skip_compatibility_check=is_known,
            skip_table_creation=is_known,
        )
    _translate_errors(storage.engine)
    # A study that is only read is never closed. Its connections end when Python removes the storage
    # object.
    weakref.finalize(storage, storage.engine.dispose).atexit = False
    return storage


def _options_for(url: str) -> dict[str, Any]:
    """Return the options with which SQLAlchemy connects to a storage.

    Raises:
        ArgumentError: SQLAlchemy cannot read the URL, or does not know the database.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": _BUSY_TIMEOUT_S}}
    is_libpq = parsed.get_driver_name() in ("psycopg", "psycopg2")
    return {"pool_pre_ping": True, "connect_args": _POSTGRES if is_libpq else {}}


def _options_without_writing(file: Path) -> dict[str, Any]:
    """Return the options for reading a SQLite file in a folder that this user cannot write.

    If the file has a write-ahead log (`-wal`), SQLite needs the log's index (`-shm`). It cannot
    create the index in such a folder. A file without a log does not change, so it is opened as
    immutable.

    Raises:
        StudyError: The file has a log with data, but no index.
    """
    log, index = (file.with_name(f"{file.name}-{kind}") for kind in ("wal", "shm"))
    if index.exists():  # The index exists while a sweep runs.
        return {}
    if log.exists() and log.stat().st_size:
        raise StudyError(
            f"{display_path(log)}, which a killed sweep has left, can only be read in a folder "
            "that you can write to; copy the outputs to such a folder"
        )
    uri = f"{file.absolute().as_uri()}?immutable=1"
    return {"creator": lambda: sqlite3.connect(uri, uri=True, check_same_thread=False)}


def log_ahead(storage: RDBStorage) -> None:
    """Turn on SQLite's write-ahead log: a commit waits for the disk once, readers never wait.

    Do nothing for other databases.
    """
    if storage.engine.name == "sqlite":
        with storage.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")


def place_of(url: URL) -> str:
    """Return a storage's name for messages: its file's path, or its URL without the password."""
    file = file_of(url)
    if file is not None:
        return display_path(file)
    return str(Address.of(url.render_as_string(hide_password=False)))


def file_of(url: URL) -> Path | None:
    """Return the file of a SQLite storage. None for one in memory and for other databases."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database)).absolute()


def _translate_errors(engine: Engine) -> None:
    """Let an engine raise temporary errors as `StorageAwayError` and damage as `LostFileError`.

    Otherwise, Optuna would handle the errors. It repeats the creation of a trial without a check
    whether the first attempt was stored. It turns other errors into the message that data is too
    long.
    """
    place, file = place_of(engine.url), file_of(engine.url)

    @event.listens_for(engine, "handle_error")
    def _(context: ExceptionContext) -> None:
        if file is not None and is_damage(context.original_exception):
            why = first_line(context.original_exception)
            raise LostFileError(file, why) from context.original_exception
        if not context.is_pre_ping and _is_temporary(context):
            message = str(context.original_exception).strip().partition("\n")[0]
            message = message or type(context.original_exception).__name__
            raise StorageAwayError(f"{place}: {message}") from context.original_exception


def _is_temporary(context: ExceptionContext) -> bool:
    error = context.original_exception
    if isinstance(error, sqlite3.Error):
        is_lasting = getattr(error, "sqlite_errorname", "SQLITE_ERROR") in _LASTING_ERRORS
        return isinstance(error, sqlite3.OperationalError) and not is_lasting
    is_of_the_server = isinstance(context.sqlalchemy_exception, OperationalError | InterfaceError)
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return is_of_the_server or context.is_disconnect or code == _READ_ONLY


class LostFileError(StudyError):
    """A study's file is damaged, or was removed or replaced while a sweep was using it.

    Args:
        file: File of the storage.
        why: What is wrong with the file, in words.
    """

    def __init__(self, file: Path, why: str) -> None:
        remedy = ""
        if facts_beside(file).is_file():
            folder = shlex.quote(display_path(file.parent))
            remedy = f": `notebook_hpo.py rebuild {folder}` rebuilds it from the executed notebooks"
        super().__init__(f"{display_path(file)} is damaged ({why}){remedy}")


def refuse_another_file(engine: Engine, file: Path, *, is_ours: Callable[[], bool]) -> None:
    """Let connections raise `LostFileError` once the SQLite file is removed, replaced or damaged.

    SQLite itself does not notice that its file was removed, and loses all data that it then writes.
    It does not notice damage either, as long as it finds its data in memory.

    Args:
        engine: SQLAlchemy's engine of the database.
        file: File of the database.
        is_ours: Function that returns whether `file` contains the study. It is called only if the
            file has changed and is not damaged.
    """
    known = file.stat()
    damage: str | None = None

    def check(*_: object) -> None:
        nonlocal known, damage
        if damage is None:  # Damage is final: a new file may get the inode number of the old one.
            try:
                found = file.stat()
            except (FileNotFoundError, NotADirectoryError):
                damage = "it was removed or replaced while the sweep was using it"
            except OSError:  # The file system does not answer, which does not prove a loss.
                return
            else:
                if not os.path.samestat(found, known):
                    damage = "it was removed or replaced while the sweep was using it"
                # Check the content only if the file has changed. This is rare, because a commit
                # changes only the log.
                elif (found.st_size, found.st_mtime_ns) != (known.st_size, known.st_mtime_ns):
                    known, damage = found, damage_of(file)
                    if damage is None and not is_ours():
                        damage = "it was overwritten by another database"
        if damage is not None:
            raise LostFileError(file, damage)

    # Check before SQLite connects, because SQLite would create an empty file if the file is lost.
    event.listen(engine, "do_connect", check)
    event.listen(engine.pool, "checkout", check)


def damage_of(file: Path) -> str | None:
    """Return what is wrong with a SQLite file. None if it is undamaged or cannot be read now."""
    try:
        # Only SQLite may open the file: closing another handle would drop SQLite's locks.
        uri = f"{file.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        return first_line(error) if is_damage(error) else None
    return None if found == "ok" else first_line(ValueError(found))


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error says that a SQLite file is not a database or is damaged."""
    name = getattr(error, "sqlite_errorname", "") if isinstance(error, sqlite3.Error) else ""
    return name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT"))
