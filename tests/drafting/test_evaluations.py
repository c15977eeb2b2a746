"""Test which numbers of a notebook evaluate its model. The code decides, not their names."""

from __future__ import annotations

import ast

import pytest

from sweeper.drafting.scores.evaluations import Evaluations, Kind


def evaluations(code: str) -> Evaluations:
    """Return the analysis of the numbers that the code of one cell computes."""
    return Evaluations([(1, node) for node in ast.parse(code).body])


@pytest.mark.parametrize(
    ("code", "direction"),
    [
        # A metric of a library, through variables, functions and arithmetic.
        ("x = accuracy_score(y, p)", "maximize"),
        ("x = 1 - accuracy_score(y, p)", "minimize"),
        ("x = float(np.sqrt(mean_squared_error(y, p)))", "minimize"),
        ("x = model.score(X_tst, y_tst) * 100", "maximize"),
        ("a, b = f1_score(y, p), 3\nx = round(a, 2)", "maximize"),
        ("def f(m):\n  return 5, log_loss(y, m.predict(X))\nn, x = f(m)", "minimize"),
        ("x = cross_val_score(m, X, y, scoring='neg_mean_squared_error').mean()", "maximize"),
        ("x = grid.best_score_", "maximize"),
        # A comparison of predictions with targets.
        ("x = np.mean(p == y)", "maximize"),
        ("x = (p != y).sum() / len(y)", "minimize"),
        ("x = 0\nfor a, b in zip(p, y):\n  if a == b:\n    x += 1", "maximize"),
        ("x = np.mean((y - p) ** 2)", "minimize"),
        ("def dev(y, p):\n  e = y - p\n  return (e @ e) / len(e)\nx = dev(1, 2)", "minimize"),
        ("coste = lambda p, y: abs(p - y).mean()\nx = coste(p, y)", "minimize"),
        ("x = -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))", "minimize"),
        ("cm = confusion_matrix(y, p)\nx = np.sum(cm.diagonal()) / np.sum(cm)", "maximize"),
        ("cm = confusion_matrix(y, p)\nx = np.trace(cm) / cm.sum()", "maximize"),
        ("x = 10 * value - np.mean((y - p) ** 2)", "maximize"),
        # Dividing by a standard deviation or variance does not change the direction.
        ("x = np.sqrt(np.mean((y - p) ** 2)) / np.std(y)", "minimize"),
        ("x = 1 - np.var(y - p) / np.var(y)", "maximize"),
        ("X = (X - X.mean()) / X.std()\nx = model.score(X, y)", "maximize"),
        # The data may be random numbers.
        ("X = 2 * np.random.rand(100, 1)\nx = r2_score(X, model.predict(X))", "maximize"),
        # The code keeps the best value by a comparison, which shows the direction.
        ("x = inf\nfor i in r:\n  c = f(i)\n  if c < x: x = c", "minimize"),
        ("x = 0\nfor i in r:\n  c = f(i)\n  if c > x: x = c", "maximize"),
        ("x = 9\nfor i in r:\n  c = f(i)\n  if x > c: x = c", "minimize"),
        ("class M:\n  def fit(s):\n    if v > s.b: s.b = v\nm = M()\nx = m.b", "maximize"),
        ("h = []\nfor i in r:\n  if c <= b: b = c\n  h.append(b)\nx = h[-1]", "minimize"),
        # Losses that a training records in a list or an attribute.
        ("x = []\nfor e in range(9):\n  x.append(np.mean((y - f(e)) ** 2))", "minimize"),
        ("class M:\n  def fit(s):\n    s.h = [abs(y - p)]\nm = M()\nx = m.h[-1]", "minimize"),
        ("crit = nn.MSELoss()\nx = crit(out, target).item()", "minimize"),
        # A minus turns the direction of a score, but not the minus of a negative index.
        ("x = -1 * f1_score(y, p)", "minimize"),
        ("h = []\nx = h[-1] * f1_score(y, p)", "maximize"),
        # Loops that unpack tuples do not hide a later score.
        ("for i, (a, b) in enumerate(d): pass\nx = model.score(X, y)", "maximize"),
        # Keras: `evaluate` returns the loss and the metrics that were passed to `compile`.
        ("m.compile('sgd', loss='mse', metrics=['mae'])\nx = m.evaluate(X, y)[1]", "minimize"),
        ("m.compile('sgd', 'mse', ['accuracy'])\nr = m.evaluate(X, y)\nx = r[-1]", "maximize"),
        ("m.compile(loss='hinge', metrics=[AUC()])\nl, x = m.evaluate(X, y)", "maximize"),
        ("m.compile(loss='mse', metrics=['accuracy'])\nx, a = m.evaluate(X)", "minimize"),
        ("m.compile(loss='mse')\nx = m.evaluate(X, y)", "minimize"),
        # `re.compile` and Python's `compile` are other functions than that of Keras.
        (
            "import re\np = re.compile('a', re.I)\nc = compile(s, 'f', 'exec')\n"
            "m.compile(loss='mse', metrics=['auc'])\nx = m.evaluate(X, y)[1]",
            "maximize",
        ),
        # `neg` in a key may mean a negative class, so it alone does not turn the direction.
        ("r = m.evaluate(X)\nx = r['acc_neg']", "maximize"),
        ("r = m.evaluate(X)\nx = r['neg_loss']", "minimize"),
        ("r = m.evaluate(X)\nx = r['val_loss_epoch']", "minimize"),
        ("x = trainer.callback_metrics['loss_total']", "minimize"),
        # Values that are reached through tuples, walruses, stars, methods, and negated errors.
        ("def f(m): return len(m), log_loss(y, m.p)\nr = f(m)\nx = r[1]", "minimize"),
        ("x = cross_validate(m, X, y)['test_neg_log_loss'].mean()", "maximize"),
        ("x = -cross_validate(m, X, y)['test_score'].mean()", "minimize"),
        ("x = np.round(np.sqrt(mean_squared_error(y, p))[0], 2)[0]", "minimize"),
        ("if (x := accuracy_score(y, p)) > .5: pass", "maximize"),
        ("for n, x in (('a', .5), ('b', f1_score(y, p))): pass", "maximize"),
        ("def f(): return 1, 2, 3, log_loss(y, p)\nn, *r, x = f()", "minimize"),
        ("class M:\n  def score(self): return self.m.score(X, y)\nx = M().score()", "maximize"),
        (
            "class M:\n  def __init__(self, s): self.s = s\nm = M(f1_score(y, p))\nx = m.s",
            "maximize",
        ),
    ],
)
def test_the_result_of_a_metric_or_of_a_comparison_with_the_targets_evaluates_the_model(
    code: str, direction: str
) -> None:
    found = evaluations(code).of(ast.Name(id="x", ctx=ast.Load()))
    assert (found.kind, found.direction) == (Kind.EVALUATION, direction)


