"""Test the fingerprint of a study (code and settings that decide results) and its changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from studies import small_settings

from sweeper.notebooks.fingerprint import (
    CODE_TAG,
    Fingerprint,
    changes,
    fingerprint_of,
    made_files,
    tags_as_run,
    version,
    without_made_files,
)
from sweeper.notebooks.metadata import BLANK
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook

Make = Callable[..., Fingerprint]
SPACE = {"x": {"low": 0.0, "high": 1.0}, "k": ["a", "b"]}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes the fingerprint of a notebook with given cells."""

    def make(*cells: str, parameters: str = "x = 1.0\nk = 'a'", **changed: Any) -> Fingerprint:
        notebook = write_notebook(tmp_path / "nb.ipynb", *cells, parameters=parameters)
        settings = small_settings("s", **{"space": SPACE, **changed})
        return fingerprint_of(ResearchNotebook(notebook), settings, kernel_name="python3")

    return make


def write(folder: Path, **files: str) -> None:
    """Write Python files. The argument `pkg_net` has the text of `pkg/net.py`."""
    for name, text in files.items():
        path = folder / (name.replace("_", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["a = 1", "b = 3", "c"], ["code cell 3 changed"]),
        (["a = 1", "new", "b = 2", "c"], ["code cell 3 added"]),
        (["c"], ["earlier code cells 2 to 3 removed"]),
        (["a = 1", "x", "y"], ["code cells 3 to 4 changed"]),
    ],
)
def test_changed_cells_are_named_by_their_number_from_1(
    make: Make, cells: list[str], expected: list[str]
) -> None:
    assert changes(make("a = 1", "b = 2", "c"), make(*cells)) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"space": {**SPACE, "x": {"low": 0.0, "high": 2.0}}},
            "space.x was {type: float, low: 0.0, high: 1.0}, "
            "now {type: float, low: 0.0, high: 2.0}",
        ),
        (
            {"space": {"k": ["a", "b"]}},
            "space.x was {type: float, low: 0.0, high: 1.0}, now it is missing",
        ),
        ({"fixed": {"epochs": 3}}, "fixed.epochs is new: 3"),
        ({"study": {"seed": 5}}, "study.seed was 0, now 5"),
        ({"resources": {"cpus_per_trial": 2}}, "resources.cpus_per_trial was 1, now 2"),
        ({"scores": {"val": {"variable": "v"}}}, "scores.val is new: {variable: v}"),
        (
            {"objective": {"val": {"direction": "maximize", "take": "best"}}},
            "objective.val was {direction: maximize, take: last}, "
            "now {direction: maximize, take: best}",
        ),
    ],
)
def test_space_fixed_seed_cpus_scores_and_objective_are_part_of_a_studys_fingerprint(
    make: Make, changed: dict[str, Any], expected: str
) -> None:
    assert changes(make("c"), make("c", **changed)) == [expected]


def test_a_missing_key_and_a_key_with_value_none_in_a_fixed_param_give_different_fingerprints(
    make: Make,
) -> None:
    with_none, without = (
        make("c", fixed={"f": {"a": 1, "b": None}}),
        make("c", fixed={"f": {"a": 1}}),
    )
    assert len(changes(with_none, without)) == 1
    assert version(with_none) != version(without)


@pytest.mark.parametrize("tag", ["skip", "skip-execution", "raises-exception"])
def test_a_tag_that_changes_what_a_cell_does_is_part_of_the_fingerprint(
    tmp_path: Path, tag: str
) -> None:
    file = write_notebook(tmp_path / "nb.ipynb", "x = 1.0", "print(x)")

    def made() -> Fingerprint:
        return fingerprint_of(ResearchNotebook(file), small_settings("s"), kernel_name="python3")

    before, node = made(), nbformat.read(file, as_version=4)
    node.cells[-1].metadata["tags"] = [tag]
    nbformat.write(node, file)
    assert changes(before, made()) == ["code cell 3 changed"]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("{project}/.venv/bin/python", "../.venv/bin/python"),
        ("{project}/.pixi/envs/gpu/bin/python", "../.pixi/envs/gpu/bin/python"),
        ("/elsewhere/.venv/bin/python", "/elsewhere/.venv/bin/python"),
        ("{home}/venvs/x/bin/python", "~/venvs/x/bin/python"),
        ("/usr/bin/python3", "/usr/bin/python3"),
        ("/bin/python3", "/bin/python3"),
        ("python3", "python3"),
    ],
)
def test_the_fingerprint_has_a_relative_path_for_an_interpreter_inside_of_the_project(
    kernel: str, expected: str, tmp_path: Path
) -> None:
    for project in (tmp_path / "a", tmp_path / "b" / "c"):
        folder = project / "notebooks"
        folder.mkdir(parents=True)
        notebook = ResearchNotebook(write_notebook(folder / "nb.ipynb", "x = 1.0"))
        name = kernel.format(project=project, home=Path.home())
        found = fingerprint_of(notebook, small_settings("s"), kernel_name=name)
        assert found["kernel"] == expected


