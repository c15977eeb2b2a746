"""A Dask cluster as a sweep uses it: its workers, calls to them, its size. The owner of Dask."""

from __future__ import annotations

import importlib
import logging
import shlex
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...errors import SettingsError, first_line, root_cause
from ...settings.machines import Cluster
from .relay import NAME, task_name

_INSTALL = "pip install 'notebook-hpo[dask]'"
#: How long a scheduler may take to answer a first time.
_CONNECT_S = 10.0
#: How long a call may take.
_CALL_S = 30.0
#: Asks a worker, which need not have this package, what it has.
_PROBE = (
    "{'package': next((d.version for d in __import__('importlib.metadata', fromlist=['metadata'])"
    ".distributions(name='notebook-hpo')), ''), 'host': __import__('socket').gethostname()}"
)
_LOGGERS = ("distributed", "distributed.client", "tornado", "asyncio")
_RELAY = f"{__package__}.relay"
#: A Ctrl-C on a terminal reaches all processes that were started from there, and is for the sweep.
_IGNORE_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaskWorker:
    """A worker that the scheduler knows.

    Attributes:
        identity: tells it from a later worker at the same address.
        name: by which the cluster that has started it knows it.
        threads: how many tasks Dask would give it at once.
    """

    address: str
    name: str | int
    identity: str
    threads: int


class CallError(Exception):
    """A call did not reach a worker, or its answer did not reach home."""


