"""A kernel's process: how it starts and ends, and the pool that has the next one ready.

What a fork server does belongs to `forking`; what cells do in a kernel, to `cells`.
"""
