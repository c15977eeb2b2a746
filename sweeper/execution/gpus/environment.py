"""What all kernels of a sweep find in their environment, before they import anything."""

from __future__ import annotations

import os

#: Read by the libraries that compute when they are imported; the number of threads changes the
#: last bits of a result, so it is fixed for the whole study.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
#: Without these, JAX and TensorFlow take most of a GPU at once, whatever they need of it.
_TAKE_WHAT_IS_NEEDED = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}


def kernel_environment(threads: int, *, has_gpus: bool, is_hidden: bool) -> dict[str, str]:
    """The variables of all kernels.

    Args:
        threads: that each kernel computes with.
        has_gpus: whether trials use GPUs, of which each gets its own by its lease.
        is_hidden: whether kernels must not see any other.
    """
    return {
        **{name: str(threads) for name in _THREAD_VARIABLES},
        "PYTHONHASHSEED": "0",
        # cuBLAS is deterministic only with a workspace of fixed size.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        **({k: os.environ.get(k, v) for k, v in _TAKE_WHAT_IS_NEEDED.items() if has_gpus}),
        # Until a trial's lease says otherwise: nothing may take a GPU before.
        **({"CUDA_VISIBLE_DEVICES": ""} if has_gpus or is_hidden else {}),
    }
