"""The processors, memory and GPUs of a machine, which trials share. Only this folder uses NVML.

Other folders decide which trial runs next, and what its outcome means.
"""
