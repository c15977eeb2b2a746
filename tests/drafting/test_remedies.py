"""A message says why a value is not swept and how to change the notebook, and that change works."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nbformat
import pytest

from sweeper.drafting.draft import draft
from sweeper.errors import NotebookError
from sweeper.notebooks.reading import read_notebook
from sweeper.notebooks.research import ResearchNotebook
from sweeper.settings import Settings
from sweeper.testing import write_notebook

ADAM = "from torch.optim import Adam\n"
SVC = "from sklearn.svm import SVC\n"
NN = "from torch import nn\n"
KERAS = "from keras import Sequential\nm = Sequential()\n"

CASES: Sequence[tuple[str, str, str, str]] = [
    # The cell, a part of the message, the cell after the change, and the name that is then swept.
    (
        ADAM + "acc = f(Adam(w, lr=schedule(3)))",
        "lr is schedule(3) in Adam in code cell 1, line 2: write a number in its place",
        ADAM + "acc = f(Adam(w, lr=0.1))",
        "lr",
    ),
    (
        ADAM + "for lr in (0.1, 0.2):\n  acc = f(Adam(w, lr=lr))",
        "lr is a loop variable in code cell 1, line 2: assign it one value",
        ADAM + "lr = 0.1\nacc = f(Adam(w, lr=lr))",
        "lr",
    ),
    (
        ADAM + "lr = 0.1\nif big:\n  lr = 0.2\nacc = f(Adam(w, lr=lr))",
        "in code cell 1, line 2, and in code cell 1, line 3: keep one of them",
        ADAM + "lr = 0.1\nacc = f(Adam(w, lr=lr))",
        "lr",
    ),
    (
        ADAM + "a = Adam(w, lr=0.1)\na.lr = 1.0 if big else 2.0\nacc = f(a)",
        "and gets another value in code cell 1, line 3: keep one of them",
        ADAM + "a = Adam(w, lr=0.1)\nacc = f(a)",
        "lr",
    ),
    (
        SVC + "acc = f(SVC(C=3.0), SVC(C=5.0))",
        "C is 5.0 in SVC in code cell 1, line 2: assign it to a name at the top level",
        SVC + "c = 5.0\nacc = f(SVC(C=3.0), SVC(C=c))",
        "c",
    ),
    (
        KERAS + "m.compile(optimizer='adam', loss='mse')\nacc = m.evaluate(x)",
        "write optimizer=Adam(learning_rate=0.001) there",
        KERAS + "from keras.optimizers import Adam\n"
        "m.compile(optimizer=Adam(learning_rate=0.001), loss='mse')\nacc = m.evaluate(x)",
        "learning_rate",
    ),
    (
        KERAS + "m.compile('sgd', 'mse')\nacc = m.evaluate(x)",
        "`from keras.optimizers import SGD`",
        KERAS + "from keras.optimizers import SGD\n"
        "m.compile(SGD(learning_rate=0.01), 'mse')\nacc = m.evaluate(x)",
        "learning_rate",
    ),
    (
        "for i in r:\n  w -= 0.1 * g(w)\nacc = f(w)",
        "the learning rate is 0.1 in code cell 1, line 2: assign it to a name",
        "step = 0.1\nfor i in r:\n  w -= step * g(w)\nacc = f(w)",
        "step",
    ),
    (
        ADAM + "def train(rate):\n  return Adam(w, lr=rate)\nacc = train(read('x'))",
        "lr is rate in Adam in code cell 1, line 3: write a number in its place",
        ADAM + "def train(rate):\n  return Adam(w, lr=0.1)\nacc = train(read('x'))",
        "lr",
    ),
    (
        NN + "acc = f(nn.LSTM(28, 128), nn.Linear(128, 10))",
        "sizes of layers are 128, the first in nn.LSTM in code cell 1, line 2: assign each size to",
        NN + "hidden = 128\nacc = f(nn.LSTM(28, hidden), nn.Linear(hidden, 10))",
        "hidden",
    ),
    (
        NN + "acc = f(nn.GRU(300, hidden_size=128), nn.Linear(128, 10))",
        "sizes of layers are 128, the first in nn.GRU in code cell 1, line 2: assign each size to",
        NN + "hidden = 128\nacc = f(nn.GRU(300, hidden_size=hidden), nn.Linear(hidden, 10))",
        "hidden",
    ),
    (
        "lam = 0.1\nacc = ridge(X, y, lam)",
        "write n.yml with `objective: {SCORE: maximize}` and `space: {lam: {low: 0.025",
        "weight_decay = 0.1\nacc = ridge(X, y, weight_decay)",
        "weight_decay",
    ),
]


def _notebook(folder: Path, cell: str) -> ResearchNotebook:
    return ResearchNotebook(write_notebook(folder / "n.ipynb", cell, parameters=""))


def _said(notebook: ResearchNotebook) -> str:
    try:
        return draft(notebook).text
    except NotebookError as error:
        return str(error)


@pytest.mark.parametrize(("cell", "remedy", "obeyed", "name"), CASES)
def test_a_notebook_can_be_swept_after_the_change_that_the_message_advises(
    tmp_path: Path, cell: str, remedy: str, obeyed: str, name: str
) -> None:
    assert remedy in _said(_notebook(tmp_path, cell))
    notebook = _notebook(tmp_path, obeyed)
    file = tmp_path / "n.yml"
    file.write_text(draft(notebook).text)
    settings = Settings.load(file)
    notebook.check_names(settings.sources)
    assert name in settings.space


def test_if_no_score_is_recognized_the_message_lists_the_numbers_that_depend_on_a_param(
    tmp_path: Path,
) -> None:
    from sweeper.drafting.observed_run import ObservedRun

    cells = ["lr = 0.1\nn = f(lr)", "best_val = f(lr)", "x = 0.5 * 1", "plot()"]
    notebook = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))
    node = read_notebook(notebook.path)
    for count, cell in enumerate(node.cells, 1):
        cell.execution_count = count
    numbers = {"n": (5.0, 1), "best_val": (0.25, 2), "x": (0.5, 3)}
    node.metadata["sweeper"] = {
        "numbers": {
            name: {"values": [value.hex()], "cell": cell} for name, (value, cell) in numbers.items()
        },
        "changes": {"1:1": ["lr"], "1:2": ["n"], "2:1": ["best_val"], "3:1": ["x"]},
    }
    executed = tmp_path / "executed.ipynb"
    nbformat.write(node, executed)
    run = ObservedRun.read(executed, notebook)
    with pytest.raises(NotebookError, match=r"is one of best_val = 0\.25, .*best_val:min"):
        _ = run.best
    assert (named := run.named("best_val")) is not None
    assert "lr: " in run.drafted(notebook, chosen=named, direction="minimize").text


@pytest.mark.parametrize(
    ("loop", "is_told"),
    [
        ("for batch_size in [16, 32]:", True),
        ("for i, batch_size in enumerate(sizes):", True),
        ("for batch_size, name in zip(np.arange(16, 64, 16), names):", True),
        ("for batch in loader:", False),
        ("for i, batch in enumerate(loader(data)):", False),
        ("best_lr = 0\nfor best_lr in lrs:", False),
    ],
)
def test_a_loop_variable_is_reported_as_not_swept_only_if_the_loop_tries_numbers(
    tmp_path: Path, loop: str, is_told: bool
) -> None:
    cell = f"{SVC}sizes = [16, 32]\nlrs = [0.1]\n{loop}\n    m = SVC(C=2.0).fit(X)"
    notebook = write_notebook(tmp_path / "n.ipynb", f"{cell}\nacc = m.score(X)")
    text = draft(ResearchNotebook(notebook)).text.partition("space:")[2]
    assert ("loop variable" in text or "assigned" in text) is is_told


def test_a_draft_does_not_say_of_a_swept_value_that_it_cannot_be_swept(tmp_path: Path) -> None:
    text = draft(_notebook(tmp_path, "class C:\n  hidden = 16\nacc = f(C.hidden)")).text
    assert "C.hidden: " in text and "assigned only" not in text


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        (["lr = 0.1\nprint(lr)", "lr = 0.2\nacc = f(lr)"], "lr"),
        (["def train():\n  lr = 0.1\n  return f(lr)", "acc = train()"], "lr"),
        ([ADAM + "acc = f(Adam(w, lr=0.1), SGD(lr=0.2))"], "lr"),
        (["class A:\n  lr = 0.1", "acc = f(A.lr)"], "lr"),
    ],
)
def test_a_dotted_name_that_the_error_for_a_short_name_proposes_can_be_swept(
    tmp_path: Path, cells: Sequence[str], name: str
) -> None:
    notebook = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))
    with pytest.raises(NotebookError) as raised:
        notebook.check_names({name: "p.yml: space"})
    advised = {word for word in str(raised.value).split("'") if "." in word and " " not in word}
    assert advised
    for one in advised:
        notebook.check_names({one: "p.yml: space"})


def test_a_value_without_an_effect_on_the_score_is_in_the_draft_as_a_comment_that_can_be_activated(
    tmp_path: Path,
) -> None:
    cells = ["lr = 0.1\nweight_decay = 0.1", "acc = f(lr)\nplain = g(weight_decay)"]
    notebook = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))
    text = draft(notebook).text
    (line,) = (line for line in text.splitlines() if "weight_decay" in line)
    file = tmp_path / "n.yml"
    file.write_text(text.replace(line, line.replace("# ", "", 1)))
    assert [*Settings.load(file).space] == ["lr", "weight_decay"]


@pytest.mark.parametrize(
    ("module", "before", "remedy", "after", "name"),
    [
        ("lr = .1", "import config\nacc = f(config.lr)", "below its import", None, "config.lr"),
        (
            "C = {'lr': .1}",
            "from config import C\nlr = C['lr']\nacc = f(lr)",
            "lr is not a plain value in code cell 1, line 2",
            "lr = .1\nacc = f(lr)",
            "lr",
        ),
        ("lr = .1", "import config as c\nacc = f(c.lr)", "below its import", None, "c.lr"),
        ("lr = .1", "from config import *\nacc = f(lr)", "below its import", None, "lr"),
        ("lr = .1", "from config import lr\nacc = f(lr)", "in place of its import", None, "lr"),
        (
            "lr = .1",
            "from config import lr as eta\nacc = f(eta)",
            "in place of its import",
            None,
            "eta",
        ),
        (
            "def train(x, lr=0.1): return lr",
            "from config import train\nacc = train(1)",
            "write lr=0.1 there",
            "from config import train\nacc = train(1, lr=0.1)",
            "lr",
        ),
        (
            "class Net:\n  def __init__(self, dropout=0.1): self.p = dropout",
            "import config\nacc = f(config.Net())",
            "write dropout=0.1 there",
            "import config\nacc = f(config.Net(dropout=0.1))",
            "dropout",
        ),
    ],
)
def test_a_value_of_a_local_module_can_be_swept_after_the_change_that_the_message_advises(
    tmp_path: Path, module: str, before: str, remedy: str, after: str | None, name: str
) -> None:
    (tmp_path / "config.py").write_text(module)
    said = _said(_notebook(tmp_path, before))
    assert remedy in said
    if after is None:
        assigned = said.partition("`")[2].partition("`")[0]
        imported, _, rest = before.partition("\n")
        after = "\n".join([*([imported] if "below" in remedy else []), assigned, rest])
    notebook = _notebook(tmp_path, after)
    file = tmp_path / "n.yml"
    file.write_text(draft(notebook).text)
    settings = Settings.load(file)
    notebook.check_names(settings.sources)
    assert [*settings.space] == [name]
