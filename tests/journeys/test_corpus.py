"""Test that many small notebooks get the outputs that nbclient gets from a fresh kernel."""

from __future__ import annotations

import copy
import itertools
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from kernels_alone import ENVIRONMENT, kernel_pool, run_alone, share_cells
from nbclient import NotebookClient
from nbclient.client import _RGX_CARRIAGERETURN
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output

from sweeper.kernels import Finished, KernelPool
from sweeper.testing import write_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("started_kernels")]

#: Cells of notebooks, by what they try. A tuple is a cell and its tag.
CORPUS: dict[str, list[str | tuple[str, str]]] = {
    "printed and returned": ["print('a'); print('b')\n1 + 1", "'text'", "None", "[x] * 3"],
    "rich displays": [
        "from IPython.display import HTML, JSON, Latex, Markdown, SVG, display\n"
        "display(HTML('<b>b</b>'), Markdown('# m'), Latex('$x$'))",
        "display(JSON({'a': [1, {'b': None}]}), {'text/plain': 'raw'}, raw=False)",
        "display({'application/x-mine+json': {'n': 1}, 'text/plain': 'mine'}, raw=True)",
    ],
    "a figure": [
        "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]);",
        "plt.rcParams['figure.dpi'], plt.get_backend()",
        "fig, ax = plt.subplots(); ax.bar([1], [x])",
    ],
    "an error": ["def f(n):\n    return 1 / n\n\nf(0)", "print('never')"],
    "a group of errors": ["raise ExceptionGroup('g', [ValueError(1), TypeError('t')])"],
    "a syntax error": ["print('a'", "print('never')"],
    "a skipped cell": [("1 / 0", "skip-execution"), "print('goes on')"],
    "both streams": [
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out again')",
        "sys.stdout.write('no newline')",
        "print('err first', file=sys.stderr, flush=True)\nprint('out', flush=True)\nprint('err', file=sys.stderr)\nx",
    ],
    "text between displays": [
        "import sys\nfor i in range(3):\n    print(i); print('warned', file=sys.stderr); display({'text/plain': f'figure {i}'}, raw=True)\nprint('end')",
        "import matplotlib.pyplot as plt\nfor i in range(2):\n    print(i); plt.plot([i, x]); plt.show()\ni",
        "from IPython.display import clear_output\nprint('a'); display('b'); clear_output(wait=True); print('c'); display('d'); print('e')",
    ],
    "a progress bar between printed lines": [
        "from tqdm import tqdm\nfor i in tqdm(range(3), mininterval=0):\n    print(i)",
        "for i in tqdm(range(2), mininterval=0):\n    print(i, flush=True); display(i)",
        "bar = tqdm(total=2)\nbar.update(); tqdm.write('between'); bar.update(); bar.close()",
    ],
    "progress on one line": ["for i in range(5): print(f'\\r{i}/4', end='')\nprint('\\ndone')"],
    "colours and signs": ["print('\\x1b[31mred\\x1b[0m é 学习 🎲 \\t\\x00|')"],
    "magics": [
        "%%capture caught\nprint('caught')",
        "caught.stdout",
        "%env SOME_VALUE=3",
        "%%bash\necho $SOME_VALUE",
        "%who_ls int",
        "%precision 3\n1 / 3",
    ],
    "a line of shell": ["!echo from the shell", "got = !echo a b\ngot"],
    "a subprocess": [
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(7)'], "
        "capture_output=True, text=True).stdout",
        # The pause is for ipykernel: it reads the descriptor on a thread, which may be late.
        "import os, time\ncode = os.system('echo to the descriptor')\ntime.sleep(0.3)",
    ],
    "bytes on the descriptor": ["import os, time\nos.write(1, b'\\xff\\xfeok\\n')\ntime.sleep(0.3)"],
    "a wide table": [
        "import pandas as pd\nprint(pd.options.display.max_columns)",
        "pd.DataFrame([range(30)] * 3, columns=[f'column {n}' for n in range(30)])",
    ],
    "where it runs": ["import os, sys\nos.listdir('.') == os.listdir(os.getcwd())", "__name__",
                      "sys.path[0] in ('', os.getcwd())", "sys.argv[1]", "'__file__' in globals()"],
    "a module beside it": ["import beside\nbeside.VALUE"],
    "many displays": ["for i in range(200): display(i)"],
    "an alarm": ["import signal, time\ndef ring(*_): print('rang')\n"
                 "signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
                 "time.sleep(0.2)"],
    "an interrupt of its own": ["import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\n"
                                "time.sleep(5)", "print('never')"],
    "exit handlers": ["import atexit\n_ = atexit.register(lambda: open('ended', 'w').write('yes'))"],
    "names of the system": ["import locale, sys\nsys.stdout.encoding, locale.getpreferredencoding()"],
    "a kernel that kills itself": [
        "import os, signal, time\nprint('last words')\ntime.sleep(0.5)\nos.kill(os.getpid(), signal.SIGKILL)",
        "print('never')",
    ],
    "an interrupt that is swallowed": [
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(5)\n"
        "except KeyboardInterrupt:\n    print('swallowed')", "print('goes on')",
    ],
    "megabytes of text": ["print(('y' * 79 + '\\n') * 62_500)"],
    "spawned processes": [
        "import math, multiprocessing as mp\n"
        "with mp.get_context('spawn').Pool(1) as pool: print(pool.map(math.sqrt, [1, 4]))"
    ],
    "widgets": [
        "from comm import create_comm\ndef widget(name, **state):\n"
        "    state = {'_model_module': '@jupyter-widgets/output', '_model_name': name, **state}\n"
        "    data = {'state': state, 'buffer_paths': [['raw']]}\n"
        "    return create_comm(target_name='jupyter.widget', data=data, buffers=[b'abc'])\n"
        "bar, box = widget('Bar', value=1), widget('OutputModel', outputs=[], msg_id='')\n"
        "bar.send({'method': 'update', 'state': {'value': 2}, 'buffer_paths': []})\n"
        "def enter(msg_id): box.send({'method': 'update', 'state': {'msg_id': msg_id}, 'buffer_paths': []})\n"
        "enter(get_ipython().kernel.get_parent()['header']['msg_id'])\nprint('in the box')\nenter('')\nprint('below')",
        "bar.send({'method': 'update', 'state': {'value': 1 + x}, 'buffer_paths': []})\n"
        "enter(get_ipython().kernel.get_parent()['header']['msg_id'])\nprint('more')\nenter('')",
    ],
    "help": ["def f(n):\n    'Of f.'\nhelp(f)", "f?"],
}  # fmt: skip

