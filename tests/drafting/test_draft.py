"""The draft of a parameters file: what it sweeps, what it omits, and that it always loads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.drafting import draft
from sweeper.errors import NotebookError
from sweeper.notebooks import ResearchNotebook
from sweeper.settings import Settings
from sweeper.settings.space import ChoiceDimension, FloatDimension, IntDimension
from sweeper.testing import write_notebook

ROOT = Path(__file__).parents[2]

Drafted = Callable[..., Settings]


def checked(folder: Path, notebook: ResearchNotebook) -> Settings:
    """The settings of a notebook's draft, which load, fit the notebook and begin as it does."""
    text = draft(notebook)
    assert text.endswith("\n")
    assert all(line == line.rstrip() for line in text.split("\n"))
    file = folder / "drafted.yml"
    file.write_text(text, encoding="utf-8")
    loaded = Settings.load(file)
    notebook.check_parameters(dict.fromkeys([*loaded.space, *loaded.fixed], "draft"))
    scope: dict[str, Any] = {}
    exec(re.sub("^%.*", "", notebook.parameters_source, flags=re.MULTILINE), scope)
    # A tuple of the notebook's is a list in a file.
    scope = {n: [*value] if isinstance(value, tuple) else value for n, value in scope.items()}
    assert loaded.start == ({name: scope[name] for name in loaded.space},)
    assert loaded.fixed == {name: scope[name] for name in loaded.fixed}
    assert [type(v) for v in loaded.fixed.values()] == [type(scope[n]) for n in loaded.fixed]
    return loaded


@pytest.fixture
def drafted(tmp_path: Path) -> Drafted:
    """The checked draft for a parameters cell, and the cells after it."""

    def make(parameters: str, *cells: str) -> Settings:
        path = write_notebook(tmp_path / "study.ipynb", *cells, parameters=parameters)
        return checked(tmp_path, ResearchNotebook(path))

    return make


def shape(settings: Settings, name: str) -> Any:
    """A dimension as a file would state it, in short."""
    dimension = settings.space[name]
    if isinstance(dimension, ChoiceDimension):
        return list(dimension.choices)
    return (dimension.low, dimension.high, *(["log"] if dimension.log else []))


# --- every draft holds ---------------------------------------------------------------------------

