"""Test which seeds are found in a notebook's calls, and how a trial's seed replaces them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from sweeper.notebook_code.replacing import Cell
from sweeper.notebooks.research import RESEARCH_SOURCE
from sweeper.notebooks.seeds import own_seeds, replace_seeds

TORCH = "import torch\n"
SEEDING = TORCH + "def seed_all(s=0):\n  torch.manual_seed(s)\n"
SKLEARN = (
    "from sklearn.model_selection import train_test_split, KFold\n"
    "from sklearn.ensemble import RandomForestClassifier as RF\n"
)


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        ([TORCH + "SEED = 42\ntorch.manual_seed(SEED)"], [42]),
        ([TORCH + "torch.manual_seed(1)", "torch.cuda.manual_seed_all(1)"], [1, 1]),
        (["import numpy as np\nnp.random.seed(0)"], [0]),
        (["import random\nrandom.seed(7)"], [7]),
        (["import numpy as np\nrng = np.random.default_rng(3)"], [3]),
        (["import jax\nkey = jax.random.PRNGKey(0)"], [0]),
        (["from pytorch_lightning import seed_everything\nseed_everything(42)"], [42]),
        ([TORCH + "def seed_all(s):\n  torch.manual_seed(s)", "seed_all(42)"], [42]),
        ([TORCH + "class CFG:\n  seed = 42", "torch.manual_seed(CFG.seed)"], [42]),
        ([SKLEARN + "m = RF(random_state=42)"], [42]),
        ([SKLEARN + "x = train_test_split(y, random_state=42)\nKFold(3, random_state=1)"], []),
        (["s = df.sample(10, random_state=1)"], []),
        (["import keras\nd = keras.utils.image_dataset_from_directory('d', seed=123)"], []),
        ([TORCH + "i = torch.randperm(9, generator=torch.Generator().manual_seed(0))"], []),
        (["import numpy as np\ni = np.random.default_rng(0).permutation(9)"], []),
        (
            [
                "import torch\nfrom torch.utils.data import random_split, DataLoader\n"
                "a, b = random_split(d, [8, 2], generator=torch.Generator().manual_seed(5))\n"
                "l = DataLoader(a, generator=torch.Generator().manual_seed(6))"
            ],
            [6],
        ),
        ([TORCH + "for s in (1, 2):\n  torch.manual_seed(s)"], []),
        ([TORCH + "def f(s):\n  torch.manual_seed(s)\nf(1)\nf(2)"], []),
        ([SEEDING + "seed_all(0)", "for s in [1, 2]:\n  seed_all(s)"], []),
        ([SEEDING + "seed_all(0)", "scores = [seed_all(i) for i in range(5)]"], []),
        ([SEEDING + "seed_all(0)", "Parallel()(delayed(seed_all)(i) for i in range(5))"], []),
        ([SEEDING + "class CFG:\n  seed = 42", "for k in ks:\n  seed_all(CFG.seed + k)"], []),
        ([SEEDING + "seed_all(0)", "seed_all(int(input()))"], []),
        ([SEEDING + "seed_all(0)\nseed_all(s=0)"], [0]),
        ([SEEDING + "def run(cfg):\n  seed_all(cfg['seed'])", "run({'seed': 5})"], [5]),
        ([SEEDING + "def run():\n  s = 3\n  seed_all(s)", "launch(run)"], [3]),
        ([TORCH + "class A:\n  def __init__(self, s):\n    torch.manual_seed(s)\nA(4)"], [4]),
        ([TORCH + "torch.manual_seed(sweeper.trial().seed)"], []),
        (["import numpy as np\nnp.random.seed()"], []),
    ],
)
def test_seeds_are_found_as_arguments_of_seeding_functions_except_in_data_splits(
    cells: Sequence[str], numbers: Sequence[int]
) -> None:
    found = own_seeds([Cell(number, cell) for number, cell in enumerate(cells, start=1)])
    assert [own.number for own in found] == list(numbers)


def test_if_a_split_and_a_model_share_a_seed_variable_only_the_models_seed_is_replaced() -> None:
    first = SKLEARN + "SEED = 42\nparts = train_test_split(y, random_state=SEED)"
    second = "m = RF(3, random_state=SEED)"
    node = new_notebook(cells=[new_code_cell(first), new_code_cell(second)])
    replace_seeds(node, 123)
    assert [cell.source for cell in node.cells] == [
        first,
        "m = RF(3, random_state=123)  # was SEED",
    ]
    assert node.cells[1].metadata[RESEARCH_SOURCE] == second


def test_a_seed_in_a_cell_that_runs_once_for_all_trials_is_not_replaced() -> None:
    sources = [f"import numpy as np\nnp.random.seed({seed})" for seed in (1, 2, 3)]
    tags = ("parameters", "shared", "mine")
    node = new_notebook(
        cells=[
            new_code_cell(source, metadata={"tags": [tag]})
            for source, tag in zip(sources, tags, strict=True)
        ]
    )
    replace_seeds(node, 70)
    assert [cell.source for cell in node.cells[:2]] == sources[:2]
    assert "np.random.seed(72)  # was 3" in node.cells[2].source


@pytest.mark.parametrize("second", [1, 70])
def test_different_seeds_of_a_notebook_are_replaced_by_different_seeds(second: int) -> None:
    seeds = zip("abc", (0, second, 0), strict=True)
    values = [f"{name} = k.PRNGKey({seed})" for name, seed in seeds]
    cell = new_code_cell("\n".join(["from jax import random as k", *values]))
    replace_seeds(new_notebook(cells=[cell]), 70)
    assert [line[4:].split("  ")[0] for line in cell.source.splitlines()[1:]] == [
        "k.PRNGKey(70)",
        "k.PRNGKey(71)",
        "k.PRNGKey(70)",
    ]


def test_a_seed_in_a_skipped_cell_is_not_replaced_and_prevents_no_other_replacement() -> None:
    skipped = new_code_cell("SEED = 1", metadata={"tags": ["skip"]})
    cell = new_code_cell("import torch\nSEED = 42\ntorch.manual_seed(SEED)")
    replace_seeds(new_notebook(cells=[skipped, cell]), 70)
    assert skipped.source == "SEED = 1"
    assert "torch.manual_seed(70)" in cell.source