#: Notebooks whose first cells do not use the param x, by what these cells do. The number says how
#: many of the cells are tagged `shared`: they run once, and kernels are forked after them.
LEADING: dict[str, tuple[int, list[str | tuple[str, str]]]] = {
    "a loader with workers": (1, [
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "data = TensorDataset(torch.arange(8.0))\ndata[1]",
        "torch.manual_seed(0)\nloader = DataLoader(data, batch_size=2, num_workers=2, shuffle=True)\n"
        "[batch.tolist() for batch, in loader], x, torch.rand(1)",
    ]),
    "progress on stderr": (1, [
        "from tqdm import tqdm\nfor i in tqdm(range(3)): pass",
        "for i in tqdm(range(2), desc=str(x)): pass",
    ]),
    "displays that are updated": (2, [
        "from IPython.display import HTML, clear_output, display\nhandle = display('first', display_id=True)\n"
        "display(HTML('<b>1</b>'), display_id='bold'); display('last')",
        "print('gone'); clear_output(); print('left')\ndisplay('by id', display_id='later')",
        "handle.update(f'then {x}')",
        "from IPython.display import update_display\nupdate_display(HTML(str(x)), display_id='bold')\n"
        "display({'n': 1}, display_id='later', update=True)",
    ]),
    "the time of a cell": (2, ["%%time\nsum(range(10))", "%%time\ntotal = 3", "%%time\ntotal * x"]),
    "a caught cell": (1, ["%%capture said\nprint('a'); display('b')\n1", "x, said.stdout, said.outputs[0].data"]),
    "tables and figures": (4, [  # matplotlib keeps the font's file open after a figure
        "%matplotlib inline\n%config InlineBackend.figure_format = 'retina'\nimport pandas as pd, matplotlib.pyplot as plt\n"
        "pd.options.display.max_rows = 4\nplt.rcParams['figure.figsize'] = 2, 1",
        "frame = pd.DataFrame({'a': range(9)})\nframe",
        "plt.plot(frame.a);",
        "fig, ax = plt.subplots(); ax.plot([1, 2])",
        "ax.set_title(str(x)); fig",
        "display(frame * x)\nplt.bar([1], [x]); plt.show()\nplt.get_backend(), plt.get_fignums()",
    ]),
    "a logger": (1, [
        "import logging, sys\nlogging.basicConfig(level=logging.INFO, format='%(levelname)s %(name)s %(message)s')\n"
        "logging.getLogger('own').addHandler(logging.StreamHandler(sys.stdout))\nlogging.info('ready')",
        "logging.getLogger('a').warning('x is %s', x)\nlogging.getLogger('own').info('to stdout')\nlogging.debug('no')",
    ]),
    "streams that are kept": (1, [
        "import sys\nout = sys.stdout\ndef say(text, file=sys.stderr): print(text, file=file)\nsay('a')\n",
        "out.write(f'{x}\\n'); say('b'); print(out is sys.stdout, file=out)\nout.name, out.isatty(), out.encoding, type(out).__name__",
        "import os, time\nos.write(1, b'to the descriptor\\n'); os.system('echo from a child')\ntime.sleep(0.3)",
        "import threading\nt = threading.Thread(target=say, args=['from a thread']); t.start(); t.join()",
    ]),
    "what is pickled": (1, [
        "import pickle\ndef half(n): return n / 2\nclass Point:\n    def __init__(self, n): self.n = n",
        "pickle.loads(pickle.dumps(half))(x), pickle.loads(pickle.dumps(Point(x))).n, pickle.dumps([half, Point])",
        "from joblib import Parallel, delayed\nParallel(n_jobs=2)(delayed(half)(i) for i in range(3))",
        "import multiprocessing as mp\nwith mp.get_context('fork').Pool(1) as pool: print(pool.map(half, [x]))",
    ]),
    "a module that is changed": (1, [
        "%load_ext autoreload\n%autoreload 2\nimport importlib, os, sys\nsys.dont_write_bytecode = True",
        "with open('changed.py', 'w') as file: file.write('VALUE = 1\\ndef f(): return VALUE')\nimportlib.invalidate_caches()\nimport changed\nchanged.VALUE",
        "with open('changed.py', 'w') as file: file.write(f'VALUE = {x!r}\\ndef f(): return VALUE, 2')",
        "changed.VALUE, changed.f()",
        "os.remove('changed.py')",
    ]),
    "history": (2, ["40 + 2", "_ + 1", "x, _, __, _4, _3, Out, In[3:]", "_i, _ii, _iii, _i3", "%history 3-6", "get_ipython().history_manager.hist_file"]),
    "names that there are": (1, [
        "import math\nfrom math import sqrt\na = 1",
        "x, dir()", "%who", "%whos", "[n for n in globals() if not n.startswith('_')]",
        "shell = get_ipython()\nshell.execution_count, shell.user_ns is globals(), shell.kernel.shell is shell, shell.parent is shell.kernel",
        "import __main__, sys\n__main__.a, __main__.x, sys.modules['__main__'] is __main__, __name__",
    ]),
    "names in a leading cell": (1, [
        "a = 1\nprint(sorted(dir())); print(__name__, __doc__, open.__module__, display.__name__)", "x",
    ]),
    "a function that fails later": (2, [
        "def ratio(n):\n    return 1 / n\n\ndef call(f, n):\n    # calls it\n    return f(n)",
        "class Mine(Exception): ...\ncalls = [lambda n: call(ratio, n)]",
        ("raise Mine(x)", "raises-exception"),
        "calls[0](x - x)",
    ]),
    "warnings, before and after": (2, [
        "import warnings\nimport numpy as np\ndef warn(): warnings.warn('once')\nwarn(); warn()",
        "warnings.filterwarnings('ignore', message='quiet')\nwarnings.simplefilter('always', ImportWarning)",
        "warn(); x", "warnings.warn('quiet'); warnings.warn('d', DeprecationWarning); warnings.warn('i', ImportWarning)",
        "np.array([x]) / 0",
        "[(f[0], f[2].__name__) for f in warnings.filters]",
    ]),
    "settings": (1, [
        "import decimal, locale, os, sys\nimport numpy as np\ndecimal.getcontext().prec = 5\nnp.seterr(all='raise')\n"
        "np.set_printoptions(precision=2)\nos.environ['A_VALUE'] = '1'\nos.environ.pop('LANG', None)\n"
        "sys.path.insert(0, 'sub')\nsys.setrecursionlimit(2000)\nos.chdir('/tmp')",
        "x, decimal.Decimal(1) / 3, np.geterr(), np.array([1 / 3])",
        "os.environ['A_VALUE'], 'LANG' in os.environ, sys.path[:2], sys.getrecursionlimit(), os.path.basename(os.getcwd())",
        "import subprocess\nsubprocess.run('echo $A_VALUE; basename $PWD', shell=True, capture_output=True, text=True).stdout",
        "np.array([x]) / 0",
    ]),
    "a loop of events": (1, [
        "import asyncio\nasync def double(n): return 2 * n",
        "await asyncio.sleep(0)\nawait double(x)", "task = asyncio.ensure_future(double(x))", "await task, asyncio.get_running_loop().is_running()",
    ]),
    "an exit": (1, ["import sys", "print(x); sys.exit(3)", "print('never')"]),
    "a question": (1, ["name = 'n'", "print(x); input('name? ')"]),
    "no code": (4, ["", "# a remark", "'text'", "pass", "x", ""]),
    "a file that stays open": (1, [
        "mode = 'w'", "file = open('made.txt', mode)", "file.write(str(x)); file.close()\nopen('made.txt').read()",
        "import os\nos.remove('made.txt')",
    ]),
    "a failure": (1, ["a = 1", "a / 0", "x"]),
    "bytes of a leading cell": (2, [
        # The pause is for fresh kernels, which may lose output that they read too late.
        "import os, time", "_ = os.write(1, b'bytes\\n')\ntime.sleep(0.3)", "x",
    ]),
    "a star": (1, ["from math import *", "x, pi, sqrt(4)"]),
    "streams that are replaced": (1, [
        "import io, sys", "real, sys.stdout = sys.stdout, io.StringIO()", "print(x)", "said, sys.stdout = sys.stdout, real\nsaid.getvalue()",
    ]),
}  # fmt: skip


