"""Leading cells run once for all trials, and each trial comes out as if it had run them all."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from compared_outputs import seen
from kernels_alone import kernel_pool, run_alone, share_cells
from made_up_notebooks import SETUP, Notebook, Run, code, made_up
from nbformat import NotebookNode
from studies import run_until

from sweeper.kernels import (
    KernelPool,
    KernelResult,
)
from sweeper.notebooks.shared_cells import find_shared_cells
from sweeper.settings import Settings
from sweeper.testing import write_notebook
from sweeper.trials import Params

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]

#: Leading cells have to save something, also on a busy machine, or they are not shared.
LOADING = "import time\ntime.sleep(0.5)"
SHARED, OFF = "auto", "off"


def sweep(
    folder: Path,
    *cells: str,
    prefix: str = SHARED,
    trials: int = 40,
    jobs: int = 1,
    enough: Callable[[list[Any]], bool] | None = None,
    **settings: Any,
) -> Any:
    """The result of a sweep with these cells, which ends soon after cells were shared."""
    from sweeper import Sweep

    notebook = write_notebook(folder / "nb.ipynb", *cells, parameters="x = 1\nseed = 0\nrows = 4")
    data = {
        "objective": {"val": "maximize"},
        "space": {"x": {"low": 1, "high": 1000}},
        "study": {"trials": trials, "sampler": "random", "name": "shared"},
        "execution": {"prefix": prefix},
        **settings,
    }
    outputs = folder / f"out-{prefix}"
    output = f"{outputs}/{{run_id}}.ipynb"
    read_settings = Settings.from_mapping(data)
    return run_until(
        enough or (lambda ended: sum("shared_cells" in one for one in ended) >= 2),
        lambda observer: Sweep.from_settings(
            read_settings, notebook=notebook, output=output, jobs=jobs, observer=observer
        ),
    )


def read(record: Any) -> NotebookNode:
    node: NotebookNode = nbformat.read(record.notebook, as_version=4)
    return node


def shared_cells(record: Any) -> int:
    """How many cells had run before the kernel of a trial was forked."""
    metadata = json.loads(record.notebook.read_text())["metadata"]["sweeper"]
    return int(metadata.get("shared_cells", 0))


# --- kernels without a sweep ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelPool]:
    """Kernels that are trusted to be forked, without any proof."""
    folder = tmp_path_factory.mktemp("forking")
    with kernel_pool(folder, imports="import random, numpy") as pool:
        yield pool


@pytest.fixture
def pool(forking: KernelPool) -> Iterator[KernelPool]:
    """The same, with nothing shared and nothing of other tests beside the notebook."""
    yield forking
    forking.share(None)
    for path in forking.cwd.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def run_shared(
    pool: KernelPool, *cells: str, fixed: Params | None = None, variables: Sequence[str] = ("n0",)
) -> list[KernelResult]:
    """Run a notebook twice with x as 2, after all leading cells that can be shared."""
    source = write_notebook(pool.cwd / "nb.ipynb", *cells, parameters="x = 1\nseed = 0\nrows = 4")
    share_cells(source, pool, fixed=fixed)
    own: Params = {"x": 2.0}
    return [run_alone(source, pool, own=own, fixed=fixed, variables=variables)[1] for _ in range(2)]


# --- one notebook, with and without --------------------------------------------------------------

CELLS = [
    # 2: the parameters cell and the injected one are before it.
    f"{LOADING}\n"
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
UPDATED, FIRST_OWN, TELLS = 3, 7, 8


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The records of a sweep whose trials share cells, and of the same one without."""

    def enough(ended: list[Any]) -> bool:
        states = [one["state"] for one in ended if "shared_cells" in one]
        return {*states} == {"completed", "failed"}

    start = [{"x": x} for x in [1, 999] * 6]  # of two that follow each other, one fails
    options: dict[str, Any] = {"fixed": {"rows": 5}, "start": start}
    folder = tmp_path_factory.mktemp(SHARED)
    shared = sweep(folder, *CELLS, prefix=SHARED, enough=enough, **options).records
    folder = tmp_path_factory.mktemp(OFF)
    alone = sweep(folder, *CELLS, prefix=OFF, trials=len(shared), **options).records
    return {SHARED: shared, OFF: alone}


def test_later_trials_begin_after_the_leading_cells(both: dict[str, list[Any]]) -> None:
    counts = [shared_cells(record) for record in both[SHARED]]
    assert counts[0] == 0, "the first trial tells what the notebook imports"
    assert counts[-2:] == [FIRST_OWN] * 2
    assert {shared_cells(record) for record in both[OFF]} == {0}


def test_trials_end_as_without_shared_cells(both: dict[str, list[Any]]) -> None:
    shared, alone = (
        [(r.number, r.params, r.state, r.message, r.scores) for r in both[prefix]]
        for prefix in (SHARED, OFF)
    )
    assert shared == alone
    assert {record.state for record in both[OFF]} == {"completed", "failed"}


