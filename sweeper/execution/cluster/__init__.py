"""Trials on the workers of a Dask cluster: what happens at home, on a worker, and between them.

The only owner of Dask; nothing imports this folder unless a cluster is asked for. Which trial runs
next does not belong here, nor how a notebook is run: `execution/worker.py` does that there, too.
"""
