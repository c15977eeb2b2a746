"""Serves the comparison page of a study to this machine."""

from __future__ import annotations

import io
import threading
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from ..errors import SettingsError, first_line

_HOST = "127.0.0.1"


class PageServer:
    """The page at an address of this machine only, until it is closed.

    Args:
        page: the page's file; of its folder nothing else is served but the folder `page`.
        port: where it listens.

    Raises:
        SettingsError: the port cannot be used.
    """

    def __init__(self, page: Path, *, port: int) -> None:
        handler = partial(_Handler, directory=str(page.parent))
        try:
            self._server = _Server((_HOST, port), handler)
        except OSError as error:
            raise SettingsError(f"port {port} cannot be used: {first_line(error)}") from error
        self.url = f"http://{_HOST}:{port}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="page server", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _Handler(SimpleHTTPRequestHandler):
    """Files of the page only: the folder has the study's storage and checkpoints as well."""

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        server = self.server
        assert isinstance(server, _Server)
        port = server.server_port
        if self.headers.get("Host") not in (f"{_HOST}:{port}", f"localhost:{port}"):
            # Another site's name that leads here: its scripts must not read the study.
            self.send_error(HTTPStatus.FORBIDDEN, f"open http://{_HOST}:{port}/")
            return None
        path = unquote(urlsplit(self.path).path)
        is_of_page = path in ("/", "/index.html") or path.startswith("/page/")
        if not is_of_page or path.endswith("/") != (path == "/") or ".." in path.split("/"):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")  # files change while a sweep runs
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: each look at the page is a dozen requests."""