#: Notebooks that change nothing in their kernel but variables and imported modules.
LEAVES_NAMES_ONLY = {
    *("printed and returned", "rich displays", "a wide table"),
    *("an error", "a group of errors", "a syntax error"),
    *("a skipped cell", "both streams", "a line of shell", "a subprocess", "many displays"),
    *("progress on one line", "colours and signs"),
    *("a progress bar between printed lines", "megabytes of text", "names of the system", "help"),
    *("displays that are updated", "the time of a cell", "a caught cell", "a loop of events"),
    *("a function that fails later", "a question", "no code", "a failure", "a star"),
    "progress on stderr",
}

#: A cell with imports that are made once, before kernels are forked.
IMPORTS = "import numpy, pandas, matplotlib.pyplot\nmatplotlib.pyplot.plot([1])"


@pytest.fixture(scope="module", params=["cold", "warm", "shared"])
def pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kernelspec: str
) -> Iterator[KernelPool]:
    cwd = tmp_path_factory.mktemp("cwd")
    (cwd / "beside.py").write_text("VALUE = 'beside'")
    imports = None if request.param == "cold" else IMPORTS
    with kernel_pool(cwd, imports=imports, kernelspec=kernelspec) as pool:
        yield pool


#: Time limit of nbclient for one cell, in seconds. Without one it would wait for ever.
_CELL_S = 120


