"""The draft that one run of a notebook gives: its score, the score's direction, what it sweeps."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import nbformat
import pytest

from sweeper import Settings, Sweep
from sweeper.drafting.observed_run import ObservedRun, observe
from sweeper.errors import FailedRunError, NotebookError, SettingsError
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel


def observed(folder: Path) -> tuple[ResearchNotebook, ObservedRun]:
    """The folder's notebook, and its observed run."""
    notebook = ResearchNotebook(folder / "study.ipynb")
    sweep_of = partial(Sweep.from_settings, output=f"{folder}/out/{{run_id}}.ipynb")
    return notebook, observe(notebook, sweep_of)


def drafted(folder: Path, *cells: str) -> Settings:
    """The settings that an observed run of these cells drafts."""
    write_notebook(folder / "study.ipynb", *cells, parameters="")
    notebook, run = observed(folder)
    file = folder / "drafted.yml"
    file.write_text(run.drafted(notebook), encoding="utf-8")
    settings = Settings.load(file)
    notebook.check_names(dict.fromkeys(settings.space, "draft"))
    return settings


@pytest.mark.parametrize(
    ("cells", "objective", "space"),
    [
        (
            [
                "import numpy as np\nfrom sklearn.linear_model import Lasso\n"
                "from sklearn.metrics import mean_squared_error\n"
                "from sklearn.datasets import load_diabetes\n"
                "X, y = load_diabetes(return_X_y=True)",
                "model = Lasso(alpha=0.1).fit(X[:300], y[:300])\n"
                "score = np.sqrt(mean_squared_error(y[300:], model.predict(X[300:])))\n"
                "print(f'Final score (RMSE): {score}')",
            ],
            {"score": "minimize"},
            {"alpha"},
        ),
        (
            [
                "def train(lr=0.1):\n    for step in range(2):\n"
                "        print(f'step {step} loss = {3e5 * (lr * 10) ** 2 + step:.5g}')",
                "train()",
            ],
            {"loss": "minimize"},
            {"lr"},
        ),
        (
            [
                "lr = 0.01\ndef rmse(e):\n    return abs(e)",
                "out = [7.5, lr - 0.03]\nprint(f'OOF baseline RMSE: {rmse(out[0]):.4f}')\n"
                "print(f'OOF NN RMSE:       {rmse(out[1]):.4f}')",
            ],
            {"oof_nn_rmse": "minimize"},
            {"lr"},
        ),
        (
            ["lr = 0.2", "print('RMSE:')\nprint((lr - 0.5) ** 2)"],
            {"rmse": "minimize"},
            {"lr"},
        ),
        (
            ["lr = 0.2\nvalues = [lr - 0.5, 1]", "rmsle = abs(values[0])"],
            {"rmsle": "minimize"},
            {"lr"},
        ),
    ],
)
def test_a_run_drafts_the_score_that_people_mean(
    tmp_path: Path, cells: list[str], objective: dict[str, str], space: set[str]
) -> None:
    settings = drafted(tmp_path, *cells)
    assert {name: goal.direction for name, goal in settings.objective.items()} == objective
    assert settings.space.keys() == space


TWO_MODELS = """\
from sklearn.datasets import load_iris
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
X, y = load_iris(return_X_y=True)
"""


@pytest.mark.parametrize(
    ("cells", "space"),
    [
        # Two models that are fitted with the same data, and the score of the first one.
        (
            [
                TWO_MODELS,
                "svm = SVC(C=0.1)\nsvm.fit(X, y)",
                "tree = DecisionTreeClassifier(min_samples_leaf=40)\ntree.fit(X, y)",
                "accuracy = svm.score(X, y)",
            ],
            {"SVC.C"},
        ),
        # A name that stands for one model after the other.
        (
            [
                TWO_MODELS,
                "model = SVC(C=0.1)\nmodel.fit(X, y)",
                "model = DecisionTreeClassifier(min_samples_leaf=40)\nmodel.fit(X, y)",
                "accuracy = model.score(X, y)",
            ],
            {"min_samples_leaf", "DecisionTreeClassifier.max_depth"},
        ),
        # A loop over models leaves the score of the last one.
        (
            [
                TWO_MODELS,
                "models = {\n    'svm': SVC(C=0.1),\n"
                "    'tree': DecisionTreeClassifier(min_samples_leaf=40),\n}",
                "for name, model in models.items():\n    model.fit(X, y)\n"
                "    accuracy = model.score(X, y)",
            ],
            {"min_samples_leaf", "DecisionTreeClassifier.max_depth"},
        ),
        # The models of one loop may be those that an earlier loop has put into a dict.
        (
            [
                TWO_MODELS,
                "models = {\n    'svm': SVC(C=0.1),\n"
                "    'tree': DecisionTreeClassifier(min_samples_leaf=40),\n}\nfitted = {}",
                "for name, model in models.items(): fitted[name] = model.fit(X, y)",
                "for name, model in fitted.items(): accuracy = model.score(X, y)",
            ],
            {"min_samples_leaf", "DecisionTreeClassifier.max_depth"},
        ),
        # An optimizer whose steps nobody takes, next to one that trains the model.
        (
            [
                "import torch\nx = torch.ones(8, 2)\nnet = torch.nn.Linear(2, 1)",
                "adam = torch.optim.Adam(net.parameters(), lr=0.5)",
                "sgd = torch.optim.SGD(net.parameters(), lr=0.25)",
                "for _ in range(3):\n    total = net(x).square().mean()\n"
                "    sgd.zero_grad()\n    total.backward()\n    sgd.step()",
            ],
            {"SGD.lr"},
        ),
    ],
)
def test_only_params_that_lead_to_the_score_in_the_run_are_swept(
    tmp_path: Path, cells: list[str], space: set[str]
) -> None:
    assert drafted(tmp_path, *cells).space.keys() == space


