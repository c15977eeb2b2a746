"""Test which names of a notebook a trial can set, and how its values replace the originals."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from sweeper.notebook_code.assignments import Assignments, with_values
from sweeper.notebook_code.calls import Calls
from sweeper.notebook_code.cell_code import parse
from sweeper.notebook_code.plain import Parameter
from sweeper.notebook_code.replacing import Cell
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook

MAIN = "if __name__ == '__main__':\n"
VALUES = {"lr": 0.5, "sizes": [1, 2], "name": "b", "n": 7}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("lr = 0.1", "lr = 0.5  # was 0.1"),
        ("lr: float = -1e-3  # rate", "lr: float = 0.5  # rate  # was -1e-3"),
        ("lr, n = 0.1, 3\nf(lr)", "lr, n = 0.5, 7  # was 0.1, 3\nf(lr)"),
        ("[lr, k] = [0.1, 3]", "[lr, k] = [0.5, 3]  # was 0.1"),
        ("ä = 'ü'; lr = 0.1; n = 2; g()", "ä = 'ü'; lr = 0.5; n = 7; g()  # was 0.1, 2"),
        (
            "sizes = [\n  64,  # first\n  32,\n]\nlr = 1",
            "sizes = [1, 2]  # was [64, 32]\nlr = 0.5  # was 1",
        ),
        ("sizes = [\n 1]; lr = 1", "sizes = [1, 2]; lr = 0.5  # was [1], 1"),
        ("%matplotlib inline\nlr = 0.1\n!ls", "%matplotlib inline\nlr = 0.5  # was 0.1\n!ls"),
        ("%%time\nlr = 0.1", "%%time\nlr = 0.5  # was 0.1"),
        ("lr = 0.1; s = '''a\nb'''", "lr = 0.5; s = '''a\nb'''"),
        ("lr = \\\n 0.1", "lr = \\\n 0.5  # was 0.1"),
        ("lr = 0.5", "lr = 0.5"),
        ("lr = 10 ** -3", "lr = 0.5  # was 10 ** -3"),
        ("name = (\n 'a'\n 'c')", "name = (\n 'b')  # was 'ac'"),
        ("%%bash\nlr=0.1", "%%bash\nlr=0.1"),
        ("lr = f(0.1)\nd.lr = 1\nd['lr'] = 1\nlr += 1\nif x:\n  lr = 1", None),
        ("lr = lr2 = 0.1\n*lr, k = 1, 2", None),
        ("lr = ", None),
    ],
)
def test_only_a_literal_that_a_top_level_statement_assigns_to_a_single_name_is_replaced(
    source: str, expected: str | None
) -> None:
    assert with_values([source], VALUES, repr) == [expected or source]


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("lr", "def f():\n  return Adam(p, lr=0.1)", "def f():\n  return Adam(p, lr=9)  # was 0.1"),
        ("lr", "f(lr=0.1); g(lr=.1, m=f(lr=x))", "f(lr=9); g(lr=9, m=f(lr=x))  # was 0.1, .1"),
        (
            "Adam.lr",
            "t.Adam(\n p,\n lr=0.1,\n)\nSGD(lr=1)",
            "t.Adam(\n p,\n lr=9,  # was 0.1\n)\nSGD(lr=1)",
        ),
        (
            "b.n",
            "a = RF(n=1)\nb = RF(n=2).fit(x, n=1)",
            "a = RF(n=1)\nb = RF(n=2).fit(x, n=9)  # was 1",
        ),
        ("c.lr", "c = {'lr': 1, 'm': 2}\nlr = 3", "c = {'lr': 9, 'm': 2}  # was 1\nlr = 3"),
        ("cell1.lr", "f(lr=1)", "f(lr=9)  # was 1"),
        ("lr", "def f(x, lr=1, *, n=2): g(x)", "def f(x, lr=9, *, n=2): g(x)  # was 1"),
        ("n", "def f(n=1): g()\nf(n=2)", "def f(n=1): g()\nf(n=9)  # was 2"),
        ("kw.lr", "train(kw={'lr': 1})", "train(kw={'lr': 9})  # was 1"),
        ("b.n", "{'a': {'n': 1}, 'b': {'n': 2}}", "{'a': {'n': 1}, 'b': {'n': 9}}  # was 2"),
        ("b.n", "f({'a': RF(n=1), 'b': RF(n=2)})", "f({'a': RF(n=1), 'b': RF(n=9)})  # was 2"),
        ("Dropout", "%time f(nn.Dropout(0.5), Dropout(.5))", None),
        (
            "Dropout",
            "f(nn.Dropout(0.5),\n  Dropout(.5))",
            "f(nn.Dropout(9),  # was 0.5\n  Dropout(9))  # was .5",
        ),
        ("lr", "lr = 0.1\nAdam(lr=0.2)", "lr = 9  # was 0.1\nAdam(lr=0.2)"),
        ("lr", "lr = f()\nAdam(lr=0.2)", None),
    ],
)
def test_a_trial_sets_an_argument_a_dict_item_or_a_default_by_a_name_that_is_no_variable(
    name: str, source: str, expected: str | None
) -> None:
    assert with_values([source], {name: 9}, repr) == [expected or source]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (["Adam(lr=0.1)", "if x:\n  lr = 3"], ""),
        (
            ["Adam(lr=0.1)", "x\nSGD(lr=0.2)"],
            "0.1 in code cell 1, line 1, and 0.2 in code cell 2, line 2: write 'Adam.lr', or "
            "assign it to a name and use that",
        ),
        (["lr = 0.1", "lr = lr / 2\nif x:\n  lr *= 2"], ""),
        (["lr = f()", "lr = 0.1"], ""),
        (["k = 1"], "not assigned"),
        (
            ["lr = 0.1", "k = 1\nlr = 0.2"],
            "assigned in code cell 1, line 1, and in code cell 2, line 2: write 'cell2.lr' to "
            "sweep it there, or keep one of them",
        ),
        (
            ["lr = 0.1\nf(lr)", "lr = 0.2\nf(lr)"],
            "assigned in code cell 1, line 1, and in code cell 2, line 1: write 'cell1.lr' or "
            "'cell2.lr' to sweep it there, or keep one of them",
        ),
        (
            ["lr = 0.1", "for lr in rates: f(lr)"],
            "assigned in code cell 1, line 1, and in code cell 2, line 1: keep one of them",
        ),
        (
            ["for lr, n in rates: f(lr)"],
            "a loop variable in code cell 1, line 1: assign it one value",
        ),
        (
            ["base = 0.1", "lr = base / n"],
            "not a plain value in code cell 2, line 1: assign it one, or sweep 'base'",
        ),
        (["lr = 9 ** 9 ** 9"], "not a plain value in code cell 1, line 1: assign it one"),
        (["lr = 1 / 0"], "not a plain value in code cell 1, line 1: assign it one"),
        (["lr = k = 0.1"], "not a plain value in code cell 1, line 1: assign it one"),
        (
            ["def f():\n  lr = 1"],
            "assigned only in a function, code cell 1, line 2: write 'f.lr'",
        ),
        (
            ["for i in it:\n  lr = 1"],
            "assigned only in a loop, code cell 1, line 2: move the assignment to the top level",
        ),
        (
            ["with f() as g:\n  lr = 1"],
            "assigned only in a branch, code cell 1, line 2: move the assignment to the top level",
        ),
    ],
)
def test_a_sweep_of_a_name_without_one_literal_at_the_top_level_is_refused_with_line_and_remedy(
    cells: list[str], why: str
) -> None:
    assert Assignments(cells).why_not("lr") == (why or None)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("\n%ls\na1 = 0.5\na2 = 0.5", "\n%ls\na1 = 0.5\na2 = 9  # was 0.5"),
        ("!ls \\\n -l\na1 = 0.5\na2 = 0.5", "!ls \\\n -l\na1 = 0.5\na2 = 9  # was 0.5"),
        ("\n \n%%time\n\n%ls\na2 = 0.5", "\n \n%%time\n\n%ls\na2 = 9  # was 0.5"),
        (">>> %ls\n>>> a1 = 0.5; a2 = 0.5", ">>> %ls\n>>> a1 = 0.5; a2 = 9  # was 0.5"),
        ("a1 = 1\ra2 = 0.5\r", "a1 = 1\ra2 = 9  # was 0.5\r"),
        ("%ls\r\na1 = 1\r\na2 = (\r\n.5)", "%ls\r\na1 = 1\r\na2 = (\r\n9)  # was .5"),
        ("\x0ca1 = 1\n\x0ca2 = 0.5", "\x0ca1 = 1\n\x0ca2 = 9  # was 0.5"),
        ("a1 = '\u2028'; a2 = 0.5", "a1 = '\u2028'; a2 = 9  # was 0.5"),
        (
            "x?\n@f\ndef g(): pass\na2: float = 0.5",
            "x?\n@f\ndef g(): pass\na2: float = 9  # was 0.5",
        ),
    ],
)
def test_values_of_other_variables_are_not_replaced(source: str, expected: str) -> None:
    assert Assignments([source]).why_not("a2") is None
    assert with_values([source], {"a2": 9}, repr) == [expected]


@pytest.mark.parametrize(
    "other",
    [
        "if x:\n  lr = 128",
        "import lr",
        "import a.b as lr",
        "from a import lr",
        "with f() as lr: pass",
        "print(lr := 3)",
        "[(lr := i) for i in x]",
        "for i, (lr, k) in x: pass",
        "try: pass\nexcept E as lr: pass",
        "def f():\n  global lr\n  lr = 1",
        "def lr(): pass",
        "class lr: pass",
        "match x:\n  case [*lr]: pass",
        "lr = f(x)",
        "lr = [lr for lr in x]",
        "lr, k = f(x)",
        "k = lr = 1",
    ],
)
def test_a_sweep_of_a_name_that_code_overwrites_is_refused_with_both_lines(other: str) -> None:
    for code in (other, MAIN + indent(other, "  ")):
        why = str(Assignments(["lr = 0.1", "# more\n" + code]).why_not("lr"))
        assert "in code cell 1, line 1" in why
        assert "in code cell 2, line " in why


@pytest.mark.parametrize(
    "other",
    [
        "lr *= 0.95",
        "lr = lr * gamma",
        "for i in x:\n  lr = max(lr * 0.5, 1e-6)",
        "def f():\n  global lr\n  lr -= 1",
        "lr, k = lr / 2, 3",
        "print(lr := lr / 2)",
        "del lr",
        "lr: float",
        "x = [lr for lr in y]",
        "def f(lr=3):\n  lr = 1",
        "class A:\n  lr = 3",
        "lambda: [(lr := 1) for _ in x]",
        "from x import *\nexec(y)\n%run z.py",
    ],
)
def test_a_name_can_be_swept_although_code_updates_it_from_itself_or_another_scope_has_the_name(
    other: str,
) -> None:
    for code in (other, MAIN + indent(other, "  ")):
        assert Assignments(["lr = 0.1", code]).why_not("lr") is None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (MAIN + "    lr = 0.1\n    f(lr)", MAIN + "    lr = 9  # was 0.1\n    f(lr)"),
        (MAIN + "  lr = .1\nelse:\n  lr = .2", MAIN + "  lr = 9  # was .1\nelse:\n  lr = .2"),
        ("if '__main__' == __name__: k = 1; lr = 2", "if '__main__' == __name__: k = 1; lr = 9"),
        (
            MAIN + "  @f\n  def g(): pass\n  s = '''a\nb'''\n  lr = (\n1)",
            MAIN + "  @f\n  def g(): pass\n  s = '''a\nb'''\n  lr = (\n9)  # was 1",
        ),
    ],
)
def test_a_variable_under_if_name_is_main_can_be_swept(source: str, expected: str) -> None:
    """In a kernel, `__name__ == "__main__"` is true, so the `else` branch never runs."""
    assert Assignments([source]).why_not("lr") is None
    (replaced,) = with_values([source], {"lr": 9}, repr)
    assert replaced in (expected, expected + "  # was 2")


@pytest.mark.parametrize(
    "source",
    [
        MAIN + "  pass\nelse:\n  lr = 0.1",
        MAIN + "  if x:\n    lr = 0.1",
        "if __name__ != '__main__':\n  lr = 0.1",
        "if __name__ == '__main__' and x:\n  lr = 0.1",
        "def f():\n  if __name__ == '__main__':\n    lr = 0.1",
    ],
)
def test_a_variable_in_code_that_a_kernel_may_never_run_cannot_be_swept(source: str) -> None:
    assert Assignments([source]).why_not("lr") is not None


def test_a_name_cannot_be_swept_if_code_reads_the_value_of_an_earlier_assignment() -> None:
    assert Assignments(["lr = f()\nlr = 0.1", "g(lr)"]).why_not("lr") is None
    assert "in code cell 1, line 1" in str(Assignments(["lr = f()\ng(lr)\nlr = 0.1"]).why_not("lr"))


def test_defaults_of_ordinary_positional_only_and_keyword_only_parameters_can_be_swept() -> None:
    assert Assignments(["def f(a=1, /, b=2, *, c=3): g(a)"]).arguments()[::3] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("cells", "name", "parts"),
    [
        (["def f(x, C=1.0): g(x)", "f(1, C=y)"], "C", ["cell 1", "cell 2", "top level"]),
        (["def f(x, C=1.0): g(x)", "f(1, C=2)"], "cell1.C", ["cell 1", "cell 2", "'f.C'"]),
        (["def f(x, C=1.0): g(x)", "f(1, C=2)\nf(1, C=3)"], "cell1.C", ["top level"]),
        (["def f(x, C=1.0): g(x)", "C0 = 2", "f(1, C0)"], "C", ["cell 3", "sweep 'C0'"]),
        (["def f(C=1.0): g(C)\nk = 2", "def h(k): f(k)"], "C", ["top level"]),
        (["def f(C=1.0): g(C)", "f(0.5)"], "cell1.C", ["cell 2", "sweep 'f.C'"]),
        (["def f(C=1.0): g(C)", "f(0.5)"], "C", []),
        (["class N:\n  def __init__(self, p=.1): g()", "q = .2\nN(q)"], "p", ["sweep 'q'"]),
        (["@dataclass\nclass N:\n  p: float = .1", "N(f())"], "N.p", ["cell 1", "cell 2"]),
        (["class N:\n  def __init__(self, p=9): g()", "K(N, m__p=5)"], "p", ["cell 2", "K.m__p"]),
        (["class N:\n  def __init__(self, p=9): g()", "K(m=N, m__p=5)"], "N.p", ["cell 2"]),
        (["class N:\n  def __init__(self, p=9): g()", "K(N, m__q=5)"], "p", []),
        (["def f(p=9): g(p)", "f(p=x)\nh: f = 1"], "f.p", ["cell 2"]),
        (["def f(x, C=1.0): g(x)", "f(1)\nf(1, y)"], "C", []),
        (["def f(x, C=1.0): g(x)", "f(*x)\nf(1, **y)"], "C", []),
        (["def f(x, C=1.0): g(x)", "f(1, y)\nmap(f, z)"], "C", []),
        (["def f(x, C=1.0): g(x)", "f(1, y)\n%time f(1)"], "C", []),
        (["def f(x, C=1.0): g(x)", "f(1, y)", "%%timeit\nf(1)"], "C", []),
        (["@d\ndef f(x, C=1.0): g(x)", "f(1, y)"], "C", []),
        (["def f(x, C=1.0): g(x)"], "C", []),
        (["def f(x, C=1.0): g(x)", "f(1, C=y)", "# call f"], "C", ["cell 2"]),
        (["async def f(x, C=1.0): g(x)", "await f(1, C=y)"], "C", ["cell 2"]),
        (["class N:\n  def f(self, C=5): g(C)", "n = N()\nn.f(C=k)", "%time n.f()"], "C", []),
        (["class N:\n  def f(self, C=5): g(C)", "n = N()\nn.f(C=k)", "getattr(n, 'f')()"], "C", []),
    ],
)
def test_a_sweep_of_a_default_is_refused_with_the_call_only_if_all_calls_override_it(
    cells: list[str], name: str, parts: list[str]
) -> None:
    why = Assignments(cells).why_not(name)
    assert all(part in str(why) for part in parts)
    assert (why is None) == (not parts)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["class A:\n  lr = 0.1", "f(A.lr)"], ["class A:\n  lr = 9  # was 0.1", "f(A.lr)"]),
        (["A.lr = 0.1\nf(A.lr)"], ["A.lr = 9  # was 0.1\nf(A.lr)"]),
        (["A = B()\nf(A)\nA.lr: float = 0.1"], ["A = B()\nf(A)\nA.lr: float = 9  # was 0.1"]),
        (
            ["class A:\n  lr = 0.1", "A.lr = 0.1"],
            ["class A:\n  lr = 9  # was 0.1", "A.lr = 9  # was 0.1"],
        ),
        (
            ["def f(): g(A.lr)", "@dataclass\nclass A:\n  lr: float = 0.1", "A.lr *= 2\nA.k = 1"],
            [
                "def f(): g(A.lr)",
                "@dataclass\nclass A:\n  lr: float = 9  # was 0.1",
                "A.lr *= 2\nA.k = 1",
            ],
        ),
    ],
)
def test_attributes_of_classes_and_objects_are_replaced(
    cells: list[str], expected: list[str]
) -> None:
    assert Assignments(cells).why_not("A.lr") is None
    assert with_values(cells, {"A.lr": 9}, repr) == expected


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        (["class A:\n  lr = 0.1", "A.lr = 0.5"], "code cell 2, line 1"),
        (["class A:\n  lr = 0.1", "A.lr = f()"], "code cell 2, line 1"),
        (["class A:\n  lr = 0.1\n  lr = f()"], "code cell 1, line 3"),
        (["class A:\n  lr = 0.1\n  def lr(self): f()"], "code cell 1, line 3"),
        (["class A:\n  lr = 0.1", "if x:\n  A.lr, k = 1, 2"], "code cell 2, line 2"),
        (["class A:\n  lr = 0.1", "setattr(A, 'lr', 1)"], "code cell 2, line 1"),
        (["class A:\n  lr = 0.1", "a = A()\na.lr = f()"], "code cell 2, line 2"),
        (["class A:\n  lr = 0.1", "A = f()"], "code cell 2, line 1"),
        (["f(A.lr)\nA.lr = 0.1"], "code cell 1, line 1"),
        (["A['lr'] = 0.1", "A.update(lr=3)"], "code cell 2, line 1"),
        (["A['lr'] = 0.1", "A |= {'lr': 3}"], "code cell 2, line 1"),
    ],
)
def test_a_sweep_of_an_attribute_that_has_another_value_elsewhere_is_refused_with_the_line(
    cells: list[str], place: str
) -> None:
    assert place in str(Assignments(cells).why_not("A.lr"))


@pytest.mark.parametrize(
    "update",
    [
        "A.update(lr=3)",
        "A.update({'k': 1, 'lr': 3})",
        "A.update(dict(lr=3))",
        "A |= {'lr': 3}",
        "A = A | {'lr': 3}",
        "def f():\n  A.update(lr=3)",
        "B = {'lr': 3}\nA.update(B)",
    ],
)
@pytest.mark.parametrize("item", ["A = {'lr': 0.1}", "A = dict(lr=0.1)"])
def test_an_item_of_a_dict_that_update_overwrites_is_replaced_in_the_call_of_update(
    item: str, update: str
) -> None:
    cells = [item, update, "f(A['lr'])"]
    place = f"code cell 2, line {update.count(chr(10)) + 1}"
    assert f"gets another value in {place}" in str(Assignments(cells).why_not("A.lr"))
    assert Assignments(cells).why_not("lr") is None
    assert "# was 3" in with_values(cells, {"lr": 9}, repr)[1]


@pytest.mark.parametrize("other", ["A['b']['lr'] = f()", "A['b'] = f()", "A['b'].update(lr=f())"])
def test_a_sweep_of_an_inner_dicts_item_that_other_code_overwrites_is_refused(other: str) -> None:
    cells = ["A = {'b': {'lr': 0.1}, 'c': {'n': 1}}", other, "f(A)"]
    for name in ("lr", "b.lr", "cell1.lr"):
        assert "gets another value in code cell 2, line 1" in str(Assignments(cells).why_not(name))
    assert Assignments(cells).why_not("c.n") is None
    halved = [cells[0], "A['b']['lr'] = A['b']['lr'] / 2", cells[2]]
    assert Assignments(halved).why_not("b.lr") is None


@pytest.mark.parametrize("update", ["A.update(lr=A['lr'] / 2)", "A.update(k=3)", "B.update(lr=3)"])
def test_a_dict_item_can_be_swept_although_update_computes_it_from_itself_or_sets_other_items(
    update: str,
) -> None:
    assert Assignments(["A = {'lr': 0.1}", update]).why_not("A.lr") is None


def test_a_dict_item_that_code_deletes_after_its_use_can_be_swept() -> None:
    cells = ["A = {'lr': 0.1}", "lr = A['lr']\ndel A['lr']"]
    assert Assignments(cells).why_not("A.lr") is None


def test_a_variable_that_code_updates_from_itself_can_be_swept_with_no_debug_ranges() -> None:
    cells = ["n, lr = 1, 0.1", "for _ in range(3):\n  lr = lr * 0.9\n  f(lr)", "f(lr)"]
    code = (
        "from sweeper.notebook_code.assignments import Assignments\n"
        f"print(Assignments({cells!r}).why_not('lr'), end='')\n"
        f"print(Assignments({[*cells, 'lr = f()']!r}).why_not('lr'), end='')"
    )
    command = [sys.executable, "-X", "no_debug_ranges", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Noneassigned in code cell 1, line 1, and in code cell 4, line 1")


def test_no_other_name_to_sweep_is_proposed_if_variables_are_computed_from_each_other() -> None:
    cells = ["lr = 0.1", "a = f(b)\nb = g(a)\nseed = max(seed for seed in range(3))"]
    for name in ("a", "b", "seed"):
        assert "not a plain value" in str(Assignments(cells).why_not(name))
        assert "or sweep" not in str(Assignments(cells).why_not(name))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("lr: float = 1e-3  # the rate", ["lr"]),
        ("lr: float", []),
        ("(a, [b, *c]), d = (1, [2, 3]), 4", ["a", "b", "c", "d"]),
        ("a = b = 1", ["a", "b"]),
        ("options = {}\noptions['lr'] = lr = 1", ["options", "lr"]),
        ("# nothing\nimport os\nprint(os.name)", []),
        ("lr = 1\n%config InlineBackend.figure_format = 'retina'\nwidth = 2  # %", ["lr", "width"]),
        ("!pip install -q x\nlr = 1\nif lr:\n    !ls", ["lr"]),
        ("%%time\nlr = 1\n%load_ext autoreload\nwidth = 2", ["lr", "width"]),
        ("%%capture out\n%%time\nlr = 1", ["lr"]),
        ("%%my_own_magic\nlr = 1", ["lr"]),
        ("%%html\n<b>lr</b>", []),
        ("files = !ls\nlr = 1\nwhere = %pwd", ["files", "lr", "where"]),
        ("lr?\nlr = 1\n?lr", ["lr"]),
        (">>> lr = 1\n>>> width = 2", ["lr", "width"]),
    ],
)
def test_every_form_of_assignment_is_found(tmp_path: Path, source: str, names: list[str]) -> None:
    research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", parameters=source))
    words = set(re.findall(r"\w+", source))
    assert {word for word in words if research.takes(word)} == set(names)


@pytest.fixture
def _switching() -> Iterator[None]:
    """Let threads switch while `ast.parse` makes a tree, by a callback of the garbage collector."""

    def switch(*_: Any) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.set_threshold(50)
    gc.callbacks.append(switch)
    yield
    gc.callbacks.remove(switch)
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_switching")
def test_several_threads_may_parse_notebooks_at_once() -> None:
    source = "def f(a):\n    for b in range(3):\n        x = [[1, (a + 2) * 3], {'a': -b}]\n" * 40
    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(parse, [source] * 18))


@pytest.mark.parametrize(
    ("cells", "can_be_swept"),
    [
        (["lr = 0.1\nfit(lr)", "lr = 0.2\nfit(lr)"], True),
        (["def fit(): return lr", "lr = 0.1\nfit()", "lr = 0.2"], True),
        (["lr = 0.1", "lr = 0.2\nfit(lr)"], False),
        (["lr = 0.1\nfit(lr)", "def change():\n  global lr\n  lr = 4", "lr = 3"], False),
    ],
)
def test_one_of_two_assignments_can_be_swept_as_cell1_lr_if_code_reads_it_before_the_next_one(
    cells: list[str], can_be_swept: bool
) -> None:
    number = next(n for n, cell in enumerate(cells, 1) if cell.startswith("lr"))
    assert (Assignments(cells).why_not(f"cell{number}.lr") is None) is can_be_swept


@pytest.mark.parametrize(
    ("calls", "is_overridden"),
    [
        # `self.net.train()` is a method of another object, so all calls pass `lr`.
        ("t = Trainer(net)\nt.train(lr=0.1)", True),
        ("t = make()\nt.train()\nu = Trainer(net)\nu.train(lr=0.1)", False),
    ],
)
def test_a_methods_default_is_used_if_it_is_called_without_the_argument_on_an_unknown_object(
    calls: str, is_overridden: bool
) -> None:
    trainer = "class Trainer:\n  def train(self, lr=0.5):\n    self.net.train()"
    cells = [Cell(1, trainer), Cell(2, calls)]
    default = Parameter(callee=".train", name="lr", position=0)
    assert (Calls(cells).overriding(default) is not None) is is_overridden


@pytest.mark.parametrize(
    ("cells", "value"),
    [
        (["class T:\n  @staticmethod\n  def fit(lr, wd): g(lr, wd)", "T.fit(0.1, 0.01)"], 0.01),
        (["class T:\n  async def fit(self, lr, wd): g(lr, wd)", "await T().fit(0.1, 0.01)"], 0.01),
        (["class T:\n  def __init__(self, lr, wd): g(lr, wd)", "T(0.1, 0.01)"], 0.01),
        (["class T: pass", "class U(T):\n  def __init__(self, wd): super().__init__(5)"], None),
    ],
)
def test_a_positional_argument_is_found_by_the_name_of_its_parameter(
    cells: list[str], value: float | None
) -> None:
    assert Assignments(cells).plain_value("wd") == value


@pytest.mark.parametrize(
    ("code", "can_be_swept"),
    [
        ("def t(c):\n  lr = 0.1\n  fit(lr)", True),
        ("def t(c):\n  lr = 0.1\n  for lr in c: pass\n  fit(lr)", False),
        ("def t(c):\n  global lr\n  lr = 0.1\n  fit(lr)", False),
    ],
)
def test_a_variable_of_a_function_can_be_swept_only_if_it_is_local_and_bound_once(
    code: str, can_be_swept: bool
) -> None:
    assert (Assignments([code]).why_not("t.lr") is None) is can_be_swept


def test_a_local_variable_of_init_can_be_swept_only_if_it_is_assigned_once() -> None:
    used = "class N:\n  def __init__(self, c):\n    h = 64\n    self.l = L(h)"
    replaced = "class N:\n  def __init__(self, c):\n    h = 64\n    h = c.h\n    self.l = L(h)"
    assert Assignments([used]).why_not("N.h") is None
    assert Assignments([replaced]).why_not("N.h") is not None


@pytest.mark.parametrize(
    ("flags", "given", "is_passed"),
    [
        ('"-b", "--batch"', "-b", True),
        ('"-b", "--batch"', "--batch=3", True),
        ('"--size", dest="batch"', "--size", True),
        ('"--batch"', "-b", False),
        ('"--batch"', "--size", False),
    ],
)
def test_a_sweep_of_an_argparse_option_that_the_notebook_itself_passes_is_refused(
    flags: str, given: str, is_passed: bool
) -> None:
    cell = f'p.add_argument({flags}, default=64)\na = p.parse_args(["{given}", "32"])'
    why = Assignments([cell, "f(a.batch)"]).why_not("batch")
    assert (why is not None) is is_passed


def test_the_remedy_for_an_argparse_option_named_by_its_second_flag_is_to_pass_a_default() -> None:
    cells = ['p.add_argument("-l", "--lr", type=float)\na = p.parse_args([])', "f(a.lr)"]
    assert "pass `default=lr` in code cell 1" in Assignments(cells).remedy_for_unknown("lr")


def test_a_comprehension_without_a_space_before_for_has_a_scope_of_its_own() -> None:
    assert Assignments(["lr = 0.1", "y = [f(lr)for lr in xs]"]).why_not("lr") is None


@pytest.mark.parametrize("source", ["%%\nlr = 0.1", "def f():\n        a = 1\n    b = 2"])
def test_a_cell_with_broken_syntax_has_no_assignments(source: str) -> None:
    assert Assignments([source, "k = 1"]).names() == ["k"]


@pytest.mark.parametrize("reads", ["%time seen(lr)", "!echo {lr}", "files = !ls {lr}", "seen(lr)"])
def test_a_sweep_of_a_name_is_refused_if_a_magic_or_command_reads_an_earlier_value_of_it(
    reads: str,
) -> None:
    assert Assignments([f"lr = float('0.25')\n{reads}\nlr = 0.5"]).why_not("lr") is not None
    assert Assignments([f"lr = 0.5\n{reads}"]).why_not("lr") is None
