"""How a storage is reached: which of its errors may pass, and whose a study on a server is."""

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

#: How long to wait for another process's lock on an SQLite file.
_BUSY_TIMEOUT_S = 30
#: For PostgreSQL's own client library: a server that has gone without a word is noticed.
_POSTGRES = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
#: The same for the server's side: it gives back the lock of a machine that has gone.
_SERVERS_SIDE = ("tcp_keepalives_idle = 30", "tcp_keepalives_interval = 10")
#: What SQLite says of a database that is not one, or has other tables. It will not get better.
_FOR_GOOD = ("SQLITE_ERROR", "SQLITE_NOTADB", "SQLITE_CORRUPT")
#: PostgreSQL's code for a server that only reads: another is taking its place.
_READ_ONLY = "25006"
#: What PostgreSQL keeps of a session's name, in bytes.
_NAME_BYTES = 63


def open_storage(url: str | Address, *, is_known: bool = False, **options: Any) -> RDBStorage:
    """A storage, made when there is none.

    Its errors that may pass are raised as `StorageAwayError`.

    Args:
        is_known: whether it has been opened before: nothing is made, and its version is right.
        **options: for SQLAlchemy's engine, beside the usual ones.

    Raises:
        StudyError: it cannot be opened.
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
    """Why a storage cannot be opened, and what would help."""
    driver = driver_missing(error)
    if driver is not None:
        return driver
    said = f"cannot be opened: {url.scrubbed(root_cause(error))}"
    if url.is_incomplete:
        return f"{said}; its password is not stored: give it in --storage, or in PGPASSWORD"
    return f"{said}; expected an SQLAlchemy URL such as sqlite:////folder/study.db"


def _clear_leftovers(url: str) -> None:
    """Remove the log of an SQLite file that was removed: SQLite would play it into a new one."""
    file = file_of(make_url(url))
    if file is not None and not file.exists():
        for ending in ("-journal", "-wal", "-shm"):
            file.with_name(file.name + ending).unlink(missing_ok=True)


def _open(url: str, *, is_known: bool, **options: Any) -> RDBStorage:
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
    """How SQLAlchemy should connect.

    Raises:
        ArgumentError: that is no URL of a database, or of one that SQLAlchemy does not know.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": _BUSY_TIMEOUT_S}}
    is_libpq = parsed.get_driver_name() in ("psycopg", "psycopg2")
    return {"pool_pre_ping": True, "connect_args": _POSTGRES if is_libpq else {}}


def log_ahead(storage: RDBStorage) -> None:
    """Have SQLite write ahead: one wait for the disk a commit, and readers lock nobody out."""
    if storage.engine.name == "sqlite":
        with storage.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")


def place_of(url: URL) -> str:
    """A storage as people know it: the file, or the server without the password."""
    file = file_of(url)
    whole = url.render_as_string(hide_password=False)
    return str(Address.of(whole)) if file is None else display_path(file)


def file_of(url: URL) -> Path | None:
    """The file of an SQLite storage; None for a server's, and one in memory."""
    name = url.database
    if url.get_backend_name() != "sqlite" or not name or name == ":memory:":
        return None
    return Path(name).absolute()


def _translate_errors(engine: Engine) -> None:
    """Have errors that may pass raised as `StorageAwayError`.

    Optuna would repeat the creation of a trial by itself without looking whether the first one had
    arrived, and tells of everything else as data that is too long.
    """
    place = place_of(engine.url)

    @event.listens_for(engine, "handle_error")
    def _(context: ExceptionContext) -> None:
        if not context.is_pre_ping and _may_pass(context):
            said = str(context.original_exception).strip().partition("\n")[0]
            said = said or type(context.original_exception).__name__
            raise StorageAwayError(f"{place}: {said}") from context.original_exception


def _may_pass(context: ExceptionContext) -> bool:
    error = context.original_exception
    if isinstance(error, sqlite3.Error):
        is_final = getattr(error, "sqlite_errorname", "SQLITE_ERROR") in _FOR_GOOD
        return isinstance(error, sqlite3.OperationalError) and not is_final
    is_of_the_server = isinstance(context.sqlalchemy_exception, OperationalError | InterfaceError)
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return is_of_the_server or context.is_disconnect or code == _READ_ONLY


def refuse_another_file(engine: Engine) -> None:
    """From now on use SQLite's file as it is, and never a new one that has come into its place."""
    file = file_of(engine.url)
    if file is None:
        return
    presence = Presence(file)

    def check(*_: object) -> None:
        if presence.lost() is not None:
            raise LostFileError(file)

    event.listen(engine, "do_connect", check)  # SQLite would make an empty one
    event.listen(engine.pool, "checkout", check)


def held_by_session(storage: RDBStorage, study: str) -> RDBStorage:
    """A PostgreSQL storage through one connection only, whose session holds a study.

    The server gives the lock back when the connection ends, however that comes about. A new
    connection takes it again before anything else: what writes, holds.

    Args:
        storage: open already.

    Raises:
        StudyError: another session holds the study, at once or when a connection is made anew.
    """
    storage.engine.dispose()
    held = open_storage(storage.url, is_known=True, pool_size=1, max_overflow=0, pool_timeout=None)
    held.engine.dispose()
    lock = _SessionLock(study, place=place_of(held.engine.url))
    event.listen(held.engine, "connect", lambda connection, _: lock.take(connection))
    return held


class _SessionLock:
    """An advisory lock of PostgreSQL, which its session holds until it ends."""

    def __init__(self, study: str, *, place: str) -> None:
        self._study = study
        self._place = place
        self._has_held = False
        # Its first half tells the sweep from others; people are shown the second.
        self._token = f"sweep {secrets.token_hex(4)} "
        self._name = f"{self._token}process {os.getpid()} on {socket.gethostname()}"

    def take(self, connection: Any) -> None:
        """Take it for a session that has just begun.

        Raises:
            StudyError: another holds it.
            StorageAwayError: the server has not noticed yet that this sweep's earlier session has
                ended.
        """
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('application_name', %s, false)", (self._short_name,))
            for setting in _SERVERS_SIDE:
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