CELLS = {
    "one rate": "lr = 1e-3",
    "an ordinary cell": (
        "lr = 3e-4\nbatch_size = 64\nepochs = 10\nhidden = 128\ndropout = 0.1\n"
        "optimizer = 'adam'\nuse_bn = True\nseed = 0\ndata_dir = './data'"
    ),
    "annotations": (
        "from typing import Literal\nlr: float = 0.1\nopt: Literal['a', 'b'] = 'a'\nn: int"
    ),
    "constant expressions": "a = 2**7\nb = -1\nc = 1 / 3\nd = -(2 * 3)\ne = 1e-3 * 2\nf = 10 // 3",
    "unpacking": "lr, (width, depth) = 0.1, (32, 4)\na = b = 16\nc, *d = [1, 2, 3]",
    "assigned twice": "lr = 0.1\nlr = 0.01\nn = 3\nn += 1",
    "computed": "import os\nlr = 0.1\nroot = os.path.join('a', 'b')\nwarmup = int(lr * 100)",
    "collections": "lr = 0.1\nbetas = (0.9, 0.999)\nlayers = [64, 64]\nconf = {'a': 1}\ns = {1, 2}",
    "extreme numbers": (
        "lr = 0.1\na = 5e-324\nb = 1e308\nc = 10**30\nd = -0.0\ne = 2**53\nf = -10**9\ng = 1e-31\n"
        "h = float('nan')\ni = 1e999\nj = 1e-12\nk = 1e5"
    ),
    "zeros and ones": (
        "lr = 1\nweight_decay = 0\nx = 0\ny = 0.0\nmomentum = 0\ndropout = 1.0\nC = 1\ngamma = 1\n"
        "subsample = 1.0\nbatch_size = 1\ndepth = 1\nlabel_smoothing = 1"
    ),
    "every share at its end": "\n".join(
        f"{name}_{i} = {value}"
        for name in ("dropout", "momentum", "beta2", "gamma", "prob", "x", "smoothing", "lr")
        for i, value in enumerate((0.01, 0.1, 0.5, 0.51, 0.9, 0.95, 0.99, 0.9999, 0.99999))
    ),
    "words that YAML would take": (
        "n = 3\ny = 4\nnull = 5\ntrue = 6\non = 0.5\n"
        "a = 'null'\nb = 'yes'\nc = '1e-3'\nd = ''\ne = 'a: b'\nf = '# no'\ng = \"it's\"\nh = '~'"
    ),
    "strings that are hard to write": (
        "lr = 0.1\na = 'two\\nlines'\nb = '\"quoted\" \\\\ back'\nc = '\\x00\\x7f\\u2028'\n"
        "d = '😀'\ne = '\\ud800'\nf = 'größe'\ng = '- x'\nh = '{a}'\ni = '''long\ntext'''"
    ),
    "other alphabets": "größe = 0.1\nµ = 3\n学习率 = 1e-3",
    "comments that mislead": (
        "lr = 0.1  # see 1-3, and (2, 3)\nn = 4  # 0 = off\nopt = 'sgd'  # of course, the best\n"
        "a = 5  # [16, 256]\nb = 0.5  # 1 to 0\nc = 'x'  # one of: y, z\nd = 3  # #hash\n"
        "e = 1.5  # range(1, 2) or so\nf = True  # True or False\ng = 7  # 7, 7, 7"
    ),
    "comments that tell": (
        "opt = 'sgd'  # sgd | adam | adamw\nact = 'relu'  # one of: relu, gelu\n"
        "m = 0.5  # 0.1 to 0.9\nd = None  # None or 5\nw = 64  # [16, 256]\n"
        "k = 'a'  # 'a', 'b' or 'c'\nb = 32  # 32, 64 or 128"
    ),
    "colab forms": (
        "opt = 'sgd'  # @param ['sgd', 'adam']\n"
        'm = 0.5  # @param {type:"slider", min:0, max:1, step:0.1}\n'
        "n = 3  #@param {type:'integer'}"
    ),
    "more than assignments": (
        "if True:\n    hidden = 3\nfor i in range(3):\n    j = i\nlr = 0.1; b = 32"
    ),
    "magics": "%matplotlib inline\nlr = 0.1\n%config X.y = 1\nopt = 'sgd'  # sgd | adam",
    "all kinds of case": "LR = 0.1\nbatchSize = 32\nN_LAYERS = 3\n_private = 0.5\n__x = 3",
}


@pytest.mark.parametrize("parameters", CELLS.values(), ids=CELLS)
def test_a_draft_loads_and_starts_with_the_notebooks_own_values(
    drafted: Drafted, parameters: str
) -> None:
    assert drafted(parameters).space


NAMES = st.sampled_from(
    "lr x batch_size dropout depth n_estimators weight_decay optimizer use_it epochs alpha hidden "
    "momentum beta2 gamma label_smoothing threshold temperature warmup_steps seed path".split()
)
PLAIN = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(),
    st.floats(0, 1),
    st.integers(0, 5000),
)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
COMMENTS = st.one_of(
    st.just(""),
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=20),
    st.lists(PLAIN, min_size=2, max_size=3).map(lambda values: " | ".join(map(str, values))),
    st.tuples(st.floats(), st.floats()).map(lambda ends: f"{ends[0]} to {ends[1]}"),
)


@pytest.mark.slow
@given(st.dictionaries(NAMES, st.tuples(VALUES, COMMENTS), min_size=1))
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_draft_loads_with_any_values_and_comments(
    tmp_path: Path, entries: dict[str, tuple[Any, str]]
) -> None:
    lines = [
        f"{name} = {value!r}  # {''.join(filter(str.isprintable, comment))}"
        for name, (value, comment) in entries.items()
    ]
    source = "from math import inf, nan\nunrelated = 0.3\n" + "\n".join(lines)
    path = write_notebook(tmp_path / "any.ipynb", parameters=source)
    checked(tmp_path, ResearchNotebook(path))


