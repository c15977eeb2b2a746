"""What a machine has for trials: cores, memory, shared memory, and who gets how much of them.

GPUs do not belong here.
"""