class DaskCluster:
    """A Dask cluster and the connection to its scheduler. Safe to use from several threads.

    Made by `open`, ended by `close`.
    """

    def __init__(self, client: Any, cluster: Any | None, *, place: str) -> None:
        self._client = client
        self._cluster = cluster
        self._size = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self.place = place

    @classmethod
    def open(cls, settings: Cluster) -> DaskCluster:
        """Connect to a scheduler, after starting it where the settings say so.

        Raises:
            SettingsError: Dask or the class is not installed, the class does not take its options,
                or the scheduler cannot be reached.
        """
        distributed = load_dask()
        if settings.local_workers:
            # On loopback, with certificates of its own: a worker runs what it is sent.
            cluster = distributed.LocalCluster(
                n_workers=settings.local_workers,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",  # any free port
                memory_limit=0,  # kernels are no part of a worker's own memory
                security=True,
                silence_logs=logging.CRITICAL,
                preload=[_IGNORE_CTRL_C],
            )
            client = distributed.Client(cluster, set_as_default=False)
            return cls(client, cluster, place=settings.place)
        if settings.class_ is not None:
            return cls(*_started(settings, distributed), place=settings.place)
        try:
            client = distributed.Client(settings.url, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise SettingsError(
                f"the Dask scheduler {settings.url} cannot be reached: {first_line(error)}; start "
                "one with `dask scheduler`, and name the address that it prints"
            ) from error
        return cls(client, None, place=settings.place)

    def workers(self) -> dict[DaskWorker, bool]:
        """The workers that the scheduler knows now, and whether they take new tasks.

        Raises:
            CallError: the scheduler does not answer.
        """
        try:
            answer = self._client.sync(self._scheduler.identity, callback_timeout=_CALL_S)
        except Exception as error:
            raise CallError(first_line(error)) from error
        found = {}
        for address, about in answer["workers"].items():
            worker = DaskWorker(
                address=str(address),
                name=about["name"],
                identity=str(about["local_directory"]),  # another one for each process
                threads=int(about["nthreads"]),
            )
            found[worker] = about.get("status", "running") == "running"
        return found

    @property
    def _scheduler(self) -> Any:
        scheduler = self._client.scheduler
        if scheduler is None:  # given up by Dask
            raise CallError("the connection to the scheduler is closed")
        return scheduler

    def probe(self, address: str) -> Mapping[str, str]:
        """Ask a worker for its `host` and the version of this `package`, empty for none.

        Raises:
            CallError: it does not answer.
        """
        found: Mapping[str, str] = self.call(address, eval, _PROBE)
        return found

    def call(self, address: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a worker's event loop; one of this package has to be there as well.

        Raises:
            CallError: it does not answer, or the function has failed there.
        """
        try:
            answers = self._client.run(function, *arguments, workers=[address])
        except Exception as error:
            raise CallError(first_line(error)) from error
        return answers[address]

    def ask(self, address: str, **arguments: Any) -> Any:
        """Call the relay of a worker (`Relay.answer`).

        Raises:
            CallError: it does not answer.
        """
        try:
            answers = self._client.sync(
                self._scheduler.broadcast,
                msg={"op": NAME, **arguments},
                workers=[address],
                callback_timeout=_CALL_S,
            )
        except Exception as error:
            raise CallError(first_line(error)) from error
        answer = answers[address]
        if isinstance(answer, Mapping) and answer.get("status") == "uncaught-error":
            raise CallError(str(answer.get("text", "an error of the worker")))
        return answer

    def occupy(self, worker: DaskWorker, key: str) -> list[Any]:
        """Keep a worker's threads busy while a process runs trials there (`stand_for`).

        Returns:
            what keeps them busy as long as it is referred to.
        """
        return [
            self._client.submit(
                eval,  # the scheduler imports what it passes on, and need not have this package
                f"__import__({_RELAY!r}, fromlist=['stand_for']).stand_for({key!r})",
                key=task_name(key, index),
                workers=[worker.address],
                allow_other_workers=False,
                pure=False,
            )
            for index in range(worker.threads)
        ]

    def scale(self, workers: int) -> None:
        """Ask for so many workers at least, where the sweep has started the cluster by a class."""
        with self._lock:
            if workers <= self._size or self._is_closed:
                return
            self._size = workers
        self.scale_again()

    def scale_again(self) -> None:
        """Ask once more for as many workers as before: some may have been lost."""
        scale, size = getattr(self._cluster, "scale", None), self._size
        if scale is None or not size or self._is_closed:
            return
        try:
            scale(size)
        except Exception as error:  # noqa: BLE001  of whatever class it is
            _log.warning("%s: cannot have %d workers: %s", self.place, size, first_line(error))

    def dismiss(self, worker: DaskWorker, *, least: int) -> None:
        """Give back a worker on which nothing runs any more.

        Args:
            least: how many workers are to stay.
        """
        cluster = self._cluster
        scale_down = getattr(cluster, "scale_down", None)
        # A job with several workers would take busy ones with it.
        is_one_job = worker.name in getattr(cluster, "worker_spec", ())
        with self._lock:
            is_needed = self._size <= least or self._is_closed
            if cluster is None or is_needed or (scale_down is not None and not is_one_job):
                return
            self._size -= 1
        try:
            if scale_down is None:
                cluster.scale(self._size)  # it chooses one that is idle, by Dask's own rules
            else:
                cluster.sync(scale_down, [worker.name])
        except Exception as error:  # noqa: BLE001  of whatever class it is
            _log.info("%s: %s", self.place, first_line(error))

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, after which workers end."""
        return self._is_closed

    def close(self) -> None:
        """Disconnect, and end what was started."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        for part in (self._client, self._cluster):
            if part is not None:
                with suppress(Exception):  # the scheduler may be gone
                    part.close()


def load_dask() -> Any:
    """The library, without lines in the sweep's output: its errors become messages of ours."""
    try:
        import dask

        levels = dict.fromkeys(_LOGGERS, "critical")
        dask.config.set({"logging": {**dask.config.get("logging", {}), **levels}})
        import distributed
    except ImportError as error:
        raise SettingsError(f"a cluster needs Dask, which is not installed: {_INSTALL}") from error
    return distributed


def _started(settings: Cluster, distributed: Any) -> tuple[Any, Any]:
    """A client and the cluster of the class that the settings name."""
    module, _, name = str(settings.class_).rpartition(".")
    where = f"cluster: class: {settings.class_}"
    try:
        factory = getattr(importlib.import_module(module), name)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise SettingsError(f"{where}: {first_line(error)}; pip install {package}") from error
    except AttributeError as error:
        raise SettingsError(f"{where}: the module {module} has no {name}") from error
    options = dict(settings.options)
    if module.startswith("dask_jobqueue") and shlex.quote(sys.executable) != sys.executable:
        # It writes the path of the interpreter into a shell script as it is.
        options.setdefault("python", shlex.quote(sys.executable))
    try:
        cluster = factory(**options)
    except Exception as error:
        raise SettingsError(
            f"{where}: cannot be started with options {dict(settings.options)}: {root_cause(error)}"
        ) from error
    try:
        if hasattr(cluster, "get_client"):
            return cluster.get_client(), cluster
        return distributed.Client(cluster, set_as_default=False), cluster
    except Exception as error:
        with suppress(Exception):
            cluster.close()
        raise SettingsError(f"{where}: gives no client: {root_cause(error)}") from error
