"""A draft proposes to sweep values in every kind of code that people write.

Each notebook is plain Python, so that a test can run it and see that each swept value changes the
score.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweeper.drafting.draft import draft
from sweeper.errors import NotebookError
from sweeper.notebook_code.assignments import with_values
from sweeper.notebooks.research import ResearchNotebook
from sweeper.settings import Settings
from sweeper.settings.space import ChoiceDimension
from sweeper.testing import write_notebook

#: A function in place of a training. Cells of the notebook call it.
TRAIN = "def train(lr, dropout=0.2): return (lr - 0.01) ** 2 + dropout"
#: An optimizer whose second argument is its learning rate, like torch's.
SGD = "class SGD:\n  def __init__(self, params, lr, momentum=0.0): self.lr, self.m = lr, momentum"

CASES: Sequence[tuple[str, Sequence[str], Sequence[str] | None]] = [
    # Arguments that are passed by position.
    ("positional", [SGD, "opt = SGD([], 0.1)", "val_loss = opt.lr"], ["lr"]),
    ("positional", [SGD, "o = SGD([], 0.1, 0.9)", "val_loss = o.lr + o.m"], ["lr", "momentum"]),
    ("positional", [SGD, "def f():\n  return SGD([], 1e-3).lr", "val_loss = f()"], ["lr"]),
    ("positional", [TRAIN, "val_loss = train(0.1)"], ["lr", "dropout"]),
    ("positional", [TRAIN, "val_loss = train(0.1, 0.5)"], ["lr", "dropout"]),
    (
        "positional",
        ["net = [1]\n" + SGD, "o = SGD(net, 0.1, momentum=.9)", "val_loss = o.m * o.lr"],
        ["lr", "momentum"],
    ),
    # Options of argparse, whose defaults are swept.
    ("options", ["args = P.parse_args([])", "val_loss = args.lr"], ["lr"]),
    ("options", ["args = P.parse_args('')", "val_loss = args.lr"], ["lr"]),
    ("options", ["args, rest = P.parse_known_args([])", "val_loss = args.lr"], ["lr"]),
    ("options", ["args = P.parse_args(args=[])\nlr = args.lr", "val_loss = lr"], ["args.lr"]),
    ("options", ["opt = P.parse_args([])", "val_loss = vars(opt)['lr']"], ["lr"]),
    ("options", ["def f():\n  return P.parse_args([])", "val_loss = f().lr"], ["lr"]),
    # Attributes of classes and objects.
    ("class", ["class C:\n  lr = 0.1", "val_loss = C.lr"], ["C.lr"]),
    ("class", ["class C:\n  lr: float = 0.1", "c = C()\nval_loss = c.lr"], ["C.lr"]),
    (
        "class",
        ["class C:\n  def __init__(self):\n    self.lr = 0.1", "val_loss = C().lr"],
        ["C.lr"],
    ),
    (
        "class",
        ["@dataclass\nclass C:\n  n: int = 9\n  lr: float = 0.1", "val_loss = C(n=3).lr"],
        ["C.lr"],
    ),
    (
        "class",
        ["@dataclass\nclass C:\n  lr: float = field(default=0.1)", "val_loss = C().lr"],
        ["C.lr"],
    ),
    ("class", ["c = NS()\nc.lr = 0.1", "val_loss = c.lr"], ["c.lr"]),
    ("class", ["c = NS(lr=0.1)", "val_loss = c.lr"], ["lr"]),
    (
        "class",
        ["class C:\n  def __init__(self):\n    lr = 0.1\n    self.r = lr", "val_loss = C().r"],
        ["C.lr"],
    ),
    ("class", ["class C:\n  class Opt:\n    lr = 0.1", "val_loss = C.Opt.lr"], []),
    # Elements of tuples, and names that are assigned several times.
    ("tuple", ["lr, n = 0.1, 'x'", "val_loss = lr"], ["lr"]),
    ("tuple", ["(lr, (n, weight_decay)) = 0.1, (2, 1e-3)", "val_loss = lr + weight_decay"], None),
    ("tuple", ["lr, n = 0.1, 5\nval_loss = lr", "lr, n = 0.2, 5", "val_loss = lr"], ["cell2.lr"]),
    ("tuple", ["lr = 0.1\nprint(lr)", "lr = 0.1", "val_loss = lr"], ["cell2.lr"]),
    ("tuple", ["for lr in (1, 2): pass", "lr = 0.1", "val_loss = lr"], ["cell2.lr"]),
    ("tuple", ["if True:\n  lr = 0.5\n  print(lr)", "lr = 0.1", "val_loss = lr"], ["cell2.lr"]),
    # Items of dicts.
    ("dict", ["c = {'lr': 0.1, 'n': 3}", "val_loss = c['lr']"], ["lr"]),
    ("dict", ["c = dict(lr=0.1)", "val_loss = c.get('lr')"], ["lr"]),
    ("dict", ["c = {'opt': {'lr': 0.1}}", "val_loss = c['opt']['lr']"], ["lr"]),
    (
        "dict",
        ["c = {\n  'lr': 0.1,\n  'momentum': 0.9}", "x = c['lr']\ny = c['momentum']\nval_loss = x"],
        ["lr"],
    ),
    ("dict", ["c = {}\nc['lr'] = 0.1", "val_loss = c['lr']"], ["c.lr"]),
    ("dict", [TRAIN, "c = {'lr': 0.1}", "val_loss = train(**c)"], ["lr", "dropout"]),
    ("dict", ["c = {'lr': 0.1}\nc['lr'] *= 2", "val_loss = c['lr']"], ["lr"]),
    # Defaults of functions.
    ("default", ["def f(x, lr=0.1): return lr", "val_loss = f(1)"], ["lr"]),
    ("default", ["class N:\n  def __init__(s, lr=0.1): s.r = lr", "val_loss = N().r"], ["lr"]),
    ("default", ["def f(*, lr=0.1): return lr", "val_loss = f()"], ["lr"]),
    (
        "branch",
        [
            "regularise = False",
            "def f(lr=0.1, dropout=0.2):\n  if regularise:\n    return lr + dropout\n  return lr",
            "val_loss = f()",
        ],
        ["lr"],
    ),
    (
        "branch",
        [
            "stop = False\nfor i in range(3):\n  stop = i > 1",
            "def f(lr=0.1, dropout=0.2):\n  if stop:\n    return lr + dropout\n  return lr",
            "val_loss = f()",
        ],
        ["lr", "dropout"],
    ),
    # A param is not swept if it is read only in a branch that another param never selects.
    (
        "branch",
        [
            "c = {'kind': 'a', 'lr': 0.1, 'momentum': 0.9}",
            "def f(kind='b', lr=1.0, momentum=0.5):\n"
            "  if kind == 'a':\n    return lr\n  else:\n    return momentum",
            "val_loss = f(c['kind'], c['lr'], c['momentum'])",
        ],
        ["lr"],
    ),
    (
        "branch",
        [
            "def g(momentum): return momentum",
            "def f(c):\n"
            "  if c['kind'] == 'a':\n    return c['lr']\n  else:\n    return g(momentum=0.7)",
            "first = f({'kind': 'a', 'lr': 0.1})",
            "rest = [{'kind': kind} for kind in 'b']",
            "val_loss = first + sum(map(f, rest))",
        ],
        ["lr", "momentum"],
    ),
    (
        "branch",
        [
            "def f(kind='a', lr=1.0, momentum=0.5):\n"
            "  if kind in ('a', 'b'):\n    return lr\n  else:\n    return momentum",
            "val_loss = f('a')",
        ],
        ["lr"],
    ),
    (
        "default",
        [
            "def f(lr=0.1, dropout=0.2): return lr * dropout",
            "first = f()",
            "y = float('3')\nval_loss = f(dropout=y)",
        ],
        ["lr"],
    ),
]

#: Notebooks that are refused: their only value is overwritten, never read, or a property of the
#: data.
DEAD: Sequence[tuple[str, Sequence[str]]] = [
    ("default", ["def f(x, lr=0.1): return x", "y = float('3')\nval_loss = f(1, lr=y)"]),
    (
        "default",
        ["class N:\n  def __init__(s, lr=0.1): s.r = lr", "y = float('3')\nval_loss = N(y).r"],
    ),
    (
        "default",
        ["class M:\n  def fit(self, lr=0.1): return lr", "y = float('3')\nval_loss = M().fit(y)"],
    ),
    (
        "overwritten",
        [
            "def SGD(lr): return NS(param_groups=[{'lr': lr}])",
            "opt = SGD(lr=0.1)",
            "opt.param_groups[0]['lr'] = float('3')",
            "val_loss = opt.param_groups[0]['lr']",
        ],
    ),
    (
        "default",
        [
            "def same(f): return f\n@same\ndef f(x, lr=0.1): return x",
            "y = float('3')\nval_loss = f(1, lr=y)",
        ],
    ),
    (
        "default",
        ["def f():\n  def g(lr=0.1): return lr\n  return g(lr=float('3'))", "val_loss = f()"],
    ),
    ("mapping", ["grades = {'lr': 3, 'C': 2}\nk = 'l'", "val_loss = grades[k + 'r']"]),
    ("overwritten", ["c = {'lr': 0.1}\nc['lr'] = float('3')", "val_loss = c['lr']"]),
    ("overwritten", ["c = NS(lr=0.1)\nc.lr = float('3')", "val_loss = c.lr"]),
    ("overwritten", ["args = P.parse_args(['--lr', '3'])", "val_loss = args.lr"]),
    ("overwritten", ["args = P.parse_args([])\nargs.lr = float('3')", "val_loss = args.lr"]),
    ("overwritten", ["class C:\n  lr = 0.1", "C.lr = float('3')\nval_loss = C.lr"]),
    ("overwritten", ["lr = 0.1", "if True:\n  lr = 0.3", "val_loss = lr"]),
    (
        "of the data",
        [
            "class GaussianMixture:\n  def __init__(self, n_components): self.n = n_components",
            "n_classes = 5\nval_loss = GaussianMixture(n_components=n_classes).n",
        ],
    ),
    ("unread", ["lr = 0.1\nval_loss = float('3')"]),
    ("uncalled", ["def f(lr=0.1): return g(lr=lr)", "val_loss = float('3')"]),
]

BEFORE = (
    "import argparse\nfrom dataclasses import dataclass, field\n"
    "from types import SimpleNamespace as NS\nP = argparse.ArgumentParser()\n"
)
OPTION = "P.add_argument('--lr', type=float, default=5e-3)\n"


def _notebook(folder: Path, cells: Sequence[str], kind: str) -> ResearchNotebook:
    before = BEFORE + OPTION * ("P.parse" in "".join(cells))
    return ResearchNotebook(
        write_notebook(folder / "n.ipynb", before + cells[0], *cells[1:], parameters="")
    )


def _score(cells: Sequence[str]) -> float:
    scope: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        exec(cell, scope)
    return float(scope["val_loss"])


@pytest.mark.parametrize(("kind", "cells", "names"), CASES)
def test_each_drafted_parameter_changes_the_score_if_its_value_is_replaced(
    tmp_path: Path, kind: str, cells: Sequence[str], names: Sequence[str] | None
) -> None:
    notebook = _notebook(tmp_path, cells, kind)
    file = tmp_path / "n.yml"
    if names == []:
        with pytest.raises(NotebookError):
            draft(notebook)
        return
    file.write_text(draft(notebook).text)
    settings = Settings.load(file)
    notebook.check_names(settings.sources)
    assert names is None or {*settings.space} == {*names}
    own = _score(notebook.code)
    for name, dimension in settings.space.items():
        assert not isinstance(dimension, ChoiceDimension)
        changed = with_values(notebook.code, {name: dimension.high}, repr)
        assert _score(changed) != own, name


@pytest.mark.parametrize(("kind", "cells"), DEAD)
def test_a_notebook_is_refused_if_its_only_value_is_overwritten_unread_or_a_property_of_the_data(
    tmp_path: Path, kind: str, cells: Sequence[str]
) -> None:
    with pytest.raises(NotebookError):
        draft(_notebook(tmp_path, cells, kind))


def test_a_value_is_swept_if_a_local_module_passes_it_to_the_model_that_is_used(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.py").write_text(
        "from sklearn.linear_model import Ridge\nfrom sklearn.svm import SVC\n"
        "class Model:\n"
        "    def __init__(self, kind, a, C):\n"
        "        if kind == 'ridge':\n            self.model = Ridge(alpha=a)\n"
        "        else:\n            self.model = SVC(C=C)\n"
    )
    cells = [
        "from model import Model\nw_ridge, C, unused = 5.0, 2.0, 0.1",
        "m = Model('ridge', a=w_ridge, C=C)\nacc = m.model.score(X, y)",
    ]
    text = draft(ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))).text
    space = text.partition("space:")[2].partition("start:")[0]
    assert "sklearn.linear_model.Ridge(alpha=)" in space
    assert "C:" not in space and "unused" not in space


def test_of_several_batch_sizes_only_the_first_is_swept(tmp_path: Path) -> None:
    loaders = "train = DataLoader(a, batch_size=32)\ntest = DataLoader(b, batch_size=256)"
    cells = ["from torch.utils.data import DataLoader", loaders, "val_loss = f(train, test)"]
    text = draft(ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))).text
    before, _, after = text.partition("# Not swept")
    assert "train.batch_size" in before and "test.batch_size" not in before
    assert "test.batch_size" in after


@pytest.mark.parametrize(
    "step",
    [
        "self.w += rate * (y - self.w) * x",
        "change = rate * (y - self.w) * x\n    self.w += change",
        "old = self.q[s]\n    new = old + rate * (y - old)\n    self.q[s] = new",
        "delta = y - self.w\n    self.w = self.w + rate * delta * x",
        "self.q[s + 1] = self.q[s] - rate * f(x)",
    ],
)
def test_a_factor_of_an_update_step_is_recognized_as_a_learning_rate(
    tmp_path: Path, step: str
) -> None:
    model = f"class M:\n  def learn(self, x, y, s, rate):\n    {step}"
    cells = [model, "m = M()\nm.learn(1, 2, 0, rate=0.125)\nval_loss = m.w"]
    text = draft(ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))).text
    assert "rate: {low: 0.0125, high: 1.0, log: true}" in text


def test_the_decay_of_a_moving_average_is_not_taken_for_a_learning_rate(tmp_path: Path) -> None:
    model = (
        "class M:\n  def learn(self, g, beta1, rate):\n"
        "    self.m = beta1 * self.m + (1 - beta1) * g\n    self.w -= rate * self.m"
    )
    cells = [model, "m = M()\nm.learn(1, beta1=0.9, rate=0.125)\nval_loss = m.w"]
    text = draft(ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))).text
    assert "beta1: {low: 0.5, high: 0.99}" in text and "rate: {low: 0.0125, high: 1.0" in text


def test_a_default_argument_of_a_function_that_is_passed_to_another_function_is_not_swept(
    tmp_path: Path,
) -> None:
    train = "def train(w, lr=0.01):\n  w -= lr * w\n  return w\ndef use(f, a): return f(1, a)"
    cells = [train, "rate = 0.125\nval_loss = use(train, a=rate)"]
    with pytest.raises(NotebookError):
        draft(ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters="")))


def test_the_population_size_and_mutation_probability_of_an_evolutionary_search_are_swept(
    tmp_path: Path,
) -> None:
    evolution = (
        "import random\ndef mutated(x, chance):\n"
        "  return x + random.gauss(0, 1) if random.random() < chance else x\n"
        "def evolve(population_size, chance, rounds):\n"
        "  people = [random.random() for _ in range(population_size)]\n"
        "  for _ in range(rounds):\n"
        "    people = sorted(mutated(x, chance) for x in people)\n"
        "  return people[0]"
    )
    cells = [evolution, "cost = evolve(population_size=64, chance=0.25, rounds=9)"]
    text = draft(ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))).text
    space = text.partition("space:")[2].partition("# Not swept")[0]
    assert "population_size: [16, 32, 64, 128, 256]" in space and "chance: {low: 0.0625" in space


def test_the_drafted_range_of_n_components_of_pca_ends_at_the_number_in_the_notebook(
    tmp_path: Path,
) -> None:
    pca = "from sklearn.decomposition import PCA\nacc = f(PCA(n_components={}))"
    file = tmp_path / "n.yml"
    file.write_text(draft(_notebook(tmp_path, [pca.format(4)], "")).text)
    (components,) = Settings.load(file).space.values()
    assert (components.low, components.high) == (1, 4)  # type: ignore[union-attr]
    with pytest.raises(NotebookError):
        draft(_notebook(tmp_path, [pca.format(1)], ""))


def test_a_probability_that_only_generates_random_data_is_not_swept(tmp_path: Path) -> None:
    data = (
        "import random\ndef noisy(n, share):\n"
        "  return [9.0 if random.random() < share else 1.0 for _ in range(n)]"
    )
    cells = [data, "data = noisy(100, share=0.25)\nval_loss = sum(data)"]
    with pytest.raises(NotebookError):
        draft(ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters="")))


def test_a_default_argument_of_a_method_is_not_swept_if_all_calls_pass_another_value(
    tmp_path: Path,
) -> None:
    model = (
        "class Trainer:\n  def __init__(self, net): self.net = net\n"
        "  def train(self, lr=0.5):\n    self.net.train()\n    self.w = 1 - lr"
    )
    cells = [model, "rate = 0.125\nt = Trainer(net)\nt.train(lr=rate)\nval_loss = t.w"]
    text = draft(ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))).text
    space = text.partition("space:")[2].partition("# Not swept")[0]
    assert "0.125 in the notebook" in space and "0.5 in the notebook" not in space
