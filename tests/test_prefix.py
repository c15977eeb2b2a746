"""Which leading cells may run once: a table of cells, and notebooks made up by chance."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.prefix import shared_prefix

#: Of a cell: its source, or its source and tags.
Cell = str | tuple[str, ...]


def code(cell: Cell) -> dict[str, Any]:
    source, *tags = (cell,) if isinstance(cell, str) else cell
    return {"cell_type": "code", "source": source, "metadata": {"tags": tags}}


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


PARAMETERS = ("lr = 0.1\nwidth = 8", "parameters")
INJECTED = ("# Parameters\nwidth = 16", "injected-parameters")

#: A cell that keeps `lr` from reaching what comes before it, by a word of what is said of it.
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
    "%%capture said\nx = 1",
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
def test_a_cell_that_a_swept_parameter_could_reach_ends_the_prefix(source: str, word: str) -> None:
    cells = [code(cell) for cell in (PARAMETERS, INJECTED, "first = 1", source, "last = 2")]
    prefix = shared_prefix(cells, ["lr"])
    assert prefix.cells == 3
    assert prefix.ended_by.startswith("code cell 4 ")
    assert word in prefix.ended_by


@pytest.mark.parametrize("source", GOING_ON)
def test_a_cell_that_none_could_reach_is_shared(source: str) -> None:
    cells = [code(cell) for cell in (PARAMETERS, INJECTED, "first = 1", source, "last = 2")]
    prefix = shared_prefix(cells, ["lr"])
    assert (prefix.cells, prefix.ended_by) == (5, "")


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
    prefix = shared_prefix(read, swept)
    assert prefix.cells == count
    assert word in prefix.ended_by
    assert (prefix.ended_by == "") == (count == len(cells))


def test_reading_a_notebook_says_none_of_its_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shared_prefix([code("x = '\\d'")], ["lr"]).cells == 1


# --- notebooks made up by chance -----------------------------------------------------------------

#: Statements, a semicolon for each new line. In braces, what is chosen: a variable, a variable or a
#: parameter to read, a parameter, a list, a function, a class, a constant.
STATEMENTS = """
{n} = {k}
{n} = {v} + {v}
{n} = {v} * {k} - {v}
{n} += {v}
{n}, {n} = {v}, {v}
{n} = {p}
{n} = {n} if {v} > {k} else {v}
{l} = {l}
{l} = list({l}) + [{v}]
{l} = [{v}, {v}]
{l} = [i + {v} for i in {l}]
{l} = sorted({l}, key={f})
{l}.append({v})
{l}.extend([{v}, *{l}])
{l}[0] = {v}
{l} += [{k}]
{n} = len({l})
{n} = sum({l})
{n} = max(*{l}, {v}, {k})
if {v} > {k}:;    {n} = {v};else:;    {l}.append({k})
for {n} in range({k}):;    {l}.append({n} + {v})
for i in list({l}):;    {n} = {n} + i
i = 0;while i < {k}:;    i += 1;    {l}.append({v})
def {f}(u, w={v}):;    return u + w + {v}
def {f}(u):;    {l}.append(u);    return len({l})
def {f}(u):;    global {n};    {n} = u;    return {v}
def {f}(u):;    {n} = u;    return {n} + {v}
def {f}({p}):;    return {p} + {v}
def {f}(u):;    return {c}().get() + u
{f} = lambda u: u + {v}
{f} = lambda u, w={v}: u + w
{n} = {f}({v})
{n} = {f}({n})
{f} = {f}
calls['{n}'] = lambda: {v}
calls['{k}'] = {c}().get
{n} = sum(call() for call in calls.values())
{n} = len(f'{{v}}')
text = f'{{v}} and {{n}!r}'
text = '{v}'
text = '{p}_{k}'
{n} = len(text)
{n} = eval(text)
{n} = eval('{v} + {k}')
exec('{n} = {v}')
{n} = globals()['{v}']
{n} = dict({p}={k}).get('{v}', {k})
{n} = dict({p}={v}).popitem()[1]
{n} = [*vars({c})].count('{p}')
random.seed({k})
{n} = random.random()
{n} = random.randint(0, {k})
random.shuffle({l})
try:;    {n} = {v} // ({v} - {k});except ZeroDivisionError as error:;    {n} = {k}
try:;    {l}.append({l}[{v}]);finally:;    {n} = {v}
{n} = 12 // ({v} - {k})
class {c}:;    held = {v};    def get(self):;        return {v} + self.held
class {c}:;    {p} = {v};    def get(self):;        return {k}
{c}.held = {v}
{c}.{p} = {v}
{n} = {c}.{p}
{n} = {c}().get()
print(({n} := {v}))
{n} = [({n} := i) for i in {l}][0]
{n} = [{p} for {p} in range(3)][0]
if {v} > 3:;    del {n}
del {p}
{p} = {k}
later = (u + {v} for u in {l})
later = map({f}, {l})
{n} = next(later, {k})
{l} = [i for i, _ in zip(later, range(9))]
import math as {n};{n} = {n}.floor(2.5)
{n} = __import__('math').floor({v})
with nullcontext({v}) as {n}:;    {l}.append({n} + {v})
match {v}:;    case {k}:;        {n} = {v};    case _:;        {n} = -1
""".strip().split("\n")

SETUP = """
n0, n1, n2 = 1, 2, 3
l0, l1 = [1, 2], [3]
f0, f1 = (lambda u: u), (lambda u: u + n1)
calls, text, later = {}, "n0", iter(())
class c0:
    held = 1
    def get(self): return n2
