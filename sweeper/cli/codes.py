"""What the process says when it ends."""

OK, NOTHING_COMPLETED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
#: Signals that end a sweep at once.
OF_SIGNALS = {"SIGTERM": 143, "SIGHUP": 129}
