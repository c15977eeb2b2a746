"""The research notebook as it is read and checked, and the executed one as it is written."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import nbformat
import pytest

from sweeper.errors import NotebookError
from sweeper.files import write_beside
from sweeper.notebook_api.messages import Point
from sweeper.notebooks import (
    ExecutedNotebook,
    ResearchNotebook,
    mark_stopped,
    read_executed,
    read_metadata,
)
from sweeper.testing import write_notebook
from sweeper.trials import Reason, TrialOutcome, TrialSpec, TrialState

MakeSpec = Callable[..., TrialSpec]


def strict_json(path: Path) -> Any:
    """The content of a file that any JSON reader takes: Python alone also takes NaN."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{path} contains {constant}, which is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no json", "not a notebook"),
        (b"", "not a notebook"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[]", "not a valid notebook"),
        (b"null", "not a valid notebook"),
        (b"{}", "not a valid notebook"),
        (b'{"nbformat": 9, "nbformat_minor": 0, "metadata": {}, "cells": []}', "not a notebook"),
        (
            b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"id": "a"}]}',
            "not a valid notebook",
        ),
        (
            b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}',
            "no parameters cell; put what should vary into one",
        ),
    ],
)
def test_a_file_that_is_no_notebook_is_named_with_its_fault(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "broken.ipynb"
    path.write_bytes(content)
    with pytest.raises(NotebookError) as raised:
        ResearchNotebook(path)
    assert str(raised.value).startswith(f"{path}: {said}")


def test_a_missing_notebook_is_named_as_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotebookError, match=r"^nowhere\.ipynb: there is no such notebook$"):
        ResearchNotebook("nowhere.ipynb")
    with pytest.raises(NotebookError, match="cannot be read"):
        ResearchNotebook(tmp_path)


