"""Which share of a GPU a trial gets: what GPUs there are, what trials take of them, the policy.

Never initialises CUDA. What a kernel does with its GPU does not belong here.
"""

from .allocator import GpuAllocator
from .driver import CONTEXT_BYTES, Gpu, GpuDriver
from .mps import Mps, MpsUse
from .policy import FewestTrials, GpuPolicy
from .shares import Lease

__all__ = [
    "CONTEXT_BYTES",
    "FewestTrials",
    "Gpu",
    "GpuAllocator",
    "GpuDriver",
    "GpuPolicy",
    "Lease",
    "Mps",
    "MpsUse",
]
