"""Which leading cells may run once: a table of cells, and notebooks made up by chance."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from made_up_notebooks import NOTEBOOK, Cell, Notebook, Run, code

from sweeper.notebooks.shared_cells import find_shared_cells


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


PARAMETERS = ("lr = 0.1\nwidth = 8", "parameters")
INJECTED = ("# Parameters\nwidth = 16", "injected-parameters")

#: Cells that cannot be shared, each with a word of the reason.
ENDING = [
    # It names the swept parameter, in whatever place.
    ("model = lr * 2", "mentions lr"),
    ("def step():\n    return lr", "lr"),
    ("f'{lr:.3f}'", "lr"),
    ("f'{width:{lr}}'", "lr"),
    ("def step(rate=lr): ...", "lr"),
    ("def step(lr): return lr", "lr"),
    ("step = lambda: lr", "lr"),
    ("step = lambda lr: 1", "lr"),
    ("df.query('score > @lr')", "lr"),
    ("df.eval('a = b * lr')", "lr"),
    ("text = 'the lr of this run'", "lr"),
    ("text = '{lr}'.format_map(names)", "lr"),
    ("text = b'lr'", "lr"),
    ("@scaled(lr)\ndef step(): ...", "lr"),
    ("[lr for lr in range(3)]", "lr"),
    ("{k: lr for k in 'ab'}", "lr"),
    ("[y for x in range(3) if (y := lr)]", "lr"),
    ("(lr := 3)", "lr"),
    ("def f():\n    global lr\n    lr = 1", "lr"),
    ("class Config:\n    lr = 3", "lr"),
    ("class lr: ...", "lr"),
    ("del lr", "lr"),
    ("lr = 3", "lr"),
    ("lr: float = 3", "lr"),
    ("lr += 1", "lr"),
    ("for lr in []: ...", "lr"),
    ("with context as lr: ...", "lr"),
    ("try: ...\nexcept ValueError as lr: ...", "lr"),
    ("match point:\n    case {'a': lr}: ...", "lr"),
    ("match point:\n    case [*lr]: ...", "lr"),
    ("from lib import lr", "lr"),
    ("from lib import rate as lr", "lr"),
    ("import lr", "lr"),
    ("import lib.lr", "lr"),
    ("import numpy as lr", "lr"),
    ("from lr import rate", "lr"),
    ("f(*lr, **lr)", "lr"),
    ("x: 'lr' = 1", "lr"),
    ("%config InlineBackend.rc = {'figure.dpi': lr}", "lr"),
    ("%%capture lr\n1", "lr"),
    ("lr.x = 3", "lr"),
    # It reaches names that do not stand in it.
    ("globals()['l' + 'r']", "globals"),
    ("locals()", "locals"),
    ("vars()", "vars"),
    ("exec('1')", "exec"),
    ("f = eval", "eval"),
    ("compile('1', '', 'eval')", "compile"),
    ("def f():\n    return get_ipython()", "get_ipython"),
    ("__import__('os')", "__import__"),
    ("getattr(__builtins__, 'e' + 'val')", "__builtins__"),
    ("import builtins as b\nb.exec('1')", "builtins"),
    ("from builtins import exec as run\nrun('1')", "builtins"),
    ("import __main__ as me\nme.lr", "__main__"),
    ("import importlib\nimportlib.import_module('__main__')", "__main__"),
    ("import sys\nsys.modules", "modules"),
    ("from sys import modules as m\nm['a']", "modules"),
    ("from sys import *", "all of sys"),
    ("import sys\nsys._getframe(0).f_globals", "f_globals"),
    ("(lambda: 0).__globals__", "__globals__"),
    ("import inspect\ninspect.stack()", "inspect"),
    ("import IPython\nIPython.get_ipython()", "IPython"),
    ("from IPython import get_ipython as shell\nshell()", "IPython"),
    ("print(In[2])", "In"),
    ("_i2", "_i2"),
    ("print(_ih)", "_ih"),
    # It is not plain Python.
    ("%run other.py", "plain Python"),
    ("!ls", "plain Python"),
    ("files = !ls", "plain Python"),
    ("%%bash\nls", "plain Python"),
    ("%%timeit\n1", "plain Python"),
    ("%time 1", "plain Python"),
    ("%matplotlib widget", "plain Python"),
    ("%load_ext tensorboard", "plain Python"),
    ("len?", "plain Python"),
    ("x = ", "plain Python"),
    ("  x = 1\n y = 2", "plain Python"),
    ("x = '\0'", "plain Python"),
    ("whos", "magic"),
    ("reset -f", "magic"),
    ("s = " + " + ".join(["1"] * 1500), "deeply"),
    # It asks the user, awaits, or starts something.
    ("name = input()", "input"),
    ("import threading\nthreading.Thread(target=print).start()", "threading"),
    ("import threading as t\nt.Thread(target=print).start()", "threading"),
    ("import subprocess\nsubprocess.run(['ls'])", "subprocess"),
    ("from subprocess import run\nrun(['ls'])", "subprocess"),
    ("from multiprocessing import Pool\nPool(2)", "multiprocessing"),
    ("import multiprocessing.pool as mp\nmp.Pool(2)", "multiprocessing"),
    ("from torch import multiprocessing as mp\nimport multiprocessing as mp\nmp.Pool()", "multip"),
    ("import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor()", "concurrent"),
    ("from concurrent.futures import ThreadPoolExecutor as T\nT(2)", "concurrent"),
    ("from threading import *", "all of threading"),
    ("threading.Thread()", "threading"),
    ("from joblib import Parallel, delayed\nParallel(2)([])", "joblib"),
    ("import os\nos.system('ls')", "system"),
    ("import os\nos.fork()", "fork"),
    ("await f()", "awaits"),
    ("async with f(): ...", "awaits"),
    ("[x async for x in f()]", "awaits"),
    ("import asyncio\nasyncio.ensure_future(f())", "asyncio"),
    ("import atexit\natexit.register(print)", "atexit"),
    ("import signal\nsignal.alarm(1)", "signal"),
    ("import mlflow\nmlflow.start_run()", "mlflow"),
    ("import sweeper\nsweeper.score(val=1)", "sweeper"),
    ("from sweeper import report\nreport(1, loss=2)", "sweeper"),
    # Each process should have a value of its own.
    ("import time\nstart = time.time()", "time"),
    ("import time as t\nstart = t.perf_counter()", "time"),
    ("from time import perf_counter as clock\nclock()", "time"),
    ("from timeit import default_timer as timer\ntimer()", "timeit"),
    ("import time\ntime.strftime('%Y')", "time"),
    ("from datetime import datetime\nname = f'run-{datetime.now()}'", "now"),
    ("import datetime as dt\ndt.date.today()", "today"),
    ("import numpy as np\nnp.datetime64('now')", "now"),
    ("import os\nos.getpid()", "getpid"),
    ("from os import getpid as g\ng()", "getpid"),
    ("import tempfile\ntempfile.mkdtemp()", "tempfile"),
    ("from tempfile import TemporaryDirectory\nTemporaryDirectory()", "tempfile"),
    ("import uuid\nuuid.uuid4()", "uuid"),
    ("from uuid import uuid4\nuuid4()", "uuid"),
    ("import secrets\nsecrets.token_hex()", "secrets"),
    ("import psutil\npsutil.Process()", "psutil"),
    ("import os\nos.urandom(3)", "urandom"),
    ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'", "CUDA_VISIBLE_DEVICES"),
    ("import os\nos.environ['SWEEPER_TRIAL']", "SWEEPER_TRIAL"),
    ("import sys\nsys.argv", "argv"),
    ("import torch\nn = torch.cuda.device_count()", "cuda"),
    ("net.to('cuda')", "cuda"),
    # It leaves what forks would have in common, or clears what an earlier trial has left.
    ("log = open('log.txt', 'w')", "writing"),
    ("open('log.txt', mode='a').write('x')", "writing"),
    ("from pathlib import Path\nPath('log').open('r+')", "writing"),
    ("with closing(open('log', 'w')): ...", "writing"),
    ("with open('log'): log = open('log', 'w')", "writing"),
    ("import sys\nsys.stdout = Tee(sys.stdout)", "stdout"),
    ("weights.share_memory_()", "share_memory_"),
    ("import shutil\nshutil.rmtree('checkpoints')", "rmtree"),
    ("from shutil import rmtree\nrmtree('checkpoints')", "rmtree"),
    ("from pathlib import Path\nPath('best.pt').unlink(missing_ok=True)", "unlink"),
    ("import os\nos.remove('best.pt')", "remove"),
]

#: A cell that says nothing of `lr`, though some look as if they did.
GOING_ON = [
    "",
    "x = 1",
    "x = width * 2",
    "lrs = [1]",
    "text = 'lr_scheduler, l r'",
    "# lr\nx = 1  # lr too",
    "config.lr = 3",
    "x = config.lr",
    "Config(lr=3)",
    "dict(lr=3, **{})",
    "import lib.rate",
    "from lib import *",
    "def f(a, b=1): return a + b",
    "class A:\n    def f(self): return self.lr",
    "%%time\nx = 1",
    "%%capture\nx = 1",
    "%%capture output\nx = 1",
    "%matplotlib inline\nx = 1",
    "if x:\n    %matplotlib inline",
    "%load_ext autoreload\n%autoreload 2",
    "%config InlineBackend.figure_format = 'retina'",
    "import threading, subprocess, multiprocessing as mp",
    "import concurrent.futures, asyncio, uuid, tempfile, time, signal, mlflow",
    "from multiprocessing import Pool",
    "import sweeper",
    "from sweeper import report, score",
    "import time\ntime.sleep(0.5)",
    "import time as t\nt.sleep(0.5)",
    "from time import sleep\nsleep(1)",
    "import joblib\njoblib.load('data.pkl')",
    "from IPython.display import display, Markdown\ndisplay(Markdown('# a'))",
    "from IPython import display\ndisplay.display(1)",
    "from sklearn.cluster import code\ncode(3)",
    "import os\nos.environ['TOKENIZERS_PARALLELISM'] = 'false'",
    "import os\nos.chdir('data'); os.makedirs('a', exist_ok=True); os.path.exists('b')",
    "import sys\nsys.path.insert(0, 'src')\nprint('x', file=sys.stdout)",
    "text = open('data.csv').read()",
    "text = open('data.csv', 'rb').read()",
    "with open('made.txt', 'w') as file:\n    file.write('x')",
    "with open('a', 'w') as a, open('b', 'a') as b: ...",
    "import numpy as np\nnp.random.seed(0)\nrng = np.random.default_rng(0)",
    "names.remove('a'); 'a'.replace('a', 'b'); df.rename(columns={})",
    "async def f(): return 1",
    "hist = [1]\nhist",
    "x = '\\d'",
    "s = " + " + ".join(["1"] * 300),
]


@pytest.mark.parametrize(("source", "word"), ENDING)
def test_a_cell_that_a_swept_parameter_could_reach_is_not_shared(source: str, word: str) -> None:
    cells = [code(cell) for cell in (PARAMETERS, INJECTED, "first = 1", source, "last = 2")]
    leading = find_shared_cells(cells, ["lr"])
    assert leading.cells == 3
    assert leading.ended_by.startswith("code cell 4 ")
    assert word in leading.ended_by


@pytest.mark.parametrize("source", GOING_ON)
def test_a_cell_that_no_swept_parameter_can_reach_is_shared(source: str) -> None:
    cells = [code(cell) for cell in (PARAMETERS, INJECTED, "first = 1", source, "last = 2")]
    leading = find_shared_cells(cells, ["lr"])
    assert (leading.cells, leading.ended_by) == (5, "")


#: Whole notebooks: their cells, what is swept, how many cells are shared, and a word of why.
NOTEBOOKS: dict[str, tuple[Sequence[Cell | dict[str, Any]], set[str], int, str]] = {
    "no cells": ([], {"lr"}, 0, ""),
    "no code": ([markdown("lr")], {"lr"}, 1, ""),
    "nothing swept": ([PARAMETERS, INJECTED, "lr"], set(), 3, ""),
    "markdown does not count": (
        [markdown("# lr"), PARAMETERS, INJECTED, markdown("use lr"), "lr", "1"],
        {"lr"}, 4, "code cell 3 mentions lr",
    ),
    "a fixed name is no matter": ([PARAMETERS, INJECTED, "width", "lr"], {"lr"}, 3, "lr"),
    "another is swept": ([PARAMETERS, INJECTED, "lr", "width"], {"width"}, 3, "width"),
    "several are swept": ([PARAMETERS, INJECTED, "(width, lr)"], {"width", "lr"}, 2, "width"),
    "parameters in the middle": (["a = 1", PARAMETERS, INJECTED, "a", "lr"], {"lr"}, 4, "lr"),
    "a mention before the parameters": (["lr = 3", PARAMETERS, INJECTED], {"lr"}, 0, "lr"),
    "parameters after the end": (["a", "input()", PARAMETERS, INJECTED], {"lr"}, 1, "input"),
    "parameters last": (["a = 1", PARAMETERS, INJECTED], {"lr"}, 3, ""),
    "no parameters": (["a = 1", "lr"], {"lr"}, 1, "lr"),
    "no tags": (
        [{"cell_type": "code", "source": "a"}, {"cell_type": "code", "source": "lr"}],
        {"lr"}, 1, "lr",
    ),
    "lines of source": (
        [{"cell_type": "code", "source": ["a = 1\n", "lr"], "metadata": {}}], {"lr"}, 0, "lr",
    ),
    "the parameters cell uses a default": (
        [("lr = 0.1\nrates = [lr, lr * 2]\nprint(f'{lr}')", "parameters"), INJECTED, "rates"],
        {"lr"}, 3, "",
    ),
    "a remark in the parameters cell": (
        [("'''lr: how fast'''\nlr = 0.1\n'width, lr'", "parameters"), INJECTED], {"lr"}, 2, "",
    ),
    "a def in the parameters cell": (
        [("lr = 0.1\ndef rate(): return lr", "parameters"), INJECTED], {"lr"}, 0, "lr",
    ),
    "a lambda in the parameters cell": (
        [("lr = 0.1\nrate = lambda: lr", "parameters"), INJECTED], {"lr"}, 0, "lr",
    ),
    "a class in the parameters cell": (
        [("lr = 0.1\nclass A:\n    def f(self): return lr", "parameters")], {"lr"}, 0, "lr",
    ),
    "a generator in the parameters cell": (
        [("lr = 0.1\nrates = (lr * i for i in range(3))", "parameters")], {"lr"}, 0, "lr",
    ),
    "a list in the parameters cell": (
        [("lr = 0.1\nrates = [lr * i for i in range(3)]", "parameters"), "rates"], {"lr"}, 2, "",
    ),
    "a query in the parameters cell": (
        [("lr = 0.1\nwanted = 'score > @lr'", "parameters"), INJECTED, "df.query(wanted)"],
        {"lr"}, 0, "lr",
    ),
    "a query that is injected": (
        [PARAMETERS, ("wanted = 'score > @lr'", "injected-parameters"), "df.query(wanted)"],
        {"lr"}, 1, "lr",
    ),
    "a def of another name in the parameters cell": (
        [("lr = 0.1\ndef rate(n): return n", "parameters"), INJECTED, "rate(3)"], {"lr"}, 3, "",
    ),
    "what cannot be followed in the parameters cell": (
        [("lr = 0.1\nimport os\npid = os.getpid()", "parameters"), INJECTED], {"lr"}, 0, "getpid",
    ),
    "the injected cell assigns swept names": (
        [PARAMETERS, ("lr = 3\nwidth = 2", "injected-parameters"), "1"], {"lr"}, 3, "",
    ),
    "a cell that is skipped": (
        [PARAMETERS, INJECTED, ("lr + !", "skip-execution"), "1"], {"lr"}, 4, "",
    ),
    "a cell that may fail": (
        [PARAMETERS, INJECTED, ("1", "raises-exception"), "1"], {"lr"}, 2, "raises-exception",
    ),
    "another tag": ([PARAMETERS, INJECTED, ("1", "hide-input")], {"lr"}, 3, ""),
    "an import in an earlier cell": (
        ["import threading as t", "from time import sleep as nap", "nap(1)", "t.Thread()"],
        {"lr"}, 3, "threading",
    ),
    "a name imported anew": (
        ["from lib import thing as t", "t()", "import threading as t", "t.Thread()"],
        {"lr"}, 3, "threading",
    ),
    "a name of a module that means something else": (
        ["from lib import code", "code(1)"], {"lr"}, 2, "",
    ),
    "several names in one cell": (
        [PARAMETERS, INJECTED, "if width:\n    b = 1\nelse:\n    b = beta"],
        {"beta", "b_"}, 2, "beta",
    ),
    "a name within another": ([PARAMETERS, INJECTED, "xlr, lrx, l_r, LR = 1, 2, 3, 4"],
                              {"lr"}, 3, ""),
    "a name beyond ASCII": ([PARAMETERS, INJECTED, "η = 1", "größe"], {"größe"}, 3, "größe"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_shared_up_to_the_first_cell_that_could_differ(name: str) -> None:
    cells, swept, count, word = NOTEBOOKS[name]
    read = [cell if isinstance(cell, dict) else code(cell) for cell in cells]
    leading = find_shared_cells(read, swept)
    assert leading.cells == count
    assert word in leading.ended_by
    assert (leading.ended_by == "") == (count == len(cells))


def test_reading_a_notebook_suppresses_its_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_shared_cells([code("x = '\\d'")], ["lr"]).cells == 1


# --- notebooks made up by chance -----------------------------------------------------------------


#: Statements, a semicolon for each new line. In braces, what is chosen: a variable, a variable or a
#: parameter to read, a parameter, a list, a function, a class, a constant.
@settings(max_examples=500, derandomize=True, deadline=None)
@given(NOTEBOOK)
@pytest.mark.slow
def test_shared_cells_leave_the_same_state_as_cells_of_each_trial(notebook: Notebook) -> None:
    fixed = dict.fromkeys(notebook.fixed, 4)
    cells = notebook.injected(fixed)
    count = find_shared_cells([code(cell) for cell in cells], notebook.swept).cells
    is_injected = count > notebook.place + 2
    for value in (0, 3):
        own = dict.fromkeys(notebook.swept, value)
        whole = notebook.injected({**fixed, **own})
        alone, shared = Run(), Run()
        alone.go_on(whole)
        shared.go_on(cells[:count])
        if is_injected and shared.raised is None:
            shared.names.update(own)
        shared.go_on(whole[count:])
        if shared.raised is not None and shared.raised[0] < count:
            assert alone.raised == shared.raised
        else:
            assert alone.left() == shared.left()
