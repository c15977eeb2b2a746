"""Notebooks of other people that `foreign.py` sweeps, and the changes that the sweep needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Search space in the form of a parameters file.
Space = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """One notebook, and how it is swept.

    Attributes:
        repo: Repository on GitHub, `owner/name`.
        path: Path of the notebook in the repository.
        space: Search space. If the notebook has no cell with the tag `parameters`, it gets one with
            these names at the top.
        score: Expression that is evaluated in a new last cell. Empty if `scores` is given.
        objective: Name of the score.
        scores: Source of a score that the notebook itself prints or computes, as in a parameters
            file.
        edits: Pairs of a text in the notebook's code, which must occur, and its replacement.
        leave_out: Code cells that contain one of these texts are removed.
        until: The cell that contains this text is removed, and all cells after it.
        needs: Modules that the notebook imports and this project does not install.
        tolerance: Allowed relative difference of scores. 0 if they must be equal to the last bit.
        has_digits: Whether the notebook reads MNIST from `data`. It then gets scikit-learn's digits
            in MNIST's format.
        fails: Whether the notebook also fails in Jupyter. Its outputs are compared nevertheless.
    """

    repo: str
    path: str
    space: Space
    score: str = ""
    objective: str = "score"
    scores: Mapping[str, Any] = field(default_factory=dict)
    edits: Sequence[tuple[str, str]] = ()
    leave_out: Sequence[str] = ()
    until: str = ""
    needs: Sequence[str] = ()
    tolerance: float = 0.0
    has_digits: bool = False
    fails: bool = False


_X = {"x": {"low": 0.0, "high": 1.0}}
_RATE = {"low": 1e-3, "high": 1e-1, "log": True}
_PAPERMILL, _PAPERMILL_AT = "nteract/papermill", "papermill/tests/notebooks"
_NBCLIENT, _NBCLIENT_AT = "jupyter/nbclient", "tests/files"
_BOOK, _MODELS, _HANDSON = (
    "rasbt/machine-learning-book",
    "rasbt/deeplearning-models",
    "ageron/handson-ml3",
)
#: Text in the last cell of some notebooks. This cell is left out: it converts the notebook to a
#: script.
_TO_SCRIPT = ".convert_notebook_to_script"
_PLOTS = ("matplotlib", "pandas", "sklearn")
_TORCH = ("matplotlib", "torch", "torchvision", "sklearn")

NOTEBOOKS: Sequence[Foreign] = (
    Foreign(
        repo=_PAPERMILL,
        path=f"{_PAPERMILL_AT}/simple_execute.ipynb",
        space={"msg": ["Hello", "Hello again", "Good bye"]},
        score="len(msg)",
    ),
    Foreign(
        repo=_PAPERMILL,
        path=f"{_PAPERMILL_AT}/report_mode_test.ipynb",
        space={"a": {"low": 1, "high": 9}, "b": {"low": 0.0, "high": 1.0}},
        score="sum(a, b)",
    ),
    Foreign(
        repo=_PAPERMILL,
        path=f"{_PAPERMILL_AT}/nb_version_4.4.ipynb",
        space={"var": {"low": 0.0, "high": 1.0}},
        scores={"score": {"pattern": r"^([0-9.e-]+)$"}},
    ),
    Foreign(
        repo=_PAPERMILL,
        path=f"{_PAPERMILL_AT}/sysexit0.ipynb",
        space=_X,
        edits=[("import sys", "import sys\nscore = x")],
    ),
    Foreign(
        repo=_PAPERMILL,
        path=f"{_PAPERMILL_AT}/test_logging.ipynb",
        space=_X,
        edits=[('logger.info("test text")', 'logger.info("test text %s", x)')],
        leave_out=["ggplot"],
        score="x",
    ),
    Foreign(
        repo=_PAPERMILL,
        path=f"{_PAPERMILL_AT}/test_autosave.ipynb",
        space={"steps": {"low": 3, "high": 9}},
        edits=[("range(25)", "range(steps)")],
        score="i",
    ),
    Foreign(
        repo=_PAPERMILL,
        path=f"{_PAPERMILL_AT}/broken1.ipynb",
        space=_X,
        score="x",
        fails=True,
    ),
    Foreign(
        repo=_NBCLIENT,
        path=f"{_NBCLIENT_AT}/Clear Output.ipynb",
        space=_X,
        edits=[("    print(i)", "    print(i, x)")],
        score="x",
    ),
    Foreign(
        repo=_NBCLIENT,
        path=f"{_NBCLIENT_AT}/update-display-id.ipynb",
        space=_X,
        edits=[('display("above")', 'display(f"above {x}")')],
        score="x",
    ),
    Foreign(
        repo=_NBCLIENT,
        path=f"{_NBCLIENT_AT}/Output.ipynb",
        space=_X,
        edits=[('print("hi3")', 'print("hi3", x)')],
        score="x",
        needs=["ipywidgets"],
    ),
    Foreign(
        repo=_NBCLIENT,
        path=f"{_NBCLIENT_AT}/JupyterWidgets.ipynb",
        space=_X,
        edits=[('"Hello World"', 'f"Hello {x}"')],
        score="x",
        needs=["ipywidgets"],
    ),
    Foreign(
        repo=_NBCLIENT,
        path=f"{_NBCLIENT_AT}/Skip Exceptions with Cell Tags.ipynb",
        space=_X,
        edits=[('print("hello")', 'print("hello", x)')],
        score="x",
    ),
    Foreign(
        repo=_NBCLIENT,
        path=f"{_NBCLIENT_AT}/Factorials.ipynb",
        space={"first": {"low": 1, "high": 9}},
        edits=[("i, j = 1, 1", "i, j = first, 1")],
        score="j",
    ),
    Foreign(
        repo=_NBCLIENT, path=f"{_NBCLIENT_AT}/Inline Image.ipynb", space=_X, score="x"
    ),
    Foreign(
        repo=_NBCLIENT,
        path=f"{_NBCLIENT_AT}/Other Comms.ipynb",
        space=_X,
        edits=[('"bar"', "x")],
        score="x",
    ),
    Foreign(
        repo=_NBCLIENT,
        path=f"{_NBCLIENT_AT}/Check History in Memory.ipynb",
        space=_X,
        score="x",
    ),
    Foreign(
        repo="nteract/scrapbook",
        path="binder/highlight_dates.ipynb",
        space={"start_date": ["2001-08-05", "2011-02-03", "2012-06-07", "2013-09-08"]},
        objective="num_records",
        needs=["scrapbook", "matplotlib", "pandas"],
    ),
    Foreign(
        repo="nteract/scrapbook",
        path="binder/ResultsDemo.ipynb",
        space=_X,
        score="x + len(book)",
        needs=["scrapbook", "pandas"],
    ),
    Foreign(
        repo="karpathy/micrograd",
        path="demo.ipynb",
        space={"hidden": {"low": 4, "high": 8}},
        edits=[("[16, 16, 1]", "[hidden, hidden, 1]"), ("range(100)", "range(8)")],
        score="total_loss.data",
        needs=["matplotlib", "sklearn"],
        # The notebook adds up numbers in the order of sets of objects. This order, and so the
        # rounding, depends on the objects' memory addresses.
        tolerance=1e-9,
    ),
    Foreign(
        repo=_BOOK,
        path="ch03/ch03.ipynb",
        space={"C": {"low": 0.1, "high": 100.0, "log": True}},
        edits=[
            ("np.float_(", "np.float64("),
            ("C=100.0, solver='lbfgs', multi_class='ovr'", "C=C, solver='lbfgs'"),
            (",\n                            multi_class='ovr'", ""),
            ("gamma=0.2, C=1.0", "gamma=0.2, C=C"),
        ],
        leave_out=[_TO_SCRIPT],
        score="svm.dual_coef_.sum() + svm.score(X_test_std, y_test) + knn.score(X_test_std, y_test)"
        " + weights.sum()",
        needs=_PLOTS,
    ),
    Foreign(
        repo=_BOOK,
        path="ch07/ch07.ipynb",
        space={"C": {"low": 1e-3, "high": 1.0, "log": True}},
        edits=[("C=0.001,", "C=C,")],
        until="df_wine = pd.read_csv",
        score="cross_val_score(mv_clf, X_train, y_train, cv=5, scoring='roc_auc').mean()"
        " + pipe1.fit(X_train, y_train).predict_proba(X_test)[0, 0]",
        needs=_PLOTS,
    ),
    Foreign(
        repo=_BOOK,
        path="ch10/ch10.ipynb",
        space={"spread": {"low": 0.3, "high": 1.0}},
        edits=[("cluster_std=0.5", "cluster_std=spread")],
        leave_out=["%load_ext watermark", _TO_SCRIPT],
        until="from packaging import version",
        score="distortions[2] + silhouette_avg",
        needs=_PLOTS,
    ),
    Foreign(
        repo=_BOOK,
        path="ch12/ch12_part2.ipynb",
        space={"lr": _RATE},
        edits=[("Adam(model.parameters(), lr=learning_rate)", "Adam(model.parameters(), lr=lr)"),
               ("num_epochs = 200", "num_epochs = 10"), ("num_epochs = 100", "num_epochs = 10")],
        until="path = 'iris_classifier.pt'",
        score="loss_hist[-1]",
        needs=_TORCH,
    ),
    Foreign(
        repo=_BOOK,
        path="ch13/ch13_part1.ipynb",
        space={"lr": _RATE},
        edits=[
            (" def compute_z", "def compute_z"),
            ("lr=0.015", "lr=lr"),
            ("num_epochs = 200", "num_epochs = 8"),
        ],
        leave_out=[_TO_SCRIPT],
        score="loss_hist_valid[-1]",
        needs=(*_TORCH, "mlxtend"),
    ),
    Foreign(
        repo=_BOOK,
        path="ch15/ch15_part1.ipynb",
        space={"scale": {"low": 0.1, "high": 2.0}},
        edits=[("[[1.0]*5,", "[[scale]*5,")],
        leave_out=[_TO_SCRIPT],
        score="float(hn.sum())",
        needs=["torch"],
    ),
    Foreign(
        repo=_MODELS,
        path="pytorch_ipynb/basic-ml/perceptron.ipynb",
        space={"epochs": {"low": 1, "high": 6}},
        edits=[("epochs=5)", "epochs=epochs)"), ("np.int)", "int)"), ("(1-cond)", "(~cond)")],
        leave_out=["%load_ext watermark", "%watermark"],
        score="float(ppn.weights.sum() + test_acc)",
        needs=_TORCH,
    ),
    Foreign(
        repo=_MODELS,
        path="pytorch_ipynb/basic-ml/softmax-regression-mlxtend-1.ipynb",
        space={"learning_rate": _RATE},
        edits=[
            ("\nlearning_rate = 0.05\n", "\n"),
            ("num_epochs = 10", "num_epochs = 2"),
            ("np.int)", "int)"),
        ],
        leave_out=["%load_ext watermark", "%watermark"],
        score="float(model.linear.weight.sum())",
        needs=(*_TORCH, "mlxtend"),
    ),
    Foreign(
        repo=_MODELS,
        path="pytorch_ipynb/mlp/mlp-dropout.ipynb",
        space={"dropout_prob": {"low": 0.1, "high": 0.7}},
        edits=[("\ndropout_prob = 0.5\n", "\n"), ("num_epochs = 10", "num_epochs = 2")],
        leave_out=["%load_ext watermark", "%watermark"],
        score="float(cost)",
        needs=_TORCH,
        has_digits=True,
    ),
    Foreign(
        repo=_MODELS,
        path="pytorch_ipynb/cnn/cnn-basic.ipynb",
        space={"learning_rate": _RATE},
        edits=[("\nlearning_rate = 0.05\n", "\n"), ("num_epochs = 10", "num_epochs = 1")],
        leave_out=["%load_ext watermark", "%watermark"],
        score="float(cost)",
        needs=_TORCH,
        has_digits=True,
    ),
    Foreign(
        repo=_MODELS,
        path="pytorch_ipynb/mechanics/validation-splits.ipynb",
        space={"batch": {"low": 32, "high": 96}},
        edits=[
            ("BATCH_SIZE = 64", "BATCH_SIZE = batch"),
            ("import torch\nfrom torchvision", "import torch\ntorch.manual_seed(0)\nfrom torchvision"),
            ("(0, 1000)", "(0, 200)"),
            ("(1000, 60000)", "(200, 1000)"),
        ],
        leave_out=["%load_ext watermark", "%watermark"],
        score="float((labels * torch.arange(len(labels))).sum())",
        needs=_TORCH,
        has_digits=True,
    ),
    Foreign(
        repo=_HANDSON,
        path="06_decision_trees.ipynb",
        space={"min_leaf": {"low": 2, "high": 12}},
        edits=[("DecisionTreeClassifier(min_samples_leaf=5", "DecisionTreeClassifier(min_samples_leaf=min_leaf"),
               ("resolution=300", "resolution=60")],
        leave_out=["from graphviz import Source", "Source.from_file", "!dot -Tpng"],
        until="X_moons, y_moons = make_moons(n_samples=10000",
        score="tree_clf2.score(X_moons_test, y_moons_test)",
        needs=_PLOTS,
    ),
    Foreign(
        repo=_HANDSON,
        path="04_training_linear_models.ipynb",
        space={"C": {"low": 0.1, "high": 50.0, "log": True}},
        edits=[("LogisticRegression(C=30", "LogisticRegression(C=C"), ("resolution=300", "resolution=60")],
        until="X_with_bias = ",
        score="softmax_reg.predict_proba(X_test)[0, 0] + best_valid_rmse",
        needs=_PLOTS,
    ),
    Foreign(
        repo=_HANDSON,
        path="05_support_vector_machines.ipynb",
        space={"penalty": {"low": 0.5, "high": 5.0}},
        edits=[("LinearSVC(C=1, dual=True", "LinearSVC(C=penalty, dual=True"), ("resolution=300", "resolution=60"),
               ("t = y * 2 - 1", "t = np.asarray(y) * 2 - 1"), ("n_iter=100, cv=5", "n_iter=3, cv=5"),
               ("max_iter=1_000_000", "max_iter=10_000")],
        until="fetch_california_housing",
        score="rnd_search_cv.score(X_test, y_test) + svm_clf2.decision_function(X)[0] + penalty",
        needs=_PLOTS,
        fails=True,  # The notebook's own code raises an error with NumPy 2.4.6.
    ),
    Foreign(
        repo=_HANDSON,
        path="extra_gradient_descent_comparison.ipynb",
        space={"rate": _RATE},
        edits=[
            ("import numpy as np\n", "import numpy as np\nnp.random.seed(42)\n"),
            ("learning_rate = 0.05", "learning_rate = rate"),
            ("n_iter // 3", "3"),
        ],
        score="float(bgd_thetas[-1].sum() + sgd_thetas[-1].sum() + mbgd_thetas[-1].sum())",
        needs=["matplotlib"],
    ),
    Foreign(
        repo="optuna/optuna-examples",
        path="quickstart.ipynb",
        space={"trees": {"low": 2, "high": 8}},
        edits=[
            ("n_estimators=5, max_depth=3", "n_estimators=trees, max_depth=3, random_state=0"),
            ('"n_estimators", 2, 20', '"n_estimators", 2, trees + 2'),
            ("max_depth=max_depth", "max_depth=max_depth, random_state=0"),
            ('direction="maximize"', 'direction="maximize", sampler=optuna.samplers.TPESampler(seed=0)'),
            ("n_trials=100", "n_trials=8"),
            ("n_jobs=-1", "n_jobs=2"),
        ],
        leave_out=["!pip install"],
        score="trial.value",
        needs=["plotly", "sklearn"],
    ),
)  # fmt: skip
