"""Every error that sweeper raises to its user.

SweepError
├── SettingsError    a parameters file or a command-line value is wrong
├── NotebookError    the research notebook cannot be used
├── OutputError      the output template or its folder is wrong, or a file is in the way
├── KernelError      the notebook's kernel is not installed, or its Python cannot run it
├── StudyError       the study's storage cannot be used, or belongs to another user
│   ├── NoStudyError        the storage has no study of this name
│   └── StorageAwayError    the storage is unavailable now, but may be available again later
├── TrackingError    the MLflow store or server cannot be used
├── SyncError        the remote copy cannot be used, or belongs to another machine
├── DataError        the trials' data cannot be fetched or pushed, or has changed
├── FailedRunError   the observed run (a notebook's run before its sweep) did not complete
├── StoppedError     the sweep was stopped before it had begun
└── BrokenError      a sweep that had begun cannot continue

Once a sweep has started a kernel, it raises only BrokenError. A trial that fails raises no error,
because its failure is an outcome (`sweeper.trials.TrialOutcome`).
"""

from collections.abc import Sequence

#: Number of problems that a message lists if there are too many to list all (chosen, not measured).
MOST_LINES = 20


class SweepError(Exception):
    """Base class of all errors. The text of an error is the whole message for the user."""


class SettingsError(SweepError):
    """A parameters file or a command-line value is wrong."""


class NotebookError(SweepError):
    """The research notebook cannot be used.

    For example, it is missing or lacks a swept variable.
    """


class OutputError(SweepError):
    """An output cannot be written.

    For example, its template is wrong, or another file has its path.
    """


class KernelError(SweepError):
    """The notebook's kernel is not installed, or its Python does not run or lacks ipykernel."""


class StudyError(SweepError):
    """A study cannot be used.

    For example, its storage cannot be opened, or it began with another search space.
    """


class NoStudyError(StudyError):
    """The storage has no study of this name."""


class StorageAwayError(StudyError):
    """The study's storage does not answer, is locked, or is full. It may work again later."""


class TrackingError(SweepError):
    """The MLflow store or server cannot be reached or used.

    Attributes:
        problem: Message without the remedy, for callers that state a remedy of their own.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem = problem


class SyncError(SweepError):
    """The remote copy cannot be reached or used, or another machine continues its study."""


class StoppedError(SweepError):
    """The sweep was stopped while it waited for its remote copy or for workers of a cluster."""


class DataError(SweepError):
    """The data of the trials cannot be fetched or pushed, or local files differ from the data."""


class FailedRunError(SweepError):
    """The observed run (a notebook's run before its sweep) did not complete."""


class BrokenError(SweepError):
    """A sweep that had begun cannot continue, because its storage or all its workers were lost."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class name if the message is empty."""
    line = str(error).strip().partition("\n")[0].rstrip()
    return shortened(line or type(error).__name__)


def listed(lines: Sequence[str]) -> str:
    """Join lines to one message. If there are too many, the last line states how many are left out.

    In that case, only the first `MOST_LINES` lines are in the message. `MOST_LINES` + 1 lines are
    not too many: the line "and 1 more" would need as much space as the line that it replaces.
    """
    left = len(lines) - MOST_LINES
    if left > 1:
        lines = [*lines[:MOST_LINES], f"and {left:,} more"]
    return "\n".join(lines)


def shortened(message: str, at_most: int = 2000) -> str:
    """Return a message, without its middle if it is long.

    Messages of some exceptions contain all the data that caused them.

    Args:
        message: Message to shorten.
        at_most: Largest number of characters of the message that are kept.
    """
    left_out = len(message) - at_most
    if left_out <= 0:
        return message
    half = at_most // 2
    return f"{message[:half]} … {left_out:,} characters … {message[-half:]}"


def root_cause(error: BaseException) -> str:
    """Return the first line of an error's innermost cause.

    Libraries wrap the cause in further errors, whose texts are too general to help.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)
