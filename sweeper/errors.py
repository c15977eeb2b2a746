"""Every error that sweeper raises to its user.

SweepError
├── SettingsError    a parameters file or a command-line value is wrong
├── NotebookError    the research notebook cannot be used
├── OutputError      the output template, its folder, or a file in the way
├── KernelError      the notebook's kernel is not installed
├── StudyError       the study's storage cannot be used, or belongs to somebody else
│   └── StorageAwayError    it does not answer now, and may do so later
├── TrackingError    the MLflow store or server cannot be used
├── SyncError        the remote copy cannot be used, or belongs to another machine
└── BrokenError      a sweep that had begun cannot go on; the only one after a kernel has started

All others are raised before any kernel starts. A trial that fails is not an error but an outcome
(`sweeper.trials.TrialOutcome`).
"""


class SweepError(Exception):
    """Base of all errors; its text is the one message that a user needs to read."""


class SettingsError(SweepError):
    """A parameters file or a command-line value is wrong."""


class NotebookError(SweepError):
    """The research notebook cannot be used: missing, not a notebook, no parameters cell."""


class OutputError(SweepError):
    """The output template is wrong, its folder is not writable, or a file is in the way."""


class KernelError(SweepError):
    """The kernel that the notebook asks for is not installed."""


class StudyError(SweepError):
    """The study's storage cannot be opened, or the study does not fit this call."""


class StorageAwayError(StudyError):
    """The study's storage does not answer, is locked or full; later it may do again."""


class TrackingError(SweepError):
    """The MLflow store or server cannot be reached or used."""


class SyncError(SweepError):
    """The remote copy cannot be reached or used, or another machine goes on from it."""


class BrokenError(SweepError):
    """A sweep that had begun cannot go on: its storage was lost under it."""


def first_line(error: BaseException) -> str:
    """An error in one line that is never empty: that of `MemoryError()` is its name."""
    return str(error).strip().partition("\n")[0].rstrip() or type(error).__name__


def root_of(error: BaseException) -> str:
    """What was wrong in the first place, in a line: libraries wrap it in general words."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)
