"""A machine as trials share it: its processors, memory and GPUs. The only owner of NVML.

Which trial runs, and what becomes of it, does not belong here.
"""
