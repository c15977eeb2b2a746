"""Serve the comparison page of a study and MLflow's UI on this machine, until Ctrl-C.

The page can change the notes about trials (`noting.py`).

One server on the loopback interface serves both below a random path. Other users of the machine,
who do not know this path, can neither read nor change anything.
"""

from __future__ import annotations

import json
import mimetypes
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.util import FileWrapper, shift_path_info

from ..errors import OutputError, SettingsError, first_line
from ..tracking import free_port, ui_over, view_url
from ..trials import StudyPaths
from .lookup import ExistingStudy
from .noting import answer_about_notes

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

_HOST = "127.0.0.1"
#: The server tries this port first.
_PORT = 8800
#: First part of a path after the random key: one for MLflow's UI, one for the pages of studies.
#: Without the second one, a study named `mlflow` would hide the UI.
_MLFLOW, _STUDIES = "mlflow", "study"
#: Path of the notes about trials, below the path of a study.
_NOTES = "/notes"
#: A connection without any traffic is closed after this many seconds (chosen, not measured).
_IDLE_S = 30.0


class StudyServer(ThreadingMixIn, WSGIServer):
    """A server for a study's comparison page and MLflow's UI, at an address nobody can guess.

    `serve_forever` answers requests until Ctrl-C.

    Args:
        existing: The study.
        port: Port to listen on. None for the first free port from 8800 on.

    Attributes:
        page: URL of the comparison page.
        mlflow: URL of the study's runs in MLflow's UI.

    Raises:
        SettingsError: The port cannot be used.
        TrackingError: MLflow cannot use its store.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, existing: ExistingStudy, *, port: int | None) -> None:
        # Only stores in files and databases get a UI, because an MLflow server already has one.
        ui = None if existing.tracking.is_http else ui_over(existing.tracking)
        port = port or free_port(_PORT)
        try:
            super().__init__((_HOST, port), _Quiet)
        except (OSError, OverflowError) as error:
            raise SettingsError(
                f"--port {port}: cannot be used: {first_line(error)}; leave the option out"
            ) from error
        key = secrets.token_urlsafe(16)
        host = f"{_HOST}:{port}"
        self.set_app(partial(_answer, key, host, _served(existing.paths), ui))
        base = f"http://{host}/{key}/"
        self.page = f"{base}{_STUDIES}/{quote(existing.paths.folder.name)}/"
        experiment_id = existing.study.facts.experiment_id or "0"
        self.mlflow = view_url(existing.tracking, experiment_id, ui=base + _MLFLOW)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client may disconnect at any moment."""


class _Quiet(WSGIRequestHandler):
    timeout = _IDLE_S

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the page sends a dozen requests each time it is opened."""


def _served(paths: StudyPaths) -> dict[str, StudyPaths]:
    """Return the studies whose pages are served, by the names of their folders.

    These are the given study, and NAME-confirm in a folder next to it, the study that runs the best
    trials again. The page of the given study links to the page of NAME-confirm.
    """
    served = {paths.folder.name: paths}
    with suppress(OutputError):  # The name NAME-confirm is too long, so no such study exists.
        confirming = paths.following("confirm")
        served[confirming.folder.name] = confirming
    return served


def _answer(
    key: str,
    host: str,
    studies: Mapping[str, StudyPaths],
    ui: WSGIApplication | None,
    environ: dict[str, Any],
    start_response: StartResponse,
) -> Iterable[bytes]:
    """Answer a request whose path begins with the key: a file of a page, its notes, or MLflow's UI.

    All other requests are answered with 404.

    Args:
        key: Random text that the path has to begin with.
        host: Host and port of this server.
        studies: Studies whose pages are served, by the names of their folders. Their storages and
            checkpoints are not served.
        ui: MLflow's UI. None if an MLflow server has its own.
        environ: The request, as WSGI defines it.
        start_response: Function that sends the status and the headers, as WSGI defines it.
    """
    given = shift_path_info(environ) or ""
    path = environ["PATH_INFO"]
    if secrets.compare_digest(given.encode(), key.encode()):
        part = shift_path_info(environ)
        if ui is not None and path.startswith(f"/{_MLFLOW}/"):
            return ui(environ, start_response)
        name = (shift_path_info(environ) or "").encode("latin-1")  # WSGI decodes bytes as Latin-1.
        study = studies.get(name.decode("utf-8", "replace")) if part == _STUDIES else None
        path = environ["PATH_INFO"]
        if study is not None and path == _NOTES:
            status, reply = answer_about_notes(environ, study, host=host)
            return _as_json(status, reply, start_response)
        file = None if study is None else study.folder / (path.lstrip("/") or "index.html")
        is_of_page = path in ("/", "/index.html") or path.startswith("/page/")
        if file is not None and is_of_page and ".." not in file.parts and file.is_file():
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            # Browsers must not cache files that change while a sweep runs.
            start_response("200 OK", [("Content-Type", kind), ("Cache-Control", "no-cache")])
            return FileWrapper(file.open("rb"))
    start_response("404 Not Found", [("Content-Type", "text/plain")])
    return [b"There is nothing at this address.\n"]


def _as_json(status: HTTPStatus, reply: Any, start_response: StartResponse) -> list[bytes]:
    headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
    start_response(f"{status.value} {status.phrase}", headers)
    return [json.dumps(reply).encode()]
