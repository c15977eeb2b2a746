"""Open an MLflow store or server, or raise one error that says why it cannot be used."""

from __future__ import annotations

import logging
import os
import re
import shlex
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TrackingError, first_line
from ..settings.addresses import Address, driver_missing
from ..trials import display_path
from .files import Schema, look_into, make_store
from .messages import Store
from .views import VIEW_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

#: Tag whose Markdown MLflow's UI displays above the runs of an experiment, or on a run's page.
NOTE_TAG = "mlflow.note.content"
_PROBE_TIMEOUT_S = 5
#: Environment variables with the hosts that are reached without a proxy. If both are set, libraries
#: prefer the first variable.
_DIRECT = ("no_proxy", "NO_PROXY")
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
#: HTTP status codes of a proxy that refuses the request, or that does not reach the server.
_CODES_OF_PROXIES = (403, 407, 502, 503, 504)
#: Environment variable with the number of times that MLflow's client repeats a call to a server.
_REPETITIONS = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
#: SQLite's errors for a damaged file. Errors for a full disk or a lock are not among them, because
#: they are temporary.
_BROKEN = ("SQLITE_ERROR", "SQLITE_NOTADB", "SQLITE_CORRUPT")
#: Pattern that is found in the error of a server that refuses the user, the password, or the host
#: name in the URL of the request.
_DENIED = re.compile(r"\b(401|403)\b|PERMISSION_DENIED|UNAUTHENTICATED")


def check_reachable(store: Store) -> None:
    """Check before any trial that a server answers, or that MLflow can read a store in a file.

    This check does not open the store, which would take seconds. So it does not find all problems.

    Raises:
        TrackingError: The server does not answer; or the store in a file has tables of another
            version of MLflow, or the study's experiment in it was deleted.
    """
    address = store.address
    if address.is_http:
        _probe(address)
    if address.file is not None:
        _refuse_unusable(store, address.file)


@contextmanager
def usable(address: Address) -> Iterator[None]:
    """Convert every exception of MLflow and its libraries in the `with` block to one error.

    Raises:
        TrackingError: The store cannot be used.
    """
    try:
        yield
    except TrackingError:
        raise
    except Exception as error:
        why = _why_unusable(address, error)
        raise TrackingError(f"--tracking-uri {address}: {why}") from error