SETTINGS = "import torch\nlr, other = f(), 2\nhidden: int = 64\nlr = 1e-3\nepochs = 5\nfolder = 'x'"


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["print(1)"], "put what should vary into one, as in `lr = 1e-3`, and tag it 'parameters'"),
        (["class_names = ['a', 'b']"], "put what should vary into one"),
        (["x = 1"], "code cell 1 assigns x: tag it 'parameters' (JupyterLab: property inspector"),
        (["import os", "x = 1\ny = 2", "lr = 0.1"], "code cell 3 assigns lr: tag it"),
        (
            ["%matplotlib inline\nimport os", SETTINGS, "x = y = 1\nprint(x)"],
            "code cell 2 assigns hidden, lr, epochs, folder: tag it",
        ),
        (
            ["%%time\nlr = 1e-3\nwidth = -2 ** 3\ndepth = [1]\nseed = 1\nepochs = 2"],
            "code cell 1 assigns lr, width, depth, seed and 1 more: tag it",
        ),
        (
            ["loss_fn = 'mse'", "batch_size = 64\nname = 'a'\nlr = 0.1\nx = load()\nprint(x)"],
            "code cell 2 assigns batch_size, lr, name among other things: move these to a cell",
        ),
        (["%%bash\nlr=1", "lr <- 1", "f(lr=1)"], "put what should vary into one, as in"),
    ],
)
def test_a_notebook_without_a_parameters_cell_is_told_which_cell_to_tag(
    tmp_path: Path, cells: list[str], said: str
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", *cells, parameters="")
    with pytest.raises(NotebookError) as raised:
        ResearchNotebook(path)
    assert f"{path}: no parameters cell; {said}" in str(raised.value)


def test_two_parameters_cells_are_one_too_many(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "y = 2")
    content = json.loads(path.read_text())
    content["cells"][1]["metadata"]["tags"] = ["parameters"]
    path.write_text(json.dumps(content))
    with pytest.raises(NotebookError, match="2 cells are tagged 'parameters'; keep the tag on one"):
        ResearchNotebook(path)


def slipped(content: Any, slip: str) -> None:
    """Put a slip into a notebook whose first cell is for the parameters, and its second is not."""
    metadata, (tagged, second) = content["metadata"], content["cells"]
    match slip:
        case "a tag stands twice":
            tagged["metadata"]["tags"] = ["parameters", "a", "parameters"]
        case "the tag is no list":
            tagged["metadata"]["tags"] = "parameters"
        case "tags in one text":
            tagged["metadata"]["tags"] = ["a, parameters", "", 7]
        case "ids stand twice":
            second["id"] = tagged["id"]
        case "ids are no ids":
            tagged["id"], second["id"] = "not an id", 7
        case "ids in an older format":
            content["nbformat_minor"] = 2
        case "no minor format":
            del content["nbformat_minor"]
        case "no outputs":
            del second["outputs"], second["execution_count"]
        case "outputs of no kind":
            second["outputs"] = [{"text": "x"}, None, {"output_type": "stream"}]
            second["execution_count"] = "3"
        case "outputs are null":
            second["outputs"] = None
        case "left over from an older format":
            second |= {"collapsed": False, "prompt_number": 3, "language": "python"}
        case "attachments of a code cell":
            second["attachments"] = {}
        case "cells without metadata":
            del second["metadata"]
        case "metadata of the wrong type":
            second["metadata"] |= {"collapsed": "yes", "scrolled": 3, "name": 7, "jupyter": 1}
            metadata |= {"authors": "somebody", "title": 3, "orig_nbformat": "x"}
        case "a number that JSON has not":
            metadata["weight"] = float("nan")
        case "a kernel without a name":
            del metadata["kernelspec"]["name"]
        case "a kernel whose name is null":
            metadata["kernelspec"] = {"name": None, "language": "python"}
        case "a kernel that is only a name":
            metadata["kernelspec"] = {"name": "python3"}
        case "a kernel that is a word":
            metadata["kernelspec"] = "python3"
        case "a language without a name":
            metadata["language_info"] = {"version": "3.11", "name": None}
        case "a language in capitals":
            metadata["kernelspec"]["language"] = "Python"
        case "nothing":
            pass
        case _:
            raise AssertionError(slip)


@pytest.mark.parametrize(
    "slip",
    [
        *("a tag stands twice", "the tag is no list", "tags in one text", "ids stand twice"),
        *("ids are no ids", "ids in an older format", "no minor format", "no outputs"),
        *("outputs of no kind", "outputs are null", "left over from an older format"),
        *("attachments of a code cell", "cells without metadata", "metadata of the wrong type"),
        *("a number that JSON has not", "a kernel without a name", "a kernel whose name is null"),
        *("a kernel that is only a name", "a kernel that is a word", "a language without a name"),
        *("a language in capitals", "nothing"),
    ],
)
def test_a_slip_that_keeps_nobody_from_running_a_notebook_is_mended(
    tmp_path: Path, slip: str
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "print(x)")
    content = json.loads(path.read_text())
    slipped(content, slip)
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    assert (research.kernel_name, research.language) == ("python3", "python")
    assert research.parameters() == ["x"]
    fresh = research.fresh_copy()
    nbformat.validate(fresh)
    assert [cell.source for cell in fresh.cells] == ["x = 1.0", "print(x)"]
    assert "parameters" in fresh.cells[0].metadata.tags
    assert len({cell.id for cell in fresh.cells}) == 2
    assert "NaN" not in nbformat.writes(fresh)
    assert path.read_text() == json.dumps(content)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_notebook_that_another_system_has_encoded_is_read(tmp_path: Path, encoding: str) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="größe = 1")
    path.write_bytes(path.read_text("utf-8").encode(encoding))
    assert ResearchNotebook(path).parameters() == ["größe"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": None}, "not a valid notebook: "),
        ({"source": ["x", 1]}, "not a valid notebook: "),
        ({"cell_type": "kode"}, "not a valid notebook: "),
        ({"source": "x = '\ud800'"}, "holds '\\ud800', half a character; take it out"),
    ],
)
def test_what_decides_what_is_run_is_never_guessed(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "print(x)")
    content = json.loads(path.read_text())
    content["cells"][1] = {**content["cells"][1], **change}
    path.write_text(json.dumps(content))
    with pytest.raises(NotebookError) as raised:
        ResearchNotebook(path)
    assert str(raised.value).startswith(f"{path}: {said}")
    assert len(str(raised.value).splitlines()) == 1


