"""Serve MLflow's UI of a study on this machine, until it is ended."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import SettingsError
from ..guard import MARK_VARIABLE, Guard
from ..tracking import USUAL_PORT, MlflowUi, comparison, free_port, knows_views
from .lookup import ExistingStudy

#: What sshd sets for a shell that somebody has on another machine.
_REMOTE = "SSH_CONNECTION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A study's pages.

    Attributes:
        url: the page of MLflow's UI with the study's runs.
        tunnel: the command that makes it reachable where the user sits; empty on their own machine.
        ui: runs here; None where the study is on a server, which has a UI already.
    """

    url: str
    tunnel: str = ""
    ui: MlflowUi | None = None


@contextmanager
def served(existing: ExistingStudy, *, port: int | None) -> Iterator[Served]:
    """MLflow's UI of a study, for as long as the block runs, whatever ends it.

    Args:
        port: where it listens; None for the first that is free.

    Raises:
        SettingsError: something else listens there.
        TrackingError: the UI does not start.
    """
    if existing.tracking.is_http:
        yield Served(url=_page(existing, port=USUAL_PORT))
        return
    if port is not None and free_port(port) != port:
        raise SettingsError(f"--port {port}: something else listens there; leave the option out")
    port = port or free_port(USUAL_PORT)
    token = f"ui-{secrets.token_hex(4)}"
    folder = Path(tempfile.mkdtemp(prefix="sweeper-ui-"))
    guard = Guard(token=token, folder=folder)
    try:
        mark = {MARK_VARIABLE: f"{token}.mlflow;"}
        ui = MlflowUi(existing.tracking, port=port, folder=folder, mark=mark)
        try:
            yield Served(url=_page(existing, port=port), tunnel=_tunnel(port), ui=ui)
        finally:
            ui.close()
    finally:
        guard.close()  # it ends the UI as well when this process is killed


def _page(existing: ExistingStudy, *, port: int) -> str:
    facts = existing.study.facts
    runs = [mlflow_id for _, mlflow_id in sorted(facts.get("mlflow_run_ids", {}).items())]
    return comparison(
        existing.tracking,
        facts.get("experiment_id", "0"),
        runs,
        has_view=knows_views(existing.tracking),
        port=port,
    )


def _tunnel(port: int) -> str:
    if _REMOTE not in os.environ:
        return ""
    return f"ssh -N -L {port}:127.0.0.1:{port} {getpass.getuser()}@{socket.gethostname()}"
