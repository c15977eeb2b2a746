"""MLflow's UI over a store, as a WSGI application of this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..settings.addresses import Address
from .opening import usable

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication


def ui_over(address: Address) -> WSGIApplication:
    """MLflow's own application. It asks nobody who they are; a process has one.

    Args:
        address: a store that is a file or a database.

    Raises:
        TrackingError: the store cannot be used.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    with usable(address):
        from mlflow import MlflowClient
        from mlflow.server import app
        from mlflow.server.constants import BACKEND_STORE_URI_ENV_VAR

        MlflowClient(address.full).search_experiments(max_results=1)
        # Set by the process itself, it is in no list of processes that others can read.
        os.environ[BACKEND_STORE_URI_ENV_VAR] = address.full
    return app
