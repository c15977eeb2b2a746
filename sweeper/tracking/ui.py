"""Run MLflow's UI for a store as a WSGI application in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..settings.addresses import Address
from .opening import usable

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication


def ui_over(address: Address) -> WSGIApplication:
    """Return MLflow's WSGI application for a store. It does not ask for a user or a password.

    A process can have the application of only one store, because the address of the store is set
    in the environment of the process.

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
        # MLflow reads the address, with its password, from this variable. Other users could read it
        # on a command line, but not in the environment of this process.
        os.environ[BACKEND_STORE_URI_ENV_VAR] = address.full
    return app
