"""Run the cells of one notebook in a running kernel, and read the messages of the kernel.

The folders `process` and `forking` start, fork and end kernels.
"""
