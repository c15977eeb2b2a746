"""The kernels of one sweep: one for each running trial, and one booting for each slot's next."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

from nbformat import NotebookNode

from ...notebooks.shared_cells import sharing_advice
from ..forking.fork_server import ForkServer, obstacle_of_system
from ..forking.origins import KernelOrigin, KernelSetup
from ..forking.policy import ForkPolicy
from ..forking.sharing import SharedCells
from .event_loop import thread_event_loop
from .kernel import Kernel
from .specs import command_of, environment_of, is_ipykernel

#: A bound for the threads that start kernels, of which there are as many as starts at once.
_MOST_STARTS = 1000


class KernelPool:
    """Hands out kernels that run one trial each; each trial is a thread of its own.

    Args:
        kernels: `auto`: forked with the notebook's libraries imported, once the proof allows it;
            `fork`: without a proof; `cold`: never.
        import_env: variables with which libraries are imported before kernels are forked, beside
            those of `env`.
        shared_cells: the cells that run once, before kernels are forked; None for none.

    Attributes:
        can_prepare: whether a trial's environment can be set in a kernel that was started before:
            other kernels need not take the requests that the sweep adds.
        fork_server: forks kernels, where that can be.
        policy: decides whether they are.
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
        command = command_of(setup.name)
        is_cold = "`kernels` is cold" if kernels == "cold" else ""
        self.fork_server = ForkServer(
            command,
            replace(setup, env={**environment_of(setup.name, setup.env), **(import_env or {})}),
            obstacle=is_cold or command.obstacle or obstacle_of_system(),
            shared_cells=shared_cells,
        )
        self._lock = threading.Lock()
        #: A start takes a while, in which the slot goes on. The system kills a kernel when the
        #: thread ends that has started it, so these threads live until all kernels have ended.
        self._starters = ThreadPoolExecutor(_MOST_STARTS, thread_name_prefix="kernel start")
        self._prepared: deque[Future[Kernel]] = deque()
        self._ending: list[threading.Thread] = []
        self.policy = ForkPolicy(kernels)
        self._advice = ""

    @property
    def findings(self) -> list[str]:
        """What users should know of how the kernels ran, one sentence each."""
        return [it for it in (self.policy.finding, self.fork_server.finding, self._advice) if it]

    def record_times(self, node: NotebookNode, own_names: Set[str]) -> None:
        """Note what it would save to share leading cells; see `sharing_advice`.

        Args:
            node: executed in a forked kernel, without shared cells.
        """
        self._advice = sharing_advice(node, own_names)

    @property
    def waits(self) -> bool:
        """Whether a free slot should wait, as kernels can most likely be forked soon."""
        return self.policy.waits(self.fork_server.available)

    def take(self, env: Mapping[str, str], origin: KernelOrigin | None = None) -> Kernel:
        """A kernel for one trial.

        Args:
            env: what the trial adds to the environment; used where that cannot be set later.
            origin: how the kernel has to come to be; None for as the policy decides, which is most
                often that of a kernel which was prepared.

        Raises:
            OSError: the kernel's command cannot be run, or no kernel can be forked.
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
        with self._lock:
            prepared = self._prepared.popleft() if self._prepared else None
        kernel = None
        if prepared is not None:
            with contextlib.suppress(OSError):  # if starts still fail, the one below raises
                kernel = prepared.result()
        best = self.policy.origin(self.fork_server.available)
        if kernel is None:
            return self._start(env, best)
        # Discard the prepared kernel if it died or lost its sockets while idle, or if it is to be
        # forked by now, or no more.
        if not kernel.is_usable or kernel.origin.is_forked != best.is_forked:
            kernel.kill()
            return self._start(env, best)
        return kernel

    def prepare(self) -> None:
        """Start the kernel of a later trial; it boots while this one runs."""
        # While it is found out if kernels may be forked, a started one would most likely be
        # discarded, and its boot takes a core from the imports.
        if self.can_prepare and not self.policy.forks_soon(self.fork_server.available):
            with self._lock:
                self._prepared.append(self._starters.submit(self._start_best))

    def retire(self, kernel: Kernel, on_gone: Callable[[bool], None]) -> None:
        """Have a kernel end while the caller goes on; see `Kernel.retire`."""
        ending = kernel.retire(on_gone)
        with self._lock:
            self._ending = [thread for thread in self._ending if thread.is_alive()]
            self._ending.append(ending)

    def close(self, *, patience_s: float | None = None) -> None:
        """Wait until all kernels have ended; prepared ones that no trial has taken are killed.

        Args:
            patience_s: how long at most, for their exit handlers; None for as long as it takes.
        """
        with self._lock:
            prepared, self._prepared = list(self._prepared), deque()
            ending, self._ending = self._ending, []
        for start in prepared:
            with contextlib.suppress(OSError):
                start.result().kill()
        end_s = math.inf if patience_s is None else time.monotonic() + patience_s
        for thread in ending:
            left_s = end_s - time.monotonic()
            thread.join(None if math.isinf(left_s) else max(0.0, left_s))
        self._starters.shutdown()
        self.fork_server.close()

    def _start_best(self) -> Kernel:
        return self._made(self.setup.env, self.policy.origin(self.fork_server.available))

    def _start(self, env: Mapping[str, str], origin: KernelOrigin) -> Kernel:
        return self._starters.submit(self._made, env, origin).result()

    def _made(self, env: Mapping[str, str], origin: KernelOrigin) -> Kernel:
        with thread_event_loop():
            return Kernel(replace(self.setup, env=env), origin, fork_server=self.fork_server)
