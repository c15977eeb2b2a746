"""Notices that the machine is about to be taken away, from the cloud's metadata service."""

from __future__ import annotations

import http.client
import logging
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Literal

from ..errors import SettingsError, first_line

Cloud = Literal["gcp", "aws"]

#: Who stopped a sweep after such a notice.
PREEMPTED = "the machine's preemption notice"

_log = logging.getLogger(__name__)

#: How often to ask. AWS gives notice 2 minutes ahead, GCP 30 seconds.
_ASK_S = 1.0
_TIMEOUT_S = 2.0
#: Whatever a service does that is no answer: it is not there, hangs up, or talks nonsense.
_NO_ANSWER = (OSError, http.client.HTTPException, ValueError)


def _is_preempted_by_gcp() -> bool:
    """https://cloud.google.com/compute/docs/instances/create-use-spot (detecting preemption)."""
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/instance/preempted"
    return _ask(url, {"Metadata-Flavor": "Google"}).strip().upper() == "TRUE"


def _is_preempted_by_aws() -> bool:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html"""
    endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")
    root = endpoint.rstrip("/") + "/latest"
    life = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _ask(f"{root}/api/token", life, method="PUT")
    try:
        url = f"{root}/meta-data/spot/instance-action"
        return bool(_ask(url, {"X-aws-ec2-metadata-token": token}))
    except urllib.error.HTTPError as error:
        if error.code == 404:  # there is no notice yet
            return False
        raise


_IS_PREEMPTED: Mapping[Cloud, Callable[[], bool]] = {
    "gcp": _is_preempted_by_gcp,
    "aws": _is_preempted_by_aws,
}


def check_service(cloud: Cloud) -> None:
    """Refuse to rely on a service that is not there.

    Raises:
        SettingsError: it does not answer, as outside of that cloud.
    """
    try:
        _IS_PREEMPTED[cloud]()
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
        self._cloud = cloud
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
                if _IS_PREEMPTED[self._cloud]():
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
