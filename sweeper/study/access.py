"""Opens a storage, and tells temporary errors from lasting ones."""

from __future__ import annotations

import os
import sqlite3
import warnings
import weakref
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from sqlalchemy import event
from sqlalchemy.engine import URL, Engine, ExceptionContext, make_url
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from ..errors import BrokenError, StorageAwayError, StudyError, root_cause
from ..files import PRIVATE
from ..settings.addresses import Address, driver_missing
from ..trials import display_path

#: How long to wait for another process's lock on an SQLite file.
_BUSY_TIMEOUT_S = 30
#: For PostgreSQL's client library: a connection whose server has vanished fails in a minute.
_POSTGRES = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
#: SQLite's errors for a file that is no database or has other tables: waiting does not help.
_LASTING_ERRORS = ("SQLITE_ERROR", "SQLITE_NOTADB", "SQLITE_CORRUPT")
#: PostgreSQL's code for a read-only server, which another server is about to replace.
_READ_ONLY = "25006"


def open_storage(url: str | Address, *, is_known: bool = False, **options: Any) -> RDBStorage:
    """Open a storage; create its tables where there are none.

    The storage raises its temporary errors as `StorageAwayError`.

    Args:
        is_known: whether the storage was opened before, so that its tables and their version need
            no check.
        **options: for SQLAlchemy's engine, beside the usual ones.

    Raises:
        StudyError: the storage cannot be opened.
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
        raise StudyError(f"--storage {url}: {_why_closed(url, error)}") from error


def _why_closed(url: Address, error: BaseException) -> str:
    """Why a storage cannot be opened, and the remedy."""
    driver = driver_missing(error)
    if driver is not None:
        return driver
    problem = f"cannot be opened: {url.scrubbed(root_cause(error))}"
    if url.is_incomplete:
        return f"{problem}; its password is not stored: give it in --storage, or in PGPASSWORD"
    return f"{problem}; expected an SQLAlchemy URL such as sqlite:////folder/study.db"


def _open(url: str, *, is_known: bool, **options: Any) -> RDBStorage:
    if (file := Address.of(url).file) is not None and not file.exists():
        file.touch(mode=PRIVATE)  # SQLite gives its log the same mode
    with warnings.catch_warnings(action="ignore"):
        storage = RDBStorage(
            # Optuna takes the URL as a template, in which a brace of a path has to be doubled.
            url.replace("{", "{{").replace("}", "}}"),
            engine_kwargs={**_options_for(url), **options},
            skip_compatibility_check=is_known,
            skip_table_creation=is_known,
        )
    _translate_errors(storage.engine)
    # A study that is only read is not closed by anyone: its connections end with it.
    weakref.finalize(storage, storage.engine.dispose).atexit = False
    return storage


def _options_for(url: str) -> dict[str, Any]:
    """The options with which SQLAlchemy connects.

    Raises:
        ArgumentError: SQLAlchemy cannot read the URL, or does not know the database.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": _BUSY_TIMEOUT_S}}
    is_libpq = parsed.get_driver_name() in ("psycopg", "psycopg2")
    return {"pool_pre_ping": True, "connect_args": _POSTGRES if is_libpq else {}}


def log_ahead(storage: RDBStorage) -> None:
    """Set SQLite's write-ahead log: a commit waits once for the disk, and readers do not block."""
    if storage.engine.name == "sqlite":
        with storage.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")


def place_of(url: URL) -> str:
    """A storage for messages: the path of its file, or the server's URL without the password."""
    file = _file_of(url)
    if file is not None:
        return display_path(file)
    return str(Address.of(url.render_as_string(hide_password=False)))


def _file_of(url: URL) -> Path | None:
    """The file of an SQLite storage that SQLAlchemy has opened; None for any other."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database)).absolute()


def _translate_errors(engine: Engine) -> None:
    """Raise temporary errors as `StorageAwayError`, before Optuna handles them.

    Optuna repeats the creation of a trial without a check whether the first attempt was stored,
    and reports all other errors as data that is too long.
    """
    place = place_of(engine.url)

    @event.listens_for(engine, "handle_error")
    def _(context: ExceptionContext) -> None:
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


class LostFileError(BrokenError):
    """A study's file was removed or replaced while a sweep was using it."""


def refuse_another_file(engine: Engine) -> None:
    """From now on refuse connections if SQLite's file was removed or replaced.

    What is written to a removed file is lost, and databases do not notice. The connections raise
    `LostFileError`.
    """
    file = _file_of(engine.url)
    if file is None:
        return
    known: os.stat_result | None = file.stat()

    def check(*_: object) -> None:
        nonlocal known
        try:
            if known is not None and os.path.samestat(file.stat(), known):
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:  # a file system that does not answer proves no loss
            return
        known = None  # it stays lost: a new file may get the inode number of the old one
        where = display_path(file)
        raise LostFileError(f"{where} was removed or replaced while the sweep was using it")

    event.listen(engine, "do_connect", check)  # SQLite would create an empty file
    event.listen(engine.pool, "checkout", check)
