"""The kernels of one sweep: one for each running trial, and one booting for each slot's next."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from .kernel import Kernel
from .nursery import Nursery
from .sharing import CellsToShare, SharedRun
from .specs import command_of, is_ipykernel


class KernelPool:
    """Hands out kernels that run one trial each; each slot is a thread of its own.

    Args:
        env: the environment of all kernels; what differs between trials is set when one begins.
        cwd: their working directory.
        runtime_folder: a private folder with a short path, for sockets.
        token: the beginning of the marks that they bear.
        warm: whether to fork kernels with the notebook's libraries imported, where possible.
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
    ) -> None:
        self.name = name
        #: Whether a kernel can be told its trial's environment after it was started.
        self.can_prepare = is_ipykernel(name)
        self._env = env
        self.cwd = cwd
        self._runtime_folder = runtime_folder
        self._token = token
        self._nursery: Nursery | None = None
        command = command_of(name)
        if warm and Nursery.can_serve(command):
            self._nursery = Nursery(
                command, env=env, cwd=cwd, runtime_folder=runtime_folder, token=token
            )
        self._lock = threading.Lock()
        #: Starting a process takes its time, which is not the slot's.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kernel start")
        self._prepared: dict[int, Future[Kernel]] = {}
        self._ending: list[threading.Thread] = []
        #: Whether a notebook runs in a forked kernel as in a started one, once that is known.
        self._is_trusted: bool | None = None
        #: Whether sharing may be used: True and False once that is known.
        self._is_proven: bool | None = None
        self._is_claimed = False

    @property
    def wants_lesson(self) -> bool:
        """Whether it should be told what the notebook has imported."""
        return self._nursery is not None and not self._nursery.has_learned

    @property
    def is_warm(self) -> bool:
        """Whether kernels are forked by now."""
        return self._nursery is not None and self._nursery.is_ready

    def learn(self, lesson: str) -> None:
        """Fork kernels from now on, with what a kernel has told that it has imported."""
        if self._nursery is not None:
            self._nursery.learn(lesson)

    def share(self, cells: CellsToShare | None) -> None:
        """Run leading cells once for all trials, as soon as that can be; None for none."""
        if self._nursery is not None:
            self._nursery.share(cells)

    def wait_until_warm(self) -> None:
        """Wait until it is known whether kernels can be forked, and after which cells."""
        if self._nursery is not None:
            self._nursery.wait()

    @property
    def shared(self) -> SharedRun | None:
        """The leading cells that have run once for all trials, proven or not."""
        return None if self._nursery is None else self._nursery.shared

    def claim_proof(self) -> SharedRun | None:
        """The leading cells that have run, for the first caller: it has to say what they are worth.

        They are used by no trial until `settle_sharing` was called with True.
        """
        with self._lock:
            if self._is_claimed or self.shared is None:
                return None
            self._is_claimed = True
            return self.shared

    @property
    def is_in_doubt(self) -> bool:
        """Whether no notebook has come to its end in a forked kernel yet."""
        return self._is_trusted is None

    def trust(self, is_trusted: bool) -> None:
        """Say whether forked kernels do what started ones do; without trust none is forked."""
        self._is_trusted = is_trusted
        if not is_trusted and self._nursery is not None:
            self._nursery.stand_down()

    def settle_sharing(self, is_proven: bool) -> None:
        """Say whether trials may be forked after the leading cells."""
        self._is_proven = is_proven
        if not is_proven and self._nursery is not None:
            self._nursery.share(None)

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
        # It did not survive the wait; or another would now have more of its work done.
        is_best = kernel.is_warm == self.is_warm and kernel.shared is self._after
        if kernel.exit_code is not None or not is_best:
            kernel.kill()
            return self._begin(self._env)
        return kernel

    def take_after(self, shared: SharedRun) -> Kernel:
        """A new kernel in which leading cells have run.

        Raises:
            OSError: it cannot be forked.
        """
        kernel = self._start(self._env, nursery=self._nursery, after=shared)
        if kernel.shared is None:
            kernel.kill()
            raise OSError("no kernel can be forked after the leading cells")
        return kernel

    def take_fresh(self, env: Mapping[str, str]) -> Kernel:
        """A kernel that is started anew, whatever others are.

        Raises:
            OSError: the kernel's command cannot be run.
        """
        return self._start(self._env if self.can_prepare else {**self._env, **env}, nursery=None)

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
        if self._nursery is not None:
            self._nursery.close()

    @property
    def _after(self) -> SharedRun | None:
        return self.shared if self._is_proven else None

    def _begin(self, env: Mapping[str, str]) -> Kernel:
        return self._start(env, nursery=self._nursery, after=self._after)

    def _start(
        self, env: Mapping[str, str], *, nursery: Nursery | None, after: SharedRun | None = None
    ) -> Kernel:
        return Kernel.start(
            self.name,
            env=env,
            cwd=self.cwd,
            runtime_folder=self._runtime_folder,
            token=self._token,
            nursery=nursery,
            after=after,
        )
