"""The provisioner that forks a kernel where that is possible, and starts it otherwise."""

from __future__ import annotations

from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from .fork_server import ForkServer


class ForkingProvisioner(LocalProvisioner):
    """Forks the kernel where that is possible, and starts it otherwise."""

    def __init__(self, *, fork_server: ForkServer, **options: Any) -> None:
        super().__init__(**options)
        self._fork_server = fork_server

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        """Fork the kernel's process, or start it as the base class does."""
        forked = self._fork_server.fork(
            cmd,
            env=options["env"],
            output=options["stderr"].fileno(),
        )
        if forked is None:
            return await super().launch_kernel(cmd, **options)
        self.process = forked  # type: ignore[assignment]
        self.pid = self.pgid = forked.pid
        self.cwd = options["cwd"]
        return self.connection_info
