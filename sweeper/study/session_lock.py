"""Lock a study on a PostgreSQL server. The lock is held until its database session ends."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from optuna.storages import RDBStorage
from sqlalchemy import event

from ..errors import StorageAwayError, StudyError, first_line
from ..settings.addresses import Address
from .access import open_storage, place_of

#: Settings with which the server releases the lock of a machine that has vanished, within two
#: minutes.
_SERVER_KEEPALIVES = ("tcp_keepalives_idle = 30", "tcp_keepalives_interval = 10")
#: Pattern of the name of a sweep's session: token and process of the sweep. PostgreSQL keeps 63
#: bytes of the name.
_SESSION = re.compile("sweep ([0-9a-f]+) (.+)")
_HOLDER = """
SELECT activity.pid, activity.application_name
FROM pg_locks AS locks JOIN pg_stat_activity AS activity ON activity.pid = locks.pid
JOIN pg_database ON pg_database.oid = locks.database
WHERE locks.locktype = 'advisory' AND locks.granted AND locks.objsubid = 1
  AND pg_database.datname = current_database()
  AND (locks.classid::bigint << 32) | locks.objid::bigint = %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The session that holds the lock of a study.

    Attributes:
        pid: Process id of the server's process for the session.
        token: Token of the sweep, different for each sweep. Empty if another program holds the
            lock.
        process: Name of the sweep's process for people, such as `process 12 on alpha`.
    """

    pid: int
    token: str
    process: str


def _holder_of(cursor: Any, study: str) -> Holder | None:
    """Return the session that holds the lock of a study now, or None.

    Args:
        cursor: Cursor of a connection to the study's database.
        study: Name of the study.
    """
    cursor.execute(_HOLDER, (_key(cursor, study),))
    found = cursor.fetchone()
    if found is None:
        return None
    pid, name = found
    named = _SESSION.fullmatch(name)
    if named is None:
        return Holder(pid=pid, token="", process="another process")
    return Holder(pid=pid, token=named[1], process=named[2])


def holder_in(storage_url: Address, study: str) -> Holder | None:
    """Return the session that holds the lock of a study on a PostgreSQL server now, or None.

    Raises:
        StudyError: The storage cannot be opened.
        StorageAwayError: The server does not answer after the storage was opened.
    """
    engine = open_storage(storage_url, is_known=True).engine
    try:
        with engine.connect() as connection, closing(connection.connection.cursor()) as cursor:
            return _holder_of(cursor, study)
    # A raw cursor bypasses the translation of errors in `access.py`.
    except engine.dialect.loaded_dbapi.Error as error:
        raise StorageAwayError(f"{place_of(engine.url)}: {first_line(error)}") from error
    finally:
        engine.dispose()


def locked_storage(storage: str | Address | RDBStorage, study: str) -> RDBStorage:
    """Return a storage for the sweep of a study. On PostgreSQL, no other sweep can get one.

    There, the storage has a single connection, whose session holds the study's lock. The server
    releases the lock when the connection ends for any reason. A new connection acquires the lock
    before it does anything else. So only the holder of the lock can write.

    Args:
        storage: URL of the storage, or an open storage, which the returned one replaces.
        study: Name of the study.

    Raises:
        StudyError: The storage cannot be opened, or another session holds the lock. The latter can
            also happen later, when the connection is opened again.
    """
    if not isinstance(storage, RDBStorage):
        storage = open_storage(storage)
    if storage.engine.name != "postgresql":
        return storage
    storage.engine.dispose()
    held = open_storage(storage.url, is_known=True, pool_size=1, max_overflow=0, pool_timeout=None)
    held.engine.dispose()
    lock = _SessionLock(study, place=place_of(held.engine.url))
    event.listen(held.engine, "connect", lambda connection, _: lock.take(connection))
    return held


class _SessionLock:
    """An advisory lock of PostgreSQL, which a session holds until it ends."""

    def __init__(self, study: str, *, place: str) -> None:
        self._study = study
        self._place = place
        self._has_held = False
        self._token = secrets.token_hex(4)
        self._name = f"sweep {self._token} process {os.getpid()} on {socket.gethostname()}"

    def take(self, connection: Any) -> None:
        """Acquire the lock for a new session.

        Raises:
            StudyError: Another session holds the lock. It may have acquired the lock while this
                sweep had no connection.
            StorageAwayError: The server has not noticed yet that an earlier session of this sweep
                has ended.
        """
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('application_name', %s, false)", (self._name,))
            for setting in _SERVER_KEEPALIVES:
                cursor.execute(f"SET {setting}")
            cursor.execute("SELECT pg_try_advisory_lock(%s)", (_key(cursor, self._study),))
            if cursor.fetchone()[0]:
                connection.commit()
                self._has_held = True
                return
            holder = _holder_of(cursor, self._study)
            is_ours = holder is not None and holder.token == self._token
            if holder is not None and is_ours:
                cursor.execute("SELECT pg_terminate_backend(%s)", (holder.pid,))
        connection.close()
        if is_ours or holder is None:
            raise StorageAwayError(
                f"{self._place}: an earlier connection of this sweep has not ended yet"
            )
        if self._has_held:
            raise StudyError(
                f"{self._place}: {holder.process} has begun to sweep the study {self._study!r} "
                "while this sweep had no connection; wait for it or stop it, and resume this sweep"
            )
        raise StudyError(
            f"the study {self._study!r} in {self._place} is being swept by {holder.process}; wait "
            "for it or stop it, or choose another name with --study and other outputs with -o"
        )


def _key(cursor: Any, study: str) -> int:
    """Return the number that names a study's lock on the server.

    It depends on the name of the study and on the database schema.
    """
    cursor.execute("SELECT current_schema()")
    schema = cursor.fetchone()[0]
    digest = hashlib.blake2b(f"sweeper/{schema}/{study}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)