def test_every_output_is_what_it_would_have_been(both: dict[str, list[Any]]) -> None:
    for shared, alone in zip(both[SHARED], both[OFF], strict=True):
        for cell, other in zip(seen(read(shared)), seen(read(alone)), strict=True):
            assert cell == other
    last = read(both[SHARED][-1]).cells
    assert "set below src" in str(last[TELLS + 1].outputs)
    assert "image/png" in str(last[FIRST_OWN - 1].outputs)


def test_the_injected_cell_shows_what_was_run_in_each_trial(both: dict[str, list[Any]]) -> None:
    for record in both[SHARED]:
        injected, own = read(record).cells[1], read(record).cells[TELLS]
        names: dict[str, Any] = {}
        exec(injected.source, names)
        assert names["rows"] == 5
        assert names["x"] == record.params["x"]
        assert own.outputs[0]["text"].split()[:3] == [str(names[n]) for n in ("x", "seed", "rows")]
    seeds = {read(record).cells[TELLS].outputs[0]["text"].split()[1] for record in both[SHARED]}
    assert len(seeds) == len(both[SHARED])


def test_cells_are_counted_through(both: dict[str, list[Any]]) -> None:
    for record in both[SHARED]:
        ran = [c.execution_count for c in read(record).cells if c.execution_count is not None]
        assert ran == list(range(1, len(ran) + 1))
        states = [cell.metadata.papermill["status"] for cell in read(record).cells]
        assert states[: len(ran) - 1] == ["completed"] * (len(ran) - 1)


def test_a_seed_of_each_trial_ends_what_is_shared(both: dict[str, list[Any]]) -> None:
    first_own = read(both[SHARED][-1]).cells[FIRST_OWN].source
    assert "seed" in first_own
    assert "x" not in first_own
    drawn = [str(read(record).cells[UPDATED].outputs) for record in both[SHARED]]
    assert all("drawn: 0." in text for text in drawn)
    assert len(set(drawn)) == len(drawn)


def test_a_failure_quotes_functions_of_shared_cells(both: dict[str, list[Any]]) -> None:
    failed = [r for r in both[SHARED] if r.state == "failed" and shared_cells(r)]
    assert failed
    for record in failed:
        (error,) = (o for c in read(record).cells for o in c.outputs if o.output_type == "error")
        assert "far from" in "".join(error.traceback)


# --- what keeps cells from being shared -----------------------------------------------------------


def test_draws_that_nothing_seeds_differ_in_each_trial(pool: KernelPool) -> None:
    results = run_shared(
        pool,
        "import random\nimport numpy as np",
        "random.seed(7)",
        "noise = random.random()",
        "n0 = x\nseeded, drawn = random.random(), np.random.rand()",
        variables=["seeded", "drawn"],
    )
    assert [result.shared_cells for result in results] == [5, 5]
    first, second = (result.variables for result in results)
    generator = random.Random(7)
    generator.random()
    assert first["seeded"] == second["seeded"] == generator.random()
    assert first["drawn"] != second["drawn"]


@pytest.mark.parametrize(
    "draws",
    [
        "noise = np.random.rand()",
        "noise = random.random()",
        "noise = helper.noise()",
        "noise = float(np.random.default_rng(helper.NOTHING).random())",
    ],
)
def test_a_cell_that_draws_what_nothing_seeds_is_not_shared(draws: str, pool: KernelPool) -> None:
    (pool.cwd / "helper.py").write_text(
        "import random\nNOTHING = None\ndef noise():\n    return random.SystemRandom().random()\n"
    )
    results = run_shared(pool, "import numpy as np, random, helper", draws, "n0 = noise * x")
    assert [result.shared_cells for result in results] == [3, 3]
    assert results[0].variables != results[1].variables


def test_a_notebook_that_is_not_reproducible_is_never_shared(tmp_path: Path) -> None:
    result = sweep(
        tmp_path,
        f"{LOADING}\nimport numpy as np",
        "noise = np.random.rand()",
        "val = noise * x",
        trials=10,
    )
    assert {shared_cells(record) for record in result.records} == {0}
    assert len({record.scores["val"] / record.params["x"] for record in result.records}) == 10
    (finding,) = result.findings
    assert "not reproducible" in finding
    assert "val" in finding


@pytest.mark.parametrize(
    ("cell", "shared"),
    [
        ("handle = open('data.txt'); handle.readline()", 4),
        ("open('best.txt', 'w').write('0')", 3),
        ("Path('best.txt').write_text('0')", 3),
        ("np.save('best.npy', np.zeros(2))", 3),
        ("os.makedirs('made', exist_ok=True)", 3),
        ("show_progress()", 3),
    ],
)
def test_cells_are_shared_up_to_one_that_reaches_beyond_its_process(
    cell: str, shared: int, pool: KernelPool
) -> None:
    (pool.cwd / "data.txt").write_text("0\n1\n2\n3\n")
    # Behind a module of the user's, so that reading the notebook finds nothing.
    (pool.cwd / "helper.py").write_text(
        "import os\nfrom pathlib import Path\nimport numpy as np\n"
        "from comm import create_comm\n"
        f"def act():\n    global handle\n    {cell}\n"
        "def show_progress():\n    create_comm(target_name='progress')\n"
        "def read():\n    return int(handle.readline()) if 'handle' in globals() else 1\n"
    )
    results = run_shared(pool, "import helper", "helper.act()", "n0 = x * helper.read()")
    assert [result.shared_cells for result in results] == [shared, shared]
    assert [result.variables["n0"] for result in results] == [2.0, 2.0]


