"""Run trials on the workers of a Dask cluster. Only this folder uses Dask.

The sweep's machine is the machine on which the sweep's process runs. A worker runs a trial with
the code in `execution`, as a sweep without a cluster does.
"""
