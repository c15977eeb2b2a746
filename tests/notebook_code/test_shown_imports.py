"""Test how the libraries that a notebook imports are predicted from its code."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.notebook_code.shown_imports import shown_imports


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "local.py").touch()
    return tmp_path


def test_imports_at_the_top_level_of_cells_and_local_modules_are_predicted_in_order(
    folder: Path,
) -> None:
    cells = [
        "%matplotlib inline\nimport math\nimport numpy as np, torch.nn",
        "import local\ntry:\n    from tqdm.auto import tqdm\nexcept ImportError:\n    tqdm = iter",
    ]
    shown = shown_imports(cells, ["from . import other\nfrom sklearn import svm"], folder=folder)
    assert shown == ["math", "numpy", "torch.nn", "tqdm.auto:tqdm", "sklearn:svm"]


@pytest.mark.parametrize(
    "cell",
    [
        "import math",
        "import local",
        "import sweeper",
        "def train():\n    import torch",
        "if x:\n    import torch",
        "import importlib\ntorch = importlib.import_module('torch')",
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'",
        "import sys\nsys.path.insert(0, '..')",
        "%env OMP_NUM_THREADS=1",
        "!pip install torch",
        "this is no Python",
    ],
)
def test_no_imports_are_predicted_from_code_without_libraries_or_with_unclear_imports(
    cell: str, folder: Path
) -> None:
    numpy = [] if cell.startswith("import ") and "\n" not in cell else ["import numpy"]
    assert shown_imports([*numpy, cell], [], folder=folder) == []


def test_an_import_in_a_function_does_not_matter_if_its_library_is_also_imported_at_the_top_level(
    folder: Path,
) -> None:
    cells = ["import torch", "def train():\n    import math\n    import torch.nn"]
    assert shown_imports(cells, [], folder=folder) == ["torch"]


def test_imports_are_predicted_from_code_that_only_reads_environment_variables(
    folder: Path,
) -> None:
    cells = ["import os, numpy", "home = os.environ['HOME']\nfast = os.environ['FAST'] == '1'"]
    assert shown_imports(cells, [], folder=folder) == ["os", "numpy"]
