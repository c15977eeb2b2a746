"""A new interpreter imports frozen modules: as they were at the sweep's start, not as on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import sweeper
from sweeper.kernels.forking.zygote import finders
from sweeper.notebooks.local_code import read_code
from sweeper.testing import write_notebook

pytestmark = pytest.mark.slow  # the tests start processes

BEGIN = """\
import json, sys
sys.path.insert(0, "")
import early
text = open(sys.argv[1]).read()
names = {"__name__": "finders"}
exec(text, names)
names["install"](text, sys.argv[3], json.load(open(sys.argv[2])))
"""


def run(folder: Path, frozen: Mapping[str, str], code: str, *options: str) -> Any:
    """Run code in a new interpreter in a folder. Return the JSON that the code prints.

    Modules in `frozen` (sources by path) are imported instead of the folder's files.
    """
    package = str(Path(sweeper.__file__).parent)
    snapshot = folder.parent / "frozen.json"
    sources = {str((folder / path).resolve()): source for path, source in frozen.items()}
    snapshot.write_text(json.dumps(sources))
    (folder / "early.py").touch()
    done = subprocess.run(
        [
            sys.executable,
            *options,
            "-c",
            BEGIN + code,
            str(finders.__file__),
            str(snapshot),
            package,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for path, source in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(source)
    return folder


def test_a_changed_or_removed_module_is_imported_from_the_snapshot_and_tracebacks_quote_it(
    tmp_path: Path,
) -> None:
    source = "def fail():\n    raise ValueError('first')\n"
    project = write(tmp_path / "project", {"model.py": "# another\n" + source + "# line\n"})
    code = """
import importlib, inspect, os, traceback
import gone, model
importlib.reload(model)
try:
    model.fail()
except ValueError:
    quoted = traceback.format_exc()
print(json.dumps([quoted, inspect.getsource(model), os.path.basename(gone.__file__), gone.V]))
"""
    frozen = {"model.py": source, "gone.py": "V = 1\n"}
    quoted, found, name, value = run(project, frozen, code)
    assert 'model.py", line 2, in fail\n    raise ValueError' in quoted
    assert found == source
    assert (name, value) == ("gone.py", 1)


def test_imports_from_a_snapshot_respect_packages_namespaces_and_the_order_of_folders(
    tmp_path: Path,
) -> None:
    project = write(
        tmp_path / "project",
        {
            "package/__init__.py": "from .part import V\n",
            "package/part.py": "V = 'edited'\n",
            "package/new.py": "V = 'new'\n",
            "space/part.py": "V = 'edited'\n",
            "model/__init__.py": "V = 'a package that came later'\n",
            "lib/twice.py": "V = 'second folder'\n",
        },
    )
    frozen = {
        "package/__init__.py": "from .part import V\n",
        "package/part.py": "V = 'first'\n",
        "space/part.py": "V = 'first'\n",
        "model.py": "V = 'first'\n",
        "twice.py": "V = 'first'\n",
    }
    code = """
import pkgutil
sys.path.append("lib")
import model, package, package.new, space.part, twice
modules = [model, package, package.new, space.part, twice]
listed = [info.name for info in pkgutil.iter_modules(package.__path__)]
print(json.dumps([[module.V for module in modules], listed]))
"""
    values, listed = run(project, frozen, code)
    assert values == ["first", "first", "new", "first", "first"]
    assert listed == ["new", "part"]


def test_spawned_workers_import_modules_from_the_snapshot_and_not_from_edited_files(
    tmp_path: Path,
) -> None:
    source = "V = 'first'\n\ndef seen(_=None):\n    return V\n"
    project = write(tmp_path / "project", {"model.py": source.replace("first", "edited")})
    code = """
import joblib, model, multiprocessing
with multiprocessing.get_context("spawn").Pool(1) as pool:
    spawned = pool.map(model.seen, [1])
