"""Run MLflow's UI for a store as a WSGI application in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..settings.addresses import Address
from .opening import usable

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication


def ui_over(address: Address) -> WSGIApplication:
    """Return MLflow's WSGI application for a store, which asks for no user or password.

    A process can have the application of only one store.

    Args:
        address: Address of a store that is a file or a database.

    Raises:
        TrackingError: The store cannot be used.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    with usable(address):
        from mlflow import MlflowClient
        from mlflow.server import app
        from mlflow.server.constants import BACKEND_STORE_URI_ENV_VAR

        MlflowClient(address.full).search_experiments(max_results=1)
        # Other users cannot read this password, because the process sets the variable itself.
        os.environ[BACKEND_STORE_URI_ENV_VAR] = address.full
    return app
