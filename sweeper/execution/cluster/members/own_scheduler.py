"""A Dask scheduler of this process, which the workers of other machines join."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping

from ....errors import SettingsError, first_line
from ..dask_cluster import DaskCluster, load_dask

#: The cluster in messages.
_PLACE = "this study (--shared)"


def reachable_address(towards: str) -> str:
    """The address of this machine on the way to another one.

    Args:
        towards: the name or the address of the other machine; empty for this one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # connecting to an unknown name says that it is unknown
        return str(load_dask().utils.get_ip(towards or "127.0.0.1"))


class OwnScheduler:
    """A scheduler on this machine, and the connection to it. Made by `open`, ended by `close`.

    Who connects needs the certificate and the key that are made for this scheduler.

    Attributes:
        cluster: its workers, as a sweep uses them.
        address: where workers join it.
        security: the certificate and the key with which they do; on disk only where the caller
            stores them.
    """

    def __init__(self, cluster: DaskCluster, *, address: str, security: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.address = address
        self.security = security

    @classmethod
    def open(cls, host: str) -> OwnScheduler:
        """Start a scheduler.

        Args:
            host: the address of this machine at which the others reach it.

        Raises:
            SettingsError: Dask is not installed, or the machine has not this address.
        """
        distributed = load_dask()
        try:
            security = distributed.Security.temporary()
            cluster = distributed.LocalCluster(
                n_workers=0,
                host=host,
                dashboard_address="127.0.0.1:0",  # any free port, for this machine alone
                security=security,
                silence_logs=logging.CRITICAL,
            )
            client = distributed.Client(cluster, set_as_default=False)
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            raise SettingsError(
                f"--shared {host}: no scheduler can be started there: {first_line(error)}; "
                "expected an address of this machine"
            ) from error
        keys = {
            "ca": security.tls_ca_file,
            "certificate": security.tls_worker_cert,
            "key": security.tls_worker_key,
        }
        return cls(
            DaskCluster(client, cluster, place=_PLACE),
            address=cluster.scheduler_address,
            security=keys,
        )

    def close(self) -> None:
        """End the scheduler, and with it the workers that have joined it."""
        self.cluster.close()
