"""The names that a cell assigns, also in a cell with magics."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sweeper.notebooks.cell_code import parse
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("lr = 1e-3\nwidth = 64", ["lr", "width"]),
        ("lr: float = 1e-3  # the rate", ["lr"]),
        ("lr: float", []),
        ("a, b = 1, 2", ["a", "b"]),
        ("(a, [b, *c]), d = (1, [2, 3]), 4", ["a", "b", "c", "d"]),
        ("a = b = 1", ["a", "b"]),
        ("options = {}\noptions['lr'] = lr = 1", ["options", "lr"]),
        ("settings.lr = 1", []),
        ("# nothing\nimport os\nprint(os.name)", []),
        ("%matplotlib inline\nlr = 1", ["lr"]),
        ("lr = 1\n%config InlineBackend.figure_format = 'retina'\nwidth = 2  # %", ["lr", "width"]),
        ("!pip install -q x\nlr = 1\nif lr:\n    !ls", ["lr"]),
        ("%%time\nlr = 1\n%load_ext autoreload\nwidth = 2", ["lr", "width"]),
        ("%%capture out\n%%time\nlr = 1", ["lr"]),
        ("%%my_own_magic\nlr = 1", ["lr"]),
        ("%%bash\nlr=1", []),
        ("%%html\n<b>lr</b>", []),
        ("files = !ls\nlr = 1\nwhere = %pwd", ["files", "lr", "where"]),
        ("lr?\nlr = 1\n?lr", ["lr"]),
        (">>> lr = 1\n>>> width = 2", ["lr", "width"]),
        ("# %matplotlib inline\nlr = 1", ["lr"]),
    ],
)
def test_every_form_of_assignment_is_found(tmp_path: Path, source: str, names: list[str]) -> None:
    research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", parameters=source))
    assert all(map(research.takes, names))
    assert not research.takes("settings")


@pytest.fixture
def _switching() -> Iterator[None]:
    """Threads take turns while Python makes a syntax tree, as they may at each collection."""

    def switch(*_: Any) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.set_threshold(50)
    gc.callbacks.append(switch)
    yield
    gc.callbacks.remove(switch)
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_switching")
def test_threads_may_parse_at_once() -> None:
    source = "def f(a):\n    for b in range(3):\n        x = [[1, (a + 2) * 3], {'a': -b}]\n" * 40
    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(parse, [source] * 18))
