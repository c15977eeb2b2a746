"""Which trials a fault of a GPU under MPS has hit, and what becomes of them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from sweeper.execution.gpus.faults import Client, GpuFaults, is_fault
from sweeper.notebook_api.messages import StopReason
from sweeper.sweep.scheduling.gpu_needs import GpuNeeds
from sweeper.testing import trial_spec
from sweeper.trials import GpuNeed, Reason, RunningTrial, TrialOutcome, TrialState

ASSERT = "RuntimeError: CUDA error: device-side assert triggered"


def failed(message: str, reason: Reason = Reason.CELL_ERROR) -> TrialOutcome:
    return TrialOutcome(state=TrialState.FAILED, reason=reason, message=message)


def no_fault() -> bool:
    return False


class Gpu:
    """A GPU with some trials on it, each of which can leave."""

    def __init__(self, n_trials: int) -> None:
        self.faults = GpuFaults()
        self._kernels = [ExitStack() for _ in range(n_trials)]
        self.clients = [self.enter(kernel) for kernel in self._kernels]

    def enter(self, kernel: ExitStack, gpu: str = "GPU-a") -> Client:
        return kernel.enter_context(self.faults.client(gpu, RunningTrial()))

    def leave(self, number: int) -> None:
        self._kernels[number].close()

    def settle(
        self, number: int, outcome: TrialOutcome, *, server_has_fault: bool = False
    ) -> TrialOutcome:
        return self.faults.settle(self.clients[number], outcome, lambda: server_has_fault)


@pytest.mark.parametrize(
    "text",
    [
        ASSERT,
        "AcceleratorError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: unspecified launch failure",
        "XlaRuntimeError: INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access",
        "InternalError: failed call to cuCtxSynchronize: CUDA_ERROR_LAUNCH_FAILED",
        "CUDARuntimeError: cudaErrorAssert: device-side assert triggered",
        "CUDA error: the MPS client has been terminated by the server",
        "CUDA error: MPS server is not ready to accept new MPS client requests",
        "CudaAPIError: [700] Call to cuMemcpyDtoH results in CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA error 719",
        "CUDA runtime error code=710(cudaErrorAssert)",
        "CUDA error: misaligned address",
    ],
)
def test_errors_that_end_a_context_are_recognised(text: str) -> None:
    assert is_fault(text)


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 700 MiB",
        "RuntimeError: CUDA error: out of memory",
        "ValueError: 719 is not a size",
        "IndexError: Target 10 is out of bounds.",
        "RuntimeError: MPS backend out of memory",  # Apple's
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess",
    ],
)
def test_other_errors_are_not(text: str) -> None:
    assert not is_fault(text)


def test_all_that_share_a_gpu_with_a_fault_are_stopped_and_run_again() -> None:
    gpu = Gpu(3)
    other = gpu.enter(ExitStack(), gpu="GPU-b")
    outcome = gpu.settle(1, failed(ASSERT))
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, Reason.GPU_FAULT)
    assert ASSERT in outcome.message
    stops = [client.running.stop_reason for client in gpu.clients]
    assert stops == [StopReason.GPU_FAULT, None, StopReason.GPU_FAULT]
    assert other.running.stop_reason is None


def test_a_neighbour_that_fails_in_other_words_is_hit_as_well() -> None:
    gpu = Gpu(2)
    gpu.settle(0, failed(ASSERT))
    outcome = gpu.settle(1, failed("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"))
    assert outcome.reason is Reason.GPU_FAULT


def test_a_neighbour_that_catches_the_error_and_completes_is_run_again() -> None:
    gpu = Gpu(2)
    gpu.settle(0, failed(ASSERT))
    outcome = gpu.settle(1, TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.0}))
    assert (outcome.state, outcome.reason) == (TrialState.STOPPED, Reason.GPU_FAULT)


@pytest.mark.parametrize("reason", [Reason.BY_HAND, Reason.PRUNED, Reason.INTERRUPTED])
def test_a_neighbour_that_was_stopped_for_another_reason_stays_as_it_is(reason: Reason) -> None:
    gpu = Gpu(2)
    gpu.settle(0, failed(ASSERT))
    state = TrialState.PRUNED if reason is Reason.PRUNED else TrialState.STOPPED
    outcome = TrialOutcome(state=state, reason=reason)
    assert gpu.settle(1, outcome) == outcome


def test_the_server_knows_of_a_fault_that_the_text_does_not_name() -> None:
    gpu = Gpu(2)
    message = "the kernel died: killed by signal 6"
    outcome = gpu.settle(0, failed(message, Reason.KERNEL_DIED), server_has_fault=True)
    assert outcome.reason is Reason.GPU_FAULT
    assert gpu.clients[1].was_hit


def test_out_of_memory_hits_nobody_else() -> None:
    gpu = Gpu(2)
    outcome = failed("CUDA out of memory", Reason.OUT_OF_MEMORY)
    assert gpu.settle(0, outcome, server_has_fault=True) == outcome
    assert gpu.clients[1].running.stop_reason is None
    assert gpu.faults.closed == set()


def test_a_trial_without_company_has_its_own_fault() -> None:
    gpu = Gpu(1)
    assert gpu.settle(0, failed(ASSERT)) == failed(ASSERT)


def test_a_trial_whose_neighbour_has_just_gone_may_have_been_hit_by_it() -> None:
    gpu = Gpu(2)
    gpu.leave(1)
    assert gpu.settle(0, failed(ASSERT)).reason is Reason.GPU_FAULT


def test_a_gpu_takes_no_trial_until_all_have_ended_that_a_fault_has_hit() -> None:
    gpu = Gpu(3)
    gpu.settle(0, failed(ASSERT))
    for number in range(3):
        assert gpu.faults.closed == {"GPU-a"}
        gpu.leave(number)
    assert gpu.faults.closed == set()
    assert gpu.enter(ExitStack()).running.stop_reason is None


def test_a_trial_that_got_its_share_just_before_the_fault_is_stopped() -> None:
    gpu = Gpu(2)
    gpu.settle(0, failed(ASSERT))
    late = gpu.enter(ExitStack())
    assert late.running.stop_reason is StopReason.GPU_FAULT


def test_a_trial_that_was_there_in_two_faults_is_run_alone_and_only_then_fails() -> None:
    needs, spec = GpuNeeds(None), trial_spec(number=3)
    hit = TrialOutcome(state=TrialState.STOPPED, reason=Reason.GPU_FAULT)
    assert needs.run_again(spec, hit) == "beside others"
    again = needs.run_again(spec, hit)
    assert again is not None
    assert "alone on its GPU and without MPS" in again
    alone = trial_spec(number=3, gpu_need=GpuNeed(is_alone=True))
    assert needs.run_again(alone, failed(ASSERT)) is None
    assert needs.run_again(trial_spec(number=4), hit) == "beside others"