#: A library of the user's that does what a fork cannot carry over.
HELPER = """
import subprocess, sys, threading

def leave_a_file(): 
    global log
    log = open("log.txt", "w")

def leave_a_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()

def leave_a_process():
    global process
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
"""


@pytest.mark.parametrize("what", ["file", "thread", "process"])
def test_cells_are_shared_up_to_one_that_leaves_what_no_fork_has(
    what: str, pool: KernelPool
) -> None:
    (pool.cwd / "helper.py").write_text(HELPER)
    results = run_shared(pool, "import helper", f"helper.leave_a_{what}()", "n0 = 2 * x")
    assert [result.shared_cells for result in results] == [3, 3]
    assert [result.variables["n0"] for result in results] == [4.0, 4.0]


def test_a_parameter_is_shared_when_it_is_fixed(pool: KernelPool) -> None:
    results = run_shared(
        pool,
        "import random\nrandom.seed(seed)\nvalues = [random.random() for _ in range(rows)]",
        "n0 = sum(values) + x",
        fixed={"seed": 3, "rows": 2},
    )
    drawn = random.Random(3)
    total = drawn.random() + drawn.random()
    assert [result.shared_cells for result in results] == [3, 3]
    assert [result.variables["n0"] for result in results] == [total + 2.0] * 2


def test_a_swept_name_that_a_library_assigns_is_not_shared(pool: KernelPool) -> None:
    (pool.cwd / "config.py").write_text("x = 1")
    results = run_shared(pool, "from config import *", "n0 = x")
    assert [result.variables["n0"] for result in results] == [1.0, 1.0]


# --- notebooks made up by chance ------------------------------------------------------------------

SHOW = """
for name in "n0 n1 n2 l0 l1 text p0 p1 p2".split():
    print(name, globals().get(name))
for call in [*calls.values(), lambda: f0(2), lambda: f1(2), lambda: c0().get(), random.random]:
    try:
        print(call())
    except Exception as error:
        print(type(error))
"""


def long_prefixes(count: int) -> Iterator[Notebook]:
    """Notebooks of which some cells can be shared, and not all; parameters among them or after."""
    number = 0
    while count:
        notebook = made_up(str(number).encode(), 12)
        cells = notebook.injected({})
        leading = find_shared_cells([code(cell) for cell in cells], notebook.swept).cells
        ran = Run()
        ran.go_on(cells[:leading])
        is_long = 3 < leading <= notebook.place or notebook.place + 5 < leading < len(cells)
        if is_long and ran.raised is None:
            count -= 1
            yield notebook
        number += 1


def test_made_up_notebooks_come_to_the_same_after_shared_cells(
    pool: KernelPool, tmp_path: Path
) -> None:
    begin = f"import random\nfrom contextlib import nullcontext\nrandom.seed(7)\n{SETUP}"
    places = set()
    for number, notebook in enumerate(long_prefixes(8)):
        cells = [begin, *notebook.cells, SHOW]
        cells.insert(notebook.place + 1, notebook.parameters)
        source = write_notebook(tmp_path / f"{number}.ipynb", *cells, parameters="")
        node = nbformat.read(source, as_version=4)
        node.cells[notebook.place + 1].metadata["tags"] = ["parameters"]
        node.cells.insert(number % 4, nbformat.v4.new_markdown_cell("p0, p1 and p2"))
        nbformat.write(node, source)

        fixed: dict[str, float] = dict.fromkeys(notebook.fixed, 4)
        own: dict[str, float] = dict.fromkeys(notebook.swept, 3)
        names = ["n0", "n1", "n2"]
        alone, ended = run_alone(source, pool, fixed=fixed, own=own, variables=names)
        share_cells(source, pool, swept=notebook.swept, fixed=fixed)
        shared, ended_too = run_alone(source, pool, fixed=fixed, own=own, variables=names)
        pool.share(None)
        assert ended_too.shared_cells > 3
        assert (ended.ending, ended.variables) == (ended_too.ending, ended_too.variables)
        for cell, other in zip(seen(shared), seen(alone), strict=True):
            assert cell == other
        places.add(ended_too.shared_cells > notebook.place + 3)
    assert places == {True, False}, "parameters are found in the shared cells, and after them"


def test_a_late_fork_after_cells_that_have_ended_leaves_those_that_run_now(tmp_path: Path) -> None:
    with kernel_pool(tmp_path, imports="import json") as pool:
        runs = []
        for name in ("one", "two"):
            source = write_notebook(tmp_path / f"{name}.ipynb", f"{name} = 1", "x")
            share_cells(source, pool)
            runs.append(pool.offer.shared)
        first, second = runs
        assert None not in runs
        assert first is not second
        server = pool._fork_server
        assert server is not None
        late = server.fork(["python"], env={}, cwd=str(tmp_path), output=1, after=first)
        assert late is None
        assert pool.offer.shared is second