@pytest.mark.parametrize(
    "code",
    [
        "x = tree.tree_.n_leaves",
        "x = alpha * tree.tree_.n_leaves + np.sum(tree.tree_.impurity) / n",
        "x = forest.feature_importances_[0]",
        "x = cross_val_score(m, X, y).std() * 2",
        "class K:\n  def __init__(self, k=3):\n    self.k = k\nx = K(k=5).k",
        "for x in range(9): pass",
        "x = accuracy_score(y, kmeans.labels_)",
        "class K:\n  def __init__(self, k=3):\n    self.k = k\nm = K(k=5)\nm.fit(X, y)\nx = m.k",
    ],
)
def test_a_size_or_a_setting_of_a_model_does_not_evaluate_the_model(code: str) -> None:
    assert evaluations(code).of(ast.Name(id="x", ctx=ast.Load())).is_none


@pytest.mark.parametrize(
    "code",
    [
        # A method without other arguments than `self` compares nothing.
        "class S(list):\n  def average(self): return sum(self) / len(self)\nx = S(v).average()",
        # A score that is appended to an unnamed list does not make other numbers scores.
        "x = np.random.randn() * 300",
        "x = -f(3) * 2",
        "g.setdefault(k, []).append(accuracy_score(y, p))\nx = np.unique(y)[0]",
        # The `return` of an inner function is no result of the outer one.
        "def f():\n  def m(a, b): return np.mean(a == b)\n  return n_leaves\nx = f()",
        # A chain of 30 doublings is analysed in linear time, because each step is followed once.
        "x0 = f()\n" + "\n".join(f"x{i + 1} = x{i} + x{i}" for i in range(30)) + "\nx = x30",
    ],
)
def test_a_number_whose_meaning_the_code_does_not_show_gets_the_kind_unknown(code: str) -> None:
    assert evaluations(code).of(ast.Name(id="x", ctx=ast.Load())).kind is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("code", "direction"),
    [
        ("def de(): return pop[fit.argmin()], fit.min()\nbest, x = de()", "minimize"),
        ("x = max(fits)", "maximize"),
        ("x = -min(costs)", "maximize"),
        ("def f(p): return p[0]\nx = f(min(pop, key=f))", "minimize"),
        ("x = fits[0]", None),
    ],
)
def test_a_number_of_unknown_kind_is_minimized_if_min_chooses_it_and_maximized_if_max_does(
    code: str, direction: str | None
) -> None:
    found = evaluations(code).of(ast.Name(id="x", ctx=ast.Load()))
    assert (found.kind, found.direction) == (Kind.UNKNOWN, direction)


