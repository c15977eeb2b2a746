"""Whether and how a kernel is forked: policy, fork server, shared cells, and the zygote's code.

What runs in a kernel, in whatever way the kernel came to be, does not belong here.
"""
