"""Provide the kernels of one sweep: one for each running trial, and some started in advance."""

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

#: Largest number of kernels that can start at the same time, each in a thread of its own (chosen,
#: not measured).
_MOST_STARTS = 1000


class KernelPool:
    """Hands out kernels. Each kernel runs one trial, in a thread of the caller.

    Args:
        setup: What all kernels have in common.
        kernels: `auto`: fork kernels from a process with the notebook's libraries imported, once a
            trial has given the same results in fresh and forked kernels (the proof). `fork`: fork
            them without a proof. `cold`: never fork.
        import_env: Environment variables for the imports before kernels are forked, in addition to
            those of `setup`.
        shared_cells: Cells that run once before kernels are forked. None if there are none.

    Attributes:
        setup: What all kernels have in common.
        can_prepare: Whether a kernel can be started before its trial is known, and get the trial's
            environment later. Only ipykernel accepts the requests for this.
        fork_server: Server that forks kernels, if that is possible.
        policy: Policy that decides whether kernels are forked.
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
        #: Threads that start kernels while slots are busy. Kernels let the system kill them when
        #: the thread that started them ends, so these threads live until all kernels have ended.
        self._starters = ThreadPoolExecutor(_MOST_STARTS, thread_name_prefix="kernel start")
        self._prepared: deque[Future[Kernel]] = deque()
        self._ending: list[threading.Thread] = []
        self._advice: str | None = None

    @property
    def findings(self) -> list[str]:
        """Remarks for users about how the kernels ran, one sentence each."""
        found = (self.policy.finding, self.fork_server.finding, self._advice)
        return [finding for finding in found if finding is not None]

    def record_times(self, node: NotebookNode, own_names: Set[str]) -> None:
        """Compute from the cells' times how much time the tag `shared` would save.

        Cells with this tag run once for all trials. The advice of `sharing_advice`, if there is
        any, is then one of the `findings`.

        Args:
            node: Notebook that was executed in a forked kernel, without cells tagged `shared`.
            own_names: Names of variables whose values differ between trials.
        """
        self._advice = sharing_advice(node, own_names)

    @property
    def waits(self) -> bool:
        """Whether a free slot should wait for a forked kernel instead of starting one."""
        return self.policy.waits(self.fork_server.available)

    def take(self, env: Mapping[str, str], origin: KernelOrigin | None = None) -> Kernel:
        """Return a kernel for one trial.

        Args:
            env: Environment variables of the trial. Used only if `can_prepare` is False: otherwise
                the client sets them in the running kernel.
            origin: How the kernel must be made: started or forked. If None, the policy decides, and
                a kernel that was prepared is returned, if there is one.

        Raises:
            OSError: The kernel's command cannot be run, or no kernel can be forked.
        """
        env = self.setup.env if self.can_prepare else {**self.setup.env, **env}
        if origin is None:
            return self._take_best(env)
        kernel = self._start(env, origin).result()
        if origin.is_forked and not kernel.origin.is_forked:
            kernel.kill()
            raise OSError("no kernel can be forked any more")
        return kernel

    def _take_best(self, env: Mapping[str, str]) -> Kernel:
        kernel = self._take_prepared()
        best = self._best_origin()
        if kernel is not None:
            # A prepared kernel is useless if it has died or lost its sockets, or if the policy
            # decides differently since it was prepared.
            if kernel.is_usable and kernel.origin.is_forked == best.is_forked:
                return kernel
            kernel.kill()
        return self._start(env, best).result()

    def _take_prepared(self) -> Kernel | None:
        """Remove and return the kernel that was prepared first, as soon as it has started.

        Return None if no kernel is prepared, or if its start has failed.
        """
        with self._lock:
            start = self._prepared.popleft() if self._prepared else None
        if start is None:
            return None
        try:
            return start.result()
        except OSError:  # If the cause remains, the next start raises this error.
            return None

    def prepare(self) -> None:
        """Start or fork a kernel for a later trial. It boots while the present trial runs.

        Do nothing if `can_prepare` is False, or if kernels cannot be forked now, but most likely
        can be forked soon.
        """
        if not self.can_prepare:
            return
        # While the sweep tests whether forked kernels give the same results, start no kernel in
        # advance. It would most likely be discarded, because the next kernel can be forked. Its
        # boot would also slow down the imports of the process that kernels are forked from.
        if self.policy.forks_soon(self.fork_server.available):
            return
        origin = self._best_origin()
        with self._lock:
            self._prepared.append(self._start(self.setup.env, origin))

    def retire(self, kernel: Kernel, on_gone: Callable[[bool], None]) -> None:
        """Let a kernel end in the background; see `Kernel.retire`."""
        ending = kernel.retire(on_gone)
        with self._lock:
            self._ending = [thread for thread in self._ending if thread.is_alive()]
            self._ending.append(ending)

    def close(self, *, patience_s: float | None = None) -> None:
        """Kill the kernels that no trial has used, and wait until all other kernels have ended.

        Args:
            patience_s: Longest wait for the kernels' exit handlers, in seconds. None for no limit.
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

    def _best_origin(self) -> KernelOrigin:
        return self.policy.origin(self.fork_server.available)

    def _start(self, env: Mapping[str, str], origin: KernelOrigin) -> Future[Kernel]:
        return self._starters.submit(self._made, env, origin)

    def _made(self, env: Mapping[str, str], origin: KernelOrigin) -> Kernel:
        with thread_event_loop():
            return Kernel(replace(self.setup, env=env), origin, fork_server=self.fork_server)


def _forkable_command(
    kernel_name: str, kernels: Literal["auto", "fork", "cold"]
) -> KernelCommand | Obstacle:
    """Return the command of the kernels, or why they can never be forked."""
    if kernels == "cold":
        return Obstacle("`kernels` is cold")
    command = command_of(kernel_name)
    if isinstance(command, Obstacle):
        return command
    return obstacle_of_system() or command
