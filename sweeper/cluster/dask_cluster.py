"""A Dask cluster as a sweep uses it: its workers, calls to them, its size. The owner of Dask."""

from __future__ import annotations

import importlib
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..errors import BrokenError, SettingsError, first_line, root_cause
from ..files import private_folder
from ..settings.machines import Cluster, is_exposed
from ..settings.secrets import masked

_INSTALL = "pip install 'notebook-hpo[dask]'"
#: How long a scheduler may take to answer a first time.
_CONNECT_S = 5.0
#: How long a call may take.
_CALL_S = 30.0
_LOGGERS = ("distributed", "distributed.client", "tornado", "asyncio")
#: A Ctrl-C on a terminal reaches all processes that were started from there, and is for the sweep.
_IGNORE_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
#: The scheduler imports what it passes on, and need not have this package: so it is text.
_CARRY_OUT = f"__import__('{__package__}.on_worker', fromlist=['']).carry_out(payload)"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaskWorker:
    """A worker that the scheduler knows.

    Attributes:
        identity: tells it from a later worker at the same address.
        threads: how many tasks Dask would give it at once.
    """

    address: str
    identity: str
    threads: int


class LostError(Exception):
    """A worker, the scheduler, or the way to it is gone."""


class DaskCluster:
    """A Dask cluster and the connection to its scheduler. Safe to use from several threads.

    Args:
        settings: of the cluster, which is started where they say so.
        on_event: called with each event that workers log under the key, in their order.

    Attributes:
        place: the cluster for people.
        key: of the sweep, among all that use the cluster.

    Raises:
        SettingsError: Dask or the class is not installed, the class does not take its options, the
            scheduler cannot be reached, or everybody on its network could use it.
    """

    def __init__(self, settings: Cluster, *, on_event: Callable[[Mapping[str, Any]], None]) -> None:
        self.place = settings.place
        self.key = f"notebook-hpo-{token_hex(4)}"
        self._settings = settings
        self._client: Any = None
        self._cluster: Any = None
        distributed = _dask()
        try:
            if settings.url is None or settings.local_workers:
                with _private():
                    self._cluster = _started(settings, distributed)
            self._client = _client(settings, self._cluster, distributed)
            address = str(self._client.scheduler.address)
            if is_exposed(address) and not settings.insecure:
                raise SettingsError(
                    f"{settings.place}: its scheduler {address} is not encrypted, and everybody on "
                    "its network could run code on the workers: give the class certificates "
                    "(options: {security: true, protocol: tls}), or state cluster: {insecure: true}"
                )
            self._scheduler_id = self._client.scheduler_info()["id"]
            self._client.subscribe_topic(self.key, lambda event: on_event(event[1]))
        except BaseException:
            self.close()
            raise

    def workers(self) -> set[DaskWorker]:
        """The workers that the scheduler knows now, without those that end.

        Raises:
            BrokenError: the scheduler has ended.
            LostError: it does not answer.
        """
        scheduler, answer = self._client.scheduler, None
        try:
            if scheduler is not None:  # else Dask has given it up
                answer = self._client.sync(scheduler.identity, callback_timeout=_CALL_S)
        except Exception as error:
            raise LostError(first_line(error)) from error
        if answer is None or answer["id"] != self._scheduler_id:
            raise BrokenError(
                f"{self.place}: the Dask scheduler was lost; when it runs again, the same command "
                "goes on"
            )
        return {
            DaskWorker(
                address=str(address),
                identity=str(about["local_directory"]),  # another one for each process
                threads=int(about["nthreads"]),
            )
            for address, about in answer["workers"].items()
            if not str(about["status"]).startswith("closing")
        }

    def submit(self, worker: DaskWorker, payload: bytes, *, task: str) -> Any:
        """Have a payload carried out in a thread of a worker, as a task; returns the future.

        Raises:
            LostError: the scheduler does not answer.
        """
        try:
            return self._client.submit(
                eval,
                _CARRY_OUT,
                {"payload": payload},
                key=task,
                workers=[worker.address],
                pure=False,
            )
        except Exception as error:
            raise LostError(first_line(error)) from error

    def scale(self, workers: int) -> None:
        """Ask for so many workers, in place of those that were lost as well."""
        try:
            self._cluster.scale(workers)
        except Exception as error:  # noqa: BLE001  of whatever class it is
            _log.warning("%s: cannot have %d workers: %s", self.place, workers, first_line(error))

    def close(self) -> None:
        """Disconnect, and end what was started."""
        _close(self._client)
        _close(self._cluster)