# --- which ranges --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lr = 1e-3", (1e-4, 1e-2, "log")),
        ("lr = 3e-3", (1e-4, 1e-1, "log")),
        ("learning_rate = 0.3", (1e-2, 1.0, "log")),
        ("LR = 0.05", (1e-3, 1.0, "log")),
        ("weight_decay = 1e-4", (1e-5, 1e-3, "log")),
        ("weight_decay = 0.0", [0.0, 1e-5, 1e-4, 1e-3, 1e-2]),
        ("adam_eps = 1e-8", (1e-9, 1e-7, "log")),
        ("C = 1.0", (0.1, 10.0, "log")),
        ("C = 10", (1.0, 100.0, "log")),
        ("something = 0.02", (1e-3, 1.0, "log")),
        ("temperature = 0.2", (0.05, 0.8, "log")),
        ("dropout = 0.1", (0.0, 0.5)),
        ("dropout = 0", (0.0, 0.5)),
        ("momentum = 0.9", (0.8, 0.99)),
        ("beta1 = 0.9", (0.8, 0.99)),
        ("beta2 = 0.999", (0.9, 0.9999)),
        ("gamma = 0.99", (0.9, 0.999)),
        ("label_smoothing = 0.05", (0.0, 0.2)),
        ("subsample = 1.0", (0.5, 1.0)),
        ("jitter = 0.4", (0.1, 0.8)),
        ("quality = 0.95", (0.75, 0.995)),
        ("offset = -1.5", (-3.0, 0.0)),
        ("batch_size = 64", [32, 64, 128]),
        ("batch_size = 48", (24, 96, "log")),
        ("hidden_dim = 256", [128, 256, 512]),
        ("n_layers = 4", (2, 6)),
        ("max_depth = 1", (1, 3)),
        ("max_depth = None", [None, 4, 8, 16]),
        ("n_estimators = 100", (50, 400, "log")),
        ("n_neighbors = 5", (2, 10)),
        ("use_batchnorm = True", [True, False]),
        ("use_batchnorm = 1", [0, 1]),
        ("optimizer = 'adam'", ["sgd", "adam", "adamw", "rmsprop"]),
        ("optimizer = 'Adam'", ["SGD", "Adam", "AdamW", "RMSprop"]),
        ("activation = 'relu'", ["relu", "gelu", "silu", "tanh"]),
        ("kernel = 'rbf'", ["linear", "rbf", "poly"]),
        ("opt = 'sgd'  # sgd | adam | adamw", ["sgd", "adam", "adamw"]),
        ("mode = 'a'  # one of: a, b", ["a", "b"]),
        ("mode = 'a'  # a, b or c (default: a)", ["a", "b", "c"]),
        ("mode = 'a'  # or 'b'", ["a", "b"]),
        ("n = 32  # 16, 32 or 64", [16, 32, 64]),
        ("x = 0.3  # 0.1 to 0.9", (0.1, 0.9)),
        ("x = 1e-3  # between 1e-5 and 1e-1", (1e-5, 1e-1, "log")),
        ("width = 64  # [16, 256]", (16, 256)),
        ("x = 0.5  # 0 <= x <= 1", (0.0, 1.0)),
        ("x = 0.5  # @param {type:'slider', min:0, max:1, step:0.1}", (0.0, 1.0)),
        ("from typing import Literal\nmode: Literal['a', 'b'] = 'b'", ["a", "b"]),
    ],
)
def test_a_range_suits_the_name_the_value_and_the_comment(
    drafted: Drafted, line: str, expected: Any
) -> None:
    settings = drafted(line)
    (name,) = settings.space
    found = shape(settings, name)
    assert found == expected
    assert [type(part) for part in found] == [type(part) for part in expected]


def test_budgets_and_parameters_of_the_measurement_are_fixed(drafted: Drafted) -> None:
    settings = drafted(
        "lr = 0.1\nepochs = 5\nmax_iter = 200\ndataset = 'mnist'\ntest_size = 0.2\n"
        "arch = 'resnet50'"
    )
    assert settings.fixed == {
        "epochs": 5,
        "max_iter": 200,
        "dataset": "mnist",
        "test_size": 0.2,
        "arch": "resnet50",
    }
    assert set(settings.space) == {"lr"}


def test_parameters_that_are_not_about_the_model_are_in_a_comment_only(
    drafted: Drafted, tmp_path: Path
) -> None:
    settings = drafted(
        "lr = 0.1\nseed = 0\nrun_id = 'x'\ndata_dir = 'data'\ndevice = 'cuda'\nverbose = True\n"
        "num_workers = 4\nn_jobs = -1\nbetas = (0.9, 0.99)\nlog_every = 10\nname = f'{lr}'"
    )
    assert (set(settings.space), settings.fixed) == ({"lr"}, {})
    text = (tmp_path / "drafted.yml").read_text()
    assert "#   seed, run_id: each trial is given its own" in text
    assert "#   betas: a list or mapping" in text
    assert "#   name: worked out by code" in text
    for name in ("data_dir", "device", "verbose", "num_workers", "n_jobs", "log_every"):
        assert name in text


