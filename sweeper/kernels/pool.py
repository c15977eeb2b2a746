"""The kernels of one sweep: one for each running trial, and one booting for each slot's next."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from .forking.evidence import Evidence
from .forking.fork_server import ForkServer
from .forking.policy import Experiment, ForkPolicy, Offer, Way
from .forking.sharing import CellsToShare, SharedRun
from .kernel import Kernel
from .specs import command_of, is_ipykernel


class KernelPool:
    """Hands out kernels that run one trial each; each slot is a thread of its own.

    Args:
        env: the environment of all kernels; what differs between trials is set when one begins.
        cwd: their working directory.
        runtime_folder: a private folder with a short path, for sockets.
        token: the beginning of the marks that they bear.
        warm: whether to fork kernels with the notebook's libraries imported, where possible.
        policy: decides which kernels are forked; by default only such as were proven.
    """

    def __init__(
        self,
        name: str,
        *,
        env: Mapping[str, str],
        cwd: Path,
        runtime_folder: Path,
        token: str,
        warm: bool,
        policy: ForkPolicy | None = None,
    ) -> None:
        self.name = name
        #: Whether a kernel can be told its trial's environment after it was started.
        self.can_prepare = is_ipykernel(name)
        self._env = env
        self.cwd = cwd
        self._runtime_folder = runtime_folder
        self._token = token
        self._fork_server: ForkServer | None = None
        command = command_of(name)
        if warm and ForkServer.can_serve(command):
            self._fork_server = ForkServer(
                command, env=env, cwd=cwd, runtime_folder=runtime_folder, token=token
            )
        self._lock = threading.Lock()
        #: Starting a process takes its time, which is not the slot's.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kernel start")
        self._prepared: dict[int, Future[Kernel]] = {}
        self._ending: list[threading.Thread] = []
        self.policy = policy or ForkPolicy()

    @property
    def wants_import_profile(self) -> bool:
        """Whether it should be told what the notebook has imported."""
        return self._fork_server is not None and not self._fork_server.has_import_profile

    def learn(self, lesson: str) -> None:
        """Fork kernels from now on, with what a kernel has told that it has imported."""
        if self._fork_server is not None:
            self._fork_server.learn(lesson)

    def share(self, cells: CellsToShare | None) -> None:
        """Run leading cells once for all trials, as soon as that can be; None for none."""
        if self._fork_server is not None:
            self._fork_server.share(cells)

    def wait_until_warm(self) -> None:
        """Wait until it is known whether kernels can be forked, and after which cells."""
        if self._fork_server is not None:
            self._fork_server.wait()

    @property
    def offer(self) -> Offer:
        """What kernels can be forked from now."""
        return Offer() if self._fork_server is None else self._fork_server.offer

    def claim_experiment(self, trials_left: int) -> Experiment | None:
        """What the caller has to try before its next trial; it then calls `settle`."""
        return self.policy.claim(self.offer, trials_left=trials_left)

    def settle(self, experiment: Experiment, evidence: Evidence | str | None) -> None:
        """What an experiment has come to; see `ForkPolicy.settle`."""
        self.policy.settle(experiment, evidence, self.offer)
        if self._fork_server is not None and self.policy.has_refused(Way.SHARED):
            self._fork_server.share(None)

    def take(self, env: Mapping[str, str]) -> Kernel:
        """The kernel that was prepared by this thread, or a new one.

        Args:
            env: what the trial adds to the environment; for kernels that can only be told at start.

        Raises:
            OSError: the kernel's command cannot be run.
        """
        with self._lock:
            prepared = self._prepared.pop(threading.get_ident(), None)
        kernel = None
        if prepared is not None:
            with contextlib.suppress(OSError):  # if it is still so, this trial will say it
                kernel = prepared.result()
        if kernel is None:
            return self._begin(self._env if self.can_prepare else {**self._env, **env})
        # One that has died meanwhile, or that came to be in another way than is best by now.
        way, offer = self._best()
        is_best = kernel.is_warm == (way is not Way.STARTED)
        is_best = is_best and (kernel.shared is offer.shared or way is not Way.SHARED)
        if kernel.exit_code is not None or not is_best:
            kernel.kill()
            return self._begin(self._env)
        return kernel

    def take_for(self, experiment: Experiment, env: Mapping[str, str]) -> Kernel:
        """A kernel that came to be as an experiment wants it.

        Args:
            env: as in `take`.

        Raises:
            OSError: there is none to be had.
        """
        if experiment.way is Way.STARTED:
            return self.take_fresh(env)
        after = experiment.shared if experiment.way is Way.SHARED else None
        kernel = self._start(self._env, fork_server=self._fork_server, after=after)
        if not kernel.is_warm or kernel.shared is not after:
            kernel.kill()
            raise OSError("no kernel can be forked any more")
        return kernel

    def take_fresh(self, env: Mapping[str, str]) -> Kernel:
        """A kernel that is started anew, whatever others are.

        Raises:
            OSError: the kernel's command cannot be run.
        """
        return self._start(
            self._env if self.can_prepare else {**self._env, **env}, fork_server=None
        )

    def prepare(self) -> None:
        """Start the kernel of this thread's next trial; it boots while this trial runs."""
        if self.can_prepare:
            with self._lock:
                start = self._starter.submit(self._begin, self._env)
                self._prepared[threading.get_ident()] = start

    def retire(self, kernel: Kernel, on_gone: Callable[[], None]) -> None:
        """Have a kernel end behind its trial's back; `on_gone` is called when it has."""
        ending = kernel.retire(on_gone)
        with self._lock:
            self._ending = [thread for thread in self._ending if thread.is_alive()]
            self._ending.append(ending)

    def close(self, *, patience_s: float | None = None) -> None:
        """Wait until all kernels have ended; those that were prepared in vain are killed.

        Args:
            patience_s: how long at most, for their exit handlers; None for as long as it takes.
        """
        with self._lock:
            prepared, self._prepared = list(self._prepared.values()), {}
            ending, self._ending = self._ending, []
        self._starter.shutdown()
        for start in prepared:
            with contextlib.suppress(OSError):
                start.result().kill()
        end_s = math.inf if patience_s is None else time.monotonic() + patience_s
        for thread in ending:
            left_s = end_s - time.monotonic()
            thread.join(None if math.isinf(left_s) else max(0.0, left_s))
        if self._fork_server is not None:
            self._fork_server.close()

    def _best(self) -> tuple[Way, Offer]:
        """How a kernel should come to be now, and from what."""
        offer = self.offer
        return self.policy.way(offer), offer

    def _begin(self, env: Mapping[str, str]) -> Kernel:
        way, offer = self._best()
        return self._start(
            env,
            fork_server=None if way is Way.STARTED else self._fork_server,
            after=offer.shared if way is Way.SHARED else None,
        )

    def _start(
        self,
        env: Mapping[str, str],
        *,
        fork_server: ForkServer | None,
        after: SharedRun | None = None,
    ) -> Kernel:
        return Kernel.start(
            self.name,
            env=env,
            cwd=self.cwd,
            runtime_folder=self._runtime_folder,
            token=self._token,
            fork_server=fork_server,
            after=after,
        )
