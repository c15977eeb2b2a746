"""The outcome of a trial follows from the end of its execution and its scores."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from studies import small_settings

from sweeper.execution.verdict import full_again, judge
from sweeper.kernels import CellFailed, Finished, KernelDied, KernelResult, Raised, Stopped
from sweeper.kernels.cells.expressions import Answer
from sweeper.notebook_api.messages import Point, PointSource
from sweeper.notebooks.executed import ExecutedNotebook
from sweeper.settings.sections import ScoreSource
from sweeper.testing import trial_spec
from sweeper.trials import Reason, RunningTrial, TrialOutcome, TrialState

SETTINGS = small_settings("judged")
LOST_WORKER = "In [4]: RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."


def failed_with(error: str) -> KernelResult:
    raised = Raised(cell=4, exception="RuntimeError")
    return KernelResult(ending=CellFailed(raised, error))


def judged(result: KernelResult, *, was_short: bool = False) -> TrialOutcome:
    file = ExecutedNotebook(new_notebook(), trial_spec())
    return judge(file, result, RunningTrial(), SETTINGS, was_short=was_short)


def test_a_printed_text_that_is_not_a_number_fails_the_trial_and_is_quoted() -> None:
    (name,) = SETTINGS.objective
    settings = SETTINGS.model_copy(update={"scores": {name: ScoreSource(pattern="=(.*)")}})
    file = ExecutedNotebook(new_notebook(), trial_spec())
    file.points.record(Point(step=0, metrics={name: 0.5}, source=PointSource.PRINTED))
    file.points.record(
        Point(step=1, metrics={}, source=PointSource.PRINTED, unread={name: "1,5 of 3"})
    )
    outcome = judge(file, KernelResult(ending=Finished()), RunningTrial(), settings)
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason.NO_SCORE)
    assert name in outcome.message and "1,5 of 3" in outcome.message


def test_the_message_of_a_score_that_cannot_be_read_has_the_error_of_its_expression() -> None:
    (name,) = SETTINGS.objective
    settings = SETTINGS.model_copy(
        update={"scores": {name: ScoreSource(expression="history['val'].iloc[-1]")}}
    )
    file = ExecutedNotebook(new_notebook(), trial_spec())
    answer = Answer(unread={"history['val'].iloc[-1]": "KeyError: 'val'"})
    result = KernelResult(ending=Finished(), answer=answer)
    outcome = judge(file, result, RunningTrial(), settings)
    assert outcome.reason is Reason.NO_SCORE
    assert "history['val'].iloc[-1]" in outcome.message and "KeyError: 'val'" in outcome.message


@pytest.mark.parametrize(("ending", "n_found"), [(Finished(), 1), (Stopped(), 0)])
def test_two_sources_of_a_score_are_compared_only_after_the_notebook_has_completed(
    ending: Finished | Stopped, n_found: int
) -> None:
    """The notebook of a pruned trial may have logged a value that it has not yet printed."""
    (name,) = SETTINGS.objective
    settings = SETTINGS.model_copy(update={"scores": {name: ScoreSource(pattern="=(.*)")}})
    file = ExecutedNotebook(new_notebook(), trial_spec())
    for source, value in ((PointSource.PRINTED, 0.5), (PointSource.OBSERVED, 0.9)):
        file.points.record(Point(step=0, metrics={name: value}, source=source))
    outcome = judge(file, KernelResult(ending=ending), RunningTrial(), settings)
    assert outcome.scores[name] == 0.5 and len(outcome.disagreements) == n_found


@pytest.mark.parametrize(("printed", "is_before"), [("r=-0.5", False), ("n=3", True)])
def test_the_tag_skip_is_advised_only_if_the_score_had_a_value_before_the_failing_cell(
    printed: str, is_before: bool
) -> None:
    (name,) = SETTINGS.objective
    settings = SETTINGS.model_copy(update={"scores": {name: ScoreSource(pattern=r"r=([\d.]+)")}})
    outputs = [
        new_output("stream", text=printed),
        new_output("error", ename="RuntimeError", evalue="lost"),
    ]
    cells = [new_code_cell("show()", outputs=outputs)]
    file = ExecutedNotebook(new_notebook(cells=cells), trial_spec())
    file.points.record(Point(step=0, metrics={name: -0.5}, source=PointSource.PRINTED))
    outcome = judge(file, failed_with("RuntimeError: lost"), RunningTrial(), settings)
    assert ("had a value before this cell" in outcome.message) is is_before


@pytest.mark.parametrize("has_widgets", [False, True])
def test_the_message_of_a_pattern_without_a_match_says_that_widgets_are_not_read(
    has_widgets: bool,
) -> None:
    (name,) = SETTINGS.objective
    settings = SETTINGS.model_copy(update={"scores": {name: ScoreSource(pattern="val=(.*)")}})
    file = ExecutedNotebook(new_notebook(), trial_spec())
    if has_widgets:
        file.node.metadata["widgets"] = {}
    outcome = judge(file, KernelResult(ending=Finished()), RunningTrial(), settings)
    assert outcome.reason is Reason.NO_SCORE and "val=(.*)" in outcome.message
    assert ("`from tqdm import tqdm`" in outcome.message) is has_widgets


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate", "out_of_memory"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED", "out_of_memory"),
        ("MemoryError: ", "out_of_host_memory"),
        ("RuntimeError: CUDA error: device-side assert triggered", "cell_error"),
    ],
)
def test_lack_of_memory_is_reported_as_such_and_not_as_a_cell_error(
    error: str, reason: str
) -> None:
    outcome = judged(failed_with(f"In [4]: {error}"))
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason(reason))
    assert outcome.message == f"In [4]: {error}"


def test_a_trial_fails_for_a_full_disk_only_if_its_earlier_attempt_was_stopped_for_that_too(
    tmp_path: Path,
) -> None:
    found = judged(failed_with("In [4]: OSError: [Errno 28] No space left on device: '/scratch/x'"))
    assert (found.state, found.reason) == (TrialState.STOPPED, Reason.FILE)
    assert full_again(found, trial_spec()) == found
    earlier = ExecutedNotebook(new_notebook(), trial_spec(notebook=tmp_path / "0.ipynb"))
    again = trial_spec(continues=earlier.path)
    for before, state in ((Reason.INTERRUPTED, "stopped"), (Reason.FILE, "failed")):
        earlier.finish(TrialOutcome(state=TrialState.STOPPED, reason=before))
        earlier.write()
        assert full_again(found, again).state == state
    assert "/scratch/x" in full_again(found, again).message


def test_a_kernel_aborted_by_a_library_fails_for_the_reason_that_the_library_printed() -> None:
    """CatBoost aborts its process (SIGABRT) if a GPU has no memory left."""
    said = "uncaught exception:\n    type -> NCudaLib::TOutOfMemoryError"
    for exit_code, reason in ((-6, Reason.OUT_OF_MEMORY), (-11, Reason.KERNEL_DIED)):
        result = KernelResult(ending=KernelDied(), exit_code=exit_code, stderr_tail=said)
        assert judged(result).reason is reason


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (KernelResult(ending=KernelDied(), exit_code=-9), "out_of_host_memory"),
        (KernelResult(ending=KernelDied(), exit_code=-11), "kernel_died"),
        (KernelResult(ending=KernelDied(), exit_code=None), "kernel_died"),
        # The process from which the kernel was forked (zygote) was killed, not the kernel alone.
        (KernelResult(ending=KernelDied(), exit_code=-9, is_orphan=True), "kernel_died"),
        (failed_with(LOST_WORKER), "out_of_host_memory"),
        (failed_with("In [4]: KeyError: 'x'"), "cell_error"),
    ],
)
def test_a_killed_process_counts_as_out_of_memory_only_if_the_system_ran_short_of_memory(
    result: KernelResult, reason: str
) -> None:
    assert judged(result, was_short=True).reason == Reason(reason)
    assert judged(result).reason in (Reason.KERNEL_DIED, Reason.CELL_ERROR)


def test_a_lost_data_loader_worker_lacked_shared_memory_if_an_earlier_exception_says_so() -> None:
    before = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is "
    before += "possible that dataloader's workers are out of shared memory. Please try to raise"
    lost = "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly"
    raised = new_output("error", ename="RuntimeError", evalue="", traceback=[before, lost])
    node = new_notebook(cells=[new_code_cell(outputs=[raised])])
    file = ExecutedNotebook(node, trial_spec())
    result = failed_with(f"In [4]: {lost}")
    assert judge(file, result, RunningTrial(), SETTINGS).reason is Reason.OUT_OF_HOST_MEMORY


@pytest.mark.parametrize(
    ("report", "reason", "message"),
    [
        ({"vall": 1.0}, "no_score", "the notebook completed without a value of val (found: vall)"),
        ({"val": float("nan")}, "not_finite", "val is nan"),
        ({"val": float("inf")}, "not_finite", "val is inf"),
    ],
)
def test_a_notebook_that_ends_without_a_finite_score_has_failed(
    report: dict[str, float], reason: str, message: str
) -> None:
    file = ExecutedNotebook(new_notebook(), trial_spec())
    file.points.record(Point(metrics=report, step=0))
    outcome = judge(file, KernelResult(ending=Finished()), RunningTrial(), SETTINGS)
    assert (outcome.state, outcome.reason) == (TrialState.FAILED, Reason(reason))
    assert outcome.message.startswith(message)


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [(-9, "signal 9, often because memory ran out"), (-11, "signal 11"), (3, "exit code 3")],
)
def test_the_message_of_a_crash_names_its_signal(exit_code: int, words: str) -> None:
    assert words in judged(KernelResult(ending=KernelDied(), exit_code=exit_code)).message


@pytest.mark.parametrize(
    ("language", "words"),
    [("python", "or assign a number to val"), ("R", "; print it, and name a pattern under scores")],
)
def test_the_remedy_for_a_missing_score_suits_the_language_of_the_kernel(
    language: str, words: str
) -> None:
    node = new_notebook(metadata={"language_info": {"name": language}})
    file = ExecutedNotebook(node, trial_spec())
    outcome = judge(file, KernelResult(ending=Finished()), RunningTrial(), SETTINGS)
    assert outcome.message.endswith(words)
