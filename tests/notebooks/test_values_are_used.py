"""The value of a trial is the one that the cells read, in whatever way they are written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from sweeper.notebooks.assignments import Assignments, with_values

#: A value that no cell has.
VALUE = 0.7310585786

#: What may stand between the statements of a cell; `{n}` is the swept name.
NOISE = (
    "",
    "\n",
    "# {n} = 0.5",
    "%matplotlib inline",
    "!pip install a \\\n  b",
    "!ls {{{n}}}",
    "files = !ls \\\n -l",
    "where = %pwd",
    "print?",
    "?print",
    "text = '''\n{n} = 0.5\n%ls\n'''",
    'text = """\n>>> {n} = 0.5\n"""',
    "ä = 'ü'; other = 0.5",
    "\x0c",
    "x = [1,\n  2]",
    "import math, os.path",
    "from starred import *",
    "@str\ndef f(): pass",
    "def {n}_2({n}=0.5): return {n}",
    "xs = [{n} for {n} in range(3)]",
    "f = lambda {n}: {n}",
    "class A:\n    {n} = 0.5\n    def f(self):\n        {n} = 0.5",
    "{n}: float",
    "{n}1 = 0.5",
    "%time other = 0.5",
    "if True:\n    !ls\n    other = 0.5",
    "for i in range(2):\n    %pwd\n    other = 0.5",
    "s = f'{{0.5}} {{other!r}}' if 'other' in globals() else 0.5",
    "x = '\\\n'",
)
#: What assigns the name a plain value.
PLACES = (
    "{n} = 0.5",
    "{n} = 0.5",
    "{n} = 0.5  # {n} = 0.5",
    "{n}: float = 0.5",
    "other, {n} = 0.5, 0.5",
    "(other, [{n}, *_]) = 0.5, [0.5, 1]",
    "[{n}, other] = 0.5, 'ü'",
    "other, {n} = [0.5, (0.5)]",
    "ä = 'ü'; {n} = 0.5; other = 0.5",
    "{n} = (\n    0.5\n)",
    "{n} = \\\n  0.5",
    "{n} = 0.5; text = '''\n0.5'''",
    "text = '''\n0.5'''; {n} = 0.5",
    "{n} = 5 / 10",
    "{n} = ('a'\n 'b')",
    "{n} = [\n  1,  # one\n  2,\n]",
    "{n} = {{'a': 0.5}}",
)
#: What reads it.
READS = (
    "seen({n})",
    "seen({n})",
    "[seen({n}) for _ in range(2)]",
    "def read(): seen({n})\nread()",
    "def read(x={n}): seen(x)\nread()",
    "class B:\n    kept = {n}\nseen(B.kept)",
    "if {n} == {n}:\n    seen({n})",
    "(lambda: seen({n}))()",
    "seen(\n  {n},\n)",
    "def read(): seen({n})",
    "if 'read' in globals(): read()",
    "%time seen({n})",
)
#: What computes it from itself: here it stays as it is.
SCHEDULES = (
    "{n} *= 1",
    "{n} = {n} * 1",
    "{n} = max({n}, {n})",
    "for i in range(2):\n    {n} = {n} * 1",
    "def decay():\n    global {n}\n    {n} = {n} * 1\ndecay()",
    "({n} := {n} * 1)",
    "{n}, other = {n} * 1, 0.5",
)
#: What gives it another value.
REBINDINGS = (
    "{n} = 0.25",
    "{n} = float('0.25')",
    "if True:\n    {n} = 0.25",
    "try:\n    {n} = 0.25\nexcept ValueError:\n    pass",
    "import math as {n}",
    "from math import pi as {n}",
    "with open(os_path) as {n}:\n    pass",
    "({n} := 0.25)",
    "[({n} := i) for i in range(2)]",
    "print(*(({n} := 1) for _ in range(1)))",
    "for {n} in (1, 2):\n    pass",
    "for i, ({n}, _) in [(1, (2, 3))]: pass",
    "try:\n    1 / 0\nexcept ZeroDivisionError as {n}:\n    pass",
    "def change():\n    global {n}\n    {n} = 0.25\nchange()",
    "def change():\n    global {n}\n    {n} = 0.25",
    "if 'change' in globals(): change()",
    "class C:\n    global {n}\n    {n} = 0.25",
    "def {n}(): pass",
    "class {n}: pass",
    "match 1:\n    case {n}:\n        pass",
    "match [1, 2]:\n    case [*{n}]:\n        pass",
    "match {{'a': 1}}:\n    case {{**{n}}}:\n        pass",
    "{n}, other = 1, 2",
    "other = {n} = 0.25",
    "*{n}, other = 1, 2",
    "del {n}",
    "def f(x=({n} := 0.25)): pass",
    "{n} = [{n} for {n} in range(3)]",
    "{n} = (lambda {n}: {n})(3)",
    "!ls\n{n} = 0.25",
    "if True:\n    !ls\n    {n} = 0.25",
    "async def g():\n    global {n}\n    async with h() as {n}: pass",
    "lambda: [({n} := 1) for _ in range(2)]",
    "def g():\n    {n} = 0.25\n    def h():\n        nonlocal {n}\n        {n} = 1",
)
HEADS = ("", "", "", "", "\n", "\n  \n\n", "%%time\n", "\n%%capture out\n", "%%time\n%%capture\n")

_ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"])


@st.composite
def cells(draw: st.DrawFn, name: str) -> list[str]:
    """Cells that assign a name, read it, and may give it another value."""
    pieces = [draw(st.sampled_from(PLACES))]
    for kind, most in ((READS, 4), (NOISE, 5), (SCHEDULES, 1), (REBINDINGS, 1)):
        pieces += draw(st.lists(st.sampled_from(kind), max_size=most))
    first, *others = (piece.format(n=name) for piece in pieces)
    others = draw(st.permutations(others))
    early = draw(st.integers(0, min(2, len(others))))
    ordered = [*others[:early], first, *others[early:]]
    found: list[str] = []
    while ordered:
        size = draw(st.integers(1, len(ordered)))
        text = draw(st.sampled_from(HEADS)) + "\n".join(ordered[:size])
        found.append(text.replace("\n", draw(_ENDS)))
        ordered = ordered[size:]
    return found


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    """IPython without a terminal, a history and commands that run anything."""
    config = Config({"HistoryManager": {"enabled": False}})
    config.HistoryManager.hist_file = ":memory:"
    shell: Any = InteractiveShell(config=config)  # type: ignore[no-untyped-call]
    shell.system = lambda *_: None
    shell.getoutput = lambda *_, **__: []
    for magic in ("matplotlib", "pinfo", "pwd"):
        shell.register_magic_function(lambda *_: None, magic_name=magic)
    shell.showtraceback = lambda *_, **__: None
    starred = ModuleType("starred")
    vars(starred)["of_another_module"] = 1
    sys.modules["starred"] = starred
    yield shell
    del sys.modules["starred"]


def run(shell: Any, sources: list[str]) -> list[Any]:
    """Run cells up to the first that fails; return what they have read."""
    shell.user_ns.clear()  # `reset` takes 50 ms
    shell.init_user_ns()
    read: list[Any] = []
    shell.push({"seen": read.append, "os_path": __file__})
    for source in sources:
        if not shell.run_cell(source, store_history=False, silent=True).success:
            break
    return read


@pytest.mark.parametrize("name", ["lr", "ϵ"])
@settings(derandomize=True, max_examples=150, deadline=None)
@given(data=st.data())
def test_cells_read_the_value_of_the_trial_or_the_name_is_refused(
    shell: Any, name: str, data: st.DataObject
) -> None:
    sources = data.draw(cells(name))
    wanted = "ε" if name == "ϵ" else name
    if Assignments(sources).why_not(wanted):
        return
    changed = with_values(sources, {wanted: VALUE}, repr)
    assert changed != sources
    read = run(shell, changed)
    assert set(read) <= {VALUE}, changed
