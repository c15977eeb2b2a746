"""The zygote: a process that has imported what a notebook imports, and forks a kernel per trial.

The interpreter of the kernels runs this package. So its modules import only the standard library
and ipykernel. The zygote has one thread, no zmq sockets and no CUDA. If it has anything that a fork
would lack, such as a second thread, it reports this, and kernels are started instead.

    __main__.py PATH OWNER_FD

PATH is the socket for requests to fork. On the socket with the file descriptor OWNER_FD, the zygote
first receives the names of the modules to import, and then sends a report. The zygote ends when
this socket closes.

The module `libraries` imports the modules, `server` forks, and `forked` turns a fork into a kernel.
With the module `cells`, a fork runs the shared cells, and then forks kernels itself.
"""
