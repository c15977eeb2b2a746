"""Many small notebooks: each looks, executed by us, as nbclient leaves it with a fresh kernel."""

from __future__ import annotations

import copy
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

from sweeper.devices import Devices
from sweeper.kernels import (
    Ending,
    Guard,
    KernelPool,
    KernelResult,
    cells_to_share,
    execute,
    inject,
)
from sweeper.notebook import ResearchNotebook
from sweeper.reporting import Channel
from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

#: Cells by what they try; a tuple is a cell with a tag.
CORPUS: dict[str, list[str | tuple[str, str]]] = {
    "printed and returned": ["print('a'); print('b')\n1 + 1", "'text'", "None", "[x] * 3"],
    "rich displays": [
        "from IPython.display import HTML, JSON, Latex, Markdown, SVG, display\n"
        "display(HTML('<b>b</b>'), Markdown('# m'), Latex('$x$'))",
        "display(JSON({'a': [1, {'b': None}]}), {'text/plain': 'raw'}, raw=False)",
        "display({'application/x-mine+json': {'n': 1}, 'text/plain': 'mine'}, raw=True)",
    ],
    "an image in bytes": [
        "from IPython.display import Image\nimport struct, zlib\n"
        "def chunk(t, d):\n    c = t + d\n"
        "    return struct.pack('>I', len(d)) + c + struct.pack('>I', zlib.crc32(c))\n"
        "png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 0, 0, 0, 0))"
        " + chunk(b'IDAT', zlib.compress(b'\\0\\0')) + chunk(b'IEND', b'')\nImage(png)",
    ],
    "a figure": [
        "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]);",
        "plt.rcParams['figure.dpi'], plt.get_backend()",
        "fig, ax = plt.subplots(); ax.bar([1], [x])",
    ],
    "a table": ["import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [x, None]})"],
    "an error": ["def f(n):\n    return 1 / n\n\nf(0)", "print('never')"],
    "an error from an error": [
        "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('b') from error"
    ],
    "a group of errors": ["raise ExceptionGroup('g', [ValueError(1), TypeError('t')])"],
    "a syntax error": ["print('a'", "print('never')"],
    "an indentation error": ["  def f():\n pass"],
    "deep recursion": ["def f(n): return f(n + 1)\nf(0)"],
    "an allowed error": [("1 / 0", "raises-exception"), "print('goes on')"],
    "a skipped cell": [("1 / 0", "skip-execution"), "print('goes on')"],
    "warnings": [
        "import warnings\nwarnings.warn('w1')\nwarnings.warn('w2', DeprecationWarning)",
        "import numpy as np\nnp.array([1.0]) / 0",
    ],
    "both streams": [
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out again')",
        "sys.stdout.write('no newline')",
    ],
    "progress on one line": ["for i in range(5): print(f'\\r{i}/4', end='')\nprint('\\ndone')"],
    "colours and signs": ["print('\\x1b[31mred\\x1b[0m é 学习 🎲 \\t\\x00|')"],
    "await": ["import asyncio\nawait asyncio.sleep(0.01)\n'slept'", "async def f(): return x\nawait f()"],
    "a task that goes on in later cells": [
        "import asyncio\nseen = []\nasync def g():\n    for i in range(3):\n        seen.append(i)\n"
        "        await asyncio.sleep(0)\ntask = asyncio.ensure_future(g())",
        "await task\nseen",
    ],
    "magics": [
        "%%capture caught\nprint('caught')",
        "caught.stdout",
        "%env SOME_VALUE=3",
        "%%bash\necho $SOME_VALUE",
        "%who_ls int",
        "%precision 3\n1 / 3",
    ],
    "a line of shell": ["!echo from the shell", "got = !echo a b\ngot"],
    "a file written by a cell": ["%%writefile made.txt\nhello", "open('made.txt').read()", "import os\nos.remove('made.txt')"],
    "a subprocess": [
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(7)'], "
        "capture_output=True, text=True).stdout",
        "import os\nos.system('echo to the descriptor') and None",
    ],
    "bytes on the descriptor": ["import os, time\nos.write(1, b'\\xff\\xfeok\\n')\ntime.sleep(0.3)"],
    "a pool of processes": [
        "import multiprocessing as mp\ndef square(n): return n * n\n"
        "with mp.get_context('fork').Pool(2) as pool: print(pool.map(square, range(4)))"
    ],
    "threads that print": [
        "import threading\nt = threading.Thread(target=lambda: print('from a thread'))\n"
        "t.start(); t.join()"
    ],
    "an updated display": [
        "from IPython.display import clear_output, display\nh = display('first', display_id=True)",
        "h.update('second')",
        "for i in range(3):\n    clear_output(wait=True)\n    print(i)",
        "print('gone'); clear_output(); print('left')",
    ],
    "a widget's types": [
        "from IPython.display import display\ndisplay({'application/vnd.jupyter.widget-view+json': "
        "{'model_id': 'abc', 'version_major': 2, 'version_minor': 0}, 'text/plain': 'W()'}, raw=True)"
    ],
    "input": ["input('name? ')"],
    "sys.exit": ["import sys\nsys.exit(2)", "print('never')"],
    "history and underscores": ["40 + 2", "_ + 1", "_1 if False else _", "len(In), sorted(Out)"],
    "where it runs": ["import os, sys\nos.listdir('.') == os.listdir(os.getcwd())", "__name__",
                      "sys.path[0] in ('', os.getcwd())", "len(sys.argv)", "'__file__' in globals()"],
    "a module beside it": ["import beside\nbeside.VALUE"],
    "pickles of main": [
        "import pickle\nclass Point:\n    def __init__(self, n): self.n = n\n"
        "pickle.loads(pickle.dumps(Point(3))).n"
    ],
    "logging": ["import logging\nlogging.getLogger('a').warning('w')\nlogging.basicConfig()\n"
                "logging.getLogger('b').error('e')"],
    "seeded numbers": ["import random\nrandom.seed(3)\nrandom.random()",
                       "import numpy as np\nnp.random.seed(3)\nnp.random.rand(2)"],
    "many displays": ["for i in range(500): display(i)"],
    "much text": ["for i in range(3000): print('line', i, 'x' * 200)"],
    "an alarm": ["import signal, time\ndef ring(*_): print('rang')\n"
                 "signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
                 "time.sleep(0.2)"],
    "an interrupt of its own": ["import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\n"
                                "time.sleep(5)", "print('never')"],
    "exit handlers": ["import atexit\n_ = atexit.register(lambda: open('ended', 'w').write('yes'))"],
    "cells without code": ["", "# only a comment", "pass"],
    "names of the system": ["import locale, sys\nsys.stdout.encoding, locale.getpreferredencoding()"],
}  # fmt: skip

