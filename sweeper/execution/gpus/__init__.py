"""Which share of a GPU a trial gets: what GPUs there are, who holds them, and the policy.

Never initialises CUDA. What a kernel does with its GPU does not belong here.
"""

from .allocator import GpuAllocator, Lease, StoppedWaiting
from .policy import GpuPolicy, LeastLoaded

__all__ = ["GpuAllocator", "GpuPolicy", "Lease", "LeastLoaded", "StoppedWaiting"]
