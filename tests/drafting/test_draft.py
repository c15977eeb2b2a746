"""The draft of a parameters file: what it sweeps, what it leaves out, and that it always loads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeper.drafting.draft import draft
from sweeper.drafting.scores.score_guesses import Score, Source
from sweeper.drafting.space.spaces import another_value, rows
from sweeper.errors import NotebookError
from sweeper.notebooks.research import ResearchNotebook
from sweeper.settings import Settings
from sweeper.settings.space import ChoiceDimension
from sweeper.testing import write_notebook

Drafted = Callable[..., Settings]


def checked(folder: Path, notebook: ResearchNotebook) -> Settings:
    """Return the settings of a notebook's draft.

    Check that they fit the notebook, and that the first start trial has the notebook's values.
    """
    file = folder / "drafted.yml"
    file.write_text(draft(notebook).text, encoding="utf-8")
    loaded = Settings.load(file)
    notebook.check_names(dict.fromkeys(loaded.space, "draft"))
    scope: dict[str, Any] = {}
    exec(re.sub("^%.*", "", notebook.code[notebook.parameters_cell - 1], flags=re.MULTILINE), scope)
    own = {name: scope[name] for name in loaded.space}
    first, *others = loaded.start
    assert first == own
    changed = [[name for name in own if other[name] != own[name]] for other in others]
    assert [len(names) for names in changed] == [1] * len(changed), "one value in each trial"
    assert len({names[0] for names in changed}) == len(changed) == min(len(own), 6)
    return loaded


@pytest.fixture
def drafted(tmp_path: Path) -> Drafted:
    """Return a function that returns the checked draft for a parameters cell and further cells."""

    def make(parameters: str, *cells: str) -> Settings:
        path = write_notebook(tmp_path / "study.ipynb", *cells, parameters=parameters)
        return checked(tmp_path, ResearchNotebook(path))

    return make


@pytest.mark.parametrize(
    "parameters",
    [
        "lr: float = 0.1\nn: int\nopt = 'sgd'\nuse_bn = True\ndata_dir = './data'",
        "lr, (width, depth) = 0.1, (32, 4)\na = b = 16\nlr = 0.01\nn = 3\nn += 1\nc, *d = 1, 2",
        "import os\nlr = 0.1\nroot = os.path.join('a', 'b')\nwarmup = int(lr * 100)\nwidth = 16",
        "lr = 1\na = 5e-324\nb = 1e308\nc = 10**30\nd = -0.0\ne = 2**53\nf = -10**9\ni = 1e999",
        "x = 0\ny = 0.0\nmomentum = 0\np = 1.0\nC = 1\nk = 1e5\nz = -3\nw = -0.5\nq = 0.9999999999",
        "n = 3\ny = 4\nnull = 5\ntrue = 6\non = 0.5\na = '1e-3'\nb = 'a: b'\nc = '# no'",
        "lr = 0.1  # see 1-3, \\ud800 'x' {[: #\na = '\\ud800'\nb = 'two\\nlines'\nc = '\\x00'",
        "größe = 0.1\nµ = 3\n学习率 = 1e-3\n_private = 0.5",
        "lr = 0.1\npairs = {(0, 1): 2}\nϵ = 0.5  # read as ε",
        "lr = 0.1  # x\n'''text\n'''\nif True:\n    hidden = 3\nlr = 0.2; b = 32",
        "%matplotlib inline\nlr = 0.1\n%config X.y = 1\nopt = 'sgd'  # sgd | adam",
    ],
)
def test_a_draft_can_be_loaded_and_its_first_start_trial_has_the_notebooks_values(
    drafted: Drafted, parameters: str
) -> None:
    assert drafted(parameters).space


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lr = 1e-3", (1e-4, 1e-2, "log")),
        ("C = 10.0", (1.0, 100.0, "log")),
        ("from sklearn.svm import SVC\nC = 10.0\nmodel = SVC(C=C)", (0.001, 1000.0, "log")),
        ("momentum = 0.9", (0.5, 0.99)),
        ("ema = 0.8", (0.65, 0.95)),
        ("dropout = 0.5", (0.0, 0.6)),
        ("n_layers = 4", (2, 6)),
        ("n_estimators = 100", (25, 400, "log")),
        ("max_depth = 30", (2, 30)),
        ("min_samples_leaf = 0.2", (0.05, 0.35)),
        ("bag = 40", (10, 160, "log")),
        ("batch_size = 64", [16, 32, 64, 128, 256]),
        ("hidden = 100", [16, 32, 64, 100, 128, 256]),
        ("l2 = 1e-4", (1e-5, 1e-3, "log")),
        ("l2 = 1", (0.1, 10.0, "log")),
        ("l1 = 120  # units of a layer", (30, 480, "log")),
    ],
)
def test_the_drafted_range_of_a_value_follows_from_its_name_or_from_its_type_and_size(
    drafted: Drafted, line: str, expected: Any
) -> None:
    (dimension,) = drafted(line).space.values()
    if isinstance(dimension, ChoiceDimension):
        assert list(dimension.choices) == expected
        return
    found = (dimension.low, dimension.high, *(["log"] if dimension.log else []))
    assert found == expected
    assert [type(part) for part in found] == [type(part) for part in expected]


@pytest.mark.parametrize(
    ("cells", "objective"),
    [
        (["import sweeper\nsweeper.report(0, train_loss=1, val_loss=2)"], "val_loss: minimize"),
        (["import sweeper as sw\nsw.score(reward=1, n_done=3)\nacc = 1"], "reward: maximize"),
        (["import sweeper\nm = {'val_top1': 1, 'x': 2}\nsweeper.report(0, **m)"], "val_top1"),
        (["import scrapbook as sb\nsb.glue('test_auc', 0.9)\nsb.glue('fig', fig)"], "test_auc"),
        (["def f():\n    val_acc = 3", "perplexity: float = 2.0"], "perplexity: minimize"),
        (["%%bash\nacc=3", "%%time\nauc = 0.1", "this is no python"], "auc"),
        (["val_acc = []\nfor e in r:\n    val_acc.append(f())\nacc = f()"], "acc"),
        (["precision, recall, _ = precision_recall_curve(y, p)\nauc = f()"], "auc"),
        (["loss = nn.CrossEntropyLoss()\nauc = 0.5"], "auc"),
        (["def score(y):\n    return 1\naccuracy = load()\naccuracy(y)\nerror = f()"], "error"),
        (["test_loss, test_acc = model.evaluate(x, y)"], "test_acc"),
        # The data in the code decide, not the word `test`. Of equally good metrics the last counts.
        (["test_acc = m.score(X_test, y_test)\nf1 = f1_score(y_test, p)"], "f1"),
        (["r2 = r2_score(y, p)\nmae = mean_absolute_error(y, p)"], "mae"),
        (["plt.plot(val_loss)\nval_loss = fit()\nloss = val_loss[-1]"], "loss"),
        (["try:\n    pass\nexcept E:\n    val_acc = 1"], "val_acc"),
        (["elapsed = 3\ntest_score = [1, 2]\nprint('loss 3')"], "score"),
        (["x = 1e-3"], "score"),
    ],
)
def test_the_objective_of_a_draft_is_the_likeliest_score_and_never_a_counter_or_an_array(
    drafted: Drafted, tmp_path: Path, cells: list[str], objective: str
) -> None:
    ((name, goal),) = drafted("lr = 0.1", *cells).objective.items()
    assert f"{name}: {goal.direction}".startswith(objective)
    assert ("FILL IN" in (tmp_path / "drafted.yml").read_text()) == (objective == "score")


@pytest.mark.parametrize(
    ("cells", "space"),
    [
        (
            [
                "m = RF(max_depth=2, random_state=4)\nm.fit(X)",
                "n = RF(max_depth=3)",
                "acc = m.score(X)",
            ],
            ["m.max_depth"],
        ),
        (
            [
                "data = load(batch_size=8)\nother = load(batch_size=9)",
                "net = build()\nopt = SGD(net.p(), 0.1, momentum=0.9)\nSGD(lr=3)",
                "for x in data:\n    net.train()\n    f(net(x)).backward()",
                "acc = test(net)",
            ],
            ["data.batch_size", "momentum", "opt.lr"],
        ),
        (
            [
                "def train(net, batch):\n    o = Adam(net, lr=0.1)\n    return f(o)",
                "o = Adam(lr=3)\nhidden = 30\nn_outputs = 3",
                "net = Net(hidden)\nval_loss = train(net, 3)",
            ],
            ["hidden", "cell1.lr"],
        ),
        (
            [
                "net = N([Dropout(0.2), Dense(9, kernel='x')])\nnet.compile(optimizer='sgd')",
                "net.fit(x, batch_size=8, epochs=3, validation_data=v)",
                "plot(alpha=0.1, lr=1)",
            ],
            ["optimizer", "Dropout", "batch_size"],
        ),
        (
            [
                "from sklearn.linear_model import Ridge\nm = Ridge(alpha=1)\nm.fit(x)\n"
                "plt.plot(alpha=0.5)\nacc = m.f(x)"
            ],
            ["Ridge.alpha"],
        ),
        (
            ["lr, k = 0.1, f()\nbeta = 1.5", "for x in it:\n    beta = x * lr"],
            ["lr"],
        ),
    ],
)
def test_without_a_parameters_cell_the_arguments_of_calls_that_the_score_depends_on_are_swept_too(
    tmp_path: Path, cells: list[str], space: list[str]
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", *cells, parameters="")
    file = tmp_path / "n.yml"
    file.write_text(draft(ResearchNotebook(path)).text)
    settings = Settings.load(file)
    ResearchNotebook(path).check_names(settings.sources)
    assert list(settings.space) == space


@pytest.mark.parametrize(
    ("cells", "space"),
    [
        (["from torch import optim", "optim.Adam(w, lr=3)", "acc = 1"], ["lr"]),
        (["from keras.optimizers import Adam", "Adam(1e-3)", "acc = 1"], ["learning_rate"]),
        (["from keras.layers import *", "n = Dropout(0.5)", "acc = n"], ["Dropout.p"]),
        (["grades = {'C': 3}\nlr = 1", "acc = grades[x] + lr"], ["lr"]),
        (["config = {'lr': 0.1}", "acc = train(config['lr'])"], ["lr"]),
        (["def f(w, rate=0.1):\n    w -= rate * 2 * g(w) / 3", "acc = f(1)"], ["rate"]),
        (["eta, w = 0.1, 2.0", "for i in r:\n    w -= eta * w\nacc = f(w)"], ["eta"]),
        (["step = 0.1", "for i in r:\n    w = w - dw * step\nacc = f(w)"], ["step"]),
        # The training is code of the notebook, so params are found in its classes and functions.
        (
            [
                "class Stumps:\n  def __init__(self, n=5): self.n = n",
                "class Model:\n  def __init__(self, count=4, penalty=0.3, size=9):\n"
                "    self.count, self.penalty, self.size = count, penalty, size\n"
                "  def fit(self, x):\n    for i in range(self.count): self.more(x)\n"
                "  def more(self, x):\n    self.w = self.w - self.penalty * self.w",
                "m = Model(count=7)\nm.fit(Stumps(n=3))\naccuracy = m.score()",
            ],
            ["count", "penalty"],
        ),
        (
            [
                "rate, discount, scale = 0.1, 0.9, 2.5\nnoise = scale * f()",
                "def choose(q): return best(q) * discount",
                "for i in r:\n  q[i] = q[i] + rate * (choose(q) - q[i])",
                "accuracy = g(q, noise)",
            ],
            ["rate", "discount"],
        ),
        (["a = 0.1", "for i in r: q[i] = (1 - a) * q[i] + a * f(i)\nacc = q"], ["a"]),
        (["alpha, k, tau = 0.1, 9, 0.5\nlr = 0.1", "acc = f(alpha, k, tau, lr)"], ["lr"]),
        (
            [
                "from torch.nn import Linear\ndef net(hidden=64): return Linear(2, hidden)\nnet()",
                "acc = f(net(hidden=64))",
            ],
            ["hidden"],
        ),
        (
            [
                "from torch.optim import SGD\nm = SGD(w, lr=0.1)\nn = sum(p for p in m.p)",
                "m = SGD(w, lr=0.2)\nn = sum(p for p in m.p)\nacc = m.fit(n)",
            ],
            ["cell2.lr"],
        ),
        (
            [
                "from sklearn.svm import SVC\nfrom sklearn.model_selection import cross_val_score",
                "m = SVC(C=3.0)\nacc = cross_val_score(m, x, cv=5).mean()",
            ],
            ["SVC.C"],
        ),
        (
            ["from keras.layers import Dense\na = Dense(units=2)", "acc = f(a, Dense(units=32))"],
            ["cell2.units"],
        ),
        (
            ["from torch.optim import SGD\nw.fit(SGD(w, lr=0.1))", "acc = w.fit(SGD(w, lr=0.2))"],
            ["cell1.lr", "cell2.lr"],
        ),
        (
            [
                "from sklearn.decomposition import PCA\nfrom torch.optim import Adam",
                "acc = Adam(PCA(n_components=0.9), lr=0.1, betas=(0.9, 0.999))",
            ],
            ["lr", "n_components"],
        ),
        (
            [
                "from xgboost import XGBClassifier\nparams = {'eta': 0.1, 'gamma': 0.5}",
                "acc = XGBClassifier(**params).score(X)",
            ],
            ["eta", "gamma"],
        ),
        (["import pandas as pd\npd.cut(x, alpha=2)\nlr = 0.1", "acc = f(lr)"], ["lr"]),
        (
            [
                "from sklearn.ensemble import RandomForestClassifier as RF",
                "acc = RF(n_estimators=50, max_depth=3).score(X)",
            ],
            ["n_estimators", "max_depth", "RF.min_samples_leaf"],
        ),
        (["from sklearn.svm import SVC", "acc = SVC().fit(X).score(X)"], ["SVC.C"]),
        # The score depends on both models. Arguments that the calls pass come before defaults.
        (
            [
                "from sklearn.svm import SVC, SVR\na = SVC(C=2.0)",
                "b = SVR(C=3.0, epsilon=0.2)",
                "acc = f(a, b)",
            ],
            ["SVC.C", "SVR.C", "epsilon"],
        ),
        (
            [
                "hparams = Namespace()\nhparams.num_layers = 4",
                "@dataclass\nclass Config:\n  num_layers: int = 2",
                "val_loss = f(Config(), hparams)",
            ],
            ["hparams.num_layers"],
        ),
        (["from torch.optim import Adam", "val_acc = train(Adam(w))"], ["Adam.lr"]),
        (
            [
                "from torch.utils.data import DataLoader",
                "lr = 0.1\nval = DataLoader(v, batch_size=64)",
                "t = DataLoader(d, batch_size=32)",
                "acc = f(t, val, lr)",
            ],
            ["lr", "t.batch_size"],
        ),
    ],
)
def test_whether_a_value_is_swept_depends_on_the_library_call_or_training_code_that_gets_it(
    tmp_path: Path, cells: list[str], space: list[str]
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", *cells, parameters="")
    file = tmp_path / "n.yml"
    file.write_text(draft(ResearchNotebook(path)).text)
    assert list(Settings.load(file).space) == space


def test_a_draft_has_a_comment_for_the_argument_c_of_each_model_that_does_not_affect_the_score(
    tmp_path: Path,
) -> None:
    models = "from sklearn import svm, linear_model, tree\na = svm.SVC(C=3.0)"
    path = write_notebook(
        tmp_path / "n.ipynb",
        f"{models}\nb = linear_model.LogisticRegression(C=2.0)",
        "acc = tree.DecisionTreeClassifier(max_depth=3).fit(1, 2).score(1, 2)",
        parameters="",
    )
    text = draft(ResearchNotebook(path)).text
    assert "# SVC.C: " in text
    assert "# LogisticRegression.C: " in text


def test_the_error_for_a_learning_rate_that_is_assigned_twice_states_both_lines(
    tmp_path: Path,
) -> None:
    cells = ["eta, n = 5e-3, 'x'\neta, n = 5e-2, 'x'", "acc = f(eta)"]
    path = write_notebook(tmp_path / "n.ipynb", *cells, parameters="")
    with pytest.raises(NotebookError) as raised:
        draft(ResearchNotebook(path))
    assert "eta is assigned in code cell 1, line 1, and in code cell 1, line 2" in str(raised.value)


def test_each_row_of_the_table_of_drafted_ranges_has_one_kind_of_range_and_a_source() -> None:
    for row in rows():
        kinds = [row.range, row.around, row.plus_minus, row.sizes, row.choices]
        kinds += [row.usual, row.not_swept]
        assert sum(map(bool, kinds)) == 1, row
        assert row.source
        assert row.names or row.of


@pytest.mark.parametrize(
    ("name", "objective"),
    [("digits", "val_top1"), ("resnet", "val_top1"), ("untouched", "acc")],
)
def test_each_example_notebook_has_a_draft_with_the_expected_objective(
    tmp_path: Path, name: str, objective: str
) -> None:
    notebook = ResearchNotebook(Path(__file__).parents[2] / "notebooks" / f"{name}.ipynb")
    assert list(checked(tmp_path, notebook).objective) == [objective]


def test_a_drafted_pattern_keeps_invisible_characters_such_as_a_zero_width_joiner(
    tmp_path: Path,
) -> None:
    pattern = "👩\u200d💻 accuracy: (.*)"
    score = Score(
        name="accuracy",
        source=Source.PRINTED,
        at=0,
        key="pattern",
        text=pattern,
        direction="maximize",
    )
    file = tmp_path / "drafted.yml"
    notebook = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", parameters="lr = 0.1"))
    file.write_text(draft(notebook, seen=[score]).text, encoding="utf-8")
    assert Settings.load(file).scores["accuracy"].pattern == pattern


def test_the_entry_of_a_score_that_trials_compute_again_is_a_comment_unless_it_is_the_objective(
    tmp_path: Path,
) -> None:
    called = Score(
        name="f1",
        source=Source.SHOWN,
        at=0,
        key="expression",
        text="f(x)",
        direction="maximize",
        is_called=True,
    )
    free = Score(
        name="loss",
        source=Source.PRINTED,
        at=0,
        key="pattern",
        text="loss (.*)",
        direction="minimize",
    )
    plain = Score(name="accuracy", source=Source.VARIABLE, at=0, direction="maximize")
    file = tmp_path / "drafted.yml"
    notebook = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", parameters="lr = 0.1"))
    for scores, kept in (
        ([plain, called], set()),
        ([called, free], {"f1", "loss"}),
        ([free, called], {"loss"}),
    ):
        text = draft(notebook, seen=scores).text
        file.write_text(text, encoding="utf-8")
        assert Settings.load(file).scores.keys() == kept
        assert "f1: {expression: 'f(x)'}" in text


def test_numbers_without_a_known_range_are_swept_only_if_their_cell_is_tagged_parameters(
    tmp_path: Path,
) -> None:
    numbers = "alpha = 0.1\ngamma = 0.9"
    code = "class Booster:\n    def __init__(self, rounds):\n        self.sum = rounds * alpha"
    last = "score = Booster(rounds=5).sum + gamma\nprint('accuracy:', score)"
    untagged = write_notebook(tmp_path / "untagged.ipynb", numbers, code, last, parameters="")
    with pytest.raises(NotebookError, match=r"untagged\.yml.*`space: \{alpha: \{low: 0\.0") as told:
        draft(ResearchNotebook(untagged))
    assert "}, gamma: {low: " in str(told.value)
    tagged = write_notebook(tmp_path / "tagged.ipynb", code, last, parameters=numbers)
    assert {"alpha", "gamma"} <= checked(tmp_path, ResearchNotebook(tagged)).search_space.keys()


@pytest.mark.parametrize(
    ("parameters", "language", "fragment"),
    [
        (
            "seed = 0\npath = 'a/b'",
            "python3",
            "choose what to vary, and assign it in a cell that is tagged `parameters`",
        ),
        ("lr = ", "python", "swept in a known range; code cell 1, line 1: invalid syntax"),
        ("lr <- 0.1", "R", "language is R; write the parameters file by hand"),
    ],
)
def test_a_notebook_for_which_no_draft_is_possible_is_refused_with_a_remedy(
    tmp_path: Path, parameters: str, language: str, fragment: str
) -> None:
    path = write_notebook(tmp_path / "bare.ipynb", parameters=parameters)
    content = json.loads(path.read_text())
    content["metadata"]["kernelspec"]["language"] = language
    path.write_text(json.dumps(content))
    with pytest.raises(NotebookError, match=re.escape(fragment)) as raised:
        draft(ResearchNotebook(path))
    assert str(path) in str(raised.value)


def test_a_draft_says_that_the_seed_stays_the_same_in_the_search_only_if_trials_cannot_set_it(
    tmp_path: Path,
) -> None:
    cell = "import torch\ntorch.manual_seed({})\nval_acc = lr"
    for seed, is_kept in {"seed": False, "SEED": True}.items():
        parameters = f"lr = 0.1\n{seed} = 0"
        path = write_notebook(tmp_path / "n.ipynb", cell.format(seed), parameters=parameters)
        assert ("the search keeps it" in draft(ResearchNotebook(path)).text) == is_kept


def test_a_draft_states_each_value_of_the_notebook_in_a_comment_and_hides_a_secret(
    tmp_path: Path,
) -> None:
    source = "lr = 1e-3  # of Adam\nbatch_size = 32\nepochs = 5\nseed = 0\nuse_bn = True"
    source += "\napi_key = 'abcdef123'"
    cell = "import sweeper\nsweeper.report(0, val_loss=1, val_acc=0.5)"
    path = write_notebook(tmp_path / "n.ipynb", cell, parameters=source)
    assert draft(ResearchNotebook(path)).text.replace(str(path), "n.ipynb") == (
        """\