of_loky = joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(model.seen)() for _ in "ab")
print(json.dumps([spawned, of_loky]))
"""
    assert run(project, {"model.py": source}, code) == [["first"], ["first", "first"]]


def test_spawned_workers_import_this_package_although_it_is_not_installed(tmp_path: Path) -> None:
    project = write(
        tmp_path / "project", {"model.py": "def seen(_):\n    import sweeper\n    return 1"}
    )
    code = """
import model, multiprocessing
with multiprocessing.get_context("spawn").Pool(1) as pool:
    print(json.dumps(pool.map(model.seen, [1])))
"""
    # `-S` hides installed packages. The modules of this package that workers need use only the
    # standard library.
    assert run(project, {}, code, "-S", "-E") == [1]


def test_bytecode_of_another_version_of_a_module_in_the_snapshot_is_not_used(
    tmp_path: Path,
) -> None:
    project = write(tmp_path / "project", {"edited.py": "V = 2\n"})
    code = "import edited\nprint(json.dumps(edited.V))"
    assert run(project, {}, code) == 2
    assert run(project, {"edited.py": "V = 1\n"}, code) == 1
    assert run(project, {}, code) == 2


def test_workers_use_the_module_snapshot_even_if_spawn_was_imported_while_imports_were_watched(
    tmp_path: Path,
) -> None:
    """Two import finders watch `multiprocessing.spawn` here, and must not call each other forever.

    torch imports this module. If this fails, no kernel with torch and a local module is forked.
    """
    code = """
from importlib import import_module
from sweeper.kernels.forking.zygote.imports import ImportWatch
sys.modules.pop("multiprocessing.spawn", None)
with ImportWatch(lambda _: {}):
    spawn = import_module("multiprocessing.spawn")
print(json.dumps("sweeper" in spawn.get_preparation_data("worker")))
"""
    assert run(write(tmp_path / "project", {"model.py": ""}), {"model.py": ""}, code)


#: A module that imports IPython before the import finder of the snapshot is installed, as in a
#: kernel.
IPYTHON = {"early.py": "import IPython.core.interactiveshell"}
SHELL = """
import os
os.environ["IPYTHONDIR"] = os.getcwd()
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
"""


def test_the_magic_run_uses_notebooks_and_ipy_scripts_as_they_were_at_the_sweeps_start(
    tmp_path: Path,
) -> None:
    project = write(tmp_path / "project", {**IPYTHON, "lib/script.ipy": "", "lib/beside.py": ""})
    helper = project / "lib" / "helper.ipynb"
    write_notebook(helper, "import beside", "found = beside.V")
    content = read_code(helper)
    assert content is not None
    write_notebook(helper, "found = 'edited'")
    frozen = {
        "lib/helper.ipynb": content.decode(),
        "lib/beside.py": "V = 'first'\n",
        "lib/script.ipy": "ran = !echo first\n",
    }
    code = """
path = [*sys.path]
shell.run_line_magic("run", "lib/helper.ipynb")
shell.run_line_magic("run", "lib/script.ipy")
kept = [shell.user_ns[name] for name in ("found", "ran")]
print(json.dumps([*kept, sys.path == path]))
"""
    assert run(project, frozen, SHELL + code) == ["first", ["first"], True]


def test_autoreload_leaves_modules_of_the_snapshot_as_they_were_and_reloads_others(
    tmp_path: Path,
) -> None:
    project = write(
        tmp_path / "project",
        {
            **IPYTHON,
            "model.py": "def seen():\n    return 'first'\n",
            "other.py": "def seen():\n    return 'first'\n",
        },
    )
    code = """
from pathlib import Path
shell.run_line_magic("load_ext", "autoreload")
shell.run_line_magic("autoreload", "2")
shell.run_cell("import model, other")
for name in ("model.py", "other.py"):
    Path(name).write_text(Path(name).read_text().replace("first", "second"))
    os.utime(name, (2**31, 2**31))
shell.run_cell("seen = [model.seen(), other.seen()]")
print(json.dumps(shell.user_ns["seen"]))
"""
    frozen = {"model.py": "def seen():\n    return 'first'\n"}
    assert run(project, frozen, SHELL + code) == ["first", "second"]