def _why_unusable(address: Address, error: BaseException) -> str:
    """Return why a store cannot be used, and a remedy."""
    driver = driver_missing(error)
    if driver is not None:
        return driver
    problem = address.scrubbed(first_line(error))
    if address.is_incomplete:
        return (
            f"cannot be used: {problem}; its password is not stored: give it in --tracking-uri, in "
            "MLFLOW_TRACKING_URI, or with MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if address.is_http and _DENIED.search(problem):
        host = urllib.parse.urlsplit(address.bare).netloc
        return (
            f"the server refuses this user ({problem}); give user and password as in "
            "http://USER:PASSWORD@host, or with MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD; if it refuses the host, start it with "
            f"`mlflow server --allowed-hosts {host},…`"
        )
    file = address.file
    if file is not None and getattr(error.__cause__, "sqlite_errorname", "") in _BROKEN:
        remedy = "a new one is created, and the study's trials are written to it again"
        return f"cannot be used: {problem}; move {display_path(file)} away: {remedy}"
    return f"cannot be used: {problem}"


@contextmanager
def without_repetition() -> Iterator[None]:
    """Make MLflow's client send each call in the `with` block only once.

    Otherwise, the client repeats a call whose answer was lost. If that call had created a run, the
    repetition would create another run.
    """
    before = os.environ.get(_REPETITIONS)
    os.environ[_REPETITIONS] = "0"
    try:
        yield
    finally:
        del os.environ[_REPETITIONS]
        if before is not None:
            os.environ[_REPETITIONS] = before


def open_experiment(store: Store) -> tuple[MlflowClient, str]:
    """Open a store and the experiment of a study. Create them if they do not exist.

    Also store `store.note` and `store.view` in tags of the experiment, unless they are None.

    Returns:
        MLflow's client, and the id of the experiment.

    Raises:
        TrackingError: MLflow cannot be imported, or the experiment was deleted.
    """
    address, study = store.address, store.study
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # MLflow would print the address of each run that ends, including the password.
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise TrackingError(f"mlflow cannot be imported: {error}") from error
    for name in ("alembic", "mlflow", "mlflow.store.db.utils"):
        # These libraries log every table that they create, and every error with its traceback.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    file = address.file
    if file is not None and not file.exists():
        make_store(file)
    client = MlflowClient(address.full)
    experiment = client.get_experiment_by_name(study)
    if experiment is None:
        # Only a store in a file needs a folder for artifacts; a server has its own.
        place = None if file is None else store.paths.study_artifacts.as_uri()
        experiment_id = str(client.create_experiment(study, artifact_location=place))
    elif experiment.lifecycle_stage != "active":
        raise TrackingError(_deleted(store, str(experiment.experiment_id)))
    else:
        experiment_id = str(experiment.experiment_id)
    if store.note is not None:
        client.set_experiment_tag(experiment_id, NOTE_TAG, store.note)
    if store.view is not None:
        client.set_experiment_tag(experiment_id, VIEW_TAG, store.view)
    return client, experiment_id


def _refuse_unusable(store: Store, file: Path) -> None:
    found = look_into(file, store.study)
    installed = f"the installed MLflow {version('mlflow')}"
    other = "or choose another store with --tracking-uri"
    if found.schema is Schema.NEWER:
        raise TrackingError(
            f"--tracking-uri {store.address}: written by a newer MLflow than {installed}, which "
            f"cannot read this store: pip install --upgrade mlflow, {other}"
        )
    if found.schema is Schema.OLDER:
        upgrade = f"mlflow db upgrade {shlex.quote(str(store.address))}"
        raise TrackingError(
            f"--tracking-uri {store.address}: written by an older MLflow than {installed}: make "
            f"a copy of {display_path(file)}, then run `{upgrade}`, {other}"
        )
    if found.deleted_id is not None:
        raise TrackingError(_deleted(store, found.deleted_id))


def _deleted(store: Store, experiment_id: str) -> str:
    uri = shlex.quote(str(store.address))
    return (
        f"--tracking-uri {store.address}: the experiment {store.study!r} was deleted in MLflow; "
        f"`MLFLOW_TRACKING_URI={uri} mlflow experiments restore -x {experiment_id}` restores it, "
        f"or begin another study with {store.paths.options_of_another}"
    )


def _probe(address: Address) -> None:
    """Check within seconds that a server answers. MLflow's own client would retry for four minutes.

    A proxy elsewhere cannot reach a server on the loopback interface of this machine. If the
    environment states a proxy for such a server, change the environment of this process: it and its
    kernels then use no proxy for the server.

    Raises:
        TrackingError: The server does not answer.
    """
    server = urllib.parse.urlsplit(address.bare)
    stated = os.environ.get(_DIRECT[0]) or os.environ.get(_DIRECT[1], "")
    direct = [*filter(None, stated.split(",")), str(server.hostname)]
    proxy = _proxy_for(server)
    if proxy is not None and server.hostname in _LOOPBACK:
        os.environ.update(dict.fromkeys(_DIRECT, ",".join([*direct, *_LOOPBACK])))
        proxy = None
    health = f"{address.bare.rstrip('/')}/health"
    try:
        # `urlopen` would use the proxies that were set at its first call, so each probe uses a new
        # opener.
        urllib.request.build_opener().open(health, timeout=_PROBE_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        if _is_answer(error, has_proxy=proxy is not None):
            return
        remedy = (
            "start it, or leave --tracking-uri out and MLFLOW_TRACKING_URI unset to use a store "
            "next to the outputs"
        )
        if proxy is not None:
            remedy = (
                f"the request used the proxy {Address(proxy)}; if the server runs and needs no "
                f"proxy, set no_proxy={','.join(direct)}; if the server does not run, {remedy}"
            )
        raise TrackingError(
            f"--tracking-uri {address}: the MLflow server does not answer ({_reason_of(error)})",
            remedy,
        ) from error


def _proxy_for(server: urllib.parse.SplitResult) -> str | None:
    """Return the URL of the proxy that the environment states for a server. None for no proxy."""
    if urllib.request.proxy_bypass(server.netloc):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(server.scheme, proxies.get("all"))


def _is_answer(error: Exception, *, has_proxy: bool) -> bool:
    """Return whether the error of a request means that the server has answered.

    Each HTTP status of the server is an answer, also one that refuses the user. A TLS error, such
    as a certificate that cannot be verified, is an answer, too: MLflow's client has its own
    settings for certificates (`MLFLOW_TRACKING_INSECURE_TLS`, …). A status with which a proxy
    reports its own failure is not an answer.

    Args:
        error: Error of the request.
        has_proxy: Whether the request was sent to a proxy.
    """
    if isinstance(error, urllib.error.HTTPError):
        return not (has_proxy and error.code in _CODES_OF_PROXIES)
    reason = _reason_of(error)
    return isinstance(reason, ssl.SSLError) and reason.reason != "WRONG_VERSION_NUMBER"


def _reason_of(error: Exception) -> object:
    return error.reason if isinstance(error, urllib.error.URLError) else error


def free_port(first: int) -> int:
    """Return a port on the loopback interface on which nothing listens.

    Args:
        first: Port that is tried first, before the next 19 ports and then any port.
    """
    for port in (*range(first, first + 20), 0):
        with socket.socket() as listening, suppress(OSError):
            listening.bind(("127.0.0.1", port))
            return int(listening.getsockname()[1])
    return first