def test_fixed_values_inf_minus_inf_and_none_give_different_fingerprints(make: Make) -> None:
    values = [float("inf"), float("-inf"), None]
    made = [make("c", fixed={"clip": value}) for value in values]
    assert len({*map(version, made)}) == len(values)
    assert changes(made[0], made[1]) == ['fixed.clip was "inf", now "-inf"']


@pytest.mark.parametrize(
    "changed",
    [
        {"study": {"trials": 99, "sampler": "random", "pruner": "median"}},
        {"limits": {"trial": "5m"}, "cost": {"price_per_hour": 2.0}},
        {"kernels": "cold", "resources": {"gpus": "none"}},
        {"start": [{"x": 0.5}]},
    ],
)
def test_settings_such_as_trials_sampler_limits_kernels_and_start_are_not_in_a_fingerprint(
    make: Make, changed: dict[str, Any]
) -> None:
    assert changes(make("c"), make("c", **changed)) == []


def test_local_code_that_is_imported_indirectly_is_part_of_a_studys_fingerprint(
    make: Make, tmp_path: Path
) -> None:
    write(tmp_path, helpers="from pkg import net\n", pkg_net="from . import deep")
    (tmp_path / "pkg" / "__init__.py").touch()
    write(tmp_path, pkg_deep="VALUE = 1", unused="VALUE = 1")
    cells = ("%matplotlib inline\nimport torch, helpers", "!ls")
    before = make(*cells)
    assert set(before["files"]) == {"helpers.py", "pkg/__init__.py", "pkg/net.py", "pkg/deep.py"}
    write(tmp_path, pkg_deep="VALUE = 2", unused="VALUE = 2")
    assert changes(before, make(*cells)) == ["pkg/deep.py has changed"]
    (tmp_path / "pkg" / "deep.py").unlink()
    assert changes(before, make(*cells)) == ["pkg/deep.py is no longer used"]


@pytest.mark.parametrize(
    ("cells", "file"),
    [
        (["import sys; sys.path.append('../src')\nimport model"], "../src/model.py"),
        (["import sys\nsys.path.insert(0, '../src')", "from model import Net"], "../src/model.py"),
        (["%run model.py"], "model.py"),
        (["def later():\n    import model"], "model.py"),
        (["if x:\n    %run -i 'model.py'\n    pass"], "model.py"),
        (["%run model"], "model.py"),
        (['%run -t "a model.py" --epochs 3'], "a model.py"),
        (["%run -t -N 5 model.py"], "model.py"),
        (["%run -m package.model"], "package/model.py"),
        (["get_ipython().run_line_magic('run', 'model.py')"], "model.py"),
        (["%%time\n%run model.ipy"], "model.ipy"),
        (["files = !ls\nimport model"], "model.py"),
        (['import model\nprint("%d"\n      % 3)'], "model.py"),
    ],
)
def test_local_files_that_a_notebook_imports_or_runs_are_part_of_the_fingerprint(
    tmp_path: Path, cells: list[str], file: str
) -> None:
    folder = tmp_path / "notebooks"
    notebook = write_notebook(folder / "nb.ipynb", *cells, parameters="x = 1.0")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("Net = 1")
    made_of = fingerprint_of(ResearchNotebook(notebook), small_settings("s"), kernel_name="python3")
    assert set(made_of["files"]) == {file}


