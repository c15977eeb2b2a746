"""Which modules count as importing one whose import has an effect."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

import pytest

from sweeper.kernels.forking.zygote.imports import ImportWatch


def test_an_import_inside_a_function_is_one_of_the_body_that_calls_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a library such as numpy would depend on all that others import through it."""
    (tmp_path / "a_library.py").write_text("def load():\n    import a_drawing_module")
    (tmp_path / "a_drawing_module.py").write_text("import random\nrandom.random()")
    (tmp_path / "a_caller.py").write_text("import a_library\na_library.load()")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    with ImportWatch(lambda _: {"random": random.getstate()}) as watch:
        importlib.import_module("a_library")
        importlib.import_module("a_caller")
    for name in set(sys.modules) - before:
        monkeypatch.delitem(sys.modules, name)
    assert watch.acting == ["a_drawing_module"]
    assert watch.importers_of(watch.acting) == {"a_drawing_module", "a_caller"}