def test_a_notebook_whose_run_fails_gets_its_error_and_no_draft(tmp_path: Path) -> None:
    with pytest.raises(FailedRunError, match=r"code cell 2: ZeroDivisionError: .* by zero$"):
        drafted(tmp_path, "lr = 0.1", "val_loss = lr / 0")


@pytest.mark.parametrize(
    "cells",
    [
        ["lr = 0.1", "text = str(lr)"],
        [
            "from sklearn.metrics import mean_squared_error\nclass M:\n"
            "  def __init__(self, lr=0.1): self.w = lr\n  def predict(self, x): return [x, self.w]",
            "text = str(mean_squared_error([1, 2], M().predict(3)))",
        ],
    ],
)
def test_a_notebook_whose_run_shows_no_score_says_what_would_be_one(
    tmp_path: Path, cells: list[str]
) -> None:
    with pytest.raises(NotebookError, match="val_acc = …"):
        drafted(tmp_path, *cells)


def test_a_direction_that_nothing_states_is_left_to_be_filled_in(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"objective\.misfit: .*'minimize'"):
        drafted(
            tmp_path,
            "lr = 0.1\nfound = 0\nfor value in (0.1, 0.5, lr):\n    if value > 0.2: found += 1",
            "misfit = found / 3",
        )


def test_a_score_to_which_a_param_leads_comes_before_others(tmp_path: Path) -> None:
    svm = "from sklearn.svm import SVC\nmodel = SVC(C=3.0)\ntest_acc = 1 / (2 + model.C)"
    settings = drafted(tmp_path, svm, "val_acc = abs(-1 / 3)")
    assert list(settings.objective) == ["test_acc"]


def test_of_several_models_the_one_with_the_most_values_of_the_notebook_is_swept(
    tmp_path: Path,
) -> None:
    models = "from sklearn.svm import SVC\na = SVC(C=3.0, gamma=0.5)\nb = SVC(C=2.0)"
    scores = "acc_a = 1 / (2 + a.C + a.gamma)\nacc_b = 1 / (3 + b.C)"
    settings = drafted(tmp_path, models, scores)
    assert (list(settings.objective), list(settings.space)) == (["acc_a"], ["a.C", "gamma"])


def test_an_entry_of_a_dict_of_scores_is_swept_by_its_own_model(tmp_path: Path) -> None:
    models = "from sklearn.svm import SVC, SVR\na = SVC(C=3.0)\nb = SVR(C=2.0)"
    settings = drafted(tmp_path, models, "acc = {'one': 1 / (2 + a.C), 'two': 1 / (3 + b.C)}")
    assert list(settings.space) in (["SVC.C"], ["SVR.C", "SVR.epsilon"])


def test_a_fraction_of_which_a_loss_may_be_made_is_swept_only_towards_a_metric(
    tmp_path: Path,
) -> None:
    training = (
        "rate, penalty = 0.1, 0.3\ndef descend(w):\n  for i in range(4):\n"
        "    grad = w + penalty * w\n    w -= rate * grad\n  return w\nw = descend(8.5)"
    )
    settings = drafted(tmp_path, training, "loss = w + penalty * w * w")
    assert list(settings.space) == ["rate"]
    (tmp_path / "study.ipynb").unlink()
    settings = drafted(tmp_path, training, "accuracy = 1 / (1 + w)")
    assert list(settings.space) == ["rate", "penalty"]


def test_the_batch_size_is_not_swept_towards_a_sum_over_batches(tmp_path: Path) -> None:
    cell = "val_loss = 0\nfor _ in range(64 // batch_size): val_loss += lr"
    settings = drafted(tmp_path, "lr = 0.1\nbatch_size = 32", cell)
    assert list(settings.space) == ["lr"]


def test_a_cell_that_later_cells_need_is_not_to_be_skipped(tmp_path: Path) -> None:
    cells = ["lr = 0.1\nval_loss = lr * 2", "image = open('/none').read()"]
    with pytest.raises(FailedRunError, match="`skip`"):
        drafted(tmp_path, *cells)
    importing = [cells[0], "import gone_module", "gone_module.plot(val_loss)"]
    for needed in ([*cells, "print(len(image))"], importing):
        with pytest.raises(FailedRunError) as refused:
            drafted(tmp_path, *needed)
        assert "`skip`" not in str(refused.value)


def test_an_error_that_a_notebook_expects_is_not_the_one_to_skip(tmp_path: Path) -> None:
    cells = ["lr = 0.1\nval_loss = lr * 2", "1 / 0", "open('/none')"]
    file = write_notebook(tmp_path / "study.ipynb", *cells, parameters="")
    node = nbformat.read(file, 4)
    node.cells[1].metadata["tags"] = ["raises-exception"]
    nbformat.write(node, file)
    with pytest.raises(FailedRunError, match="this cell, code cell 3: tag it `skip`"):
        observed(tmp_path)


def test_a_score_that_no_param_leads_to_is_not_swept(tmp_path: Path) -> None:
    svm = "from sklearn.svm import SVC\nother = SVC(C=3.0)"
    with pytest.raises(NotebookError, match="leads to accuracy"):
        drafted(tmp_path, svm, "accuracy = abs(-1 / 3)")
