"""When a sweep ends because no trial could do better than its first ones."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from sweeper.sweep.scheduling.futility import ENOUGH, FirstFailures
from sweeper.trials import Reason, TrialRecord, TrialState

MISSING = "ModuleNotFoundError: No module named 'timmm'"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def failed(
    number: int, *cells: str, message: str = MISSING, reason: Reason = Reason.CELL_ERROR
) -> TrialRecord:
    """A trial that failed in the last of these cells."""
    v4 = nbformat.v4
    node = v4.new_notebook()
    for tag, source in (("parameters", "lr = 0.5"), ("injected-parameters", f"lr = {number}")):
        node.cells.append(v4.new_code_cell(source, metadata={"tags": [tag]}))
    node.cells.append(v4.new_markdown_cell("lr is swept"))
    node.cells += [v4.new_code_cell(source) for source in cells]
    node.cells[-1].metadata["papermill"] = {"status": "failed"}
    node.cells.append(v4.new_code_cell("val = lr"))
    notebook = Path(f"{number:04d}.ipynb")
    notebook.write_text(nbformat.writes(node))
    return TrialRecord(
        number=number,
        state=TrialState.FAILED,
        params={"lr": float(number)},
        seed=number,
        attempt=1,
        notebook=notebook,
        reason=reason,
        message=message,
    )


def ended(number: int, state: TrialState) -> TrialRecord:
    return TrialRecord(
        number=number, state=state, params={}, seed=0, attempt=1, notebook=Path("none.ipynb")
    )


def watched(*records: TrialRecord, earlier: tuple[TrialRecord, ...] = ()) -> list[str | None]:
    first = FirstFailures({"lr", "seed"}, earlier)
    return [first.note(record) for record in records]


def test_three_failures_alike_before_any_parameter_are_enough() -> None:
    reasons = watched(*(failed(n, "import os", "import timmm") for n in range(ENOUGH)))
    assert reasons[:-1] == [None] * (ENOUGH - 1)
    assert reasons[-1] == (
        "the same error in code cell 3 of the first 3 trials, which no parameter reaches"
    )


@pytest.mark.parametrize("reason", ["out_of_memory", "out_of_host_memory"])
def test_memory_that_no_parameter_asks_for_is_an_error_like_any_other(reason: str) -> None:
    cells, message = ("data = load()",), "does not fit into memory: MemoryError"
    short = Reason(reason)
    assert watched(*(failed(n, *cells, message=message, reason=short) for n in range(ENOUGH)))[-1]
    cells = ("data = load(lr)",)
    reasons = watched(*(failed(n, *cells, message=message, reason=short) for n in range(ENOUGH)))
    assert reasons == [None] * ENOUGH


@pytest.mark.parametrize(
    "cell",
    [
        "import re\nword = re.compile('x')  # run it, locals and all",
        "import sweeper\nsweeper.seed_everything(sweeper.trial().seed)",
        "params = dict(model.parameters())\nmodel.eval()",
    ],
)
def test_what_many_notebooks_do_first_is_no_way_to_a_parameter(cell: str) -> None:
    first = FirstFailures({"lr"}, ())
    reasons = [first.note(failed(n, cell, "import timmm")) for n in range(ENOUGH)]
    assert reasons[-1] is not None


def test_trials_that_were_stopped_say_nothing_either_way() -> None:
    records = [failed(n, "import timmm") for n in range(ENOUGH)]
    assert watched(records[0], ended(7, TrialState.STOPPED), *records[1:])[-1] is not None


@pytest.mark.parametrize(
    "cells",
    [
        ("train(lr)",),
        ("model = make(lr)", "import timmm"),
        ("# lr is used below", "import timmm"),
        ("data = load(f'{lr}')", "import timmm"),
        ("setup(**globals())", "import timmm"),
        ("%run setup.ipynb", "import timmm"),
        ("import sweeper\np = sweeper.trial().params", "import timmm"),
        ("rng = make(seed)", "import timmm"),
        ("import __main__", "import timmm"),
        ("exec(code)", "import timmm"),
    ],
)
def test_a_cell_that_a_parameter_may_reach_ends_nothing(cells: tuple[str, ...]) -> None:
    assert watched(*(failed(n, *cells) for n in range(6))) == [None] * 6


def test_errors_that_differ_end_nothing() -> None:
    records = [failed(n, "import timmm", message=f"{MISSING} {n % 2}") for n in range(6)]
    assert watched(*records) == [None] * 6


def test_failures_in_different_cells_end_nothing() -> None:
    records = [failed(n, *["import os"] * (n % 2), "import timmm") for n in range(6)]
    assert watched(*records) == [None] * 6


def test_a_kernel_that_dies_ends_nothing() -> None:
    records = [failed(n, "import timmm", reason=Reason.KERNEL_DIED) for n in range(6)]
    assert watched(*records) == [None] * 6


@pytest.mark.parametrize("state", [TrialState.COMPLETED, TrialState.PRUNED])
def test_one_trial_that_came_further_is_hope_for_all(state: TrialState) -> None:
    records = [failed(n, "import timmm") for n in range(6)]
    assert watched(ended(9, state), *records) == [None] * 7


def test_a_study_that_has_completed_trials_goes_on() -> None:
    records = [failed(n, "import timmm") for n in range(6)]
    completed = ended(9, TrialState.COMPLETED)
    assert watched(*records, earlier=(completed,)) == [None] * 6
    assert watched(*records, earlier=(failed(9, "import timmm"),))[ENOUGH - 1] is not None