# A draft for n.ipynb, to be edited: ranges and score are guesses.

study:
  trials: 20

objective:
  val_acc: maximize    # reported in code cell 2
  # or one of these:
  # val_loss: minimize    # reported in code cell 2

space:
  lr: {low: 0.0001, high: 0.01, log: true}    # 0.001 in the notebook; of Adam
  batch_size: [8, 16, 32, 64, 128]    # 32 in the notebook
  # Not swept; a line without its # would be:
  # epochs: {low: 3, high: 7}    # 5 in the notebook; a budget
  # seed: […]    # 0 in the notebook; a seed
  # use_bn: [false, true]    # true in the notebook
  # api_key: a secret?

start:    # the notebook's own values; then one changed at a time, which you may delete
  - {"lr": 0.001, "batch_size": 32}
  - {"lr": 0.00316, "batch_size": 32}
  - {"lr": 0.001, "batch_size": 64}
"""
    )


@pytest.mark.parametrize(
    ("own", "space", "other"),
    [
        (0.001, {"low": 1e-4, "high": 1e-2, "log": True}, 0.00316),
        (0.99, {"low": 0.5, "high": 0.99}, 0.745),
        (1, {"low": 1, "high": 30}, 16),
        (2, {"low": 2, "high": 3}, 3),
        (0.9995, {"low": 0.9991, "high": 0.9999}, 0.9997),
        (5.0, {"low": 5.0, "high": 5.0}, 5.0),
        (3, {"low": 2, "high": 3}, 2),
        (None, [None, 3, 5], 3),
        ("sgd", ["adam", "sgd"], "adam"),
    ],
)
def test_a_start_trial_that_changes_one_param_has_a_distant_value_within_its_range(
    own: Any, space: Any, other: Any
) -> None:
    assert another_value(own, space) == other


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("model.fit(lr)", "its training sets no seed"),
        ("a, b = train_test_split(data, random_state=1)", "its training sets no seed"),
        ("torch.manual_seed(7)", "the seed 7"),
        ("import numpy as np\nnumbers = np.random.default_rng()", None),
        ("from helpers import fix_seeds\nfix_seeds()", None),
        ("%run setup.ipynb", None),
        ("for number in numbers: torch.manual_seed(number)", None),
        ("seed = 0", None),
    ],
)
def test_a_draft_says_which_seed_a_training_sets_or_that_it_sets_none(
    tmp_path: Path, cell: str, line: str | None
) -> None:
    imports = "import torch\nfrom sklearn.model_selection import train_test_split\n"
    notebook = write_notebook(tmp_path / "n.ipynb", imports + cell, parameters="lr = 0.1")
    text = draft(ResearchNotebook(notebook)).text
    # The first line has the path of the notebook, with the name of this test.
    head = text.partition("study:")[0].partition("\n")[2]
    assert ("seed" in head) is (line is not None) and (line or "") in head


def test_a_draft_uses_a_grid_if_the_default_number_of_trials_covers_all_combinations(
    tmp_path: Path,
) -> None:
    training = "model.fit(x, batch_size=batch_size)"
    few = write_notebook(tmp_path / "few.ipynb", training, parameters="batch_size = 64")
    study = checked(tmp_path, ResearchNotebook(few)).study
    assert (study.trials, study.sampler.name) == (5, "grid")
    many = write_notebook(tmp_path / "many.ipynb", training, parameters="batch_size = 64\nlr = 0.1")
    study = checked(tmp_path, ResearchNotebook(many)).study
    assert (study.trials, study.sampler.name) == (20, "auto")
