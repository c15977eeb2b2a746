"""The zygote: a process that has imported what a notebook imports, and forks a kernel per trial.

The interpreter of the kernels runs it, so it imports only the standard library and ipykernel. It
has one thread, no sockets of zmq and no CUDA. If it has anything that a fork would not have, it
reports this, and kernels are started instead.

    __main__.py PATH OWNER_FD

PATH is the socket for requests to fork. On the socket OWNER_FD, the zygote first receives what to
import, then sends a report. It ends when that socket closes.

The module `libraries` imports, `server` forks, and `forked` turns a fork into a kernel. With
`cells`, a fork runs the leading cells of the notebook and becomes another server.
"""
