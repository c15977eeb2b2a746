"""Exit codes of the command line."""

OK, NOTHING_COMPLETED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
#: Exit code of `replay` if a repeated trial differs from the original, or did not complete.
DIFFERENT = 1
#: Exit code of `check` if it has found a fault.
FOUND_FAULTS = 1
#: Exit code after SIGTERM, which announces that the machine will be taken away from the sweep.
PREEMPTED = 143
#: Exit codes after signals that end a sweep at once.
OF_SIGNALS = {"SIGTERM": PREEMPTED, "SIGHUP": 129}