def test_a_secret_is_not_copied_into_the_draft(drafted: Drafted, tmp_path: Path) -> None:
    drafted("lr = 0.1\napi_key = 'abcdef123'\nHF_TOKEN = 'hf_zyx'")
    text = (tmp_path / "drafted.yml").read_text()
    assert "abcdef123" not in text
    assert "hf_zyx" not in text


def test_words_in_comparisons_are_choices(drafted: Drafted) -> None:
    settings = drafted(
        "mode = 'big'",
        "if mode == 'big':\n    n = 3\nelif mode in ('small', 'tiny'):\n    n = 1",
    )
    assert shape(settings, "mode") == ["big", "small", "tiny"]


def test_momentum_is_in_the_branch_of_sgd(drafted: Drafted) -> None:
    settings = drafted("optimizer = 'sgd'  # sgd | adam\nmomentum = 0.9")
    assert settings.space["momentum"].when == {"optimizer": ("sgd",)}
    settings = drafted("optimizer = 'adam'  # sgd | adam\nmomentum = 0.9")
    assert settings.space["momentum"].when == {}  # it would be missing in the first trial


# --- which score ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "objective", "direction"),
    [
        (["import sweeper\nsweeper.report(0, train_loss=1, val_loss=2)"], "val_loss", "minimize"),
        (["import sweeper\nsweeper.report(0, val_loss=1, val_acc=2)"], "val_acc", "maximize"),
        (["import sweeper as sw\nsw.score(reward=1)"], "reward", "maximize"),
        (["from sweeper import report as tell\ntell(0, rmse=1)"], "rmse", "minimize"),
        (["import sweeper\nsweeper.score(anything=1)"], "anything", "maximize"),
        (
            ["import sweeper\nm = {'val_top1': 1, 'x': 2}\nsweeper.report(0, **m)"],
            "val_top1",
            "maximize",
        ),
        (["import scrapbook as sb\nsb.glue('test_auc', 0.9)"], "test_auc", "maximize"),
        (["from scrapbook import glue\nglue('mae', 0.9)"], "mae", "minimize"),
        (["import papermill as pm\npm.record('f1', 0.9)"], "f1", "maximize"),
        (["acc = 0.5"], "acc", "maximize"),
        (["loss = 3", "test_loss = 1", "val_accuracy = 2"], "val_accuracy", "maximize"),
        (
            ["for e in range(3):\n    train_loss = 1\n    val_loss = 1\nscore = 2"],
            "val_loss",
            "minimize",
        ),
        (["loss_fn = 3\nr2_score = 0.2"], "r2_score", "maximize"),
        (["def f():\n    val_acc = 3", "perplexity: float = 2.0"], "perplexity", "minimize"),
        (["%matplotlib inline\n!ls\nacc = 0.1"], "acc", "maximize"),
        (["%%bash\nacc=3", "%%time\nauc = 0.1"], "auc", "maximize"),
        (["this is no python", "top_5_error = 0.1"], "top_5_error", "minimize"),
    ],
)
def test_the_objective_is_the_score_that_the_notebook_has(
    drafted: Drafted, cells: list[str], objective: str, direction: str
) -> None:
    found = drafted("lr = 0.1", *cells).objective
    assert {name: o.direction for name, o in found.items()} == {objective: direction}


