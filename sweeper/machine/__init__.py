"""The processors, memory and GPUs of a machine, which trials share.

Only this folder uses NVML, NVIDIA's management library. Other folders decide which trial runs next.
"""
