"""Decide and check what a sweep will do, before a kernel starts or a file is written.

The folder `inputs` reads what a sweep uses of other studies.
"""