@pytest.mark.parametrize(
    ("cell", "score"),
    [
        ("end_time = 3\nloss = 2", "loss"),
        ("import time\nloss = time.time()\nmae = f()\nloss = time.time() - loss", "mae"),
        ("test_score = model.predict(x)\nmse = mean_squared_error(y, test_score)", "mse"),
        ("scores = cross_val_score(m, x)\nval_score = scores\nrmse = 1", "rmse"),
        ("val_score = cross_val_score(m, x)\ntest_acc = val_score.mean()", "test_acc"),
        ("val_acc, val_loss = [], []\nfor e in r:\n    val_acc.append(f())\nacc = f()", "acc"),
        ("val_acc = np.zeros(3)\ntrain_acc = f()", "train_acc"),
        ("val_acc = f()\nval_acc[0]\ntrain_acc = g()", "train_acc"),
        ("val_acc = hits.mean(1)\ntrain_acc = hits.mean()", "train_acc"),
        ("precision, recall, _ = precision_recall_curve(y, p)\nmap = f()", "map"),
        ("val_f1 = f1_score(y, p, average=None)\nf1 = f1_score(y, p)", "f1"),
        ("loss = nn.CrossEntropyLoss()\nauc = 0.5", "auc"),
        ("def score(y):\n    return 1\naccuracy = load()\naccuracy(y)\nerror = f()", "error"),
        ("loss = m.losses.mse\ndef f(x):\n    return loss(x)\nauc = f(y)", "auc"),
        ("error = 0\nfor x in xs:\n    error += 1\nloss = f()", "loss"),
        ("val_error = len(bad)\ntest_error = len(bad) / len(all)", "test_error"),
        ("acc = 0\nfor b in bs:\n    acc += f(b)\nacc /= 3", "acc"),
        ("test_loss, test_acc = model.evaluate(x, y)", "test_acc"),
        ("plt.plot(val_loss)\nval_loss = fit()\nloss = val_loss[-1]", "loss"),
        ("with f() as g:\n    val_acc = g.x\nelapsed_seconds = 3", "val_acc"),
        ("baseline_acc = f()\nthreshold_loss = 3\nlabel_map = g()\nerror = h()", "error"),
        ("test_map = f()\nloss = g()", "test_map"),
        ("mae = torch.mean(torch.abs(a - b))\nr = round(abs(x), 2)", "mae"),
        ("try:\n    pass\nexcept E:\n    val_acc = 1", "val_acc"),
        ("import sweeper\nsweeper.report(0, elapsed=t, n_done=b, val_loss=f())", "val_loss"),
        ("import sweeper, time\nsweeper.report(0, x=1, when=time.time())", "x"),
        ("import sweeper\nsweeper.score(latency=measure())", "latency"),
        ("import scrapbook as sb\nsb.glue('keys', list(d))\nsb.glue('plot', fig)\nmae = 1", "mae"),
    ],
)
def test_names_that_are_not_a_single_number_of_the_model_are_skipped(
    drafted: Drafted, cell: str, score: str
) -> None:
    assert list(drafted("lr = 0.1", cell).objective) == [score]


def test_a_draft_without_a_score_has_a_line_to_fill_in(drafted: Drafted, tmp_path: Path) -> None:
    settings = drafted("lr = 0.1", "print('loss 3')\naccs = [1]")
    assert list(settings.objective) == ["score"]
    assert "# FILL IN: no score was found" in (tmp_path / "drafted.yml").read_text()


@pytest.mark.parametrize(
    "cell",
    [
        "import time\nstart = time.time()\nf()\nend_time = time.time()",
        "elapsed_time = 3",
        "import time\nloss = time.perf_counter()",
        "loss = 0\nwhile f():\n    loss += 1",
        "test_score = [1, 2]",
        "scores = cross_val_score(m, x)\nmean_score = scores[:2]",
        "n_error = 3\nnum_loss = f()",
        "import scrapbook as sb\nsb.glue('hello', 'world')\nsb.glue('rows', df)",
    ],
)
def test_clocks_counters_and_arrays_are_no_scores(
    drafted: Drafted, tmp_path: Path, cell: str
) -> None:
    assert list(drafted("lr = 0.1", cell).objective) == ["score"]
    assert "# FILL IN: no score was found" in (tmp_path / "drafted.yml").read_text()


def test_layer_sizes_are_swept_as_a_whole(drafted: Drafted, tmp_path: Path) -> None:
    settings = drafted(
        "lr = 0.1\nhidden_sizes = [64, 32]\nlayers = (8,)\nbetas = [2, 3]\nsizes = []"
    )
    assert shape(settings, "hidden_sizes") == [[32, 16], [64, 32], [128, 64]]
    assert shape(settings, "layers") == [[4], [8], [16]]
    assert set(settings.space) == {"lr", "hidden_sizes", "layers"}
    text = (tmp_path / "drafted.yml").read_text()
    assert "hidden_sizes: [[32, 16], [64, 32], [128, 64]]    # the notebook has [64, 32]" in text


def test_a_parameter_is_no_score(drafted: Drafted) -> None:
    assert list(drafted("lr = 0.1\nloss = 'mse'  # mse | mae").objective) == ["score"]