class References:
    """Notebooks that nbclient has executed. Those that this package executes must equal them.

    Starting kernels takes most of the time. So notebooks that change nothing in their kernel but
    variables and imported modules share one kernel, which is reset before each of them.

    Args:
        cwd: Folder of the shared kernel.
    """

    def __init__(self, kernelspec: str, cwd: Path) -> None:
        self._kernelspec = kernelspec
        self._cwd = cwd
        self._kept: NotebookClient | None = None
        self._made: dict[str, tuple[NotebookNode, bool]] = {}
        # Kernels listen on Unix sockets, because kernels that start together may choose the same
        # TCP port. Paths of Unix sockets must be short.
        self._folder = tempfile.TemporaryDirectory(dir="/tmp")

    def of(self, name: str, node: NotebookNode, *, cwd: Path) -> tuple[NotebookNode, bool]:
        """Return a notebook after nbclient has executed its cells, and whether all of them ran.

        Args:
            name: Name of the notebook. If it was executed before, that result is returned.
            node: The notebook.
            cwd: Folder of the kernel, if the notebook does not use the shared kernel.
        """
        if name not in self._made:
            fresh = copy.deepcopy(node)
            for cell in fresh.cells:
                if cell.cell_type == "code":
                    cell.outputs, cell.execution_count = [], None
            is_last = name not in LEAVES_NAMES_ONLY
            client = self._client(fresh, cwd if is_last else self._cwd)
            if not is_last and self._kept is not None:
                client.km, client.kc = self._kept.km, self._kept.kc
                assert client.kc is not None
                client.kc.execute("get_ipython().reset(new_session=True)", silent=True)
            try:
                client.execute(env=ENVIRONMENT, cleanup_kc=is_last)
                self._made[name] = fresh, True
            except (CellExecutionError, DeadKernelError):
                self._made[name] = fresh, False
            if not is_last:
                self._kept = client
        return self._made[name]

    def close(self) -> None:
        """End the kernel that notebooks have shared."""
        if self._kept is not None:
            self._kept._cleanup_kernel()
        self._folder.cleanup()

    def _client(self, node: NotebookNode, cwd: Path) -> NotebookClient:
        connection = Path(self._folder.name, f"{len(self._made)}.json")
        return NotebookClient(
            node,
            km=AsyncKernelManager(
                kernel_name=self._kernelspec, transport="ipc", connection_file=str(connection)
            ),
            kernel_name=self._kernelspec,
            resources={"metadata": {"path": str(cwd)}},
            iopub_timeout=60,
            timeout=_CELL_S,
        )


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory, kernelspec: str) -> Iterator[References]:
    references = References(kernelspec, tmp_path_factory.mktemp("shared by references"))
    yield references
    references.close()


