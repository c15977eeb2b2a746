"""Who leads the coordinators of a study on PostgreSQL, and how the others reach that machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from optuna.storages import RDBStorage

from ...errors import SettingsError, StorageAwayError
from ...settings.addresses import Address
from ..access import open_storage, place_of
from .session_lock import Holder, holder_in, refusal

#: The attribute of a study with its leader, as Optuna stores it for its own use: no dashboard
#: displays these.
_LEADER = "sweeper.leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The coordinator that leads a study, as it has announced itself.

    Attributes:
        token: of the session that held the study then, see `Holder`.
        process: for people, such as `process 12 on alpha`.
        address: of its scheduler, such as `tls://10.0.0.3:41234`.
        security: the certificate and the key with which a worker may join, by their names; never
            printed.
        ended: why its sweep has ended, so that nobody needs to go on; empty while it has not, and
            where its machine is taken away.
    """

    token: str
    process: str
    address: str
    security: Mapping[str, str] = field(repr=False)
    ended: str = ""


class Leadership:
    """Reads who leads a study and writes it, over connections of its own. For one thread.

    Raises:
        SettingsError: the storage is none on PostgreSQL.
        StudyError: it cannot be opened.
    """

    def __init__(self, storage: str | Address, study: str) -> None:
        url = Address.of(storage)
        if not url.is_postgres:
            raise SettingsError(
                "--shared needs a storage on PostgreSQL, which knows when a machine is gone; got "
                f"--storage {url}"
            )
        self._study = study
        self._storage = open_storage(url)
        self._place = place_of(self._storage.engine.url)
        self._announced: Leader | None = None

    def refusal(self, holder: Holder) -> str:
        """Why nobody can join the sweep that holds the study, which runs without `--shared`."""
        return refusal(self._study, self._place, f"{holder.process} without --shared")

    @property
    def place(self) -> str:
        """The storage, for messages."""
        return self._place

    @property
    def storage(self) -> RDBStorage:
        """The storage, open as long as this is."""
        return self._storage

    def holder(self) -> Holder | None:
        """The session that holds the study now; None for nobody.

        Raises:
            StorageAwayError: the server does not answer.
        """
        return holder_in(self._storage.engine, self._study)

    def leader(self) -> Leader | None:
        """The coordinator that has announced itself last; None for none.

        Raises:
            StorageAwayError: the server does not answer.
        """
        found = self._attributes().get(_LEADER)
        return None if found is None else Leader(**found)

    def announce(self, *, address: str, security: Mapping[str, str]) -> None:
        """Announce this process, which holds the study, to the other coordinators.

        Raises:
            StorageAwayError: the server does not answer, or the study is not held any more.
        """
        holder = self.holder()
        if holder is None:
            raise StorageAwayError(f"{self._place}: nobody holds the study {self._study!r}")
        leader = Leader(
            token=holder.token, process=holder.process, address=address, security=security
        )
        self._write(leader)
        self._announced = leader

    def announce_end(self, why: str) -> None:
        """Announce that the sweep of this process has ended, for all coordinators.

        Nothing is written where this process does not hold the study any more: another one leads
        then, or may.

        Raises:
            StorageAwayError: the server does not answer.
        """
        leader, holder = self._announced, self.holder()
        if leader is not None and holder is not None and holder.token == leader.token:
            self._write(replace(leader, ended=why, security={}))

    def close(self) -> None:
        """Close the connections."""
        with suppress(Exception):
            self._storage.remove_session()
            self._storage.engine.dispose()

    def _write(self, leader: Leader) -> None:
        study_id = self._storage.get_study_id_from_name(self._study)
        self._storage.set_study_system_attr(study_id, _LEADER, asdict(leader))

    def _attributes(self) -> Mapping[str, Any]:
        try:
            study_id = self._storage.get_study_id_from_name(self._study)
        except KeyError:
            return {}
        return self._storage.get_study_system_attrs(study_id)
