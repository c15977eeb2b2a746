"""Choose which trial runs next, record its outcome, and judge trials while they run.

The folder `execution` runs trials. The folder above begins and ends a sweep.
"""
