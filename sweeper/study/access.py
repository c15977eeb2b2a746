"""Opens a storage, tells temporary errors from lasting ones, and locks a study on a server."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from sqlalchemy import event
from sqlalchemy.engine import URL, Engine, ExceptionContext, make_url
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from ..errors import StorageAwayError, StudyError, root_cause
from ..settings.addresses import Address, driver_missing
from ..study_folder.loss import LostFileError, Presence
from ..trials import display_path
from .files import make_tables

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
#: The same for the server: it releases the lock of a machine that has vanished.
_SERVER_KEEPALIVES = ("tcp_keepalives_idle = 30", "tcp_keepalives_interval = 10")
#: SQLite's errors for a file that is no database or has other tables: waiting does not help.
_LASTING_ERRORS = ("SQLITE_ERROR", "SQLITE_NOTADB", "SQLITE_CORRUPT")
#: PostgreSQL's code for a read-only server, which another server is about to replace.
_READ_ONLY = "25006"
#: PostgreSQL cuts the name of a session to this many bytes.
_NAME_BYTES = 63


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
        _clear_leftovers(url.full)
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


def _clear_leftovers(url: str) -> None:
    """Remove the log of an SQLite file that is gone: SQLite would replay it into a new file."""
    file = file_of(make_url(url))
    if file is not None and not file.exists():
        for ending in ("-journal", "-wal", "-shm"):
            file.with_name(file.name + ending).unlink(missing_ok=True)


def _open(url: str, *, is_known: bool, **options: Any) -> RDBStorage:
    parsed = make_url(url)
    file = None if parsed.query else file_of(parsed)  # a query may say that nothing is to be made
    if file is not None and not is_known:
        is_known = make_tables(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = RDBStorage(
            url,
            engine_kwargs={**_options_for(url), **options},
            skip_compatibility_check=is_known,
            skip_table_creation=is_known,
        )
    _translate_errors(storage.engine)
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
    file = file_of(url)
    whole = url.render_as_string(hide_password=False)
    return str(Address.of(whole)) if file is None else display_path(file)


def file_of(url: URL) -> Path | None:
    """The file of an SQLite storage; None for a storage on a server or in memory."""
    name = url.database
    if url.get_backend_name() != "sqlite" or not name or name == ":memory:":
        return None
    return Path(name).absolute()


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


def refuse_another_file(engine: Engine) -> None:
    """From now on refuse connections if SQLite's file was removed or replaced.

    The connections raise `LostFileError`.
    """
    file = file_of(engine.url)
    if file is None:
        return
    presence = Presence(file)

    def check(*_: object) -> None:
        if presence.lost() is not None:
            raise LostFileError(file)

    event.listen(engine, "do_connect", check)  # SQLite would create an empty file
    event.listen(engine.pool, "checkout", check)


def held_by_session(storage: RDBStorage, study: str) -> RDBStorage:
    """A PostgreSQL storage with a single connection, whose session holds the lock of a study.

    The server releases the lock when the connection ends for any reason. A new connection takes
    the lock before it does anything else, so only the holder of the lock can write.

    Args:
        storage: an open storage, which is replaced by the returned one.

    Raises:
        StudyError: another session holds the study, now or when the connection is opened again.
    """
    storage.engine.dispose()
    held = open_storage(storage.url, is_known=True, pool_size=1, max_overflow=0, pool_timeout=None)
    held.engine.dispose()
    lock = _SessionLock(study, place=place_of(held.engine.url))
    event.listen(held.engine, "connect", lambda connection, _: lock.take(connection))
    return held


class _SessionLock:
    """An advisory lock of PostgreSQL, which a session holds until the session ends."""

    def __init__(self, study: str, *, place: str) -> None:
        self._study = study
        self._place = place
        self._has_held = False
        # The first half identifies this sweep; messages quote the second half only.
        self._token = f"sweep {secrets.token_hex(4)} "
        self._name = f"{self._token}process {os.getpid()} on {socket.gethostname()}"

    def take(self, connection: Any) -> None:
        """Take the lock for a new session.

        Raises:
            StudyError: another session holds the lock.
            StorageAwayError: the server has not noticed yet that an earlier session of this sweep
                has ended.
        """
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('application_name', %s, false)", (self._short_name,))
            for setting in _SERVER_KEEPALIVES:
                cursor.execute(f"SET {setting}")
            cursor.execute("SELECT current_schema()")
            key = self._key(cursor.fetchone()[0])
            cursor.execute("SELECT pg_try_advisory_lock(%s)", (key,))
            if cursor.fetchone()[0]:
                connection.commit()
                self._has_held = True
                return
            cursor.execute(_HOLDER, (key,))
            pid, holder = cursor.fetchone() or (None, "")
            is_ours = bool(holder) and holder.startswith(self._token)
            if is_ours:
                cursor.execute("SELECT pg_terminate_backend(%s)", (pid,))
        connection.close()
        if is_ours or pid is None:
            raise StorageAwayError(f"{self._place}: an earlier connection has not ended yet")
        raise StudyError(self._refusal(holder))

    def _refusal(self, holder: str) -> str:
        is_named = holder.startswith("sweep ")
        whose = holder[len(self._token) :] if is_named else "another process"
        if self._has_held:
            return (
                f"{self._place}: {whose} has begun to sweep the study {self._study!r} while this "
                "sweep had no connection"
            )
        return (
            f"the study {self._study!r} in {self._place} is being swept by {whose}; wait for it "
            "or stop it, or choose another name with --study"
        )

    @property
    def _short_name(self) -> str:
        return self._name.encode()[:_NAME_BYTES].decode("utf-8", "ignore")

    def _key(self, schema: str) -> int:
        digest = hashlib.blake2b(f"sweeper/{schema}/{self._study}".encode(), digest_size=8)
        return int.from_bytes(digest.digest(), "big", signed=True)


_HOLDER = """
SELECT activity.pid, activity.application_name
FROM pg_locks AS locks JOIN pg_stat_activity AS activity ON activity.pid = locks.pid
JOIN pg_database ON pg_database.oid = locks.database
WHERE locks.locktype = 'advisory' AND locks.granted AND locks.objsubid = 1
  AND pg_database.datname = current_database()
  AND (locks.classid::bigint << 32) | locks.objid::bigint = %s
"""
