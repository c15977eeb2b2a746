"""Serve the comparison page and MLflow's UI of a study on this machine, until it is ended.

One server on loopback has both, behind a random path: a user of the machine who was not told the
address reads nothing and stops nothing.
"""

from __future__ import annotations

import mimetypes
import secrets
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.util import FileWrapper, shift_path_info

from ..errors import SettingsError, first_line
from ..tracking import free_port, ui_over, view_url
from .lookup import ExistingStudy

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

_HOST = "127.0.0.1"
#: The first port that is tried.
_PORT = 8800
_MLFLOW = "mlflow"
#: So many connections may wait for their request; of more, those that have waited longest are
#: closed. A browser asks within milliseconds, and a process may have 1,024 descriptors (chosen).
_MOST_WAITING = 100
#: What has neither asked nor read for so long is closed (chosen).
_IDLE_S = 30.0


class StudyServer(ThreadingMixIn, WSGIServer):
    """A study's page and MLflow's UI of it, at an address that cannot be guessed.

    `serve_forever` answers until Ctrl-C.

    Args:
        page: the file of the comparison page.
        port: None for the first one from 8800 on that is free.

    Attributes:
        page: the address of the comparison page.
        mlflow: that of the study's runs in MLflow's UI.

    Raises:
        SettingsError: the port cannot be used.
        TrackingError: MLflow cannot use its store.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, existing: ExistingStudy, page: Path, *, port: int | None) -> None:
        # A server of MLflow's has a UI already.
        ui = None if existing.tracking.is_http else ui_over(existing.tracking)
        port = port or free_port(_PORT)
        try:
            super().__init__((_HOST, port), _Quiet)
        except (OSError, OverflowError) as error:
            raise SettingsError(
                f"--port {port}: cannot be used: {first_line(error)}; leave the option out"
            ) from error
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}
        key = secrets.token_urlsafe(16)
        self.set_app(partial(_answer, key, page.parent, ui))
        self.page = f"http://{_HOST}:{port}/{key}/"
        experiment_id = existing.study.facts.experiment_id or "0"
        self.mlflow = view_url(existing.tracking, experiment_id, ui=self.page + _MLFLOW)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, whoever else holds connections."""
        with self._lock:
            self._waiting[request] = None
            if len(self._waiting) > _MOST_WAITING:
                with suppress(OSError):  # it was closed in this moment
                    next(iter(self._waiting)).shutdown(socket.SHUT_RDWR)
                self._waiting.pop(next(iter(self._waiting)))
        super().process_request(request, client_address)

    def note_asked(self, request: socket.socket) -> None:
        """Note that a connection has sent its request, or has ended."""
        with self._lock:
            self._waiting.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.note_asked(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: who asks may go away or say nothing at any moment."""


class _Quiet(WSGIRequestHandler):
    timeout = _IDLE_S

    def parse_request(self) -> bool:
        """Read the request's headers."""
        is_right = super().parse_request()
        if isinstance(self.server, StudyServer):
            self.server.note_asked(self.connection)
        return is_right

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: each look at the page is a dozen requests."""


def _answer(
    key: str,
    folder: Path,
    ui: WSGIApplication | None,
    environ: dict[str, Any],
    start_response: StartResponse,
) -> Iterable[bytes]:
    """Answer what comes with the key: files of the page, and whatever MLflow's UI answers.

    Args:
        folder: of the study, which has its storage and checkpoints as well.
    """
    given = shift_path_info(environ) or ""
    path = environ["PATH_INFO"]
    if secrets.compare_digest(given.encode(), key.encode()):
        if ui is not None and path.startswith(f"/{_MLFLOW}/"):
            shift_path_info(environ)
            return ui(environ, start_response)
        file = folder / (path.lstrip("/") or "index.html")
        is_of_page = path in ("/", "/index.html") or path.startswith("/page/")
        if is_of_page and ".." not in file.parts and file.is_file():
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            # Files change while a sweep runs.
            start_response("200 OK", [("Content-Type", kind), ("Cache-Control", "no-cache")])
            return FileWrapper(file.open("rb"))
    start_response("404 Not Found", [("Content-Type", "text/plain")])
    return [b"There is nothing at this address.\n"]
