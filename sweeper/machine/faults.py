"""Classify failures by the words that libraries and drivers use in their messages."""

from __future__ import annotations

import re
from enum import Enum, auto


class Fault(Enum):
    """Kinds of failures that the machine or another trial may have caused."""

    DEVICE = auto()  # The GPU has to be reset or replaced, or another program occupies it.
    GPU_MEMORY = auto()  # The memory of the GPU was too small.
    # The memory of the GPU was too small if other processes used it at the same time. Otherwise,
    # the notebook has an error.
    MAYBE_GPU_MEMORY = auto()
    HOST_MEMORY = auto()  # The memory of the machine was too small.
    DISK = auto()  # A disk is full or cannot be written, which may be temporary.
    LOST_PROCESS = auto()  # A process that the notebook had started was killed.
    CUDA = auto()  # CUDA reports an error of the notebook, or under MPS perhaps of another trial.


#: Regular expressions for the messages of each fault. The first row that matches decides.
_WORDS = [
    (
        Fault.DEVICE,
        r"uncorrectable (ECC|NVLink)|(ECC|NVLINK)_?UNCORRECTABLE|fallen off the bus|GPU is lost"
        r"|GPU requires reset|cudaErrorContained|CUDA_ERROR_CONTAINED|access of peer GPU memory"
        r"|CUDA-capable devices?(\(s\))? (is/)?are busy or unavailable"
        r"|system not yet initialized|DEVICES?_?UNAVAILABLE",
    ),
    # Messages of Spark, DuckDB, Ray, and of TensorFlow on a CPU.
    (
        Fault.HOST_MEMORY,
        r"java\.lang\.OutOfMemoryError|OutOfMemoryException|running low on memory"
        r"|device:CPU:\d+ by allocator",
    ),
    # Messages of torch, NCCL, Triton, Numba, LightGBM, CuPy, XGBoost, RMM, JAX, TensorFlow, and
    # CUDA's own libraries. RESOURCE_EXHAUSTED alone is not enough, because web services report it
    # when a quota is used up.
    (
        Fault.GPU_MEMORY,
        r"OutOfMemoryError|(cuda|hip|MPS backend)[^\n]{0,80}out[ _]of[ _]memory"
        r"|cudaErrorMemoryAllocation"
        r"|std::bad_alloc: (out_of_memory|CUDA error|RMM failure)"
        r"|RESOURCE_EXHAUSTED[^\n]{0,200}(memory|alloc|\bOOM\b)|ResourceExhaustedError"
        r"|\bCU[A-Z]+(_[A-Z]+)*_ALLOC(ATION)?_FAILED",
    ),
    # Messages of cuBLAS, cuDNN, XLA, TensorFlow and torch if their workspace does not fit into
    # memory.
    (
        Fault.MAYBE_GPU_MEMORY,
        r"CU[A-Z]+_STATUS_NOT_INITIALIZED|CUDNN_STATUS_INTERNAL_ERROR|NVML_SUCCESS =="
        r"|DNN library initialization failed|Dst tensor is not initialized"
        r"|Unable to find a(n engine| valid cuDNN algorithm)",
    ),
    # Messages of Python, numpy, pyarrow, the system, C++ and torch. The last ones are those of
    # torch, its data loaders and Python if /dev/shm is full.
    (
        Fault.HOST_MEMORY,
        r"\b(_Array|Arrow)?MemoryError\b|Cannot allocate memory|std::bad_alloc"
        r"|DefaultCPUAllocator: (can't allocate|not enough) memory|out of shared memory"
        r"|unable to (allocate shared memory|write to file </torch_)"
        r"|No space left on device: '/dev/shm/",
    ),
    # Messages of the system, SQLite and torch.
    (
        Fault.DISK,
        r"No space left on device|Disk quota exceeded|database or disk is full"
        r"|PytorchStreamWriter failed writing|inline_container\.cc:\d+\] \. unexpected pos",
    ),
    # Messages of torch, joblib, Python and Dask.
    (
        Fault.LOST_PROCESS,
        r"killed by signal: (Killed|Terminated)|DataLoader worker .* exited unexpectedly"
        r"|TerminatedWorkerError|BrokenProcessPool"
        r"|(Signals\.|with signal )SIG(KILL|TERM)|KilledWorker",
    ),
    (
        Fault.CUDA,
        r"cuda|\bMPS\b|illegal memory access|device-side assert|launch failure|misaligned address",
    ),
]


def fault_in(message: str) -> Fault | None:
    """Return the fault that a failure's message reports, or None if it reports no known fault."""
    for fault, words in _WORDS:
        if re.search(words, message, re.IGNORECASE):
            return fault
    return None
