"""HTTP servers in the process of the tests."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer


class Handler(BaseHTTPRequestHandler):
    """A handler of requests that logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Let a server answer requests. At the end, wait until it has stopped."""
    # By default, a server looks only every half second whether it shall stop.
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def started(
    handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Start a server on a free port of this machine. Yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        with serving(server):
            yield server.server_port
