"""Serve the comparison page and MLflow's UI of a study on this machine, until it is ended.

One server on loopback has both, behind a random path: a user of the machine who was not told the
address reads nothing and stops nothing.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import SettingsError, first_line
from ..tracking import MlflowUi, free_port, view_url
from .lookup import ExistingStudy

_HOST = "127.0.0.1"
#: The first port that is tried.
_PORT = 8800
_LAST_PORT = 65_535
_MLFLOW = "/mlflow/"
#: Headers of MLflow's answer that concern the connection to it alone, or that we send ourselves.
_OWN_HEADERS = frozenset({"connection", "date", "keep-alive", "server", "transfer-encoding"})


class StudyServer(ThreadingHTTPServer):
    """The pages of a study at an address that cannot be guessed.

    Attributes:
        page: the address of the comparison page.
        mlflow: that of the study's runs in MLflow's UI.
    """

    daemon_threads = True

    def __init__(self, existing: ExistingStudy, page: Path, *, port: int, ui: MlflowUi | None):
        key = secrets.token_urlsafe(16)
        handler = partial(_Handler, directory=str(page.parent), key=key, ui=ui)
        super().__init__((_HOST, port), handler)
        self.page = f"http://{_HOST}:{port}/{key}/"
        self.mlflow = view_url(
            existing.tracking,
            existing.study.facts.get("experiment_id", "0"),
            ui=f"http://{_HOST}:{port}/{key}{_MLFLOW.rstrip('/')}",
        )


@contextmanager
def served(existing: ExistingStudy, page: Path, *, port: int | None) -> Iterator[StudyServer]:
    """A study's page and MLflow's UI of it; `serve_forever` answers until Ctrl-C.

    Args:
        page: the file of the comparison page.
        port: None for the first one from 8800 on that is free.

    Raises:
        SettingsError: the port cannot be used.
        TrackingError: MLflow's UI does not start.
    """
    if port is not None and not 1 <= port <= _LAST_PORT:
        raise SettingsError(f"--port {port}: expected a number from 1 to {_LAST_PORT}")
    ui = None if existing.tracking.is_http else MlflowUi(existing.tracking)
    port = port or free_port(_PORT)
    try:
        with StudyServer(existing, page, port=port, ui=ui) as server:
            yield server
    except OSError as error:
        raise SettingsError(
            f"--port {port}: cannot be used: {first_line(error)}; leave the option out"
        ) from error
    finally:
        if ui is not None:
            ui.close()


class _Handler(SimpleHTTPRequestHandler):
    """Answers what comes with the key: files of the page, and what MLflow's UI answers.

    Args:
        directory: the study's folder, which has its storage and checkpoints as well.
        key: the first part of each path.
        ui: None where the study is on a server, which has a UI already.
    """

    def __init__(self, *args: Any, directory: str, key: str, ui: MlflowUi | None) -> None:
        self._key, self._ui = key, ui
        super().__init__(*args, directory=directory)

    def _answer(self) -> None:
        with suppress(ConnectionError):  # the browser has gone away
            self._answer_with_key()

    def _answer_with_key(self) -> None:
        key, _, rest = self.path.removeprefix("/").partition("/")
        self.path = f"/{rest}"
        if not secrets.compare_digest(key.encode(), self._key.encode()):
            self.send_error(HTTPStatus.NOT_FOUND)
        elif self._ui is not None and self.path.startswith(_MLFLOW):
            self._pass_on(self._ui)
        elif self.command == "GET" and self._is_of_page():
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def _is_of_page(self) -> bool:
        path = unquote(urlsplit(self.path).path)
        is_file = path.startswith("/page/") and not path.endswith("/")
        return path in ("/", "/index.html") or (is_file and ".." not in path.split("/"))

    def _pass_on(self, ui: MlflowUi) -> None:
        """Ask MLflow's UI, and give its answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.removeprefix(_MLFLOW.rstrip("/"))
        connection = ui.connect()
        connection.request(self.command, path, body, headers=dict(self.headers))
        answer = connection.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        super().end_headers()
        shutil.copyfileobj(answer, self.wfile)
        connection.close()

    def end_headers(self) -> None:
        """Files change while a sweep runs."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: each look at the page is a dozen requests."""