def test_a_notebook_that_reports_while_it_runs_gets_a_pruner_in_a_comment(
    drafted: Drafted, tmp_path: Path
) -> None:
    drafted("lr = 0.1", "import sweeper\nsweeper.report(0, acc=1)")
    assert "# pruner: median" in (tmp_path / "drafted.yml").read_text()
    drafted("lr = 0.1", "acc = 1")
    assert "pruner:" not in (tmp_path / "drafted.yml").read_text()


def test_there_are_no_more_trials_than_combinations(drafted: Drafted) -> None:
    assert drafted("use_bn = True\nbatch_size = 32").study.trials == 6
    assert drafted("lr = 0.1").study.trials == 20


# --- whole notebooks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "objective"),
    [("digits", "val_acc"), ("resnet", "val_top1"), ("untouched", "val_loss")],
)
def test_the_examples_have_drafts(tmp_path: Path, name: str, objective: str) -> None:
    notebook = ResearchNotebook(ROOT / "notebooks" / f"{name}.ipynb")
    settings = checked(tmp_path, notebook)
    assert list(settings.objective) == [objective]
    by_hand = Settings.load(ROOT / "parameters" / f"{name}.yml")
    assert set(settings.space) >= set(by_hand.space)


def test_a_space_has_dimensions_of_each_kind(tmp_path: Path) -> None:
    space = checked(tmp_path, ResearchNotebook(ROOT / "notebooks" / "untouched.ipynb")).space
    assert {type(d) for d in space.values()} == {FloatDimension, IntDimension, ChoiceDimension}


@pytest.mark.parametrize(
    ("parameters", "fragment"),
    [
        ("pass", "assigns nothing: nothing to sweep; assign plain numbers"),
        ("seed = 0\npath = 'a/b'", "assigns only seed, path: nothing to sweep"),
        ("lr = ", "the parameters cell, line 1: invalid syntax"),
    ],
)
def test_the_message_for_a_notebook_without_parameters_names_it_and_the_remedy(
    tmp_path: Path, parameters: str, fragment: str
) -> None:
    path = write_notebook(tmp_path / "bare.ipynb", parameters=parameters)
    with pytest.raises(NotebookError) as raised:
        draft(ResearchNotebook(path))
    assert str(path) in str(raised.value)
    assert fragment in str(raised.value)


def test_a_notebook_in_another_language_is_refused(tmp_path: Path) -> None:
    node = nbformat.v4.new_notebook()
    node.metadata["kernelspec"] = {"name": "ir", "language": "R", "display_name": "R"}
    cell = nbformat.v4.new_code_cell("lr <- 0.1")
    cell.metadata["tags"] = ["parameters"]
    node.cells.append(cell)
    path = tmp_path / "r.ipynb"
    path.write_text(json.dumps(node))
    with pytest.raises(
        NotebookError, match=r"r\.ipynb: .*language is R; write the parameters file"
    ):
        draft(ResearchNotebook(path))


def test_a_draft_is_aligned_and_has_the_notebooks_values_in_comments(tmp_path: Path) -> None:
    source = "lr = 1e-3\nbatch_size = 32\nepochs = 5\nseed = 0"
    cell = "import sweeper\nsweeper.report(0, val_loss=1, val_acc=0.5)"
    path = write_notebook(tmp_path / "n.ipynb", cell, parameters=source)
    assert draft(ResearchNotebook(path)).replace(str(path), "n.ipynb") == (
        """\
# Parameters for n.ipynb: a draft, to be edited.
# The ranges are guesses around the notebook's own values, which are tried first.

study:
  trials: 20          # in all; a study that is continued counts its own
  sampler: auto       # or tpe, gp, random, grid, qmc, cmaes, nsga2, brute_force
  # pruner: median    # ends trials early that fall behind: the notebook reports live

objective:
  val_acc: maximize    # reported by the notebook
  # also there: val_loss

space:
  lr: {low: 1e-4, high: 0.01, log: true}    # the notebook has 1e-3
  batch_size: [16, 32, 64]                  # the notebook has 32

fixed:
  epochs: 5    # a budget, not swept: small while you try things, the full one at the end

# Not here, so that the notebook decides:
#   seed: each trial is given its own

start:
  - lr: 1e-3
    batch_size: 32
"""
    )