_MASKS = [
    (re.compile(r"ipykernel_\d+"), "ipykernel_N"),
    (re.compile(r"/tmp/[\w./-]*/(?=\d+\.py)"), "/tmp/"),
    (re.compile(r"\b0x[0-9a-f]{6,}"), "0xN"),
    (re.compile(r"/\d{6,}\.py"), "/N.py"),
]


def masked(text: str) -> str:
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


def seen(node: NotebookNode) -> list[Any]:
    """What a reader sees of each cell, without the numbers of processes and addresses."""
    return [
        (
            cell.source,
            cell.get("execution_count"),
            [masked(nbformat.from_dict(output).__repr__()) for output in cell.get("outputs", [])],
        )
        for cell in node.cells
    ]


@pytest.fixture(scope="module", params=["cold", "warm", "shared"])
def pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KernelPool]:
    cwd = tmp_path_factory.mktemp("cwd")
    (cwd / "beside.py").write_text("VALUE = 'beside'")
    runtime_folder = Path(tempfile.mkdtemp(prefix="sweep-", dir="/tmp"))
    guard = Guard(token=runtime_folder.name, folder=runtime_folder)
    env = {**os.environ, **Devices([], threads=1).env}
    pool = KernelPool(
        "python3",
        env=env,
        cwd=cwd,
        runtime_folder=runtime_folder,
        token=runtime_folder.name,
        warm=request.param != "cold",
    )
    if request.param != "cold":
        imported = "import numpy, pandas, matplotlib.pyplot\nmatplotlib.pyplot.plot([1])"
        lesson = write_notebook(cwd / "lesson.ipynb", imported)
        by_us(lesson, pool)
        pool.wait_until_warm()
        assert pool.is_warm
    yield pool
    pool.close()
    guard.close()


def by_us(source: Path, pool: KernelPool) -> tuple[NotebookNode, KernelResult]:
    fresh = ResearchNotebook(source).fresh_copy()
    node = inject(fresh, {"x": 2.0}, kernel_name="python3", language="python")
    result = execute(
        node,
        pool=pool,
        more_to_come=True,
        own_params={"x": 2.0},
        env={},
        on_gone=lambda: None,
        write=lambda: None,
        channel=Channel(lambda _: None),
        on_point=lambda _: None,
        variables=[],
        cell_output_bytes=10**8,
    )
    return node, result


def share_cells(source: Path, pool: KernelPool) -> None:
    """Have the cells that do not depend on x run once, before the kernel is forked."""
    node = ResearchNotebook(source).fresh_copy()
    pool.share(cells_to_share(node, fixed={}, swept=["x"], kernel_name="python3"))
    pool.wait_until_warm()
    pool.settle_sharing(pool.shared is not None)


def by_nbclient(node: NotebookNode, cwd: Path) -> tuple[NotebookNode, bool]:
    """The same cells, and whether all of them ran."""
    fresh = copy.deepcopy(node)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        fresh,
        kernel_name="python3",
        resources={"metadata": {"path": str(cwd)}},
        coalesce_streams=True,
        iopub_timeout=60,
    )
    try:
        client.execute(env={**os.environ, **Devices([], threads=1).env})
    except (CellExecutionError, DeadKernelError):
        return fresh, False
    return fresh, True


@pytest.mark.parametrize("name", CORPUS)
def test_a_notebook_looks_as_in_a_kernel_of_its_own(
    name: str, pool: KernelPool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    cells = [cell if isinstance(cell, str) else cell[0] for cell in CORPUS[name]]
    source = write_notebook(tmp_path / "nb.ipynb", *cells)
    node = nbformat.read(source, as_version=4)
    for cell, told in zip(node.cells[1:], CORPUS[name], strict=True):
        if not isinstance(told, str):
            cell.metadata["tags"] = [told[1]]
    nbformat.write(node, source)

    if request.node.callspec.params["pool"] == "shared":
        share_cells(source, pool)
    ours, result = by_us(source, pool)
    nbformat.validate(ours)
    theirs, ran_all = by_nbclient(ours, pool.cwd)
    assert (result.ending is Ending.FINISHED) == ran_all
    assert seen(ours) == seen(theirs)
