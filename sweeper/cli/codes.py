"""Exit codes of the command line."""

OK, NOTHING_COMPLETED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
#: A replay differs from its trial, or did not complete.
DIFFERENT = 1
#: `check` has found a fault.
FOUND_FAULTS = 1
#: The machine will be taken away from the sweep, as SIGTERM has announced.
PREEMPTED = 143
#: Exit codes after signals that end a sweep at once.
OF_SIGNALS = {"SIGTERM": PREEMPTED, "SIGHUP": 129}
