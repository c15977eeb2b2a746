"""A process that has imported what a notebook imports, and forks a kernel per trial.

The kernel's own interpreter runs it, so it imports the standard library and ipykernel only. One
thread, no sockets of zmq, no CUDA: where there is anything that a fork would not carry over, the
zygote reports this and kernels are started.

    __main__.py PATH OWNER_FD

At PATH requests for forks come in. On the socket OWNER_FD comes first what to import, and a report
goes out; its end ends the zygote.

`libraries` imports, `server` forks, `forked` is what a fork becomes: a kernel; or, by `cells`,
another server, in whose process the leading cells of the notebook have run.
"""
