"""Start and end the processes of kernels. A pool starts the next kernel before it is needed.

The folder `forking` forks kernels. The folder `cells` runs cells in kernels.
"""
