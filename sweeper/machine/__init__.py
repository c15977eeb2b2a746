"""The processors, memory and GPUs of a machine that trials share. Only this folder uses NVML.

Other folders decide which trial runs, and what its outcome means.
"""
