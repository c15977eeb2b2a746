"""The provisioner that forks a kernel where that is possible, and starts it otherwise."""

from __future__ import annotations

from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from .fork_server import ForkServer
from .sharing import SharedRun


class ForkingProvisioner(LocalProvisioner):
    """Forks the kernel where that is possible, and starts it otherwise.

    Args:
        after: the cells that should have run in the kernel before; None for none.
    """

    def __init__(self, *, fork_server: ForkServer, after: SharedRun | None, **options: Any) -> None:
        super().__init__(**options)
        self._fork_server = fork_server
        self._after = after

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        """Fork the kernel's process, or start it as the base class does."""
        forked = self._fork_server.fork(
            cmd,
            env=options["env"],
            cwd=options["cwd"],
            output=options["stderr"].fileno(),
            after=self._after,
        )
        if forked is None:
            return await super().launch_kernel(cmd, **options)
        self.process = forked  # type: ignore[assignment]
        self.pid = self.pgid = forked.pid
        self.cwd = options["cwd"]
        return self.connection_info
