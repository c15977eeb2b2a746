"""Whether an MLflow server is there at all."""

from __future__ import annotations

import urllib.error
import urllib.request

from ..errors import TrackingError

_PROBE_TIMEOUT_S = 5


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