def test_a_notebook_that_names_no_kernel_runs_in_the_one_that_is_chosen(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb")
    content = json.loads(path.read_text())
    del content["metadata"]["kernelspec"]["name"]
    path.write_text(json.dumps(content))
    spec = ResearchNotebook(path).fresh_copy("mine").metadata.kernelspec
    assert spec == {"name": "mine", "display_name": "mine", "language": "python"}
    content["metadata"]["kernelspec"]["language"] = "julia"
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    assert research.fresh_copy("julia-1.9").metadata.kernelspec.language == "julia"
    with pytest.raises(NotebookError, match="names no kernel, and its language is julia; choose a"):
        research.kernel_name  # noqa: B018


def test_a_notebook_of_an_older_format_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "old.ipynb"
    cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "lr = 1"}
    cells = [{**cell, "outputs": [], "execution_count": None}]
    content = {"nbformat": 4, "nbformat_minor": 2, "metadata": {}, "cells": cells}
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    assert research.parameters() == ["lr"]
    assert (research.kernel_name, research.language) == ("python3", "python")
    nbformat.validate(research.fresh_copy())


# --- the parameters cell -------------------------------------------------------------------------


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
def test_names_are_found_however_they_are_assigned(
    tmp_path: Path, source: str, names: list[str]
) -> None:
    research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", parameters=source))
    assert sorted(research.parameters() or ()) == sorted(names)
    assert all(map(research.assigns, names))
    assert not research.assigns("settings")


def test_a_name_that_is_not_assigned_is_answered_with_the_nearest(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="learning_rate = 1\nwidth = 2")
    research = ResearchNotebook(path)
    research.check_parameters(dict.fromkeys(["width", "learning_rate"], "p.yml: space"))
    with pytest.raises(NotebookError) as raised:
        research.check_parameters(dict.fromkeys(["width", "learnin_rate", "zzz"], "p.yml: space"))
    first, second = str(raised.value).splitlines()
    assert first.startswith("p.yml: space: 'learnin_rate' is not assigned in the parameters cell")
    assert str(path) in first
    assert first.endswith("did you mean 'learning_rate'?")
    assert "'zzz'" in second
    assert second.endswith("known: learning_rate, width")


def test_a_parameters_cell_that_is_no_python_is_refused_with_its_line(tmp_path: Path) -> None:
    faults = ("x = 1\ny = = 2", "%%time\ny = = 2", "%matplotlib inline\ny = = 2")
    for source, line in (*((fault, ", line 2") for fault in faults), ("x = '\0'", "")):
        research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", parameters=source))
        with pytest.raises(NotebookError, match=f"the parameters cell{line}: .*only assign names"):
            research.check_parameters(dict.fromkeys(["x"], "p.yml"))


def test_a_language_that_cannot_be_read_is_not_checked(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="lr <- 1", kernel="ir")
    path.write_text(path.read_text().replace('"language": "python"', '"language": "R"'))
    research = ResearchNotebook(path)
    assert research.parameters() is None
    research.check_parameters(dict.fromkeys(["anything"], "p.yml"))


# --- what a trial starts from --------------------------------------------------------------------


def test_a_fresh_copy_has_nothing_left_of_an_earlier_execution(tmp_path: Path) -> None:
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


# --- the executed notebook -----------------------------------------------------------------------


@pytest.fixture
def begin(tmp_path: Path, make_spec: MakeSpec) -> Callable[..., ExecutedNotebook]:
    """An executed notebook that has just begun, for a spec of which the test states a part."""
    path = write_notebook(tmp_path / "research.ipynb", "print(x)")

    def begin(*, papermill: Any = None, **stated: Any) -> ExecutedNotebook:
        node = ResearchNotebook(path).fresh_copy()
        node.metadata["papermill"] = papermill or {}
        return ExecutedNotebook(node, make_spec(**stated), started_at="2030-01-01T00:00:00+00:00")

    return begin


Begin = Callable[..., ExecutedNotebook]


def test_the_file_tells_its_trial_from_the_first_moment_on(begin: Begin) -> None:
    file = begin()
    file.write()
    told = read_metadata(file.path)
    assert told is not None
    expected: dict[str, Any] = {
        "study": "digits",
        "study_id": "d1g175",
        "run_id": "0007",
        "state": "running",
    }
    expected |= {"params": {"lr": 0.1}, "seed": 123, "attempt": 1, "scores": {}}
    assert {key: told[key] for key in expected} == expected


