"""Serve the comparison page and MLflow's UI of a study on this machine, until it is ended."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import SettingsError
from ..guard import MARK_VARIABLE, Guard
from ..tracking import USUAL_PORT, MlflowUi, comparison, free_port, knows_views
from .lookup import ExistingStudy
from .page_server import PageServer

#: The first port that is tried for the page; MLflow's UI has another.
_PAGE_PORT = 8800
_LAST_PORT = 65_535
#: What sshd sets for a shell that somebody has on another machine.
_REMOTE = "SSH_CONNECTION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A study's pages.

    Attributes:
        page: the comparison page.
        mlflow: the page of MLflow's UI with the study's runs.
        tunnel: the command that makes them reachable where the user sits; empty on their own
            machine.
        ui: runs here; None where the study is on a server, which has a UI already.
    """

    page: str
    mlflow: str
    tunnel: str = ""
    ui: MlflowUi | None = None


@contextmanager
def served(existing: ExistingStudy, page: Path, *, port: int | None) -> Iterator[Served]:
    """A study's page and MLflow's UI of it, for as long as the block runs, whatever ends it.

    Args:
        page: the file of the comparison page.
        port: where the page listens, and MLflow's UI at the first free port behind it; None for
            the first ports that are free.

    Raises:
        SettingsError: something else listens there.
        TrackingError: MLflow's UI does not start.
    """
    if port is not None and not 1 <= port <= _LAST_PORT:
        raise SettingsError(f"--port {port}: expected a number from 1 to {_LAST_PORT}")
    if port is not None and free_port(port) != port:
        raise SettingsError(
            f"--port {port}: something else listens there, or you may not; leave the option out"
        )
    page_port = port or free_port(_PAGE_PORT)
    with closing(PageServer(page, port=page_port)) as server:
        if existing.tracking.is_http:
            mlflow = _runs_page(existing, port=USUAL_PORT)
            yield Served(page=server.url, mlflow=mlflow, tunnel=_tunnel(page_port))
            return
        with _mlflow_ui(existing, port=free_port(port + 1 if port else USUAL_PORT)) as ui:
            mlflow_port = ui.port
            yield Served(
                page=server.url,
                mlflow=_runs_page(existing, port=mlflow_port),
                tunnel=_tunnel(page_port, mlflow_port),
                ui=ui,
            )


@contextmanager
def _mlflow_ui(existing: ExistingStudy, *, port: int) -> Iterator[MlflowUi]:
    token = f"ui-{secrets.token_hex(4)}"
    folder = Path(tempfile.mkdtemp(prefix="sweeper-ui-"))
    guard = Guard(token=token, folder=folder)
    try:
        mark = {MARK_VARIABLE: f"{token}.mlflow;"}
        ui = MlflowUi(existing.tracking, port=port, folder=folder, mark=mark)
        with closing(ui):
            yield ui
    finally:
        guard.close()  # it ends the UI as well when this process is killed


def _runs_page(existing: ExistingStudy, *, port: int) -> str:
    facts = existing.study.facts
    runs = [mlflow_id for _, mlflow_id in sorted(facts.get("mlflow_run_ids", {}).items())]
    return comparison(
        existing.tracking,
        facts.get("experiment_id", "0"),
        runs,
        has_view=knows_views(existing.tracking),
        port=port,
    )


def _tunnel(*ports: int) -> str:
    if _REMOTE not in os.environ:
        return ""
    forwarded = " ".join(f"-L {port}:127.0.0.1:{port}" for port in ports)
    return f"ssh -N {forwarded} {getpass.getuser()}@{socket.gethostname()}"