_NOT_COLD = {name for place, name in enumerate([*CORPUS, *LEADING]) if place % 6}


@pytest.mark.parametrize("name", [*CORPUS, *LEADING])
def test_an_executed_notebook_equals_one_that_nbclient_ran_in_a_fresh_kernel(
    name: str,
    pool: KernelPool,
    references: References,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    kernels = request.node.callspec.params["pool"]
    if kernels == "shared" and name in CORPUS:
        pytest.skip("none of its cells is shared")
    if kernels == "cold" and name in _NOT_COLD and not request.config.getoption("--long"):
        pytest.skip("runs only with --long, because starts of kernels take most of the time")
    shared, contents = LEADING[name] if name in LEADING else (0, CORPUS[name])
    cells = [cell if isinstance(cell, str) else cell[0] for cell in contents]
    source = write_notebook(tmp_path / "nb.ipynb", *cells, shared=shared)
    node = nbformat.read(source, as_version=4)
    for cell, made_of in zip(node.cells[1:], contents, strict=True):
        if not isinstance(made_of, str):
            cell.metadata["tags"] = [made_of[1]]
    nbformat.write(node, source)

    if kernels == "shared":
        share_cells(source, pool)
    # Prepare no kernel for the next notebook. It would be forked after this one's shared cells.
    is_shared = kernels == "shared"
    ours, result = run_alone(source, pool, own={"x": 2.0}, prepares_next=not is_shared)
    if is_shared:
        assert result.shared_cells == shared, pool.findings
    nbformat.validate(ours)
    for cell in ours.cells:
        for output, following in itertools.pairwise(cell.get("outputs", [])):
            assert "name" not in output or output.name != following.get("name"), "in one piece"
    theirs, ran_all = references.of(name, ours, cwd=pool.setup.cwd)
    assert (result.ending == Finished()) == ran_all
    for cell, other in zip(seen(ours), seen(theirs), strict=True):
        assert cell == other
    assert widgets_in(ours) == widgets_in(theirs)


_MASKS = [
    (re.compile(r"ipykernel_\d+"), "ipykernel_N"),
    (re.compile(r"/tmp/[\w./-]*/(?=\d+\.py)"), "/tmp/"),
    (re.compile(r"\b0x[0-9a-f]{6,}"), "0xN"),
    (re.compile(r"/\d{6,}\.py"), "/N.py"),
    (re.compile(r"CPU times:.*?Wall time: .*?(?=\\n)"), "CPU times"),
    (re.compile(r"\[\d\d:\d\d<[^]]*\] *"), "[time]"),
]


def masked(text: str) -> str:
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


def seen(node: NotebookNode) -> list[Any]:
    """Return what a reader sees of each cell, without ids of processes and addresses."""
    return [
        (
            cell.source,
            cell.get("execution_count"),
            [masked(nbformat.from_dict(o).__repr__()) for o in in_order(cell.get("outputs", []))],
        )
        for cell in node.cells
    ]


def in_order(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Merge stream outputs that follow each other into one text of stdout, then one of stderr.

    A kernel sends the two streams independently. Only before an output of another kind, such as a
    display, does it send both.
    """
    kept: list[NotebookNode] = []
    for is_text, run in itertools.groupby(outputs, lambda o: bool(o.output_type == "stream")):
        pieces = list(run)
        if not is_text:
            kept += pieces
            continue
        for name in ("stdout", "stderr"):
            text = "".join(piece.text for piece in pieces if piece.name == name)
            if text:
                kept.append(new_output("stream", name=name, text=_RGX_CARRIAGERETURN.sub("", text)))
    return kept


def widgets_in(node: NotebookNode) -> list[str]:
    """Return the widgets of a notebook, without their ids."""
    kept = node.metadata.get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {})
    return sorted(str(widget) for widget in kept.get("state", {}).values())
