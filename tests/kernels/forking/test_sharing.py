"""Cells tagged `shared` run once for all trials. Kernels that are forked later have their state.

`tests/journeys/test_corpus.py` tests what the executed notebooks then contain.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from kernels_alone import kernel_pool, run_alone, share_cells
from studies import until

from sweeper.kernels import Finished, KernelPool, KernelResult
from sweeper.notebook_api.messages import Point
from sweeper.testing import write_notebook
from sweeper.trials import Params, RunningTrial

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelPool]:
    """A pool whose kernels are forked without a comparison with fresh ones."""
    folder = tmp_path_factory.mktemp("forking")
    with kernel_pool(folder, imports="import random, numpy") as pool:
        yield pool


def run_shared(
    pool: KernelPool,
    *cells: str,
    shared: int,
    fixed: Params | None = None,
    variables: Sequence[str] = ("n0",),
) -> list[KernelResult]:
    """Run the first `shared` cells of a notebook once, then the notebook twice with x = 2.

    Args:
        shared: Number of cells, from the first one, that get the tag `shared`.
        fixed: Values of parameters in the shared cells and in both runs.
        variables: Variables to read after each run.
    """
    source = write_notebook(
        pool.setup.cwd / "nb.ipynb", *cells, parameters="x = 1\nseed = 0\nrows = 4", shared=shared
    )
    share_cells(source, pool, fixed=fixed)
    own: Params = {"x": 2.0}
    return [run_alone(source, pool, own=own, fixed=fixed, variables=variables)[1] for _ in range(2)]


def test_a_random_generator_used_by_cells_that_run_once_continues_equally_in_all_trials(
    pool: KernelPool,
) -> None:
    results = run_shared(
        pool,
        "import random\nimport numpy as np",
        "random.seed(7)",
        "noise = random.random()",
        "n0 = x\nseeded, drawn = random.random(), np.random.rand()",
        shared=3,
        variables=["seeded", "drawn"],
    )
    assert [result.shared_cells for result in results] == [3, 3]
    first, second = (result.answer.floats for result in results)
    generator = random.Random(7)
    generator.random()
    assert first["seeded"] == second["seeded"] == generator.random()
    assert first["drawn"] == second["drawn"] == np.random.RandomState(0).rand()


def test_a_file_opened_by_a_cell_that_runs_once_has_the_same_position_in_each_trial(
    pool: KernelPool,
) -> None:
    (pool.setup.cwd / "data.txt").write_text("0\n1\n2\n3\n")
    results = run_shared(
        pool, "file = open('data.txt')\nfile.readline()", "n0 = x * int(file.readline())", shared=1
    )
    assert [result.shared_cells for result in results] == [1, 1]
    assert [result.answer.floats["n0"] for result in results] == [2.0, 2.0]


def test_cells_that_run_once_for_all_trials_have_the_values_of_fixed_parameters(
    pool: KernelPool,
) -> None:
    results = run_shared(
        pool,
        "import random\nrandom.seed(seed)\nvalues = [random.random() for _ in range(rows)]",
        "n0 = sum(values) + x",
        shared=1,
        fixed={"seed": 3, "rows": 2},
    )
    drawn = random.Random(3)
    total = drawn.random() + drawn.random()
    assert [result.shared_cells for result in results] == [1, 1]
    assert [result.answer.floats["n0"] for result in results] == [total + 2.0] * 2


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (
            "import threading\nwait = threading.Event().wait\n"
            "threading.Thread(target=wait, name='loader', daemon=True).start()",
            "code cell 3 leaves threads: loader",
        ),
        (
            "import os\nif 'zygote' in open(f'/proc/{os.getppid()}/cmdline').read() "
            "and not hasattr(get_ipython().kernel, 'iopub_socket'):\n    raise ValueError('no')",
            "code cell 3 raises ValueError: no",
        ),
    ],
)
def test_each_trial_runs_the_shared_cells_itself_if_no_fork_is_possible_after_them(
    cell: str, why: str, pool: KernelPool
) -> None:
    results = run_shared(pool, "y = 2", cell, "n0 = y * x", shared=2)
    assert [result.shared_cells for result in results] == [0, 0]
    assert [result.answer.floats["n0"] for result in results] == [4.0, 4.0]
    (finding,) = pool.findings
    assert finding.startswith(f"each trial runs the cells tagged 'shared': {why}; ")


def test_a_shell_command_in_a_shared_cell_gets_the_end_of_input(pool: KernelPool) -> None:
    results = run_shared(
        pool, "!read answer < /dev/tty; echo got:$answer\ny = 3", "n0 = x * y", shared=1
    )
    assert [result.shared_cells for result in results] == [1, 1]
    assert [result.answer.floats["n0"] for result in results] == [6.0, 6.0]


def test_an_exit_in_a_shared_cell_ends_each_trial_there(pool: KernelPool) -> None:
    results = run_shared(pool, "y = 2", "exit()\nn0 = x * y", shared=2, variables=["y", "n0"])
    assert [result.shared_cells for result in results] == [0, 0]
    assert [result.ending for result in results] == [Finished(), Finished()]
    assert [result.answer.floats for result in results] == [{"y": 2.0}] * 2


def test_a_shared_cell_may_display_dates_and_numpy_numbers_as_json(
    pool: KernelPool,
) -> None:
    shows = (
        "import datetime, numpy\ndata = {'day': datetime.date(2026, 1, 2), 'n': numpy.int64(3)}\n"
        "display({'application/json': data}, raw=True)"
    )
    source = write_notebook(pool.setup.cwd / "nb.ipynb", shows, "y = x", parameters="x=1", shared=1)
    share_cells(source, pool, fixed=None)
    node, result = run_alone(source, pool, own={"x": 2.0})
    assert result.shared_cells == 1
    (output,) = (output for cell in node.cells for output in cell.get("outputs", ()))
    assert output.data["application/json"] == {"day": "2026-01-02", "n": 3}


def test_each_trial_has_the_reports_and_prints_of_a_shared_cell_and_can_write_to_its_open_file(
    pool: KernelPool,
) -> None:
    log = pool.setup.cwd / "log.txt"
    reports = "import sweeper\nsweeper.report(0, base=0.5)\nprint('\\udcff')"
    opens = f"log = open({str(log)!r}, 'a')"
    source = write_notebook(
        pool.setup.cwd / "nb.ipynb", reports, opens, "log.write('end')", parameters="x=1", shared=2
    )
    share_cells(source, pool, fixed=None)
    for count in (1, 2):
        running, points = RunningTrial(), list[Point]()
        running.points.subscribe(points.append)
        node, result = run_alone(source, pool, own={"x": 2.0}, running=running)
        assert result.shared_cells == 2
        assert [point.metrics for point in points] == [{"base": 0.5}]
        assert "�" in str(node.cells)
        until(partial(_has, log, "end" * count))


def _has(file: Path, text: str) -> bool:
    return file.read_text() == text
