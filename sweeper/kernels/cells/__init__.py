"""Run the cells of one notebook in a running kernel, and read what the kernel sends.

The folders `process` and `forking` start, fork and end kernels.
"""
