"""A process that has imported what a notebook imports, and forks a kernel per trial.

Run by the kernel's own interpreter, so it knows the standard library and ipykernel only. One
thread, no sockets of zmq, no CUDA: whatever a fork could not carry over makes it refuse, and
kernels are started fresh.

    __main__.py SOCKET OWNER_FD REPORT_FD < modules, one a line

`libraries` imports, `server` forks, `forked` is what a fork becomes: a kernel; or, by `cells`,
another server, in whose process the leading cells of the notebook have run.
"""
