"""Test the research notebook: its parameters cell, its kernel, and its copy for a trial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeper.errors import NotebookError
from sweeper.kernels.cells.inject import inject
from sweeper.notebooks.research import ResearchNotebook, replace_values
from sweeper.testing import write_notebook


@pytest.mark.parametrize("language", ["python", "Python 3", "ipython3", "", {"name": "python"}])
def test_any_spelling_of_python_or_a_malformed_language_in_the_metadata_means_python(
    tmp_path: Path, language: object
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="lr = 1\nseed = 0")
    content = json.loads(path.read_text())
    content["metadata"]["kernelspec"]["language"] = language
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    assert research.takes("seed")
    with pytest.raises(NotebookError, match="'rate' is not assigned"):
        research.check_names({"rate": "p.yml: space"})


def test_a_variable_is_replaced_in_every_unicode_form_of_its_name(tmp_path: Path) -> None:
    node = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", "ϵ = 1", parameters="")).node
    replace_values(node, {"ε": 2}, repr)
    assert node.cells[0].source == "ϵ = 2  # was 1"


def test_unicode_letters_that_python_normalizes_must_be_normalized_in_variable_names_only(
    tmp_path: Path,
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "cfg = {'\u00b5': 1}\nf(cfg)", parameters="ϵ = 1")
    research = ResearchNotebook(path)
    research.check_names({"cfg.\u00b5": "p.yml: space", "ε": "p.yml: fixed"})
    with pytest.raises(NotebookError, match=r"'ϵ' is not assigned in .*from here: ε$"):
        research.check_names({"ϵ": "p.yml: space"})


def test_a_trials_seed_replaces_no_argument_seed_and_overlapping_or_unknown_names_are_refused(
    tmp_path: Path,
) -> None:
    cells = ["f(seed=3, c={'lr': 1, 'wd': 2})", "Adam(lr=1)"]
    research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))
    assert not research.takes("seed")
    research.check_names(dict.fromkeys(["lr"], "p.yml: space"))
    with pytest.raises(NotebookError) as refused:
        research.check_names(dict.fromkeys(["c", "lr", "wd"], "p.yml: space"))
    for name in ("lr", "wd"):
        assert f"p.yml: space: '{name}' is a part of 'c'; keep one of" in str(refused.value)
    with pytest.raises(NotebookError, match=r"'Adam.lrr' is not assigned in .*mean 'Adam.lr'"):
        research.check_names({"Adam.lrr": "p.yml: space"})


@pytest.mark.parametrize(
    "binding", ["from rates import lr", "with rates() as lr: pass", "print(lr := f())"]
)
def test_a_name_that_an_import_a_with_block_or_a_walrus_assigns_is_refused_with_line_and_remedy(
    binding: str, tmp_path: Path
) -> None:
    def notebook(*cells: str) -> ResearchNotebook:
        return ResearchNotebook(write_notebook(tmp_path / "n.ipynb", *cells, parameters=""))

    with pytest.raises(NotebookError, match=r"'lr' is .*code cell 1, line 2.* plain value below"):
        notebook("import rates\n" + binding, "print(lr)").check_names({"lr": "space"})
    notebook("import rates\n" + binding, "lr = 0.1\nprint(lr)").check_names({"lr": "space"})


@pytest.mark.parametrize(
    ("cell", "parts"),
    [
        (
            "p.add_argument('--lr', type=float)\na = p.parse_args()\nf(a.lr)",
            ["code cell 1, line 1", "`default="],
        ),
        ("import a\nf(a.lr)", ["code cell 1, line 2", "a.lr"]),
        ("def f(lr): g(lr)\nf(x)", ["code cell 1, line 1", "pass it"]),
        ("class CFG: pass\nf(CFG.lr)", ["code cell 1, line 2", "CFG.lr", "top level"]),
        ("class A:\n  lr = 1\nf(A.lr)", ["code cell 1, line 2", "write 'A.lr'"]),
        ("f(lr)", ["`lr = 1`"]),
        ("f(0.1)", ["no code reads such a variable"]),
        ("class A:\n  def f(self):\n    lr = 1", ["code cell 1, line 3", "write 'f.lr'"]),
    ],
)
def test_the_refusal_of_an_unassigned_name_shows_the_line_that_reads_it_and_a_remedy(
    tmp_path: Path, cell: str, parts: list[str]
) -> None:
    research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", cell, parameters=""))
    with pytest.raises(NotebookError) as raised:
        research.check_names({"lr": "p.yml: space"})
    assert all(part in str(raised.value) for part in parts)


def test_two_parameters_cells_are_refused(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "y = 2")
    content = json.loads(path.read_text())
    content["cells"][1]["metadata"]["tags"] = ["parameters"]
    path.write_text(json.dumps(content))
    with pytest.raises(
        NotebookError, match="2 code cells are tagged 'parameters'; keep the tag on one"
    ):
        ResearchNotebook(path)


@pytest.mark.parametrize("language", ["python", "julia"])
def test_values_in_the_injected_parameters_of_a_papermill_output_are_kept_unless_a_trial_sets_them(
    tmp_path: Path, language: str
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "lr = 0.03", "fit()", parameters="lr = 1\nwd = 2")
    content = json.loads(path.read_text())
    content["metadata"]["kernelspec"]["language"] = language
    content["cells"][1]["metadata"]["tags"] = ["injected-parameters"]
    path.write_text(json.dumps(content))
    for params in ({}, {"lr": 0.5}, {"wd": 7}):
        research = ResearchNotebook(path)
        research.check_names(dict.fromkeys(params, "p.yml: space"))
        node = inject(research.fresh_copy(), params, kernel_name=language, language=language)
        ran: dict[str, float] = {}
        exec("\n".join(cell.source for cell in node.cells[:-1]), ran)
        expected = {"lr": 0.03, "wd": 2, **params}
        assert {name: ran[name] for name in expected} == expected
    assert research.parameters_cell == 2


def test_a_notebook_that_names_no_kernel_gets_the_chosen_one(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb")
    content = json.loads(path.read_text())
    del content["metadata"]["kernelspec"]["name"]
    path.write_text(json.dumps(content))
    spec = ResearchNotebook(path).fresh_copy("mine").metadata.kernelspec
    assert spec == {"name": "mine", "display_name": "mine", "language": "python"}
    content["metadata"]["language_info"] = {"name": "julia"}
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    assert research.fresh_copy("julia-1.9").metadata.kernelspec.language == "julia"
    with pytest.raises(NotebookError, match="in julia and names no kernel; choose a"):
        research.kernel_name  # noqa: B018


def test_the_message_for_an_unassigned_name_suggests_the_most_similar_assigned_name(
    tmp_path: Path,
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="learning_rate = 1\nwidth = 2")
    research = ResearchNotebook(path)
    research.check_names(dict.fromkeys(["width", "learning_rate"], "p.yml: space"))
    with pytest.raises(NotebookError) as raised:
        research.check_names(dict.fromkeys(["width", "learnin_rate", "zzz"], "p.yml: space"))
    first, second = str(raised.value).splitlines()
    assert first.startswith("p.yml: space: 'learnin_rate' is not assigned in ")
    assert str(path) in first
    assert first.endswith("did you mean 'learning_rate'?")
    assert "'zzz'" in second
    assert second.endswith("known: learning_rate, width")


def test_a_name_in_a_cell_with_a_syntax_error_is_refused_with_its_line(tmp_path: Path) -> None:
    for source in ("x = 1\ny = = 2", "%matplotlib inline\ny = = 2"):
        research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", parameters=source))
        with pytest.raises(
            NotebookError, match=r"code cell 1, line 2: invalid syntax \(for Python 3"
        ):
            research.check_names(dict.fromkeys(["y"], "p.yml"))


def test_a_parameter_that_a_later_cell_overwrites_is_refused(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "f(x)", "x = 2", parameters="x = 0\nx = 1")
    message = (
        rf"^p: 'x' is assigned another value in code cell 3, line 1: keep one of the two \({path}"
    )
    with pytest.raises(NotebookError, match=message):
        ResearchNotebook(path).check_names({"x": "p"})
    assert not ResearchNotebook(path).takes("x")


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("seed = 1", ""),
        ("x = 1", ""),
        (
            "seed = 1\nseed = 2",
            "seed is assigned in code cell 1, line 1, and in code cell 1, line 2: ",
        ),
        ("seed = f()", "seed is not a plain value in code cell 1, line 1: assign it one"),
    ],
)
def test_the_reason_is_stated_if_trials_cannot_set_the_seed(
    tmp_path: Path, cell: str, why: str
) -> None:
    found = ResearchNotebook(
        write_notebook(tmp_path / "n.ipynb", cell, parameters="")
    ).why_no_seed()
    assert (found or "").startswith(why)
    assert (found is None) == (why == "")


def test_names_that_the_parameters_cell_both_assigns_and_reads_are_listed(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "y = 1", parameters="x = 1\nz = x + y\nk = 2")
    assert ResearchNotebook(path).used_in_parameters_cell(["y", "x", "k"]) == ["x"]


def test_a_notebook_in_another_language_needs_a_parameters_cell(
    tmp_path: Path,
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "x <- 1", parameters="", kernel="ir")
    path.write_text(path.read_text().replace('"language": "python"', '"language": "R"'))
    with pytest.raises(NotebookError, match="a notebook in R needs a parameters cell"):
        ResearchNotebook(path)
    write_notebook(path, parameters="lr <- 1", kernel="ir")
    path.write_text(path.read_text().replace('"language": "python"', '"language": "R"'))
    ResearchNotebook(path).check_names({"anything": "p.yml"})


def test_a_fresh_copy_of_a_notebook_contains_nothing_of_an_earlier_execution(
    tmp_path: Path,
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "print(x)")
    content = json.loads(path.read_text())
    content["metadata"] |= {"sweeper": {"state": "completed"}, "papermill": {"a": 1}}
    content["metadata"] |= {"widgets": {}, "mine": "kept"}
    cell = content["cells"][1]
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "1.0\n"}]
    cell["execution_count"] = 4
    cell["metadata"] |= {"papermill": {"status": "completed"}, "execution": {}, "mine": "kept"}
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    fresh = research.fresh_copy()

    assert fresh.metadata.keys() == {"kernelspec", "mine"}
    assert fresh.cells[1].metadata == {"mine": "kept", "tags": []}
    assert (fresh.cells[1].outputs, fresh.cells[1].execution_count) == ([], None)
    assert [cell.source for cell in fresh.cells] == ["x = 1.0", "print(x)"]
    fresh.cells[0].source = "x = 2"
    assert research.fresh_copy().cells[0].source == "x = 1.0"
    assert json.loads(path.read_text()) == content
