"""A kernel lists its imported libraries. Modules that draw random numbers at import are found."""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.kernels.forking.zygote import in_kernel
from sweeper.kernels.forking.zygote.imports import ImportWatch


def test_an_import_inside_a_function_is_attributed_to_the_module_that_calls_it_at_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`a_caller` calls `a_library.load`, which imports a module, so `a_caller` is the importer."""
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


def imported(folder: Path, module: str) -> bool:
    """Return whether `import_profile` lists a module that was imported from a folder."""
    folder.mkdir(parents=True)
    (folder / f"{module}.py").write_text("")
    code = (
        f"import json, runpy, sys; sys.path.append({str(folder)!r}); import {module}; "
        f"names = runpy.run_path({in_kernel.__file__!r}); "
        "print(json.dumps(names['import_profile']()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    modules = answer["modules"]
    assert "json" in modules
    return module in modules


@pytest.mark.parametrize(
    ("folder", "is_listed"),
    [
        # Another environment below this one, as with `uv run --with` and `venv
        # --system-site-packages`.
        ("base/lib/python3/site-packages", True),
        ("usr/lib/python3/dist-packages", True),
        ("project", False),
        ("my-site-packages-demo", False),
    ],
)
def test_installed_libraries_are_listed_and_local_modules_are_not(
    tmp_path: Path, folder: str, *, is_listed: bool
) -> None:
    assert imported(tmp_path / folder, "helpers") is is_listed
