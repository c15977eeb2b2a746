"""A draft made from one observed run of a notebook: its score, direction and swept params."""

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
    """Run `study.ipynb` in a folder once, before a sweep. Return it and this observed run."""
    notebook = ResearchNotebook(folder / "study.ipynb")
    sweep_of = partial(Sweep.from_settings, output=f"{folder}/out/{{run_id}}.ipynb")
    return notebook, observe(notebook, sweep_of)


def drafted(folder: Path, *cells: str) -> Settings:
    """Return the settings that are drafted from an observed run of these cells."""
    write_notebook(folder / "study.ipynb", *cells, parameters="")
    notebook, run = observed(folder)
    file = folder / "drafted.yml"
    file.write_text(run.drafted(notebook).text, encoding="utf-8")
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
def test_the_draft_of_an_observed_run_has_the_intended_score_and_the_params_that_change_it(
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
        # Two models are fitted with the same data, and only the first one has a score.
        (
            [
                TWO_MODELS,
                "svm = SVC(C=0.1)\nsvm.fit(X, y)",
                "tree = DecisionTreeClassifier(min_samples_leaf=40)\ntree.fit(X, y)",
                "accuracy = svm.score(X, y)",
            ],
            {"SVC.C"},
        ),
        # The same name is assigned one model and then another.
        (
            [
                TWO_MODELS,
                "model = SVC(C=0.1)\nmodel.fit(X, y)",
                "model = DecisionTreeClassifier(min_samples_leaf=40)\nmodel.fit(X, y)",
                "accuracy = model.score(X, y)",
            ],
            {"min_samples_leaf", "DecisionTreeClassifier.max_depth"},
        ),
        # After a loop over models, the score is that of the last model.
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
        # The loop goes over a dict that an earlier loop has filled with models.
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
        # Of two optimizers only one trains the model. The other one's `step` is never called.
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
def test_only_params_on_which_the_score_depended_in_the_observed_run_are_swept(
    tmp_path: Path, cells: list[str], space: set[str]
) -> None:
    assert drafted(tmp_path, *cells).space.keys() == space


def test_a_notebook_whose_observed_run_fails_is_refused_with_the_error_of_its_cell(
    tmp_path: Path,
) -> None:
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
def test_a_notebook_whose_run_shows_no_score_is_refused_with_an_example_of_a_score(
    tmp_path: Path, cells: list[str]
) -> None:
    with pytest.raises(NotebookError, match="val_acc = …"):
        drafted(tmp_path, *cells)


def test_a_draft_whose_score_has_no_known_direction_is_refused_with_the_valid_directions(
    tmp_path: Path,
) -> None:
    with pytest.raises(SettingsError, match=r"objective\.misfit: .*'minimize'"):
        drafted(
            tmp_path,
            "lr = 0.1\nfound = 0\nfor value in (0.1, 0.5, lr):\n    if value > 0.2: found += 1",
            "misfit = found / 3",
        )


def test_a_score_that_depends_on_a_param_is_preferred_to_one_that_depends_on_none(
    tmp_path: Path,
) -> None:
    svm = "from sklearn.svm import SVC\nmodel = SVC(C=3.0)\ntest_acc = 1 / (2 + model.C)"
    settings = drafted(tmp_path, svm, "val_acc = abs(-1 / 3)")
    assert list(settings.objective) == ["test_acc"]


def test_of_several_models_the_one_with_the_most_params_in_the_notebook_is_swept(
    tmp_path: Path,
) -> None:
    models = "from sklearn.svm import SVC\na = SVC(C=3.0, gamma=0.5)\nb = SVC(C=2.0)"
    scores = "acc_a = 1 / (2 + a.C + a.gamma)\nacc_b = 1 / (3 + b.C)"
    settings = drafted(tmp_path, models, scores)
    assert (list(settings.objective), list(settings.space)) == (["acc_a"], ["a.C", "gamma"])


def test_for_a_score_in_a_dict_only_params_of_the_model_with_this_score_are_swept(
    tmp_path: Path,
) -> None:
    models = "from sklearn.svm import SVC, SVR\na = SVC(C=3.0)\nb = SVR(C=2.0)"
    settings = drafted(tmp_path, models, "acc = {'one': 1 / (2 + a.C), 'two': 1 / (3 + b.C)}")
    assert list(settings.space) in (["SVC.C"], ["SVR.C", "SVR.epsilon"])


def test_a_penalty_that_may_be_part_of_the_loss_is_swept_only_if_the_score_is_a_metric(
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


def test_the_batch_size_is_not_swept_if_the_score_is_a_sum_over_batches(tmp_path: Path) -> None:
    cell = "val_loss = 0\nfor _ in range(64 // batch_size): val_loss += lr"
    settings = drafted(tmp_path, "lr = 0.1\nbatch_size = 32", cell)
    assert list(settings.space) == ["lr"]


def test_the_tag_skip_is_advised_for_the_failing_cell_and_not_for_one_tagged_raises_exception(
    tmp_path: Path,
) -> None:
    cells = ["lr = 0.1\nval_loss = lr * 2", "1 / 0", "open('/none')"]
    file = write_notebook(tmp_path / "study.ipynb", *cells, parameters="")
    node = nbformat.read(file, 4)
    node.cells[1].metadata["tags"] = ["raises-exception"]
    nbformat.write(node, file)
    with pytest.raises(FailedRunError, match="tag code cell 3 `skip`"):
        observed(tmp_path)


def test_a_notebook_whose_only_score_depends_on_no_param_is_refused(tmp_path: Path) -> None:
    svm = "from sklearn.svm import SVC\nother = SVC(C=3.0)"
    with pytest.raises(NotebookError, match="changes accuracy"):
        drafted(tmp_path, svm, "accuracy = abs(-1 / 3)")
