"""Lines of a notebook that need not do the same twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sweeper.control.replaying.suspects import changed_data, find_suspects


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "import numpy as np\nrng = np.random.default_rng()",
            "line 2: `np.random.default_rng()` has",
        ),
        (
            "from numpy.random import default_rng as new\nr = new(None)",
            "line 2: `new(None)` has no",
        ),
        ("import random\nr = random.Random()", "has no seed"),
        ("import uuid\nname = uuid.uuid4().hex", "is another value each time"),
        (
            "import time\nend = time.time() + 9\nwhile time.time() < end: pass",
            "line 3: `time.time()",
        ),
        (
            "from time import monotonic\nt = monotonic()\nif monotonic() - t > 3: pass",
            "by the clock",
        ),
        ("import os\nn = os.cpu_count()", "depends on the machine"),
        ("import os\nn = len(os.sched_getaffinity(0))", "depends on the machine"),
        ("for it in {a, b}: print(it)", "goes through a set"),
        ("names = set(labels)\ny = [f(it) for it in names]", "line 2: `names` goes through a set"),
        ("order = list(set(labels))", "goes through a set"),
        ("total = sum(it.weight for it in set(things))", "goes through a set"),
        ("import os\nfor f in os.listdir('.'): pass", "no fixed order"),
        ("from pathlib import Path\nfiles = list(Path('x').iterdir())", "no fixed order"),
        ("%time 3\nimport numpy as np\nx = np.random.rand(3)", "global generator of numpy.random"),
        ("import random\nx = random.random()", "line 2: `random.random()` draws from the global"),
        ("from torch import nn\nm = nn.Linear(2, 3)", "global generator of torch"),
    ],
)
def test_a_line_that_may_vary_is_named_with_what_to_do(code: str, words: str) -> None:
    (found,) = find_suspects([code], {})
    assert str(found).startswith("code cell 1, line ")
    assert words in str(found)


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\nrng = np.random.default_rng(seed)\nx = rng.normal()",
        "import numpy as np\nnp.random.seed(3)\nx = np.random.rand(3)",
        "import torch\ntorch.manual_seed(seed)\nm = torch.nn.Linear(2, 3)",
        "import sweeper, random\nsweeper.seed_everything(3)\nx = random.random()",
        "import time\nbegan = time.time()\nprint(f'{time.time() - began:.1f} s')",
        "names = sorted(set(labels))\nn = len({a, b})",
        "import os\nfiles = sorted(f for f in os.listdir('.'))",
        "from pathlib import Path\nfiles = sorted(Path('x').iterdir())",
        "this is no Python",
        "%%bash\nls",
    ],
)
def test_code_that_repeats_is_not_named(code: str) -> None:
    assert find_suspects([code], {}) == []


def test_a_generator_may_be_seeded_in_another_cell_or_module() -> None:
    cells = ["import numpy as np\nfrom model import begin\nbegin(seed)", "x = np.random.rand(3)"]
    files = {"model.py": "import numpy\ndef begin(seed): numpy.random.seed(seed)"}
    assert find_suspects(cells, files) == []
    (found,) = find_suspects(cells, {})
    assert str(found).startswith("code cell 2, line 1: ")


def test_a_module_is_named_with_its_line() -> None:
    (found,) = find_suspects([], {"lib/model.py": "import os\n\nthreads = os.cpu_count()"})
    assert str(found).startswith("lib/model.py, line 3: `os.cpu_count()`")


def test_files_that_were_written_since_the_trial_began_are_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("old.csv", "data/new.csv", "data/chosen.csv"):
        (tmp_path / name).write_text("1")
    began_s = time.time() - 100
    os.utime(tmp_path / "old.csv", (began_s - 50, began_s - 50))
    code = "a = open('old.csv'); b = open('data/new.csv'); c = 'no file\\0', 'data', ''"
    found = changed_data([code], {"file": "data/chosen.csv"}, tmp_path, since_s=began_s)
    assert [line.partition(" ")[0] for line in found] == ["data/new.csv", "data/chosen.csv"]
    assert all("after the trial had begun" in line for line in found)
