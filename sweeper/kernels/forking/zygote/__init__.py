"""A process that has imported what a notebook imports, and forks a kernel per trial.

The kernel's own interpreter runs it, so it imports the standard library and ipykernel only. One
thread, no sockets of zmq, no CUDA: where there is anything that a fork would not carry over, the
zygote reports this and kernels are started.

    __main__.py SOCKET OWNER_FD REPORT_FD < modules, one a line

`libraries` imports, `server` forks, `forked` is what a fork becomes: a kernel; or, by `cells`,
another server, in whose process the leading cells of the notebook have run.
"""