def test_the_fingerprint_has_code_and_imports_of_a_notebook_that_the_magic_run_runs(
    make: Make, tmp_path: Path
) -> None:
    write(tmp_path / "lib", direct="", indirect="")
    cells = ("import direct", "%run lib/script.py", "%%bash\nexit 1")
    helper = write_notebook(tmp_path / "lib" / "helper.ipynb", *cells)
    (tmp_path / "lib" / "script.py").write_text("import indirect")
    before = make("%run lib/helper.ipynb")
    files = ["lib/direct.py", "lib/helper.ipynb", "lib/indirect.py", "lib/script.py"]
    assert [*before["files"]] == files
    node = nbformat.read(helper, as_version=4)
    node.cells[1].outputs = [nbformat.v4.new_output("stream", text="seen by hand")]
    node.cells[1].execution_count = 3
    node.cells.append(nbformat.v4.new_markdown_cell("a remark"))
    nbformat.write(node, helper)
    assert changes(before, make("%run lib/helper.ipynb")) == []
    write_notebook(helper, "import direct", "%run lib/script.py")
    assert changes(before, make("%run lib/helper.ipynb")) == ["lib/helper.ipynb has changed"]


@pytest.mark.parametrize(
    "writes",
    [
        "%%writefile helpers.py\nV = 1",
        "%%file -a helpers.py\nV = 1",
        "open('helpers.py', 'w').write(f'V = {x}')",
        "from pathlib import Path\nPath('helpers.py').write_text(f'V = {x}')",
    ],
)
def test_a_module_that_the_notebook_itself_writes_is_not_part_of_the_fingerprint(
    make: Make, tmp_path: Path, writes: str
) -> None:
    write(tmp_path, helpers="V = 0", other="V = 0")
    assert set(make(writes, "import helpers, other")["files"]) == {"other.py"}


@pytest.mark.parametrize("code", ["import sys\nsys.path.append('{}')", "%run {}.py"])
def test_local_code_that_cannot_be_read_is_left_out_of_the_fingerprint(
    make: Make, tmp_path: Path, code: str
) -> None:
    write(tmp_path, helpers="")
    assert set(make(code.format("x" * 300), "import helpers")["files"]) == {"helpers.py"}


def test_cells_that_are_not_python_raise_no_error_when_imports_are_searched(
    make: Make, tmp_path: Path
) -> None:
    write(tmp_path, helpers="")
    cells = ("%%bash\nimport helpers", "def broken(:", "x = $HOME", "import helpers as h")
    assert set(make(*cells)["files"]) == {"helpers.py"}


def test_the_tags_of_an_earlier_sweeps_trial_state_the_code_and_fixed_values_it_ran_with() -> None:
    tags = {CODE_TAG: "new", "sweeper.fixed.epochs": "9", "sweeper.study": "digits"}
    metadata = replace(BLANK, code="old", fixed={"epochs": 3, "size": "small"})
    assert tags_as_run(tags, metadata) == {
        "sweeper.study": "digits",
        CODE_TAG: "old",
        "sweeper.fixed.epochs": "3",
        "sweeper.fixed.size": "small",
    }
    assert tags_as_run(tags, BLANK) == tags


def test_a_module_that_trials_downloaded_counts_as_a_change_only_after_an_edit(
    make: Make, tmp_path: Path
) -> None:
    cells = ("!wget -q https://example.org/helpers.py", "import helpers, other")
    write(tmp_path, other="V = 0")
    before = make(*cells)
    write(tmp_path, helpers="V = 0")
    fetched = make(*cells)
    assert changes(before, without_made_files(before, fetched)) == []
    assert changes(fetched, without_made_files(fetched, before)) == []  # as on a fresh clone
    assert made_files(before, fetched) == made_files(fetched, before) == ["helpers.py"]
    write(tmp_path, helpers="V = 1")
    later = make(*cells)
    assert made_files(fetched, later) == []
    assert changes(fetched, without_made_files(fetched, later)) == ["helpers.py has changed"]
    edited = make(cells[0], "import helpers, other, more")
    assert "helpers.py is used now" in changes(before, without_made_files(before, edited))
    write(tmp_path, other="V = 1")
    assert changes(before, without_made_files(before, make(*cells))) == ["other.py has changed"]
