"""Test which scores are found in a run, which one comes first, and what their directions are."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import nbformat
import pytest
from IPython.utils.capture import capture_output
from shells import new_shell

from sweeper.drafting.scores.evaluations import Evaluations
from sweeper.drafting.scores.printed import Text, printed_numbers, values_found
from sweeper.drafting.scores.score_guesses import NOTHING, Code, Score, Source
from sweeper.drafting.scores.seen_scores import Doubt, SeenScore, is_clear, seen_scores
from sweeper.kernels.forking.zygote.in_kernel import WatchedNumbers
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook

#: A cell with a mock of a model. The code of its method `evaluate` is not in the notebook, as with
#: a model of a library.
EVALUATING = "from unittest.mock import Mock\nm = Mock()\nm.evaluate.return_value = {}"
TRAINED = "import numpy as np\nclass Model:\n    def fit(self): return self\nModel().fit()"


def seen(
    folder: Path,
    *cells: str,
    changes: Mapping[tuple[int, int], Collection[str]] = NOTHING,
    logged: Mapping[str, Sequence[float]] = {},
) -> list[SeenScore]:
    """Run cells in a new IPython shell. Return the scores that are found, the likeliest one first.

    Args:
        changes: Names of the variables that each statement has changed, by its cell and line.
        logged: Series that a library has logged, by name.
    """
    return listed_and_others(folder, *cells, changes=changes, logged=logged)[0]


def listed_and_others(
    folder: Path,
    *cells: str,
    changes: Mapping[tuple[int, int], Collection[str]] = NOTHING,
    logged: Mapping[str, Sequence[float]] = {},
) -> tuple[list[SeenScore], list[SeenScore]]:
    """Return the listed scores of cells, and all other numbers. `seen` describes the arguments."""
    notebook = ResearchNotebook(write_notebook(folder / "study.ipynb", *cells, parameters=""))
    shell = new_shell()
    shell.displayhook.write_format_data = lambda *_: None
    watched = WatchedNumbers(shell)
    shell.events.register("post_run_cell", watched.note)
    node: Any = nbformat.v4.new_notebook()
    for source in notebook.code:
        with capture_output() as captured:
            result = shell.run_cell(source, store_history=True)
        result.raise_error()
        outputs = [nbformat.v4.new_output("stream", text=captured.stdout)]
        cell = nbformat.v4.new_code_cell(source, outputs=outputs)
        cell.execution_count = result.execution_count
        node.cells.append(cell)
    node.metadata["sweeper"] = {
        "numbers": watched.numbers,
        "logged": {
            name: {"steps": [*range(len(values))], "values": values, "library": "a library"}
            for name, values in logged.items()
        },
    }
    literals = notebook.assignments.literals()
    code = Code(notebook.code, changes, notebook.modules.values())
    return seen_scores(node, code, literals=literals)


def is_letter(node: ast.AST) -> TypeGuard[ast.Name]:
    """Return whether a syntax node is one of the names a, b and c, the arguments of the models."""
    return isinstance(node, ast.Name) and node.id in {"a", "b", "c"}


def test_a_score_is_doubted_as_computed_too_early_if_a_local_module_trains_the_model_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "training_beside.py").write_text(
        "class Model:\n    def fit(self): return self\n    def score(self, x): return 0.5\n"
        "def run_all(model): return model.fit()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    begin = "from training_beside import Model, run_all\nm = Model()"
    found = seen(tmp_path, begin, "acc = m.score([1])", "run_all(m)")
    assert [Doubt.EARLY in score.doubts for score in found if score.name == "acc"] == [True]


@pytest.mark.parametrize(
    ("printed", "label", "values"),
    [
        ("loss = 3e+05\n", "loss", [3e5]),
        ("epoch 1 loss: 1.338e+07\nepoch 2 loss: 5.1e+06\n", "epoch # loss", [1.338e7, 5.1e6]),
        ("Test accuracy: 54 %\n", "Test accuracy", [54.0]),
        ("accuracy:\t0.95\n", "accuracy", [0.95]),
        ("RMSE:\n0.09\n", "RMSE\n", [0.09]),
        ("RMSE0: 3.5\nRMSE: 0.5\n", "RMSE", [0.5]),
        ("\nMean error\n----------\n  1,234.5\n", "Mean error\n", None),
        ("Val loss: nan\n", "Val loss", [float("nan")]),
        ("Loss: inf\n", "Loss", [float("inf")]),
        ("Loss: 0.5\nLoss: NaN\n", "Loss", [0.5, float("nan")]),
        ("Loss: -Infinity\n", "Loss", [float("-inf")]),
        ("log-likelihood -12.5\n", "log-likelihood", [-12.5]),
        ("loss: tensor(0.25, grad_fn=<X>)\n", "loss", [0.25]),
        ("{'eval_loss': 0.5, 'eval_acc': 0.75}\n", "eval_acc", [0.75]),
        ("Epoch [1/2], Loss: 0.5\nEpoch [2/2], Loss: 0.4\n", "Loss", [0.5, 0.4]),
        ("Epoch 1: train loss 0.9 | val loss 0.8\n", "val loss", [0.8]),
        ("of the 10000 test images: 54 %\n", "of the # test images", [54.0]),
        ("total: 8,453\n", "total", [8453.0]),
        ("score (RMSE): 52.8\n", "score (RMSE)", [52.8]),
        ("Cost after step 0: 0.7\nCost after step 9: 0.5\n", "Cost after step #", [0.7, 0.5]),
        ("0th epoch loss: 0.7\n10th epoch loss: 0.5\n", "th epoch loss", [0.7, 0.5]),
    ],
)
def test_a_printed_number_is_named_by_the_words_before_it_and_its_pattern_finds_the_same_values(
    printed: str, label: str, values: list[float] | None
) -> None:
    texts = [Text(cell=1, stream="stdout", text=f"begin\n{printed}the end\n")]
    found = {number.label: number for number in printed_numbers(texts)}
    if values is None:
        assert label not in found
        return
    assert list(map(repr, found[label].values)) == list(map(repr, values))
    assert list(map(repr, values_found(found[label].pattern, texts))) == list(map(repr, values))


@pytest.mark.parametrize(
    ("code", "printed", "pattern", "other"),
    [
        # Text that the code computes may differ in another trial, so the pattern lacks it.
        (
            "print(f'Acc with {k} kernel: {a}')",
            "Acc with rbf kernel: 0.5",
            r"kernel",
            "a kernel 0.5",
        ),
        (
            "print('Best:', m, 'with acc', a)",
            "Best: GB with acc 0.5",
            "with\\s+acc",
            "x with acc 0.5",
        ),
        ("print(f'{o}: mae {a:.3f}')", "adam: mae 0.500", "mae", "sgd: mae 0.5"),
        # Digits in a literal text of the code belong to the label.
        (
            "print('Mean of the last 10 episodes:', a)",
            "Mean of the last 10 episodes: 0.5",
            "Mean\\s+of\\s+the\\s+last\\s+10\\s+episodes",
            "Mean of the last 10 episodes: 0.5",
        ),
        ("print('R2 after', 50, 'epochs:', a)", "R2 after 50 epochs: 0.5", "epochs", "epochs: 0.5"),
    ],
)
def test_the_pattern_of_a_printed_score_contains_only_literal_text_of_the_print_call(
    code: str, printed: str, pattern: str, other: str
) -> None:
    printings = [(1, it) for it in Evaluations([(1, ast.parse(code).body[0])]).printings]
    texts = [Text(cell=1, stream="stdout", text=f"{printed}\n")]
    number = printed_numbers(texts, printings)[-1]
    assert number.printing is not None and ast.unparse(number.printing.value) == "a"
    assert number.pattern.startswith(rf"{pattern}\W") and number.values == [0.5]
    assert values_found(number.pattern, [Text(cell=1, stream="stdout", text=other)]) == [0.5]


def test_one_print_call_that_prints_several_labels_gives_one_number_for_each_label() -> None:
    code = "for name, m in models: print(name, m.score(X, y))"
    printings = [(1, it) for it in Evaluations([(1, ast.parse(code).body[0])]).printings]
    texts = [Text(cell=1, stream="stdout", text="LR 0.5\nSVM 0.75\n")]
    found = printed_numbers(texts, printings)
    assert [(number.label, number.values) for number in found] == [("LR", [0.5]), ("SVM", [0.75])]
    assert all(number.printing is not None for number in found)


def test_lines_printed_by_a_library_are_not_attributed_to_a_print_call_without_text() -> None:
    code = "print(name, acc)"
    printings = [(1, it) for it in Evaluations([(1, ast.parse(code).body[0])]).printings]
    lines = "Fitting 5 folds for each of 10 candidates\nLearning rate set to 0.02\nFold 3/5\n"
    texts = [Text(cell=1, stream="stdout", text=f"{lines}svm 0.91\n")]
    found = printed_numbers(texts, printings)
    assert [number.label for number in found if number.printing is not None] == ["svm"]


def test_a_pattern_uses_the_printed_words_if_the_print_call_has_no_literal_words() -> None:
    for code in ("print(name, acc)", "print(f'{name}: {acc}')"):
        printings = [(1, it) for it in Evaluations([(1, ast.parse(code).body[0])]).printings]
        (number,) = printed_numbers([Text(cell=1, stream="stdout", text="Ridge: 0.5\n")], printings)
        other = Text(cell=1, stream="stdout", text="epoch 3\nloaded 1000 rows\nRidge: 0.5\n")
        assert values_found(number.pattern, [other]) == [0.5]


def test_a_pattern_for_a_finite_number_also_finds_nan_in_any_spelling() -> None:
    (number,) = printed_numbers([Text(cell=1, stream="stdout", text="loss: 0.5\n")])
    diverged = [Text(cell=1, stream="stdout", text="loss: 0.5\nloss: NaN\nloss: Infinity\n")]
    assert [*map(repr, values_found(number.pattern, diverged))] == ["0.5", "nan", "inf"]


@pytest.mark.parametrize(
    ("cells", "name", "direction"),
    [
        # The metric in a label, a name or a function decides the direction, not the word `score`.
        (["score = np.sqrt(2.1)\nprint(f'Final score (RMSE): {score}')"], "score", "minimize"),
        (
            [
                "def mean_squared_error(y, p): return 0.25",
                "result = np.sqrt(mean_squared_error(1, 2))\nresult",
            ],
            "result",
            "minimize",
        ),
        (
            ["def rmsle(y, p): return 0.3\nfinal = rmsle(1, 2)\nprint('Final score:', final)"],
            "final",
            "minimize",
        ),
        (["mae_score = abs(1 / 3)\nprint(mae_score)"], "mae_score", "minimize"),
        (["print('R2 score:', 0.81)"], "r2_score", "maximize"),
        (["print('ROC AUC score = %.3f' % 0.812)"], "roc_auc_score", "maximize"),
        (["val_log_loss = abs(1 / 7)"], "val_log_loss", "minimize"),
        (
            ["def cross_val_score(m): return np.array([0.5, 0.7])\nprint(1)\ncross_val_score(2)"],
            "score",
            "maximize",
        ),
        # Printed values with exponents, percent signs and thousands separators.
        (["for i in range(3): print(f'loss = {3e5 / (i + 1):.5g}')"], "loss", "minimize"),
        (["print('Test accuracy: %.1f%%' % 81.2)"], "test_accuracy", "maximize"),
        (["print(f'Deviance: {12345.6:,.1f}')"], "deviance", "minimize"),
        # The score of a baseline is listed after that of the model.
        (
            ["print('OOF baseline RMSE: 4.2')\nprint('OOF NN RMSE:       4.9')"],
            "oof_nn_rmse",
            "min",
        ),
        (["print('Dummy accuracy: 0.9')\nprint('Accuracy: 0.8')"], "accuracy", "maximize"),
        (["naive_mae = abs(1 / 9)\nmae = abs(1 / 8)"], "mae", "minimize"),
        (["print('Initial loss: 1.5')\nprint('Final loss: 2.5')"], "final_loss", "minimize"),
        (["chance_auc = abs(1 / 2)\nmodel_auc = abs(5 / 9)"], "model_auc", "maximize"),
        (["print('MSE before training: 1.5')\nprint('MSE: 2.5')"], "mse", "minimize"),
        # Labels with counters or superscripts, and lines with numbers that tell of no training.
        (
            ["for i in range(3): print(f'Cost after iteration {i}: {0.7 - i / 10}')"],
            "cost_after",
            "minimize",
        ),
        (["print('Accuracy with LR 10: 0.5')"], "accuracy_with", "maximize"),
        (["print('R² of the fit: 0.81')"], "r2_of_the_fit", "maximize"),
        (["print('Fees 1\\nFees 2\\nFees 3\\nmse: 0.5')"], "mse", "minimize"),
        (
            [
                "accuracy_score = eval('lambda y, p: 0.75')",
                "wrong = 1 - accuracy_score(1, 2)",
            ],
            "wrong",
            "minimize",
        ),
        (
            [
                "print('9/9 ━━ 1s 2ms/step - accuracy: 0.9')\n"
                "print('CUDA ERROR: 303')\nmse = abs(1 / 8)"
            ],
            "mse",
            "minimize",
        ),
        # Printed tables: a header above rows of numbers, or a row that begins with words.
        (
            [
                "print('  epoch    train_loss    valid_acc    dur')\nprint('-----  ------')\n"
                "for i in range(3): print(f'{i:7d}  {0.9 - i / 10:.3f}  {0.5 + i / 10:.3f}  0.04')"
            ],
            "valid_acc",
            "maximize",
        ),
        (
            [
                "print('Epoch | Train Loss | Val Loss')\n"
                "for i in range(3): print(f'{i:5d} | {0.9 - i / 10:.3f} | {0.8 - i / 10:.3f}')"
            ],
            "val_loss",
            "minimize",
        ),
        (
            ["print('precision recall support\\n   0  0.5  0.5  7\\naccuracy  0.55  7')"],
            "accuracy",
            "maximize",
        ),
        # "Random" in the name of a random forest does not make its score a baseline.
        (
            [
                "def accuracy(a, b): return np.mean(np.array(a) == b)",
                "print('Decision Tree:', accuracy([1, 2, 3], [1, 2, 4]))",
                "print('Random Forest:', accuracy([1, 2, 3, 4], [1, 2, 3, 5]))",
            ],
            "random_forest",
            "maximize",
        ),
        # The label names no metric, so the printed expression decides. 100 belongs to the label.
        (
            [
                "rewards = [1.5, 2.5]\n"
                "print('Average over last 100 episodes:', np.mean(rewards) / 3)"
            ],
            "average_over_last_episodes",
            "maximize",
        ),
        # Accuracy is preferred: a model that predicts only one class may have a recall of 1.
        (
            ["print('Accuracy: 0.75')", "print('Precision: 0.8')\nprint('Recall: 0.9')"],
            "accuracy",
            "maximize",
        ),
        # A number of rounds is no score, even in a line that contains the word score.
        (
            ["print('r2: 0.7')\nprint('validation score does not improve for 10 rounds')"],
            "r2",
            "maximize",
        ),
        # A sum over a loop depends on the number of batches; a mean does not.
        (
            [
                "val_acc = 0\nfor b in range(3): val_acc += abs(0.5)\n"
                "test_acc = 0\nfor b in range(3): test_acc += abs(0.4)\ntest_acc /= 3"
            ],
            "test_acc",
            "maximize",
        ),
        (
            ["val_loss = 0\nfor b in range(3): val_loss += abs(0.5) / 3\ntest_loss = abs(1 / 7)"],
            "val_loss",
            "minimize",
        ),
        # A value that a callback prints during the training counts as a result of the training.
        (
            [
                "class Net:\n  def fit(self, show):\n    for i in range(3): show(i)\n"
                "def show(i):\n  print('val acc', 0.5 + i / 10)",
                "print('train loss 0.2')\nused = show\nNet().fit(used)",
            ],
            "val_acc",
            "maximize",
        ),
        (["print('R2: 0.7')\nprint('Learning rates: 0.5')"], "r2", "maximize"),
        # A number that is alone on its line is named by the function in the print call.
        (
            ["def f1_score(a): return 0.25 / 3", "print(f1_score(0))\nprint(f1_score(1))"],
            "f1",
            "maximize",
        ),
        # The total training loss is preferred to one of its terms, and a mean to the last batch.
        (
            [
                "class Total(float):\n  def backward(self): pass",
                "for i in range(3):\n  pL = 0.5 / (i + 3)\n  total = Total(pL + 0.25)\n"
                "  total.backward()\n  print(f'pL={pL:.4f} total={total:.4f}')",
            ],
            "total",
            "minimize",
        ),
        (
            [
                "for i in range(3):\n  mean_acc = 0\n  for b in range(2):\n"
                "    acc = (i + b) / 7\n    mean_acc += acc\n  mean_acc /= 2"
            ],
            "mean_acc",
            "maximize",
        ),
        # A score that equals a loss is minimized. `kappa` above 1 and `após` are no metrics.
        (
            [
                "summary = {'loss': abs(1.75 / 3)}\nbest_dev_score = min(1e6, summary['loss'])",
            ],
            "best_dev_score",
            "minimize",
        ),
        (["kappa = abs(7 / 6)\nmse = abs(1 / 8)"], "mse", "minimize"),
        (["print('após: 1797.5')\nmse = abs(1 / 8)"], "mse", "minimize"),
        # The label is on the line above the number.
        (["print('RMSE:')\nprint(0.25 / 3)"], "rmse", "minimize"),
        (["print('Validation accuracy')\nprint()\nprint(0.25 / 3)"], "validation_accuracy", "max"),
        # A validation score is preferred to a test score, and both to a training score.
        (
            ["train_acc = abs(5 / 6)\ntest_acc = abs(5 / 7)\nval_acc = abs(5 / 8)"],
            "val_acc",
            "maximize",
        ),
        (
            ["for i in range(3): print(f'train loss {3 - i} test loss {4.5 - i}')"],
            "test_loss",
            "min",
        ),
        # A series without a known metric is judged by its trend. Scores may be in dicts or arrays.
        (["for i in range(4): print(f'misfit {4.5 - i}')"], "misfit", "minimize"),
        (["for i in range(4): print(f'agreement {0.5 + i / 10}')"], "agreement", "maximize"),
        (
            ["history = {'loss': [3.5, 2.5, 1.5], 'val_loss': [3.5, 2.5, abs(1.75)]}"],
            "history_val_loss",
            "minimize",
        ),
        (["results = {'accuracy': 2 / 3}"], "results_accuracy", "maximize"),
        (
            ["from enum import StrEnum\nkey = StrEnum('Key', ['ACC'])", "r = {key.ACC: 2 / 3}"],
            "r_acc",
            "maximize",
        ),
        (["val_losses = [3.5, 2.5, abs(2.25)]\nloss = abs(2.25)"], "val_losses", "minimize"),
        (["cv_scores = np.array([0.5, 0.75, 0.7])"], "cv_scores", "maximize"),
        # A function with a gradient step trains, so the trend of what it prints counts.
        (
            [
                "def learn(w):\n  for i in range(4):\n    w -= 0.25 * w\n    print('costo', w)",
                "learn(8.5)",
            ],
            "costo",
            "minimize",
        ),
        (["rmsle = abs(-0.3)"], "rmsle", "minimize"),
        # A loop leaves only the score of the last class, so an earlier accuracy is preferred.
        (
            ["accuracy = abs(3 / 4)", "for name in ('a', 'b'):\n  auc = abs(2 / 3)"],
            "accuracy",
            "maximize",
        ),
        # Each cell prints only a number, so the printed expression names it.
        (
            [
                "from sklearn.metrics import accuracy_score, recall_score\n"
                "y, p = [0, 1, 1, 1], [0, 1, 0, 1]",
                "print(accuracy_score(y, p))",
                "print(recall_score(y, p))",
            ],
            "accuracy",
            "maximize",
        ),
        # `evaluate` may return any metric, so the name of the variable or the label decides.
        ([EVALUATING.format(0.35), "mse_test = m.evaluate(1)"], "mse_test", "minimize"),
        ([EVALUATING.format(0.35), "test_loss = m.evaluate(1)"], "test_loss", "minimize"),
        ([EVALUATING.format((0.35, 0.45)), "loss, mae = m.evaluate(1)"], "mae", "minimize"),
        (
            [
                EVALUATING.format([0.0345, 0.9876]),
                "score = m.evaluate(1)",
                "print('Test loss:', score[0])\nprint('Test accuracy:', score[1])",
            ],
            "score",
            "maximize",
        ),
        (
            ["def evaluate(m): return m", "val_acc, val_loss = evaluate((0.75, 0.5))"],
            "val_acc",
            "maximize",
        ),
        # In a dict of many numbers, only keys that name a metric are scores.
        (
            [
                "def cross_validate(m): return {'fit_time': 1 / abs(m), 'score_time': 2 / abs(m), "
                "'test_score': 3 / abs(m)}",
                "from builtins import abs as size\ncv = cross_validate(4)",
            ],
            "cv_test_score",
            "maximize",
        ),
        (
            [
                EVALUATING.format({"epoch": 3.0, "eval_f1": 0.75, "eval_runtime": 1.5}),
                "results = m.evaluate(1)",
            ],
            "results_eval_f1",
            "maximize",
        ),
        # `rate` is part of the metric's name here, and no learning rate.
        (["success_rate = abs(5 / 7)"], "success_rate", "maximize"),
        # People name scores in their own language, some of them without spaces.
        (["acurácia = abs(5 / 7)\nerro = abs(2 / 7)"], "acurácia", "maximize"),
        (["print(f'该模型的预测准确率为:{abs(5 / 7)}')"], "该模型的预测准确率为", "maximize"),
        # A cross entropy is no score of a cross-validation.
        (["cross_entropy_loss = abs(1 / 3)\nval_acc = abs(1 / 4)"], "val_acc", "maximize"),
    ],
)
def test_the_first_listed_score_is_the_intended_one_and_has_the_right_direction(
    tmp_path: Path, cells: list[str], name: str, direction: str
) -> None:
    first = seen(tmp_path, TRAINED, *cells)[0]
    assert first.name == name
    assert first.direction is not None
    assert first.direction.startswith(direction)


@pytest.mark.parametrize(
    ("cells", "doubt"),
    [
        (["for i in range(3): print(f'loss: {3.5 - i}')"], Doubt.TRAINING_LOSS),
        (["train_accuracy = abs(2 / 3)"], Doubt.TRAINING),
        (["test_accuracy = abs(2 / 3)"], Doubt.TEST),
        (["print('baseline RMSE', 1.5)"], Doubt.BASELINE),
        (["for i in range(3): print(f'val acc: {i * 0.0}')"], Doubt.CONSTANT),
        (["misfit = abs(2 / 3)"], Doubt.UNKNOWN),
        (["val_accuracy = abs(-1.0)"], Doubt.SATURATED),
        (["for name in 'ab': auc = abs(2 / 3)"], Doubt.ITEM),
        (["for i in range(4): print(f'misfit {4.5 - i}')"], Doubt.UNPROVEN),
    ],
)
def test_a_reason_to_doubt_a_score_is_in_the_list_of_its_doubts(
    tmp_path: Path, cells: list[str], doubt: Doubt
) -> None:
    assert doubt in seen(tmp_path, TRAINED, *cells)[0].doubts


def test_a_score_whose_name_begins_with_log_is_not_doubted_as_a_score_on_training_data(
    tmp_path: Path,
) -> None:
    found = seen(tmp_path, TRAINED, "logreg_accs = [abs(a) for a in (0.5, 0.75, 0.7)]")
    assert [(score.name, score.doubts) for score in found] == [("logreg_accs", [])]


@pytest.mark.parametrize(
    ("literal", "filling", "name"),
    [
        ("val_accs = []", "for a in (0.5, 0.75): val_accs.append(train(a))", "val_accs"),
        ("results = {}", "results['acc'] = train(0.75)", "results_acc"),
        ("h = {'val_acc': []}", "fill(h)", "h_val_acc"),
    ],
)
def test_values_that_a_run_adds_to_a_list_or_dict_literal_are_scores(
    tmp_path: Path, literal: str, filling: str, name: str
) -> None:
    train = "def train(a):\n    Model().fit()\n    return a * 1"
    fill = "def fill(h): h['val_acc'] += [train(0.5), train(0.75)]"
    root = literal.partition(" ")[0]
    changes = {(3, 1): [root], (3, 2): ["lr"], (4, 1): [root, "a"]}
    cells = [f"{train}\n{fill}", f"{literal}\nlr = 0.5", filling]
    found = seen(tmp_path, TRAINED, *cells, changes=changes)
    assert [(score.name, score.value) for score in found] == [(name, 0.75)]


def test_a_printed_number_that_is_not_finite_is_listed_by_its_label_and_not_as_a_variable(
    tmp_path: Path,
) -> None:
    cells = ["ratio = abs(-10 / 3)", "print('val loss:', np.inf * 2, 'test loss:', -np.nan * 2)"]
    assert {score.name for score in seen(tmp_path, TRAINED, *cells)} == {"val_loss", "test_loss"}


def test_a_printed_number_whose_only_label_is_a_counter_such_as_epoch_gets_the_name_printed(
    tmp_path: Path,
) -> None:
    cell = "def loss(e): return 3.5 / (e + 1)\nfor e in range(3): print(f'Epoch {e}: {loss(e)}')"
    assert [score.name for score in seen(tmp_path, TRAINED, cell)] == ["printed"]


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        # Two prints.
        (
            ["print('KNN accuracy:', acc(y, y, 0.75))", "print('SVM accuracy:', acc(y, y, 0.75))"],
            {"knn_accuracy", "svm_accuracy"},
        ),
        # A print, and a variable that it does not show.
        (
            ["rf_acc = acc(y, y, 0.625)", "print('KNN accuracy:', acc(y, y, 0.625))"],
            {"rf_acc", "knn_accuracy"},
        ),
        # Two variables, each printed under a label of its own, or in a function.
        (
            ["knn = acc(y, y, 0.625)\nsvm = acc(y, y, 0.625)", "print('SVM accuracy:', svm)"],
            {"knn", "svm"},
        ),
        (
            [
                "def show(name):\n    a = acc(y, y, 0.625)\n"
                "    print(f'{name} accuracy: {a}')\n    return a",
                "a_knn = show('KNN')\na_svm = show('SVM')",
            ],
            {"a_knn", "a_svm"},
        ),
        # The best value of a series, and the last one.
        (
            [
                "val_accs, best_acc = [], 0\nfor e in range(3):\n"
                "    val_accs.append(acc(y, y, 0.5 + e / 8))\n"
                "    best_acc = max(best_acc, val_accs[-1])\n"
                "    print(f'val_acc {val_accs[-1]:.4f}')",
                "print(f'Best validation accuracy: {best_acc:.4f}')",
            ],
            {"best_acc", "val_accs"},
        ),
        # One print for each of several models.
        (
            [
                "for name in ('KNN', 'SVM'):\n    a = acc(y, y, 0.625)\n"
                "    print(f'{name} accuracy: {a}')"
            ],
            {"knn_accuracy", "a"},
        ),
        # Two labels that have the same last words.
        (
            [
                f"p = [{model!r}]\n"
                f"print('Accuracy of {model} measured on the test set:', acc(y, p, 0.5))"
                for model in ("KNN", "SVM")
            ],
            {"measured_on_the_test_set", "measured_on_the_test_set_3"},
        ),
    ],
)
def test_equal_values_of_different_numbers_are_listed_as_separate_scores(
    tmp_path: Path, cells: Sequence[str], names: set[str]
) -> None:
    begin = "y = [1]\nacc = lambda y_true, y_pred, value: value"
    found = seen(tmp_path, TRAINED, begin, *cells)
    assert names == {score.name for score in found}


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("print('R^2 = %.4f' % (1 / 3))", "r2"),
        ("print(f'R²: {1 / 3:.4f}')", "r2"),
        ("r2s = [0.25, 0.5]\nr2s.append(Model().fit() and 0.75)", "r2s"),
        ("rmses = [0.25, 0.75]\nnp.mean(rmses)", "rmse"),
    ],
)
def test_a_score_has_the_name_that_the_notebook_gives_it(
    tmp_path: Path, cell: str, name: str
) -> None:
    assert name in [score.name for score in seen(tmp_path, TRAINED, cell)]


def test_numbers_that_are_not_listed_as_scores_also_have_names_to_choose_them_by(
    tmp_path: Path,
) -> None:
    # The name that a variable and another cell's print have in common denotes the later one.
    cells = [
        TRAINED,
        "accuracy = round(0.5, 2)",
        "print('Accuracy:', round(0.25, 2))\nprint('Elapsed:', 1.5)",
    ]
    listed, others = listed_and_others(tmp_path, *cells)
    named = {score.name: score for score in (*listed, *others) if score.name != "out"}
    assert {name: score.value for name, score in named.items()} == {
        "accuracy": 0.25,
        "accuracy_2": 0.5,
        "elapsed": 1.5,
    }
    assert (named["accuracy_2"].key, named["accuracy_2"].text) == ("expression", "accuracy")


def test_a_score_that_is_computed_before_the_training_is_listed_last(tmp_path: Path) -> None:
    scores = seen(
        tmp_path, "share = abs(2 / 7)\naccuracy = abs(2 / 3)", TRAINED, "mse = abs(0.5 ** 2)"
    )
    assert [score.name for score in scores] == ["mse", "accuracy"]


@pytest.mark.parametrize(
    ("names", "called"),
    [
        ("callback = {'name': 'valid_acc'}", "print('valid_acc', 2 / 3)"),
        ("class Callback:\n    name = 'valid_acc'\ncallback = Callback()", "callback.name"),
    ],
)
def test_a_printed_score_is_not_doubted_as_early_if_only_its_label_is_defined_before_training(
    tmp_path: Path, names: str, called: str
) -> None:
    printing = f"class Other:\n    def fit(self): {called}; print('valid_acc', 2 / 3)"
    first = seen(tmp_path, names, printing + "\nother = Other()", "other.fit()\nx = 1")[0]
    assert (first.name, first.cell, first.doubts) == ("valid_acc", 3, [])


@pytest.mark.parametrize(
    ("cells", "clear"),
    [
        (["val_acc = abs(2 / 3)\nval_auc = abs(3 / 4)\ntest_acc = abs(1 / 2)"], True),
        (["acc_a = abs(2 / 3)\nacc_b = abs(1 / 3)"], False),
        (["misfit = abs(2 / 3)"], False),
        (["for i in range(3): print('Test acc', 0.5 + i / 9)\nprint('Final test acc', 0.7)"], True),
        (["print('baseline RMSE', 1.5)"], False),
        (["rmse = float('nan')"], False),
        (["for name in 'ab': auc = abs(2 / 3)"], False),
        (["r = [0.25, 0.5, 0.7]\nmean_reward = np.mean(r)\nlast = np.mean(r[-2:])"], True),
        (["for i in range(3): print(f'loss: {3.5 - i}')"], True),
        (["accs = []\nfor a in (0.5, 0.7): accs.append(abs(a))\nacc = np.mean(accs)"], True),
        (["maes = []\nfor a in (0.5, 0.7): maes.append(abs(a))\nmae = np.mean(maes)"], True),
    ],
)
def test_a_person_is_asked_only_if_the_first_score_is_nan_seriously_doubted_or_has_an_equal_rival(
    tmp_path: Path, cells: list[str], clear: bool
) -> None:
    assert is_clear(seen(tmp_path, TRAINED, *cells)) is clear


@pytest.mark.parametrize(
    "cell",
    [
        "for _ in range(3):\n  for _ in range(3): reward = abs(-2.5)\n  Model().fit()",
        "share = 0.5\nfor _ in range(3):\n  share = share / 2\n  Model().fit()",
        "grid = [0.25, 1.25]\nfor row in grid:\n  spot = abs(row)",
    ],
)
def test_a_temporary_variable_of_a_loop_is_no_score(tmp_path: Path, cell: str) -> None:
    assert seen(tmp_path, f"{TRAINED};", cell, changes={(1, 1): []}) == []


def test_a_loss_of_the_last_batch_in_a_loop_is_doubted_even_inside_a_with_block(
    tmp_path: Path,
) -> None:
    loop = "for batch in (3, 4): test_loss = abs(batch / 7)"
    cells = ["from contextlib import nullcontext", f"with nullcontext():\n  {loop}"]
    found = seen(tmp_path, f"{TRAINED};", *cells)
    assert [Doubt.ITEM in score.doubts for score in found] == [True] and not is_clear(found)


def test_counters_durations_data_and_params_are_no_scores(tmp_path: Path) -> None:
    cells = (
        "lr = 0.1\nn_rows = 20\nelapsed = 1.5 + 1\nx = np.arange(100) / 3\nlosses = [0.5, 'a']",
        "print('epoch 3 took', 1.5, 'seconds')\nflag = True\ntext = 'accuracy 0.5'",
    )
    assert [score.name for score in seen(tmp_path, TRAINED, *cells)] in ([], ["took"])


def test_the_lines_on_which_a_score_depends_are_found_even_if_names_are_assigned_again() -> None:
    code = Code(
        [
            "import torch.optim as optim\nclass Net: pass",
            "first = Net()\nsteps = optim.Adam(first, lr=0.1)",
            "class Net:\n  def __init__(self): self.w = width\nwidth = 8\nmodel = Net()",
            "steps = optim.Adam(model, lr=0.2)\nfit(model, steps)\nval_loss = model.loss",
        ]
    )
    lines = code.lines(Score(name="val_loss", source=Source.ASSIGNED, at=len(code.statements) - 1))
    assert {(3, 3), (3, 4), (4, 1), (4, 2)} <= lines
    assert not {(2, 1), (2, 2)} & lines


@pytest.mark.parametrize(
    "cell",
    [
        # The update is a call on several lines.
        "model = Net(hidden=64)\nmodel = train(\n  model,\n)\nacc = test(model)",
        # The update is an augmented assignment.
        "p = 0.5 * lasso.predict(X)\np += 0.5 * ridge.predict(X)\nacc = test(p)",
        "h = Net(hidden=64)\nfor x in X:\n  h += f(\n    x)\nacc = test(h)",
    ],
)
def test_a_score_depends_also_on_the_initial_value_of_a_variable_that_later_code_updates(
    cell: str,
) -> None:
    code = Code([cell])
    assert (1, 1) in code.lines(Score(name="acc", source=Source.ASSIGNED, at=2))


def test_a_score_does_not_depend_on_the_lines_of_a_branch_that_the_run_did_not_execute() -> None:
    branch = "if score < best:\n  model = Big(dropout=0.3)\nelse:\n  other = 1"
    cells = ["model = Small(0.1)", branch, "val_loss = model.loss"]
    score = Score(name="val_loss", source=Source.ASSIGNED, at=2)
    assert (2, 2) in Code(cells).lines(score)
    assert (2, 2) not in Code(cells, {(2, 1): ["other"]}).lines(score)
    assert (2, 2) in Code(cells, {(2, 1): ["model"]}).lines(score)
    unnoted = ["model = Small(0.1)", "if True:\n  _ = model.fit(0.3)", "val_loss = model.loss"]
    assert (2, 2) in Code(unnoted, {(2, 1): ["model"]}).lines(score)


def test_a_variable_named_error_that_is_computed_after_each_training_is_no_training_loss(
    tmp_path: Path,
) -> None:
    fit = "m = Model().fit()\nerror = 0.5\nprint(f'error: {error:.3f}')"
    found = seen(
        tmp_path, TRAINED, fit, "error = 1 - abs(np.sum([0.6]))", "print(f'error: {error:.3f}')"
    )
    assert [score.doubts for score in found if score.name == "error"] == [[]]


def test_the_arguments_of_a_notebooks_function_do_not_decide_the_direction_of_its_result(
    tmp_path: Path,
) -> None:
    cells = [
        "def TimeLimit(steps): return steps",
        "def run(env):\n  Model().fit()\n  return [1.25, 2.5, 3.75]",
        "rewards = run(env=TimeLimit(500))",
    ]
    assert [score.direction for score in seen(tmp_path, TRAINED, *cells)] == ["maximize"]


@pytest.mark.parametrize(
    ("values", "direction"), [([1.5, 2.5, 3.5], "maximize"), ([3.5, 2.5, 1.5], "minimize")]
)
def test_the_direction_of_a_fitness_series_is_that_of_its_trend(
    tmp_path: Path, values: list[float], direction: str
) -> None:
    found = seen(tmp_path, TRAINED, f"best_fitness = [abs(v) for v in {values}]\nModel().fit()")
    assert [score.direction for score in found] == [direction]


@pytest.mark.parametrize(
    ("code", "direction"),
    [
        ("fits = np.array([1.5, 2.5])\nbest_fitness = fits.min()", "minimize"),
        ("fits = np.array([1.5, 2.5])\nbest_score = fits.min()", "minimize"),
        ("best_fitness = abs(1.5)", None),
    ],
)
def test_the_direction_of_a_fitness_without_a_trend_follows_from_a_min_or_max_in_the_code(
    tmp_path: Path, code: str, direction: str | None
) -> None:
    found = seen(tmp_path, TRAINED, f"{code}\nModel().fit()")
    assert [score.direction for score in found if score.name.startswith("best")] == [direction]


@pytest.mark.parametrize(
    ("name", "own"), [("acc", "c"), ("results_a", "a"), ("b_accuracy", "b"), ("big_model_acc", "c")]
)
@pytest.mark.parametrize(
    "loop",
    [
        "for n, m in [('a', M(a)), ('b', M(b)), ('c', M(c))]:",
        "for n, m in {'a': M(a), 'b': M(b), 'c': M(c)}.items():",
        "ms = {'a': M(a), 'b': M(b), 'c': M(c)}\nfor n, m in tqdm(ms.items()):",
        "ms = [('a', M(a)), ('b', M(b)), ('c', M(c))]\nfor n, m in ms:",
        "ms = []\nms.append(('a', M(a)))\nms.append(('b', M(b)))\nms.append(('c', M(c)))\n"
        "for n, m in ms:",
        "ns = ['a', 'b', 'c']\nms = [M(a), M(b), M(c)]\nfor n, m in zip(ns, ms):",
        "x, y, z = M(a), M(b), M(c)\nfor n, m in zip(['a', 'b', 'c'], [M(a), M(b), M(c)]):",
    ],
)
def test_the_score_of_one_model_in_a_loop_over_models_depends_on_no_other_model(
    loop: str, name: str, own: str
) -> None:
    code = Code([f"{loop}\n  acc = results[n] = m.score(X)"])
    score = Score(name=name, source=Source.ASSIGNED, at=len(code.statements) - 1)
    others = {
        part.id for _, it in code.passed_by(score) for part in ast.walk(it) if is_letter(part)
    }
    assert others == {"a", "b", "c"} - {own}


def test_after_a_loop_over_models_a_score_depends_on_the_model_in_its_name_or_on_the_last_one() -> (
    None
):
    code = Code(["lr = M(1)\nsvm = M(2)", "for m in (lr, svm):\n  acc = m.score(X)"])
    assert code.lines(Score(name="acc", source=Source.ASSIGNED, at=2)) == {(1, 2), (2, 1), (2, 2)}
    code = Code(["lr = Ridge(1)\nsvm = SVR(2)", "for m in (lr, svm):\n  acc = m.score(X)"])
    of_ridge = Score(name="lr_acc", source=Source.ASSIGNED, at=2)
    assert code.lines(of_ridge) == {(1, 1), (2, 1), (2, 2)}


def test_a_score_in_a_loop_over_folds_of_joined_arrays_depends_on_the_code_of_each_array() -> None:
    for join in ("np.hstack([X1, X2])", "concat([X1, X2])"):
        loop = "for tr, te in KFold(5).split(X, y):\n  acc = fit(X[tr]).score(X[te])"
        code = Code(["X1 = Tfidf(500)\nX2 = g(data)", f"X = {join}", loop])
        lines = code.lines(Score(name="acc", source=Source.ASSIGNED, at=3))
        assert {(1, 1), (1, 2), (2, 1)} <= lines


def test_a_score_depends_on_the_value_that_a_global_variable_has_when_a_function_reads_it() -> None:
    cells = ["size = 4\ndef batch(): return data[:size]", "size = 128\nval_loss = f(batch())"]
    lines = Code(cells).lines(Score(name="val_loss", source=Source.ASSIGNED, at=3))
    assert (2, 1) in lines and (1, 1) not in lines


FOLDED = (
    "class Folds:\n  def split(self, X): return [(0, 1)] * 3\n"
    "def cross_val_score(m, X): return np.array([0.5, 0.75, 0.25])\n"
    "def f1_score(y, p): return abs(0.25 * p)\nX = y = 3"
)
FOLDS = "f1 = []\nfor k, (tr, te) in enumerate(Folds().split(X)):\n  m = Model().fit()\n"


@pytest.mark.parametrize(
    ("code", "text", "value", "about"),
    [
        ("cross_val_score(1, X)", "cross_val_score(1, X).mean()", 0.5, "the mean of 3 values"),
        ("s = list(cross_val_score(1, X))\ns", "sum(s) / len(s)", 0.5, "the mean of 3 values"),
        (f"{FOLDS}  f1.append(f1_score(y, k))\nf1", "sum(f1) / len(f1)", 0.25, "of 3 values"),
        (
            f"{FOLDS}  for _ in range(2):\n    f1.append(f1_score(y, k))\nf1",
            "f1[-1]",
            0.5,
            "the last of 6",
        ),
        ("list(cross_val_score(1, X))", "list(cross_val_score(1, X))[-1]", 0.25, Doubt.ITEM.value),
        (
            "r2 = []\nfor k in range(1, 4):\n  r2.append(k * cross_val_score(k, X).mean())\nr2",
            "r2[-1]",
            1.5,
            Doubt.ITEM.value,
        ),
        (
            "f1 = []\nfor model in 1, 2:\n  for k, (tr, te) in enumerate(Folds().split(X)):\n"
            "    m = Model().fit()\n    f1.append(f1_score(y, k * model))\nf1",
            "f1[-1]",
            1.0,
            "the last of 6",
        ),
        (
            "losses = []\nfor i, batch in enumerate(Folds().split(X)):\n  m = Model().fit()\n"
            "  losses.append(1 / (1 + i))\nlosses",
            "losses[-1]",
            1 / 3,
            "the last of 3",
        ),
        (f"sum = 0\n{FOLDS}  f1.append(f1_score(y, k))\nf1", "f1[-1]", 0.5, Doubt.ITEM.value),
    ],
)
def test_the_score_of_a_list_is_the_mean_of_its_folds_or_is_described_as_its_last_item(
    tmp_path: Path, code: str, text: str, value: float, about: str
) -> None:
    (score,) = seen(tmp_path, TRAINED, FOLDED, code)
    assert (score.text, score.value) == (text, value)
    assert about in score.about


@pytest.mark.parametrize(
    ("metric", "is_of_training"),
    [
        ("mean_absolute_error(y[va], k)", False),
        ("mean_absolute_error(y_va, k)", False),
        ("mean_absolute_error(y[tr], k)", True),
        ("mean_absolute_error(y_tr, k)", True),
        ("mean_absolute_error(y, predict(X[va], k))", False),
    ],
)
def test_an_error_in_cross_validation_is_a_training_score_only_if_computed_on_training_rows(
    tmp_path: Path, metric: str, is_of_training: bool
) -> None:
    begin = (
        "mean_absolute_error = eval('lambda y, p: abs(0.25 - p)')\npredict = max\n"
        "X = y = np.array([1, 2])"
    )
    loop = (
        "found = []\nfor k, (tr, va) in enumerate(Folds().split(X)):\n"
        "    m = Model().fit()\n    y_tr, y_va = y[tr], y[va]\n"
        f"    found.append({metric})\n    print(f'{{k}} MAE {{found[-1]:.3f}}')"
    )
    mean, last = seen(tmp_path, TRAINED, FOLDED, begin, loop, "print('Mean MAE', np.mean(found))")[
        :2
    ]
    assert {Doubt.TRAINING in score.doubts for score in (mean, last)} == {is_of_training}


def test_a_score_on_test_rows_is_a_test_score_even_if_a_loop_over_folds_used_the_same_variable(
    tmp_path: Path,
) -> None:
    begin = "from sklearn.metrics import accuracy_score\nX = y = np.array([1, 2])"
    loop = "for train, test in Folds().split(X):\n    Model().fit()"
    split = "train, test = [0], [1]\nacc = accuracy_score(y[test], [1])"
    chains = "\n".join(f"d{n + 1} = len(str(d{n})) + len(str(d{n}))" for n in range(30))
    long = f"d0 = X\n{chains}\nother = accuracy_score([d30], [1])"
    scores = seen(tmp_path, TRAINED, FOLDED, begin, loop, split, long)
    (acc,) = (score for score in scores if score.name == "acc")
    assert Doubt.TRAINING not in acc.doubts
    assert "a test score" in acc.about


def test_trials_call_a_displayed_cross_validation_again_but_not_the_code_of_a_displayed_list(
    tmp_path: Path,
) -> None:
    shown, kept = "cross_val_score(1, X)", f"{FOLDS}  f1.append(f1_score(y, k))\nf1"
    is_called = {code: seen(tmp_path, TRAINED, FOLDED, code)[0].is_called for code in (shown, kept)}
    assert is_called == {shown: True, kept: False}


@pytest.mark.parametrize(
    "loop",
    [
        "for batch in np.split(X, n):",
        "for k, batch in enumerate(np.split(X, n)):",
        "for x, y in zip(np.split(X, n), np.split(X, n)):",
        "for e in range(2):\n  for train, test in Folds().split(X): pass\n ",
    ],
)
def test_scores_of_batches_or_epochs_in_a_list_are_not_averaged_like_those_of_folds(
    tmp_path: Path, loop: str
) -> None:
    code = f"X, n, acc = np.arange(4), 2, []\n{loop}\n  m = Model().fit()\n  acc.append(1 / 4)\nacc"
    assert [score.text for score in seen(tmp_path, TRAINED, FOLDED, code)] == ["acc[-1]"]


def test_a_mean_reward_is_listed_as_a_score_before_the_last_item_of_a_list_of_rewards(
    tmp_path: Path,
) -> None:
    stats = "stats = {'rewards': [1.5, 9.5, 0.5], 'mean_reward': abs(3.75)}"
    found = seen(tmp_path, TRAINED, f"{stats}\nModel().fit()")
    assert [score.text for score in found] == ["stats['mean_reward']", "stats['rewards'][-1]"]


def test_the_standard_deviation_of_the_fitness_in_an_evolution_is_no_score(tmp_path: Path) -> None:
    spread = "std = abs(sum(x * x for x in fits) / 3 - mean ** 2) ** 0.5"
    loop = f"for g in range(4):\n  fits = [g + 0.5, 1.5, 2.5]\n  mean = sum(fits) / 3\n  {spread}"
    found = seen(tmp_path, TRAINED, f"{loop}\n  Model().fit()")
    assert "std" not in [score.name for score in found]


def test_a_training_loop_counts_as_changing_its_model_but_not_its_data_loader() -> None:
    train = "for batch in loader:\n  loss = net(batch)\n  loss.backward()\n  opt.step()"
    cells = [
        "loader = Loader(data)\nnet = Small(0.1)\nopt = Adam(net, 0.2)",
        train,
        "net = Big(0.3)\nopt = Adam(net, 0.4)",
        train,
        "val_loss = net.loss",
    ]
    lines = Code(cells).lines(Score(name="val_loss", source=Source.ASSIGNED, at=7))
    assert {(1, 1), (3, 1), (3, 2)} <= lines and not {(1, 2), (1, 3)} & lines


def test_a_result_of_evaluate_named_score_has_no_direction_and_is_not_used_without_asking(
    tmp_path: Path,
) -> None:
    found = seen(tmp_path, TRAINED, EVALUATING.format([0.5, 0.75]), "score = m.evaluate(1)")
    assert [(score.name, score.direction) for score in found] == [("score", None)]
    assert not is_clear(found)


def test_the_last_numbered_evaluation_set_of_a_booster_is_not_taken_for_training_data(
    tmp_path: Path,
) -> None:
    model = "from unittest.mock import Mock\nmodel = Mock()"
    logged = {"validation_9-logloss": [0.5, 0.3, 0.1], "validation_10-logloss": [0.6, 0.4, 0.3]}
    found = seen(tmp_path, model, "model.fit(1, eval_set=[(1, 2), (3, 4)])", logged=logged)
    assert {score.name: score.doubts for score in found} == {
        "validation_10-logloss": [],
        "validation_9-logloss": [Doubt.TRAINING],
    }


def test_a_metric_that_a_library_has_logged_is_read_from_its_log_and_not_computed_again(
    tmp_path: Path,
) -> None:
    results = {"eval_accuracy": 0.875, "eval_loss": 0.375}
    cells = [TRAINED, EVALUATING.format(results), "m.evaluate(data=1)"]
    found = seen(tmp_path, *cells, logged={"eval_accuracy": [0.5, 0.875]})
    assert [(score.name, score.key) for score in found] == [
        ("eval_accuracy", ""),
        ("eval_loss", "expression"),
    ]
    assert found[1].is_called and not found[0].is_called


def test_a_displayed_test_accuracy_and_an_equal_logged_accuracy_are_two_scores(
    tmp_path: Path,
) -> None:
    made = f"{EVALUATING.format([0.375, 1.0])}\nm.compile(loss='mse', metrics=['accuracy'])"
    cells = [TRAINED, made, "m.evaluate('X_test')"]
    found = seen(tmp_path, *cells, logged={"accuracy": [0.5, 1.0]})
    assert sorted(score.origin for score in found) == ["logged by a library", "shown"]


def test_a_loss_that_evaluate_returns_is_a_score_although_its_name_contains_total(
    tmp_path: Path,
) -> None:
    evaluate = "def load(path): return abs(0.375), abs(0.75), abs(2.5)\nevaluate = eval('load')"
    found = seen(tmp_path, TRAINED, evaluate, "total_loss, acc, total = evaluate(1)")
    assert {score.name: score.direction for score in found} == {
        "total_loss": "minimize",
        "acc": "maximize",
    }


@pytest.mark.parametrize(
    ("last", "names"),
    [
        ("results = str(results)", []),
        ("results = {'f1': abs(3 / 4)}", ["results_f1"]),
        ("del results", []),
        ("results['classes'] = np.array(['a', 'b'])", ["results_accuracy", "results_f1"]),
    ],
)
def test_only_numbers_that_still_exist_after_the_last_cell_are_scores(
    tmp_path: Path, last: str, names: list[str]
) -> None:
    results = "results = {'accuracy': 2 / 3, 'f1': 3 / 4}"
    found = seen(tmp_path, TRAINED, results, last)
    assert sorted(score.name for score in found) == names
