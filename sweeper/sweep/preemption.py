"""Notices that the machine is about to be taken away, from the cloud's metadata service."""

from __future__ import annotations

import http.client
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from ..errors import SettingsError, first_line

Cloud = Literal["gcp", "aws"]

#: Who stopped a sweep after such a notice.
PREEMPTED = "the machine's preemption notice"

_log = logging.getLogger(__name__)

#: How often to ask. AWS gives notice 2 minutes ahead, GCP 30 seconds.
_ASK_S = 1.0
_TIMEOUT_S = 2.0
#: For how long a token of AWS is asked for, and used: the first time it is refused before that, it
#: is asked for anew.
_TOKEN_LIFE_S, _TOKEN_USE_S = 21600, 10800.0
#: Whatever a service does that is no answer: it is not there, hangs up, or talks nonsense.
_NO_ANSWER = (OSError, http.client.HTTPException, ValueError)


class _Service(Protocol):
    def is_preempted(self) -> bool: ...


class _Gcp:
    """https://cloud.google.com/compute/docs/instances/create-use-spot (detecting preemption)."""

    def __init__(self) -> None:
        host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
        self._url = f"http://{host}/computeMetadata/v1/instance/preempted"

    def is_preempted(self) -> bool:
        return _ask(self._url, {"Metadata-Flavor": "Google"}).strip().upper() == "TRUE"


class _Aws:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html"""

    def __init__(self) -> None:
        endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")
        self._root = endpoint.rstrip("/") + "/latest"
        self._token = ""
        self._renew_at_s = 0.0

    def is_preempted(self) -> bool:
        if time.monotonic() >= self._renew_at_s:
            life = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_LIFE_S)}
            self._token = _ask(f"{self._root}/api/token", life, method="PUT")
            self._renew_at_s = time.monotonic() + _TOKEN_USE_S
        url = f"{self._root}/meta-data/spot/instance-action"
        try:
            return bool(_ask(url, {"X-aws-ec2-metadata-token": self._token}))
        except urllib.error.HTTPError as error:
            if error.code == 404:  # there is no notice yet
                return False
            self._renew_at_s = 0.0
            raise


_SERVICES: Mapping[Cloud, Callable[[], _Service]] = {"gcp": _Gcp, "aws": _Aws}


def check_service(cloud: Cloud) -> None:
    """Refuse to rely on a service that is not there.

    Raises:
        SettingsError: it does not answer, as outside of that cloud.
    """
    try:
        _SERVICES[cloud]().is_preempted()
    except _NO_ANSWER as error:
        reason = getattr(error, "reason", None) or first_line(error)
        raise SettingsError(
            f"resources.preemption: {cloud}: its metadata service does not answer ({reason}); "
            "leave the key out where the machine is none of that cloud's"
        ) from error


class PreemptionWatcher:
    """Asks the metadata service now and then, on a thread of its own.

    Args:
        cloud: whose.
        on_notice: called once, when the machine will be taken away.
    """

    def __init__(self, cloud: Cloud, on_notice: Callable[[], None]) -> None:
        self._service = _SERVICES[cloud]()
        self._on_notice = on_notice
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="preemption", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                if self._service.is_preempted():
                    self._on_notice()
                    return
            except _NO_ANSWER as error:  # the next answer may come in time
                _log.info("metadata service: %s", first_line(error))
            self._closing.wait(_ASK_S)


def _ask(url: str, headers: Mapping[str, str], *, method: str = "GET") -> str:
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    # Never through a proxy: the service is on the machine's own link.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        return str(answer.read().decode())
