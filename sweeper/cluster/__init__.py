"""Trials on the workers of a Dask cluster. The only owner of Dask.

What a worker of the cluster does with a trial belongs to `execution`, as on one machine.
"""