def _close(part: Any | None) -> None:
    with suppress(Exception):  # the scheduler may be gone
        if part is not None:
            part.close()


def _dask() -> Any:
    """The library, without lines in the sweep's output: its errors become messages of ours."""
    try:
        import dask

        levels = dict.fromkeys(_LOGGERS, "critical")
        dask.config.set({"logging": {**dask.config.get("logging", {}), **levels}})
        import distributed
    except ImportError as error:
        raise SettingsError(f"a cluster needs Dask, which is not installed: {_INSTALL}") from error
    return distributed


def _client(settings: Cluster, cluster: Any | None, distributed: Any) -> Any:
    """A new connection to the scheduler.

    Raises:
        SettingsError: there is none.
    """
    try:
        if cluster is None and str(settings.url).startswith("tls:"):
            own = distributed.Security().get_connection_args("client")
            if own["ssl_context"] is None:
                raise ValueError("Dask's settings (distributed.comm.tls) name no certificates")
        place = settings.url if cluster is None else cluster
        return distributed.Client(place, timeout=_CONNECT_S, set_as_default=False)
    except Exception as error:
        raise SettingsError(
            f"the Dask scheduler {settings.place} cannot be reached: {root_cause(error)}; start "
            "one with `dask scheduler`, and name the address that it prints"
        ) from error


@contextmanager
def _private() -> Iterator[None]:
    """What is started in the block shows other users of this machine nothing.

    Dask would show pages to whoever asks (the servers for them are there all the same), and use a
    folder as it finds it.

    Raises:
        SettingsError: no folder can be made.
    """
    import dask

    folder = Path(tempfile.gettempdir(), f"notebook-hpo-dask-{os.geteuid()}")
    try:
        folder = private_folder(folder)
    except OSError as error:
        raise SettingsError(f"cluster: {error}; set TMPDIR to a folder of yours") from error
    routes = [f"distributed.{part}.http.routes" for part in ("scheduler", "worker")]
    settings = {"temporary-directory": str(folder), **{key: [] for key in routes}}
    with dask.config.set(settings), warnings.catch_warnings(action="ignore"):
        yield  # without a warning that another program has the usual port of the pages


def _started(settings: Cluster, distributed: Any) -> Any:
    """A new cluster: workers on this machine, or one of the class that the settings name.

    Raises:
        SettingsError: the class is not there, or does not take its options.
    """
    if settings.local_workers:
        # On loopback, with certificates of its own: a worker runs what it is sent.
        return distributed.LocalCluster(
            n_workers=settings.local_workers,
            threads_per_worker=1,
            dashboard_address=None,
            memory_limit=0,  # kernels are no part of a worker's own memory
            security=True,
            silence_logs=logging.CRITICAL,
            preload=[_IGNORE_CTRL_C],
        )
    module, _, name = str(settings.class_).rpartition(".")
    where = f"cluster: class: {settings.class_}"
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        package = module.partition(".")[0].replace("_", "-")
        raise SettingsError(f"{where}: {first_line(error)}; pip install {package}") from error
    if not (isinstance(factory, type) and issubclass(factory, distributed.deploy.Cluster)):
        raise SettingsError(
            f"{where}: is no class of a cluster; name one that is derived from "
            "distributed.deploy.Cluster, such as dask_jobqueue.SLURMCluster"
        )
    try:
        options = dict(settings.options)
        if module.startswith("dask_jobqueue"):
            options = _job_options(options, is_insecure=settings.insecure)
        return factory(**options)
    except Exception as error:
        raise SettingsError(
            f"{where}: cannot be started with options {masked(settings.options)}: "
            f"{root_cause(error)}"
        ) from error


def _job_options(options: dict[str, Any], *, is_insecure: bool) -> dict[str, Any]:
    """The options of a class of jobs: encrypted, and without a dashboard."""
    if not is_insecure:
        # The class makes certificates, and keeps them in files there while the cluster lives.
        options = {"security": True, "shared_temp_directory": str(Path.cwd()), **options}
    dashboard = {"dashboard_address": "127.0.0.1:0", "dashboard": False}
    return {**options, "scheduler_options": {**dashboard, **options.get("scheduler_options", {})}}
