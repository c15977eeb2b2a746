"""A trial can give a value to an argument that a call leaves out."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from sweeper.notebook_code.assignments import Assignments, with_values
from sweeper.notebook_code.left_out import _table

SVM = "from sklearn.svm import SVC\n"
VOTING = "e = Voting([('a', RF(depth=3)), ('b', DT(depth=5))])\n"
GRID = "from sklearn.model_selection import GridSearchCV\n"
ADAM = "from torch import optim\n"


@pytest.mark.parametrize(
    ("cell", "values", "changed"),
    [
        (SVM + "m = SVC()", {"SVC.C": 3.0}, "m = SVC(C=3.0)"),
        (SVM + "m = SVC()", {"m.C": 3.0}, "m = SVC(C=3.0)"),
        (SVM + "f(SVC())", {"cell1.C": 3.0}, "f(SVC(C=3.0))"),
        (SVM + "SVC(kernel='rbf')", {"SVC.C": 3.0}, "SVC(kernel='rbf', C=3.0)"),
        (SVM + "SVC(gamma=0.1,)", {"SVC.C": 3.0, "gamma": 0.5}, "SVC(gamma=0.5, C=3.0,)"),
        (SVM + "SVC(\n  # wide\n)", {"SVC.C": 3.0}, "SVC(\n  # wide\nC=3.0)"),
        (
            "import sklearn.svm as s\ns.SVR()",
            {"SVR.epsilon": 0.5, "SVR.C": 2.0},
            "s.SVR(epsilon=0.5, C=2.0)",
        ),
        (ADAM + "optim.Adam(w)", {"Adam.lr": 0.1}, "optim.Adam(w, lr=0.1)"),
        (ADAM + "optim.Adam(f(w)(1))", {"Adam.lr": 0.1}, "optim.Adam(f(w)(1), lr=0.1)"),
        (SVM + "é = [SVC(), SVC()]", {"SVC.C": 3.0}, "é = [SVC(C=3.0), SVC(C=3.0)]"),
    ],
)
def test_an_argument_that_a_call_leaves_out_is_added_to_the_call(
    cell: str, values: Mapping[str, Any], changed: str
) -> None:
    (source,) = with_values([cell], values, repr)
    kept = [line.partition("  # was")[0] for line in source.split("\n")]
    assert "\n".join(kept[1:]) == changed
    assert "# was" in source


def test_the_remedy_for_the_left_out_argument_c_proposes_its_name_with_the_class_svc_c() -> None:
    assert "'SVC.C'" in Assignments([SVM + "m = SVC()"]).remedy_for_unknown("C")


def test_a_trial_with_the_default_of_a_left_out_argument_does_not_change_the_cell() -> None:
    assert with_values([SVM + "SVC()"], {"SVC.C": 1.0}, repr) == [SVM + "SVC()"]


def test_the_original_value_of_an_argument_that_a_call_leaves_out_is_its_default() -> None:
    assert Assignments([SVM + "SVC()"]).plain_value("SVC.C") == 1.0


@pytest.mark.parametrize(
    "cell",
    [
        "SVC()",  # the notebook's own class, or one that a star imports
        SVM + "SVC(**options)",
        SVM + "SVC(*options)",
        SVM + "SVC(2.0, 'rbf')",
        SVM + "m = SVC()\nm.set_params(C=2.0)",
        SVM + "m = SVC()\nm.set_params(**found)",
        SVM + GRID + "GridSearchCV(SVC(), {'C': [1, 2]})",
        SVM + GRID + "m = SVC()\nGridSearchCV(m, {'C': [1, 2]})",
        SVM + GRID + "pipe = Pipeline([('svc', SVC())])\nGridSearchCV(pipe, {'svc__C': [1, 2]})",
        "from sklearn.svm import NuSVC\nSVC = NuSVC\nNuSVC()",
    ],
)
def test_an_argument_cannot_be_added_to_a_call_if_code_may_set_it_or_the_class_is_unclear(
    cell: str,
) -> None:
    assert not Assignments([cell]).knows("SVC.C")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (GRID + "GridSearchCV(SVC(C=1.0), {'C': [1, 2]})", "SVC.C"),
        (GRID + "svc = SVC(C=1.0)\nGridSearchCV(svc, {'C': [1, 2]})", "svc.C"),
        (GRID + "g = {'s__C': [1, 2]}\np = P(S(), SVC(C=1.0))\nGridSearchCV(p, g)", "SVC.C"),
        ("m = XGBClassifier(max_depth=3)\nm.set_params(max_depth=4)", "XGBClassifier.max_depth"),
        ("m = Net(net__depth=3)\nm.set_params(net__depth=4)", "Net.net__depth"),
        (VOTING + "GridSearchCV(e, {'b__depth': [1, 2]})", "DT.depth"),
        ("m = Pipe([('svc', SVC(C=1.0))])\nm.set_params(svc__C=3)", "SVC.C"),
        (GRID + "s = SVC(C=1.0)\nGridSearchCV(Pipe([('s', s)]), {'s__C': [1, 2]})", "s.C"),
        (
            "rf = RF(max_depth=3)\nGridSearchCV(RF(), {'max_depth': [1, 2]})\n"
            "rf.set_params(**g.best_params_)",
            "rf.max_depth",
        ),
    ],
)
def test_a_sweep_of_an_argument_that_a_grid_search_or_set_params_overwrites_is_refused(
    code: str, name: str
) -> None:
    cells = Assignments([code, "fit(C)"])
    why = cells.why_not(name)
    last = code.count("\n") + 1
    assert why is not None and f"another value in code cell 1, line {last}" in why
    assert f"'{name}'" not in str(cells.why_not(name.rpartition(".")[2])), (
        "the refused name is proposed"
    )


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (GRID + "GridSearchCV(SVC(C=1.0), {'gamma': [1, 2]})", "SVC.C"),
        (GRID + "svc = SVC(C=1.0)\nsvc.fit(x)\nGridSearchCV(svc, {'C': [1, 2]})", "svc.C"),
        (GRID + "svc = SVC(C=1.0)\nGridSearchCV(svc, {'C': [1, 2]})\nsvc.fit(x)", "svc.C"),
        (GRID + "GridSearchCV(SVC(), {'C': [1, 2]})\nbest = SVC(C=1.0)", "best.C"),
        ("m = RF(max_depth=3)\nm.fit(x)\nm.set_params(max_depth=4)", "m.max_depth"),
        ("m = RF(max_depth=3)\nm.set_params(n_jobs=4)", "m.max_depth"),
        (VOTING + "GridSearchCV(e, {'a__depth': [1, 2]})", "DT.depth"),
        ("m = Net(lr=0.1)\nm.set_params(callbacks__lr=0.3)", "m.lr"),
        ("m = Pipe([('svc', SVC(C=1.0))])\nm.set_params(C=3)", "SVC.C"),
        ("m = SVC(C=1.0)\nif TUNE:\n  m.set_params(C=9)", "m.C"),
        ("m = SVC(C=1.0)\ndef tune():\n  m.set_params(C=9)", "m.C"),
    ],
)
def test_an_argument_can_be_swept_if_a_grid_search_or_set_params_may_leave_its_value_in_use(
    code: str, name: str
) -> None:
    assert Assignments([code]).why_not(name) is None


def test_a_learning_rate_that_keras_gets_by_position_does_not_count_as_left_out() -> None:
    cells = ["from keras.optimizers import Adam\nAdam(rate)\nAdam()"]
    assert [place.line for place in Assignments(cells).places("Adam.learning_rate")] == [3]


def test_the_name_svc_c_means_the_call_of_svc_that_passes_c_if_there_is_one() -> None:
    assignments = Assignments([SVM + "SVC(C=2.0)", "SVC()"])
    (place,) = assignments.places("SVC.C")
    assert place.cell == 1
    assert assignments.plain_value("cell2.C") == 1.0


def test_an_argument_can_be_added_to_a_model_that_is_not_passed_to_a_grid_search() -> None:
    cells = [SVM + GRID + "m = SVC()\nGridSearchCV(m, {'C': [1, 2]})", "other = SVC()"]
    assert Assignments(cells).plain_value("other.C") == 1.0


@pytest.mark.slow  # torch is imported
@pytest.mark.parametrize(
    ("callee", "name"),
    [
        (callee, name)
        for callee, row in _table().items()
        for name in row
        if callee.startswith(("sklearn.", "torch."))  # other libraries are not installed for tests
    ],
)
def test_our_table_of_default_arguments_agrees_with_the_installed_libraries(
    callee: str, name: str
) -> None:
    module, _, owner = callee.rpartition(".")
    pytest.importorskip(module.partition(".")[0])  # tests of the oldest libraries lack torch
    stated = inspect.signature(getattr(importlib.import_module(module), owner)).parameters
    assert stated[name].default == _table()[callee][name]


@pytest.mark.parametrize("layer", ["LSTM(64, 'tanh')", "GRU(64, None)"])
def test_the_first_argument_of_a_layer_of_keras_is_its_units(layer: str) -> None:
    name = layer.partition("(")[0]
    assert Assignments([f"model.add({layer})"]).why_not(f"{name}.units") is None