@pytest.mark.parametrize(
    ("printing", "before"),
    [
        ("print(f'K = {k}: {x}')", "K = \0: "),
        ("print('K = %d: %.3f%%' % (k, x))", "K = \0: "),
        ("print('K = {}: {:.2f}'.format(k, x))", "K = \0: "),
        ("print('K =', k, ':', x)", "K = \0 : "),
        ("print('K = ' + str(k) + ': ' + str(x))", "K = \0: "),
    ],
)
def test_a_printed_value_is_recorded_with_the_text_before_it_however_the_text_is_formatted(
    printing: str, before: str
) -> None:
    last = evaluations(printing).printings[-1]
    assert ast.unparse(last.value) == "x"
    assert last.before == before


def test_a_print_of_a_sum_counts_as_one_printed_value() -> None:
    (printing,) = evaluations("print('loss:', mse + penalty)").printings
    assert ast.unparse(printing.value) == "mse + penalty"


def test_results_of_a_loop_are_a_grid_search_only_if_each_pass_sets_another_param_value() -> None:
    grid = "errors = []\nfor k in range(9):\n  m = KNN(n_neighbors=k)\n  errors.append(f(m))"
    assert evaluations(grid).is_grid("errors")
    epochs = "errors = []\nfor k in range(9):\n  step()\n  errors.append(f(m))"
    assert not evaluations(epochs).is_grid("errors")
    bar = "accs = list()\nfor e in range(9):\n  bar.set_postfix(e=e)\n  losses.append(step())\n"
    other = evaluations(f"{bar}for m in models:\n  accs.append(f(m))")
    assert not other.is_grid("losses") and not other.is_grid("accs")


def test_the_trace_of_a_matrix_other_than_a_confusion_matrix_is_no_evaluation() -> None:
    found = evaluations("K = kernel(X)\nx = torch.trace(K)").of(ast.Name(id="x", ctx=ast.Load()))
    assert not found.is_evaluation


@pytest.mark.parametrize(
    "code",
    [
        "x = model.evaluate(X, y)",
        "l, x = model.evaluate(X, y)",
        "x, a = evaluate(model, loader)",
        "m.compile(loss='mse', metrics=['mae'])\nx, a = evaluate(model, loader)",
        "x = evaluate_model(model, loader)",
        "p = re.compile('a', re.I)\nx = trainer.evaluate(ds)",
        "x = cross_validate(m, X, y)",
        "m.compile(loss='mse', metrics=['mae'])\nx = m.evaluate(X, y)",
        "m.compile(loss='mse', metrics=chosen)\nl, x = m.evaluate(X, y)",
        "m.compile(loss='mse')\nn.compile(loss='mse', metrics=['mae'])\nx = n.evaluate(X, y)",
    ],
)
def test_the_result_of_evaluate_without_a_known_metric_is_an_evaluation_of_unknown_direction(
    code: str,
) -> None:
    found = evaluations(code).of(ast.Name(id="x", ctx=ast.Load()))
    assert found.is_evaluation and found.is_any and found.direction is None


def test_of_the_items_that_cross_validate_returns_only_metrics_are_evaluations() -> None:
    code = "r = cross_validate(m, X, y)\nx = r['fit_time']\nz = r['score_time']\ny = r['test_f1']"
    found = evaluations(code)
    kinds = [found.of(ast.Name(id=name, ctx=ast.Load())).kind for name in "xzy"]
    assert kinds == [Kind.UNKNOWN, Kind.UNKNOWN, Kind.EVALUATION]
    each = "r = {}\nfor n, m in models: r[n] = m.score(X, y)\nx = r['svm']"
    assert evaluations(each).of(ast.Name(id="x", ctx=ast.Load())).is_evaluation