def test_the_file_tells_how_its_trial_ended(begin: Begin) -> None:
    file = begin()
    file.finish(
        TrialOutcome(
            state=TrialState.FAILED,
            scores={"val_acc": 0.5},
            reason=Reason.CELL_ERROR,
            message="ZeroDivisionError",
            duration_s=1.23456,
        )
    )
    file.write()
    told = read_metadata(file.path)
    assert told is not None
    assert (told["state"], told["reason"], told["message"]) == (
        "failed",
        "cell_error",
        "ZeroDivisionError",
    )
    assert (told["scores"], told["duration_s"]) == ({"val_acc": 0.5}, 1.235)


def test_a_completed_trial_has_no_reason(begin: Begin) -> None:
    file = begin()
    file.finish(TrialOutcome(state=TrialState.COMPLETED, scores={"val_acc": 0.5}))
    assert "reason" not in file.metadata


def test_numbers_that_are_not_finite_are_written_as_valid_json(begin: Begin) -> None:
    fixed = {"clip": math.inf, "bounds": [0.0, math.nan], "deep": {"a": -math.inf}}
    file = begin(fixed=fixed, papermill={"parameters": fixed})
    file.record(Point(step=0, metrics={"loss": math.nan}))
    file.record(Point(step=None, metrics={"best": -math.inf}))
    file.finish(TrialOutcome(state=TrialState.FAILED, scores={"loss": math.nan}))
    file.write()
    content = strict_json(file.path)
    told = content["metadata"]["sweeper"]
    assert content["metadata"]["papermill"]["parameters"] == told["fixed"]
    assert told["fixed"] == {"clip": "inf", "bounds": [0.0, "nan"], "deep": {"a": "-inf"}}
    assert told["series"] == {"loss": {"steps": [0], "values": ["nan"]}}
    assert told["finals"] == {"best": "-inf"}
    assert told["scores"] == {"loss": "nan"}


def test_whoever_looks_while_it_is_written_sees_a_whole_valid_notebook(begin: Begin) -> None:
    file = begin()
    file.write()
    states: list[str] = []
    done = threading.Event()

    def keep_writing() -> None:
        for step in range(40):
            file.record(Point(step=step, metrics={"loss": 1.0}))
            file.node.cells[1].outputs = [
                nbformat.v4.new_output("stream", text="loss\n" * 200 * step)
            ]
            file.write()
        file.finish(TrialOutcome(state=TrialState.COMPLETED))
        file.write()
        done.set()

    writer = threading.Thread(target=keep_writing)
    writer.start()
    while not done.is_set() or states[-1:] != ["completed"]:
        content = strict_json(file.path)
        states.append(content["metadata"]["sweeper"]["state"])
    writer.join()
    nbformat.validate(read_executed(file.path))
    assert states[0] == "running"
    assert [entry.name for entry in file.path.parent.iterdir()] == [file.path.name]


def test_a_trial_whose_sweep_was_killed_is_marked_stopped_in_its_file(begin: Begin) -> None:
    file = begin()
    file.node.cells[0].metadata["papermill"] = {"status": "completed"}
    file.node.cells[1].metadata["papermill"] = {"status": "running"}
    file.write()
    mark_stopped(file.path, "the sweep was killed")
    told = read_metadata(file.path)
    assert told is not None
    assert (told["state"], told["message"]) == ("stopped", "the sweep was killed")
    statuses = [cell.metadata["papermill"]["status"] for cell in read_executed(file.path).cells]
    assert statuses == ["completed", "stopped"]


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"metadata": {}}', '{"metadata": {"sweeper": 3}}', "\ud7ff{"]
)
def test_a_file_that_no_sweep_has_written_tells_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.ipynb"
    path.write_text(content, encoding="utf-8")
    assert read_metadata(path) is None
    assert read_metadata(tmp_path / "nowhere.ipynb") is None


# --- writing beside ------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written_whole_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_beside(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_beside(path, "half \ud800")
    assert path.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_beside_a_place_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_beside(tmp_path / "folder", "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_written_file_ends_with_one_newline(tmp_path: Path) -> None:
    for text in ("a", "a\n"):
        write_beside(tmp_path / "x", text)
        assert (tmp_path / "x").read_bytes() == b"a\n"
