"""Serve the comparison page and MLflow's UI of a study on this machine, until it is ended.

One server on loopback has both, behind a random path: a user of the machine who was not told the
address reads nothing and stops nothing.
"""

from __future__ import annotations

import mimetypes
import secrets
from collections.abc import Iterable
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
        key = secrets.token_urlsafe(16)
        self.set_app(partial(_answer, key, page.parent, ui))
        self.page = f"http://{_HOST}:{port}/{key}/"
        experiment_id = existing.study.facts.experiment_id or "0"
        self.mlflow = view_url(existing.tracking, experiment_id, ui=self.page + _MLFLOW)


class _Quiet(WSGIRequestHandler):
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
