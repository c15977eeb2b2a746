"""The kernels of one sweep: one for each running trial, and a booting one for each slot's next."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

from nbformat import NotebookNode

from ...notebooks.shared_cells import sharing_advice
from ..forking.command import KernelCommand, Obstacle
from ..forking.fork_server import ForkServer, obstacle_of_system
from ..forking.origins import KernelOrigin, KernelSetup
from ..forking.policy import ForkPolicy
from ..forking.sharing import SharedCells
from .event_loop import thread_event_loop
from .kernel import Kernel
from .specs import command_of, environment_of, is_ipykernel

#: A bound for the threads that start kernels. There are as many as starts at the same time.
_MOST_STARTS = 1000


class KernelPool:
    """Hands out kernels that run one trial each; each trial is a thread of its own.

    Args:
        kernels: `auto`: forked with the notebook's libraries imported, once the proof allows it;
            `fork`: without a proof; `cold`: never.
        import_env: Variables with which libraries are imported before kernels are forked, in
            addition to those of `env`.
        shared_cells: The cells that run once, before kernels are forked; None for none.

    Attributes:
        can_prepare: Whether a trial's environment can be set in a kernel that was started before.
            Kernels other than ipykernel need not accept the requests that the sweep adds.
        fork_server: Forks kernels, where that can be.
        policy: Decides whether they are forked.
    """

    def __init__(
        self,
        setup: KernelSetup,
        *,
        kernels: Literal["auto", "fork", "cold"],
        import_env: Mapping[str, str] | None = None,
        shared_cells: SharedCells | None = None,
    ) -> None:
        self.setup = setup
        self.can_prepare = is_ipykernel(setup.name)
        env = {**environment_of(setup.name, setup.env), **(import_env or {})}
        self.fork_server = ForkServer(
            _forkable_command(setup.name, kernels),
            replace(setup, env=env),
            shared_cells=shared_cells,
        )
        self.policy = ForkPolicy(kernels)
        self._lock = threading.Lock()
        #: A start takes a while, in which the slot continues. The system kills a kernel when the
        #: thread ends that has started it, so these threads live until all kernels have ended.
        self._starters = ThreadPoolExecutor(_MOST_STARTS, thread_name_prefix="kernel start")
        self._prepared: deque[Future[Kernel]] = deque()
        self._ending: list[threading.Thread] = []
        self._advice: str | None = None

    @property
    def findings(self) -> list[str]:
        """What users should know of how the kernels ran, one sentence each."""
        found = (self.policy.finding, self.fork_server.finding, self._advice)
        return [finding for finding in found if finding is not None]

    def record_times(self, node: NotebookNode, own_names: Set[str]) -> None:
        """Note how much time it would save to share leading cells; see `sharing_advice`.

        Args:
            node: The notebook, executed in a forked kernel without shared cells.
        """
        self._advice = sharing_advice(node, own_names)

    @property
    def waits(self) -> bool:
        """Whether a free slot should wait, as kernels can most likely be forked soon."""
        return self.policy.waits(self.fork_server.available)

    def take(self, env: Mapping[str, str], origin: KernelOrigin | None = None) -> Kernel:
        """Return a kernel for one trial.

        Args:
            env: What the trial adds to the environment; used where that cannot be set later.
            origin: How the kernel has to come to be. None for as the policy decides, which is most
                often how a prepared kernel came to be.

        Raises:
            OSError: The kernel's command cannot be run, or no kernel can be forked.
        """
        env = self.setup.env if self.can_prepare else {**self.setup.env, **env}
        if origin is None:
            return self._take_best(env)
        kernel = self._start(env, origin)
        if origin.is_forked and not kernel.origin.is_forked:
            kernel.kill()
            raise OSError("no kernel can be forked any more")
        return kernel

    def _take_best(self, env: Mapping[str, str]) -> Kernel:
        kernel = self._take_prepared()
        best = self.policy.origin(self.fork_server.available)
        if kernel is not None:
            # An idle kernel may have died or lost its sockets. Or kernels are forked by now, or no
            # longer.
            if kernel.is_usable and kernel.origin.is_forked == best.is_forked:
                return kernel
            kernel.kill()
        return self._start(env, best)

    def _take_prepared(self) -> Kernel | None:
        """Return the kernel that was prepared first; None where there is none."""
        with self._lock:
            start = self._prepared.popleft() if self._prepared else None
        if start is None:
            return None
        try:
            return start.result()
        except OSError:  # if starts still fail, the next one raises
            return None

    def prepare(self) -> None:
        """Start the kernel of a later trial; it boots while this one runs."""
        if not self.can_prepare:
            return
        # As long as the proof runs, a started kernel would most likely be discarded, and its boot
        # takes a core from the imports.
        if self.policy.forks_soon(self.fork_server.available):
            return
        with self._lock:
            self._prepared.append(self._starters.submit(self._start_best))

    def retire(self, kernel: Kernel, on_gone: Callable[[bool], None]) -> None:
        """Let a kernel end while the caller continues; see `Kernel.retire`."""
        ending = kernel.retire(on_gone)
        with self._lock:
            self._ending = [thread for thread in self._ending if thread.is_alive()]
            self._ending.append(ending)

    def close(self, *, patience_s: float | None = None) -> None:
        """Wait until all kernels have ended; prepared ones that no trial has taken are killed.

        Args:
            patience_s: The longest wait for their exit handlers; None for as long as it takes.
        """
        with self._lock:
            prepared = list(self._prepared)
            self._prepared.clear()
            ending = self._ending
            self._ending = []
        for start in prepared:
            with contextlib.suppress(OSError):
                start.result().kill()
        end_s = None if patience_s is None else time.monotonic() + patience_s
        for thread in ending:
            thread.join(None if end_s is None else max(0.0, end_s - time.monotonic()))
        self._starters.shutdown()
        self.fork_server.close()

    def _start_best(self) -> Kernel:
        return self._made(self.setup.env, self.policy.origin(self.fork_server.available))

    def _start(self, env: Mapping[str, str], origin: KernelOrigin) -> Kernel:
        return self._starters.submit(self._made, env, origin).result()

    def _made(self, env: Mapping[str, str], origin: KernelOrigin) -> Kernel:
        with thread_event_loop():
            return Kernel(replace(self.setup, env=env), origin, fork_server=self.fork_server)


def _forkable_command(
    kernel_name: str, kernels: Literal["auto", "fork", "cold"]
) -> KernelCommand | Obstacle:
    """Return how kernels are run, or why none is ever forked."""
    if kernels == "cold":
        return Obstacle("`kernels` is cold")
    command = command_of(kernel_name)
    if isinstance(command, Obstacle):
        return command
    return obstacle_of_system() or command
