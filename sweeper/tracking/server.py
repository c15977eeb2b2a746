"""Whether an MLflow server is there at all, and where its pages are."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence

from ..errors import TrackingError

_PROBE_TIMEOUT_S = 5
#: Where `mlflow ui` serves an embedded store when nothing else is said.
_LOCAL_UI = "http://127.0.0.1:5000"


def probe(uri: str) -> None:
    """Ask a server for a sign of life; MLflow's own client would try for four minutes."""
    if not uri.startswith(("http://", "https://")):
        return
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_PROBE_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        pass  # it answered; what it thinks of us comes with the first real call
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise TrackingError(
            f"--tracking-uri {uri}: the MLflow server does not answer ({reason}); start it, or "
            "leave the option out for a store beside the outputs"
        ) from error


def comparison(uri: str, experiment_id: str, runs: Sequence[str]) -> str:
    """The page of MLflow's UI that draws parallel coordinates over runs."""
    base = uri.rstrip("/") if uri.startswith("http") else _LOCAL_UI
    told = urllib.parse.quote(json.dumps(list(runs), separators=(",", ":")))
    experiments = urllib.parse.quote(json.dumps([experiment_id]))
    return (
        f"{base}/#/compare-runs?runs={told}&experiments={experiments}&workflowType=machine_learning"
    )