for i in range(3): setattr(c0, f'p{i}', i)
"""

NAMES = {
    "n": ["n0", "n1", "n2"],
    "p": ["p0", "p1", "p2"],
    "l": ["l0", "l1"],
    "f": ["f0", "f1"],
    "c": ["c0"],
    "k": ["0", "1", "2", "3", "4"],
}
DEFAULTS = "p0 = 1\np1 = 2\np2 = 3\n"


@dataclass(frozen=True)
class Notebook:
    cells: Sequence[str]
    parameters: str
    place: int
    swept: Sequence[str]
    fixed: Sequence[str]

    def injected(self, values: Mapping[str, int]) -> list[tuple[str, ...]]:
        """As papermill makes it."""
        said = "".join(f"{name} = {value}\n" for name, value in values.items())
        before, after = self.cells[: self.place], self.cells[self.place :]
        tagged = [(self.parameters, "parameters"), (said, "injected-parameters")]
        return [(SETUP,), *((c,) for c in before), *tagged, *((c,) for c in after)]


#: What keeps an expression for later, and what uses it: more of these find more.
KEEPING = [s for s in STATEMENTS if re.match(r"def|class|\{f\} = lambda|calls|text =|later", s)]
USING = [s for s in STATEMENTS if re.search(r"= \{f\}\(|call\(\)|next\(|\.get\(\)|\(text\)", s)]


def statement(chance: random.Random, templates: Sequence[str], *, parameters: float) -> str:
    """One of some templates; each variable that it reads may be a parameter instead."""
    text = chance.choice(templates)
    while "{v}" in text:
        text = text.replace("{v}", "{p}" if chance.random() < parameters else "{n}", 1)
    for slot, names in NAMES.items():
        while f"{{{slot}}}" in text:
            text = text.replace(f"{{{slot}}}", chance.choice(names), 1)
    return text.replace(";", "\n")


def made_up(seed: bytes, length: int) -> Notebook:
    chance = random.Random(seed)
    # Few kinds in one notebook: with all of them, hardly a prefix would be long.
    templates = [
        *chance.sample(STATEMENTS, 12),
        *chance.sample(KEEPING, 2),
        *chance.sample(USING, 3),
    ]
    parameters = chance.choice([0.03, 0.1, 0.3])
    extra = [
        statement(chance, KEEPING, parameters=0.6) for _ in range(chance.choice([0, 0, 0, 1, 2]))
    ]
    roles = [chance.choice(["swept", "swept", "fixed", ""]) for _ in NAMES["p"]]
    return Notebook(
        cells=[
            "\n".join(
                statement(chance, templates, parameters=parameters)
                for _ in range(chance.randint(1, 3))
            )
            for _ in range(length)
        ],
        parameters=DEFAULTS + "\n".join(extra),
        place=chance.choice([0, 0, chance.randint(0, length)]),
        swept=[name for name, role in zip(NAMES["p"], roles, strict=True) if role == "swept"],
        fixed=[name for name, role in zip(NAMES["p"], roles, strict=True) if role == "fixed"],
    )


NOTEBOOK = st.builds(made_up, st.binary(min_size=8, max_size=8), st.integers(4, 14))


@cache
def compiled(source: str) -> CodeType:
    return compile(source, "cell", "exec", dont_inherit=True)


class Run:
    """Cells that ran in a namespace of their own, up to the first that raises."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.raised: tuple[int, type] | None = None
        self.names: dict[str, Any] = {
            "__name__": "__main__",
            "random": random.Random(0),
            "print": self.said.append,
            "nullcontext": nullcontext,
        }
        self._ran = 0

    def go_on(self, cells: Sequence[tuple[str, ...]]) -> None:
        for source, *_ in cells:
            if self.raised is None:
                try:
                    exec(compiled(source), self.names)
                except Exception as error:  # noqa: BLE001
                    self.raised = self._ran, type(error)
            self._ran += 1

    def left(self) -> list[Any]:
        """All that can be seen of it; what can be called is."""
        names = self.names
        seen = [(name, plain(names[name])) for name in sorted({*names} - {"__builtins__"})]
        same = [names.get("l0") is names.get("l1"), names.get("f0") is names.get("f1")]
        return [self.raised, seen, same, self.said, plain(names.get("l0")), plain(names.get("l1"))]


def plain(value: Any) -> Any:
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, list | dict):
        items = value if isinstance(value, list) else value.items()
        return [plain(item) for item in items]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, random.Random):
        return value.random()
    try:
        if isinstance(value, Iterator):
            return [plain(item) for item, _ in zip(value, range(9), strict=False)]
        if isinstance(value, type):
            return [value().get(), {k: plain(v) for k, v in vars(value).items() if k[0] != "_"}]
        return value() if value.__code__.co_argcount == 0 else value(2)
    except Exception as error:  # noqa: BLE001
        return type(error)


@settings(max_examples=500, derandomize=True, deadline=None)
@given(NOTEBOOK)
def test_cells_that_are_shared_leave_what_each_trial_would_have_got(notebook: Notebook) -> None:
    fixed = dict.fromkeys(notebook.fixed, 4)
    cells = notebook.injected(fixed)
    count = shared_prefix([code(cell) for cell in cells], notebook.swept).cells
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
