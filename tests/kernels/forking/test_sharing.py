"""Tagged cells run once for all trials, and each trial comes out as if it had run them all."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from compared_outputs import seen
from kernels_alone import kernel_pool, run_alone, share_cells
from nbformat import NotebookNode
from studies import run_until

from sweeper.kernels import KernelPool, KernelResult
from sweeper.settings import Settings
from sweeper.testing import write_notebook
from sweeper.trials import Params

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]


def sweep(
    folder: Path,
    *cells: str,
    shared: int,
    trials: int = 40,
    enough: Callable[[list[Any]], bool] | None = None,
    **settings: Any,
) -> Any:
    """The result of a sweep with these cells, which ends soon after cells were shared."""
    from sweeper import Sweep

    notebook = write_notebook(
        folder / "nb.ipynb", *cells, parameters="x = 1\nseed = 0\nrows = 4", shared=shared
    )
    data = {
        "objective": {"val": "maximize"},
        "space": {"x": {"low": 1, "high": 1000}},
        "study": {"trials": trials, "sampler": "random", "name": "shared"},
        **settings,
    }
    read_settings = Settings.from_mapping(data)
    return run_until(
        enough or (lambda ended: sum("shared_cells" in one for one in ended) >= 2),
        lambda observer: Sweep.from_settings(
            read_settings,
            notebook=notebook,
            output=f"{folder}/out/{{run_id}}.ipynb",
            jobs=1,
            observer=observer,
        ),
    )


def read(record: Any) -> NotebookNode:
    node: NotebookNode = nbformat.read(record.notebook, as_version=4)
    return node


def shared_cells(record: Any) -> int:
    """How many tagged cells had run before the kernel of a trial was forked."""
    metadata = json.loads(record.notebook.read_text())["metadata"]["sweeper"]
    return int(metadata.get("shared_cells", 0))


# --- kernels without a sweep ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelPool]:
    """Kernels that are trusted to be forked, without any proof."""
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
    """Run a notebook twice with x as 2, after its shared cells."""
    source = write_notebook(
        pool.setup.cwd / "nb.ipynb", *cells, parameters="x = 1\nseed = 0\nrows = 4", shared=shared
    )
    share_cells(source, pool, fixed=fixed)
    own: Params = {"x": 2.0}
    return [run_alone(source, pool, own=own, fixed=fixed, variables=variables)[1] for _ in range(2)]


# --- one notebook, with and without --------------------------------------------------------------

CELLS = [
    # 2: the parameters cell and the injected one are before it.
    "import os, random, sys, warnings\nimport matplotlib.pyplot as plt\nimport numpy as np\n"
    "import pandas as pd\nfrom IPython.display import display\n"
    "random.seed(3); np.random.seed(4)\nrng = np.random.default_rng(5)\n"
    "print('loaded', rows, random.random(), np.random.rand(), rng.random())",
    "frame = pd.DataFrame({'a': rng.normal(size=rows), 'b': range(rows)})\n"
    "print('to stderr', file=sys.stderr)\nhandle = display('before', display_id=True)\nframe",
    "os.environ['A_VALUE'] = 'set'\nos.makedirs('below', exist_ok=True); os.chdir('below')\n"
    "sys.path.insert(0, 'src')\nwarnings.simplefilter('error', UserWarning)\n"
    "np.seterr(divide='raise')\npd.options.display.max_rows = 3\nplt.rcParams['figure.dpi'] = 50",
    "def ratio(n):\n    # far from\n    return 1 / n\n\n\ndef call(function, *given):\n"
    "    return function(*given)",
    # 6: a figure leaves its font open, for reading only.
    "plt.plot(frame.a);",
    # 7: from here on each trial runs them itself, as each has a seed of its own.
    "handle.update(f'drawn: {random.Random(seed).random()}')",
    "print(x, seed, rows, random.random(), np.random.rand(), rng.random(), random.gauss(0, 1))",
    "print(os.environ['A_VALUE'], os.path.basename(os.getcwd()), sys.path[0])\n"
    "print(np.geterr()['divide'], pd.options.display.max_rows, plt.rcParams['figure.dpi'])\n"
    "print(warnings.filters[0][0])\nframe * x",
    "plt.plot(frame.b, [x] * rows); plt.title(str(x));",
    "if x > 600:\n    call(ratio, x - x)",
    "val = float(frame.a.sum()) * x + random.random()",
]
N_SHARED = 5


ALONE, SHARED = "alone", "shared"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The records of a sweep whose trials share cells, and of the same one without the tags."""

    def enough(ended: list[Any]) -> bool:
        states = [one["state"] for one in ended if "shared_cells" in one]
        return {*states} == {"completed", "failed"}

    start = [{"x": x} for x in [1, 999] * 6]  # of two that follow each other, one fails
    options: dict[str, Any] = {"fixed": {"rows": 5}, "start": start}
    folder = tmp_path_factory.mktemp(SHARED)
    forked: dict[str, Any] = {"shared": N_SHARED, "kernels": "fork", "enough": enough}
    shared = sweep(folder, *CELLS, **forked, **options).records
    folder = tmp_path_factory.mktemp(ALONE)
    alone = sweep(folder, *CELLS, shared=0, trials=len(shared), kernels="cold", **options)
    return {SHARED: shared, ALONE: alone.records}


def test_later_trials_begin_after_the_shared_cells_and_end_as_without(
    both: dict[str, list[Any]],
) -> None:
    counts = [shared_cells(record) for record in both[SHARED]]
    assert counts[0] == 0, "the first trial tells what the notebook imports"
    assert counts[-2:] == [N_SHARED] * 2
    shared, alone = (
        [(r.number, r.params, r.state, r.message, r.scores) for r in both[kind]]
        for kind in (SHARED, ALONE)
    )
    assert shared == alone
    assert {record.state for record in both[ALONE]} == {"completed", "failed"}


def test_every_output_is_what_it_would_have_been(both: dict[str, list[Any]]) -> None:
    for shared, alone in zip(both[SHARED], both[ALONE], strict=True):
        for cell, other in zip(seen(read(shared)), seen(read(alone)), strict=True):
            assert cell == other


# --- what forks carry over, and what they do not --------------------------------------------------


def test_draws_that_nothing_seeds_differ_in_each_trial(pool: KernelPool) -> None:
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
    first, second = (result.variables for result in results)
    generator = random.Random(7)
    generator.random()
    assert first["seeded"] == second["seeded"] == generator.random()
    assert first["drawn"] != second["drawn"]


def test_a_file_that_is_open_for_reading_stands_at_the_same_line_in_each_trial(
    pool: KernelPool,
) -> None:
    (pool.setup.cwd / "data.txt").write_text("0\n1\n2\n3\n")
    results = run_shared(
        pool, "file = open('data.txt')\nfile.readline()", "n0 = x * int(file.readline())", shared=1
    )
    assert [result.shared_cells for result in results] == [1, 1]
    assert [result.variables["n0"] for result in results] == [2.0, 2.0]


def test_a_parameter_is_shared_when_it_is_fixed(pool: KernelPool) -> None:
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
    assert [result.variables["n0"] for result in results] == [total + 2.0] * 2


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
def test_where_a_shared_cell_cannot_be_forked_after_all_trials_run_them(
    cell: str, why: str, pool: KernelPool
) -> None:
    results = run_shared(pool, "y = 2", cell, "n0 = y * x", shared=2)
    assert [result.shared_cells for result in results] == [0, 0]
    assert [result.variables["n0"] for result in results] == [4.0, 4.0]
    (finding,) = pool.findings
    assert finding.startswith(f"cells tagged 'shared' are run by each trial: {why}; ")
