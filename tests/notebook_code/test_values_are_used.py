"""Test with generated cells that a notebook's code reads the trial's value of a swept name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shells import new_shell

from sweeper.notebook_code.assignments import Assignments, with_values
from sweeper.notebook_code.rebinding import has_schedule
from sweeper.sweep.scheduling.overwritten_names import EndedTrial, overwritten

pytestmark = pytest.mark.slow  # hundreds of generated notebooks

#: The value that the trial gives to the swept name. No generated cell contains it.
VALUE = 0.7310585786

#: Code that has no effect on the swept name `{n}`, to be put between other statements.
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
#: Statements that assign the swept name a plain value, which a trial replaces.
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
#: Statements that read the swept name and pass its value to `seen`.
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
#: Statements that compute the swept name from itself, as a schedule does. Here its value stays.
SCHEDULES = (
    "{n} *= 1",
    "{n} = {n} * 1",
    "{n} = max({n}, {n})",
    "for i in range(2):\n    {n} = {n} * 1",
    "def decay():\n    global {n}\n    {n} = {n} * 1\ndecay()",
    "({n} := {n} * 1)",
    "{n}, other = {n} * 1, 0.5",
)
#: Statements that give the swept name another value, so that a sweep of it must be refused.
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
#: Statements that assign an attribute of the class `CFG` a plain value.
ATTRIBUTES = (
    "class CFG:\n    {n} = 0.5",
    "class CFG:\n    other, {n} = 1, 0.5\n    twice = {n}",
    "@dataclass\nclass CFG:\n    other: int = 3\n    {n}: float = 0.5",
    "class CFG:\n    {n} = 0.5\nCFG.{n} = 0.5",
    "class CFG: pass\nCFG.{n} = 0.5",
    "CFG = type('T', (), {{}})()\nCFG.{n} = 0.5",
    "CFG = type('T', (), {{}})()\nCFG.other, CFG.{n} = 'ü', 0.5",
)
ATTRIBUTE_READS = (
    "seen(CFG.{n})",
    "seen(CFG.{n})",
    "def read(): seen(CFG.{n})\nread()",
    "seen(getattr(CFG, '{n}'))",
    "alias = CFG\nseen(alias.{n})",
    "if isinstance(CFG, type):\n    class Sub(CFG): pass\n    seen(Sub.{n})",
    "if isinstance(CFG, type):\n    made = CFG()\n    seen(made.{n})",
    "%time seen(CFG.{n})",
)
ATTRIBUTE_SCHEDULES = (
    "CFG.{n} *= 1",
    "CFG.{n} = CFG.{n} * 1",
    "def decay():\n    CFG.{n} = max(CFG.{n}, CFG.{n})\ndecay()",
)
ATTRIBUTE_REBINDINGS = (
    "CFG.{n} = 0.25",
    "CFG.{n} = float('0.25')",
    "if True:\n    CFG.{n} = 0.25",
    "def change():\n    CFG.{n} = 0.25\nchange()",
    "for CFG.{n} in (1, 2):\n    pass",
    "with open(os_path) as CFG.{n}:\n    pass",
    "CFG.{n}, other = 1, 2",
    "other = CFG.{n} = 0.25",
    "CFG.{n}: float = float('0.25')",
    "setattr(CFG, '{n}', 0.25)",
    "alias = CFG\nalias.{n} = 0.25",
    "if isinstance(CFG, type):\n    made = CFG()\n    made.{n} = 0.25\n    seen(made.{n})",
    "CFG = type('T', (), {{'{n}': 0.25}})",
    "class CFG:\n    {n} = 0.25",
    "class CFG:\n    {n} = 0.5\n    {n} = float('0.25')",
    "class CFG:\n    {n} = 0.5\n    def {n}(self): pass",
    "def f():\n    global CFG\n    class CFG: {n} = 0.25\nf()",
    "del CFG.{n}",
)
#: Functions and classes with a default for the swept parameter.
DEFAULTS = (
    "def train(x=0, {n}=0.5): seen({n})",
    "def train(x=0, *, {n}=0.5): seen({n})",
    "class train:\n    def __init__(self, x=0, {n}=0.5):\n        seen({n})",
    "@dataclass\nclass train:\n    x: int = 0\n    {n}: float = 0.5\n"
    "    def __post_init__(self): seen(self.{n})",
)
#: Calls that pass the swept parameter another value by its name.
PASSING_BY_NAME = (
    "train({n}=0.25)",
    "train(1, {n}=2)",
    "rate = 0.125\ntrain({n}=rate)",
    "def g(rate): train(0, {n}=rate)\ng(3)",
    "[train(i, {n}=i) for i in range(2)]",
)
OTHER_CALLS = (
    "train()",
    "train(1)",
    "train(1, 0.25)",
    "train(*[1])",
    "train(*[1, 0.25])",
    "train(**{{'{n}': 0.25}})",
    "list(map(train, [1, 2]))",
    "%time train()",
    "again = train\nagain()",
    "eval('train')()",
    "def twice(f=train): f()\ntwice()",
)
HEADS = ("", "", "", "", "\n", "\n  \n\n", "%%time\n", "\n%%capture out\n", "%%time\n%%capture\n")

_ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"])


@st.composite
def cells(draw: st.DrawFn, name: str) -> list[str]:
    """Draw cells that assign a name, read it, and may give it another value."""
    pieces = [draw(st.sampled_from(READS))]
    for kind, most in ((READS, 3), (NOISE, 5), (SCHEDULES, 1), (REBINDINGS, 1)):
        pieces += draw(st.lists(st.sampled_from(kind), max_size=most))
    return draw(divided(draw(st.sampled_from(PLACES)), pieces, name, most_before=2))


@st.composite
def divided(
    draw: st.DrawFn, first: str, pieces: list[str], name: str, *, most_before: int = 0
) -> list[str]:
    """Divide pieces of code in any order into cells, with at most `most_before` before `first`."""
    others = draw(st.permutations([piece.format(n=name) for piece in pieces]))
    early = draw(st.integers(0, min(most_before, len(others))))
    ordered = [*others[:early], first.format(n=name), *others[early:]]
    found: list[str] = []
    while ordered:
        size = draw(st.integers(1, len(ordered)))
        text = draw(st.sampled_from(HEADS)) + "\n".join(ordered[:size])
        found.append(text.replace("\n", draw(_ENDS)))
        ordered = ordered[size:]
    return found


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    """Start IPython without a terminal, a history, and magics that run other programs."""
    shell = new_shell()
    shell.system = lambda *_: None
    shell.getoutput = lambda *_, **__: []
    for magic in ("matplotlib", "pinfo", "pwd"):
        shell.register_magic_function(lambda *_: None, magic_name=magic)
    shell.showtraceback = lambda *_, **__: None
    starred = ModuleType("starred")
    vars(starred)["of_another_module"] = 1
    sys.modules["starred"] = starred
    overwriting = ModuleType("overwriting")
    vars(overwriting).update({"lr": 0.25, "ε": 0.25})
    sys.modules["overwriting"] = overwriting
    yield shell
    del sys.modules["starred"], sys.modules["overwriting"]


def run(shell: Any, sources: list[str]) -> list[Any]:
    """Run cells until one fails. Return the values that they have passed to `seen`."""
    shell.user_ns.clear()  # `reset` takes 50 ms
    shell.init_user_ns()
    read: list[Any] = []
    shell.push({"seen": read.append, "os_path": __file__, "dataclass": dataclass})
    for source in sources:
        if not shell.run_cell(source, store_history=False, silent=True).success:
            break
    return read


@pytest.mark.parametrize("name", ["lr", "ϵ"])
@settings(derandomize=True, max_examples=100, deadline=None)
@given(data=st.data())
def test_code_of_random_cells_reads_only_the_trials_value_of_a_sweepable_name(
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


@settings(derandomize=True, max_examples=100, deadline=None)
@given(data=st.data())
def test_code_of_random_cells_reads_only_the_trials_value_of_a_sweepable_attribute(
    shell: Any, data: st.DataObject
) -> None:
    pieces = [data.draw(st.sampled_from(ATTRIBUTE_READS))]
    kinds = ((ATTRIBUTE_READS, 3), (NOISE, 2), (ATTRIBUTE_SCHEDULES, 1), (ATTRIBUTE_REBINDINGS, 1))
    for kind, most in kinds:
        pieces += data.draw(st.lists(st.sampled_from(kind), max_size=most))
    place = data.draw(st.sampled_from(ATTRIBUTES))
    sources = data.draw(divided(place, pieces, "lr", most_before=1))
    if Assignments(sources).why_not("CFG.lr"):
        return
    changed = with_values(sources, {"CFG.lr": VALUE}, repr)
    assert changed != sources
    assert set(run(shell, changed)) <= {VALUE}, changed


@settings(derandomize=True, max_examples=100, deadline=None)
@given(data=st.data())
def test_a_default_is_refused_if_all_calls_pass_another_value(
    shell: Any, data: st.DataObject
) -> None:
    passing = data.draw(st.lists(st.sampled_from(PASSING_BY_NAME), max_size=2))
    others = data.draw(st.lists(st.sampled_from(OTHER_CALLS), max_size=1))
    sources = data.draw(divided(data.draw(st.sampled_from(DEFAULTS)), passing + others, "lr"))
    is_field = "lr: float" in "".join(sources)
    cell = next(number for number, code in enumerate(sources, start=1) if "0.5" in code)
    name = "train.lr" if is_field else f"cell{cell}.lr"
    before = run(shell, sources)
    why = str(Assignments(sources).why_not(name))
    if "overrides" in why:
        assert 0.5 not in before
        if before and (instead := re.search(r"sweep '(.+)'", why)):
            changed = with_values(sources, {instead[1]: VALUE}, repr)
            assert VALUE in run(shell, changed), (changed, why)
    elif not why:
        after = run(shell, with_values(sources, {name: VALUE}, repr))
        assert VALUE in after or not before or (others and before == after), sources


@settings(derandomize=True, max_examples=60, deadline=None)
@given(data=st.data())
def test_a_swept_name_overwritten_by_a_star_import_is_reported_after_two_trials(
    shell: Any, data: st.DataObject
) -> None:
    pieces = ["from overwriting import *", data.draw(st.sampled_from(READS))]
    for kind, most in ((READS, 2), (NOISE, 3), (SCHEDULES, 1)):
        pieces += data.draw(st.lists(st.sampled_from(kind), max_size=most))
    sources = data.draw(divided(data.draw(st.sampled_from(PLACES)), pieces, "lr"))
    if Assignments(sources).why_not("lr"):
        return
    trials = []
    for value in (VALUE, VALUE / 2):
        run(shell, with_values(sources, {"lr": value}, repr))
        ended = {"lr": shell.user_ns.get("lr")}
        trials.append(EndedTrial(run_id=str(value), given={"lr": value}, ended=ended))
    has_run = trials[0].ended["lr"] != VALUE
    found = overwritten(trials, lambda: sources)
    assert (found is not None) == (has_run and not has_schedule(sources, "lr")), sources
