"""What the process says when it ends."""

OK, NOTHING_COMPLETED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
#: The machine is taken away, said by a signal or otherwise.
PREEMPTED = 143
#: Signals that end a sweep at once.
OF_SIGNALS = {"SIGTERM": PREEMPTED, "SIGHUP": 129}
