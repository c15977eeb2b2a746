"""Exit codes of the command line."""

OK, NOTHING_COMPLETED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
#: A replay differs from its trial, or did not complete.
DIFFERENT = 1
#: `check` has found a fault.
FOUND_FAULTS = 1
#: The machine is taken away from the sweep, which is announced by SIGTERM.
PREEMPTED = 143
#: Exit codes after signals that end a sweep at once.
OF_SIGNALS = {"SIGTERM": PREEMPTED, "SIGHUP": 129}
