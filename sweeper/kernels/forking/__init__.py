"""Fork kernels: the policy that allows it, the fork server, shared cells, and the zygote's code.

The folder `cells` runs cells in a kernel, whether it was forked or started.
"""
