"""Start and end kernels' processes, with a pool that has the next kernel ready.

The folder `forking` forks kernels. The folder `cells` runs cells in them.
"""
