"""Faults of a GPU under MPS: which trials they hit, and what becomes of those.

Trials that share a GPU through MPS share one context of CUDA. A fault of one trial, such as a label
beyond the number of classes, ends that context and with it the work of all of them, and MPS does
not tell which one it was. So no trial is at fault until it has failed alone.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ...notebook_api.messages import StopReason
from ...trials import Reason, RunningTrial, TrialOutcome, TrialState

#: How torch, JAX, TensorFlow, CuPy and Numba word the errors that end a context of CUDA: 700, 702,
#: 710, 714 to 719, those of the memory's own checks, and those of MPS itself, 805 to 810.
_FAULT = re.compile(
    r"illegal memory access|device-side assert|unspecified launch failure|misaligned address"
    r"|illegal instruction|invalid program counter|hardware stack error|uncorrectable ECC"
    r"|not supported on global/shared address space|the launch timed out"
    r"|CUDA_ERROR_(ILLEGAL_(ADDRESS|INSTRUCTION)|ASSERT|LAUNCH_(FAILED|TIMEOUT)|INVALID_PC"
    r"|MISALIGNED_ADDRESS|INVALID_ADDRESS_SPACE|HARDWARE_STACK_ERROR|ECC_UNCORRECTABLE|MPS_\w+)"
    r"|cudaError(Illegal(Address|Instruction)|Assert|Launch(Failure|Timeout)|InvalidPc"
    r"|MisalignedAddress|InvalidAddressSpace|HardwareStackError|ECCUncorrectable|Mps\w+)"
    r"|\bMPS (client|server)\b"
    r"|CUDA[\w ]*error\D{0,12}(70[02]|71[04-9]|80[5-9]|810)\b",
    re.IGNORECASE,
)
#: A trial that ended so shortly before another one's fault may have been hit by it, too.
_TOGETHER_S = 10.0
#: The outcomes that a fault may have caused. A notebook that catches the error completes, with a
#: score that says nothing; a trial that was pruned or stopped for another reason stays as it is.
_DOUBTFUL = (TrialState.FAILED, TrialState.COMPLETED)


def is_fault(text: str) -> bool:
    """Whether an error is one that ends the context of CUDA which trials share under MPS."""
    return _FAULT.search(text) is not None


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """A trial that uses a GPU through MPS.

    Attributes:
        gpu: the GPU's name.
        was_hit: whether a fault came while the trial ran.
        left_s: when its kernel had ended; None before.
    """

    gpu: str
    running: RunningTrial
    was_hit: bool = False
    left_s: float | None = None


@dataclass(slots=True)
class GpuFaults:
    """Decides whom a fault has hit, and keeps others from the GPU until those have ended.

    Safe to use from any thread.

    Attributes:
        closed: the GPUs that take no trial now, because MPS refuses new clients until all have
            ended that a fault has hit.
    """

    closed: set[str] = field(default_factory=set)
    _clients: list[Client] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def client(
        self, gpu: str, running: RunningTrial, until_ready: Callable[[], None] = lambda: None
    ) -> Iterator[Client]:
        """Count a trial among those on a GPU until its kernel has ended.

        Args:
            until_ready: waits until MPS takes clients again, once a fault's last one has ended.
        """
        client = Client(gpu=gpu, running=running)
        with self._lock:
            self._clients.append(client)
            client.was_hit = gpu in self.closed  # the fault came just after it got its share
        if client.was_hit:
            _stop(client)
        try:
            yield client
        finally:
            with self._lock:
                client.left_s = time.monotonic()
                now = client.left_s
                self._clients = [it for it in self._clients if _is_recent(it, now)]
                is_last = not any(it.gpu == gpu and it.left_s is None for it in self._clients)
            if is_last and gpu in self.closed:
                until_ready()
                self.closed.discard(gpu)

    def settle(
        self, client: Client, outcome: TrialOutcome, server_has_fault: Callable[[], bool]
    ) -> TrialOutcome:
        """What a trial's outcome is, now that faults are considered.

        One that a fault may have hit ends as stopped, with the reason `gpu_fault`, and the others
        on its GPU are stopped, as their contexts are lost. One that had no company has its own
        fault, and keeps its outcome.

        Args:
            outcome: as the notebook alone lets it appear.
            server_has_fault: asks MPS, for errors whose text says nothing of it.
        """
        if outcome.reason in (Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY):  # no fault
            return outcome
        is_new = outcome.state is TrialState.FAILED and not client.was_hit
        if is_new and (is_fault(outcome.message) or server_has_fault()):
            self._note(client)
        if not client.was_hit or outcome.state not in _DOUBTFUL:
            return outcome
        own = f"; its own message: {outcome.message}" if outcome.message else ""
        message = f"a fault of a trial on {client.gpu} ended all that shared it through MPS{own}"
        return replace(outcome, state=TrialState.STOPPED, reason=Reason.GPU_FAULT, message=message)

    def _note(self, client: Client) -> None:
        """Hit all that were on a client's GPU together with it, if there were others."""
        now_s = time.monotonic()
        with self._lock:
            company = [
                it
                for it in self._clients
                if it.gpu == client.gpu and it is not client and _is_recent(it, now_s)
            ]
            present = [it for it in company if it.left_s is None]
            if present or client.left_s is None:
                self.closed.add(client.gpu)
            for it in (client, *present) if company else ():
                it.was_hit = True
        for it in present:
            _stop(it)


def _stop(client: Client) -> None:
    message = f"another trial's fault on {client.gpu} ended all that shared it through MPS"
    client.running.stop(StopReason.GPU_FAULT, message)


def _is_recent(client: Client, now_s: float) -> bool:
    return client.left_s is None or now_s - client.left_s < _TOGETHER_S
