"""Test that failures of GPUs and machines are recognised by the words of their messages."""

from __future__ import annotations

import pytest

from sweeper.machine.faults import Fault, fault_in

HPP = "/opt/conda/include/rmm/mr/device/cuda_memory_resource.hpp:60:"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        # torch
        ("GPU_MEMORY", "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0"),
        ("GPU_MEMORY", "AcceleratorError: CUDA error: out of memory"),
        ("GPU_MEMORY", "RuntimeError: HIP error: out of memory"),
        ("GPU_MEMORY", "RuntimeError: MPS backend out of memory (MPS allocated: 16.50 GB, other"),
        ("MAYBE_GPU_MEMORY", 'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10'),
        ("MAYBE_GPU_MEMORY", "RuntimeError: Unable to find a valid cuDNN algorithm to run conv"),
        ("MAYBE_GPU_MEMORY", "GET was unable to find an engine to execute this computation"),
        # JAX and XLA
        ("GPU_MEMORY", "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to"),
        ("GPU_MEMORY", "JaxRuntimeError: INTERNAL: CUDA error: : CUDA_ERROR_OUT_OF_MEMORY: out"),
        ("MAYBE_GPU_MEMORY", "FAILED_PRECONDITION: DNN library initialization failed. Look at"),
        ("MAYBE_GPU_MEMORY", "Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR"),
        (
            "GPU_MEMORY",
            "XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.0GiB",
        ),
        # TensorFlow
        ("GPU_MEMORY", "ResourceExhaustedError: {{function_node __wrapped__MatMul}} OOM when"),
        ("MAYBE_GPU_MEMORY", "InternalError: Failed copying: Dst tensor is not initialized."),
        ("HOST_MEMORY", "ResourceExhaustedError: OOM on /device:CPU:0 by allocator cpu [Op:Fill]"),
        # CuPy, NCCL
        ("GPU_MEMORY", "CUDARuntimeError: cudaErrorMemoryAllocation: out of memory"),
        (None, "OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit"),
        ("GPU_MEMORY", "DistBackendError: NCCL error\nLast error:\nCuda failure 2 'out of memory'"),
        # CatBoost, RMM
        ("GPU_MEMORY", "(NCudaLib::TOutOfMemoryError) pool.h:303: Error: Out of memory. Requested"),
        ("GPU_MEMORY", f"MemoryError: std::bad_alloc: out_of_memory: CUDA error at: {HPP}"),
        ("GPU_MEMORY", "MemoryError: std::bad_alloc: RMM failure at:pool.hpp:179: Maximum pool"),
        # CUDA's libraries
        ("GPU_MEMORY", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublas"),
        ("GPU_MEMORY", "CuFFTError: CUFFT_ALLOC_FAILED"),
        ("GPU_MEMORY", "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        ("MAYBE_GPU_MEMORY", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when"),
        # the driver
        ("DEVICE", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        ("DEVICE", "RuntimeError: CUDA error: uncorrectable NVLink error detected during the"),
        ("DEVICE", "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"),
        ("DEVICE", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
        ("DEVICE", "CUDA error: all CUDA-capable devices are busy or unavailable"),
        ("DEVICE", "cudaErrorDevicesUnavailable"),
        ("DEVICE", "cudaGetDeviceCount() failed. Error 802: system not yet initialized"),
        ("DEVICE", "Unable to determine the device handle for GPU0: GPU is lost.  Reboot"),
        ("CUDA", "RuntimeError: CUDA error: device-side assert triggered"),
        ("CUDA", "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered"),
        ("CUDA", "RuntimeError: CUDA error: unspecified launch failure"),
        # the machine
        ("HOST_MEMORY", "MemoryError: "),
        ("HOST_MEMORY", "_ArrayMemoryError: Unable to allocate 7.28 TiB for an array with shape"),
        ("HOST_MEMORY", "ArrowMemoryError: malloc of size 9 failed"),
        ("HOST_MEMORY", "OSError: [Errno 12] Cannot allocate memory"),
        ("HOST_MEMORY", "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried"),
        ("HOST_MEMORY", "java.lang.OutOfMemoryError: Java heap space"),
        ("HOST_MEMORY", "OutOfMemoryException: Out of Memory Error: failed to pin block of size"),
        ("HOST_MEMORY", "OutOfMemoryError: Task was killed due to the node running low on memory."),
        (
            "HOST_MEMORY",
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of shared memory. Please try to raise",
        ),
        ("HOST_MEMORY", "unable to allocate shared memory(shm) for file </torch_7>: No space left"),
        ("HOST_MEMORY", "unable to write to file </torch_7_8_0>: No space left on device (28)"),
        ("LOST_PROCESS", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. "),
        ("LOST_PROCESS", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated"),
        ("LOST_PROCESS", "RuntimeError: DataLoader worker (pid(s) 7, 8) exited unexpectedly"),
        ("LOST_PROCESS", "TerminatedWorkerError: A worker process managed by the executor was"),
        ("LOST_PROCESS", "BrokenProcessPool: A process in the process pool was terminated"),
        ("LOST_PROCESS", "ProcessExitedException: process 0 terminated with signal SIGKILL"),
        ("LOST_PROCESS", "CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>."),
        # no fault of GPU or machine, but of the notebook
        (None, "ValueError: the queue is out of memory slots"),
        (None, "ValueError: a MemoryErrorLike"),
        (
            None,
            "ClientError: 429 RESOURCE_EXHAUSTED. {'message': 'You exceeded your quota, room 1'}",
        ),
        (
            None,
            "status = StatusCode.RESOURCE_EXHAUSTED\n details = Received message larger than max",
        ),
        (None, "RuntimeError: all workers are busy or unavailable"),
        ("DISK", "OSError: [Errno 28] No space left on device"),
        ("DISK", "RuntimeError: [enforce fail at inline_container.cc:671] . unexpected pos 704 vs"),
        ("DISK", "OperationalError: database or disk is full"),
        ("HOST_MEMORY", "OSError: [Errno 28] No space left on device: '/dev/shm/joblib_7/1.pkl'"),
    ],
)
def test_faults_of_gpus_and_machines_are_recognised_by_their_messages(
    fault: str | None, message: str
) -> None:
    assert fault_in(f"In [4]: {message}") is (fault and Fault[fault])
