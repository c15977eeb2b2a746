"""Connect to a Dask cluster or start one, list its workers, call them, and scale it."""

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
#: A scheduler has this many seconds for its first answer (chosen, not measured).
_CONNECT_S = 5.0
#: A later call to the scheduler may take this many seconds (chosen, not measured).
_CALL_S = 30.0
_LOGGERS = ("distributed", "distributed.client", "tornado", "asyncio")
#: Code that makes a worker ignore SIGINT. A Ctrl-C on a terminal reaches all processes that were
#: started there, but only the sweep must react to it.
_IGNORE_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
#: A worker evaluates this expression for each call. A function would be the usual way, but the
#: scheduler would have to import it, and this package need not be installed on the scheduler's
#: machine.
_CARRY_OUT = f"__import__('{__package__}.on_worker', fromlist=['']).carry_out(payload)"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaskWorker:
    """A worker that the scheduler knows.

    Attributes:
        address: Address of the worker.
        identity: Text that differs between this worker and a later one at the same address.
        threads: Number of tasks that Dask runs on the worker at once.
    """

    address: str
    identity: str
    threads: int


class LostError(Exception):
    """A worker or the scheduler has ended, or its connection is lost."""


class DaskCluster:
    """A Dask cluster and the connection to its scheduler. Safe to use from several threads.

    Args:
        settings: Section `cluster` of the parameters file. The section says whether to start a
            cluster.
        on_event: Called with each event that workers log under `key`, in their order.

    Attributes:
        place: Name of the cluster in messages.
        key: Random name of this sweep, which differs from those of other sweeps on the cluster.

    Raises:
        SettingsError: Dask or the cluster's class is not installed, the class rejects its options,
            the scheduler cannot be reached, or the scheduler is on another host and not encrypted
            while the setting `insecure` is off.
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
        """Return the workers that the scheduler knows now, except workers that are ending.

        Raises:
            BrokenError: The scheduler has ended.
            LostError: The scheduler does not answer.
        """
        scheduler, answer = self._client.scheduler, None
        try:
            if scheduler is not None:  # The answer is None if Dask has given up the connection.
                answer = self._client.sync(scheduler.identity, callback_timeout=_CALL_S)
        except Exception as error:
            raise LostError(first_line(error)) from error
        if answer is None or answer["id"] != self._scheduler_id:
            raise BrokenError(
                f"{self.place}: the Dask scheduler was lost; when it runs again, resume with the "
                "same command"
            )
        found = set()
        for address, about in answer["workers"].items():
            if str(about["status"]).startswith("closing"):
                continue
            # Two worker processes never have the same local directory.
            identity, threads = str(about["local_directory"]), int(about["nthreads"])
            found.add(DaskWorker(address=str(address), identity=identity, threads=threads))
        return found

    def submit(self, worker: DaskWorker, payload: bytes, *, task: str) -> Any:
        """Send a call to a worker, which runs it as a Dask task in a thread. Return the future.

        Args:
            worker: Worker to call.
            payload: The call, in the format of `on_worker.carry_out`.
            task: Key of the Dask task.

        Raises:
            LostError: The scheduler does not answer.
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
        """Ask the cluster for this number of workers. The cluster also replaces lost workers."""
        try:
            self._cluster.scale(workers)
        except Exception as error:  # noqa: BLE001  a class may raise anything
            _log.warning(
                "%s: cannot scale to %d workers: %s", self.place, workers, first_line(error)
            )

    def close(self) -> None:
        """Disconnect from the scheduler, and end the cluster if this sweep has started it."""
        _close(self._client)
        _close(self._cluster)


def _close(part: Any | None) -> None:
    with suppress(Exception):  # The scheduler may be gone.
        if part is not None:
            part.close()


def _dask() -> Any:
    """Import Dask, and keep its log out of the sweep's output. The sweep reports Dask's errors."""
    try:
        import dask

        levels = dict.fromkeys(_LOGGERS, "critical")
        before = dask.config.get("logging", {})
        dask.config.set({"logging": {**before, **levels}})
        import distributed
    except ImportError as error:
        raise SettingsError(f"a cluster needs Dask, which is not installed: {_INSTALL}") from error
    return distributed


def _client(settings: Cluster, cluster: Any | None, distributed: Any) -> Any:
    """Return a new connection to the scheduler.

    Raises:
        SettingsError: The scheduler cannot be reached.
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
            "one with `dask scheduler`, and name the address that it prints: --cluster ADDRESS"
        ) from error


@contextmanager
def _private() -> Iterator[None]:
    """Protect a Dask cluster that is started in the block from other users of this machine.

    By default, Dask serves status pages to everybody, and uses a folder that others may own. A
    cluster that is started in the block has web servers without pages, and a private folder.

    Raises:
        SettingsError: No private folder can be made.
    """
    import dask

    folder = Path(tempfile.gettempdir(), f"notebook-hpo-dask-{os.geteuid()}")
    try:
        folder = private_folder(folder)
    except OSError as error:
        raise SettingsError(f"cluster: {error}; set TMPDIR to a folder that you own") from error
    routes = [f"distributed.{part}.http.routes" for part in ("scheduler", "worker")]
    settings = {"temporary-directory": str(folder), **{key: [] for key in routes}}
    with dask.config.set(settings), warnings.catch_warnings(action="ignore"):
        yield  # Ignore Dask's warning that another program uses the default port of its pages.


def _started(settings: Cluster, distributed: Any) -> Any:
    """Start a cluster: workers on this machine, or an instance of the class in the settings.

    Raises:
        SettingsError: The class is not installed, or rejects its options.
    """
    if settings.local_workers:
        # The cluster listens on loopback only and has new certificates, because a worker runs any
        # code that it receives.
        return distributed.LocalCluster(
            n_workers=settings.local_workers,
            threads_per_worker=1,
            dashboard_address=None,
            memory_limit=0,  # Kernels are separate processes, whose memory Dask does not see.
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
            f"{where} is not a cluster class; name a class that is derived from "
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
    """Return the options of a `dask_jobqueue` class, with encryption and without a dashboard.

    Options that the user has set are not replaced.

    Args:
        options: The user's options.
        is_insecure: Whether the user allows a cluster without encryption. Then no encryption is
            added.
    """
    if not is_insecure:
        # With `security`, the class makes certificates. It keeps them in the current folder, which
        # the jobs must be able to read, while the cluster lives.
        options = {"security": True, "shared_temp_directory": str(Path.cwd()), **options}
    given = options.get("scheduler_options", {})
    dashboard = {"dashboard_address": "127.0.0.1:0", "dashboard": False}
    return {**options, "scheduler_options": {**dashboard, **given}}
