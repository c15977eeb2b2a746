"""Values are read in a kernel after the last cell, even if the notebook has replaced builtins."""

from __future__ import annotations

import builtins
import math
import os
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernels_alone import kernel_pool, run_alone, share_cells

from sweeper.kernels import Finished
from sweeper.kernels.cells.expressions import Answer, Question
from sweeper.kernels.forking.zygote import in_kernel
from sweeper.testing import write_notebook


def ask(question: Question, **variables: Any) -> Answer:
    """Return the answer of a stand-in for IPython's shell with these variables."""
    shell: Any = SimpleNamespace(
        user_ns=variables,
        user_global_ns=variables,
        user_expressions=lambda expressions: dict.fromkeys(expressions, "IPython's"),
        kernel=None,
    )
    in_kernel._answer_questions(shell)
    assert shell.user_expressions({"x": "x"}) == {"x": "IPython's"}
    return Answer.of(shell.user_expressions(question.as_expressions()))


@pytest.fixture
def replaced_builtins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the builtins `float` and `repr`, as a notebook may do."""
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "float", np.float16)
        patch.setattr(builtins, "repr", lambda value: f"<{value}>")
        yield


NUMBERS = {
    "a Python float": 0.1,
    "a numpy scalar": np.float32(0.25),
    "a numpy array without a dimension": np.array(0.1),
    "a decimal": Decimal("0.5"),
    "a fraction": Fraction(1, 4),
    "a truth": True,
    "infinity": math.inf,
}


@pytest.mark.parametrize("value", NUMBERS.values(), ids=NUMBERS)
def test_the_value_of_a_variable_in_a_kernel_is_read_to_the_last_bit(value: Any) -> None:
    answer = ask(Question(floats=["score"]), score=value)
    assert answer.floats == {"score": float(value)}


def test_an_expression_is_evaluated_with_the_names_of_the_notebook() -> None:
    names = {"float": "no type", "repr": len, "score": 0.5}
    question = Question(floats=["score", "score * repr('ab')", "missing", "float(1)"])
    answer = ask(question, **names)
    assert answer.floats == {"score": 0.5, "score * repr('ab')": 1.0}
    assert answer.unread == {
        "missing": "NameError: name 'missing' is not defined",
        "float(1)": "TypeError: 'str' object is not callable",
    }


def test_values_are_read_exactly_in_a_kernel_whose_builtins_were_replaced(
    replaced_builtins: None,
) -> None:
    question = Question(floats=["score"]).as_expressions()
    names = {"score": 0.1}
    shell: Any = SimpleNamespace(
        user_ns=names, user_global_ns=names, user_expressions=None, kernel=None
    )
    in_kernel._answer_questions(shell)
    answer = shell.user_expressions(question)[in_kernel.QUESTION]["answer"]
    assert (0.1).hex() in answer


class Unshown:
    """An object whose `repr` raises."""

    def __repr__(self) -> str:
        raise ValueError


def test_scalar_variables_are_read_as_values_and_others_as_a_short_text() -> None:
    values = {
        "lr": 0.1,
        "name": "adam",
        "steps": 3,
        "bias": False,
        "none": None,
        "scalar": np.float32(0.25),
        "nan": math.nan,
        "layers": [64] * 1000,
        "model": Unshown(),
    }
    read = dict(ask(Question(values=[*values, "missing"]), **values).values)
    layers, model, nan = read.pop("layers"), read.pop("model"), read.pop("nan")
    assert read == {
        **{k: values[k] for k in ("lr", "name", "steps", "bias", "none")},
        "scalar": 0.25,
    }
    assert isinstance(read["bias"], bool)
    assert isinstance(nan, float)
    assert math.isnan(nan)
    assert isinstance(layers, str)
    assert layers.startswith("[64, 64")
    assert len(layers) < 400
    assert isinstance(model, str)
    assert "Unshown" in model


def test_long_values_that_differ_only_in_the_middle_have_different_descriptions() -> None:
    start, end = "You are a careful grader. " * 20, "Answer with one word. " * 20
    prompts = [start + middle + end for middle in ("Be strict.", "Be kind.", "Be kind.")]
    values: dict[str, Any] = {f"p{number}": prompt for number, prompt in enumerate(prompts)}
    values |= {f"list{number}": [prompt] for number, prompt in enumerate(prompts)}
    read = ask(Question(values=[*values]), **values).values
    assert read["p0"] != read["p1"] == read["p2"]
    assert read["list0"] != read["list1"] == read["list2"]


def test_a_kernel_that_cannot_evaluate_the_questions_about_values_gives_an_empty_answer() -> None:
    assert Answer.of({}) == Answer()
    assert Answer.of({in_kernel.QUESTION: {"status": "error", "ename": "R"}}) == Answer()


#: A cell that replaces functions and formatters with which a value could be read. All of that is
#: legal in a notebook.
REPLACED = """
import builtins, functools, json, numpy as np
from IPython.core.formatters import PlainTextFormatter
import rich.pretty
%precision 2
rich.pretty.install()

def fail(*_, **__):
    raise ValueError

shell = get_ipython()
class Formatter(PlainTextFormatter):
    __call__ = fail
shell.display_formatter.formatters["text/plain"] = Formatter(parent=shell.display_formatter)
shell.display_formatter.format = fail
float = np.float32
repr = len = print = get_ipython = exec = type = 3
"""
#: A cell that also replaces builtins. A kernel would not start with these builtins.
REPLACED_BUILTINS = """
builtins.float = np.float16
builtins.repr = lambda value: "<" + str(value) + ">"
builtins.print = fail
json.dumps = functools.partial(json.dumps, sort_keys=True, separators=(" , ", " : "))
score = 0.1
"""


@pytest.mark.kernel
@pytest.mark.parametrize("way", ["started", "forked", "forked after it"])
def test_scores_are_read_even_if_the_notebook_has_replaced_builtins_and_formatters(
    way: str, tmp_path: Path
) -> None:
    shared = int(way == "forked after it")
    notebook = write_notebook(tmp_path / "nb.ipynb", REPLACED, REPLACED_BUILTINS, shared=shared)
    with kernel_pool(tmp_path, imports=None if way == "started" else "import numpy") as pool:
        if shared:
            share_cells(notebook, pool)
        _, result = run_alone(notebook, pool, variables=["score", "score + 1"])
    assert result.ending == Finished()
    assert result.answer.floats == {"score": 0.1, "score + 1": 1.1}


def test_only_files_that_existed_at_the_start_and_have_changed_are_listed_as_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(*names: str, at: int) -> None:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (at, at))

    monkeypatch.chdir(tmp_path)
    touch("kept", "best.pt", "gone", "models/best.pt", at=1)
    files = in_kernel.NotebookFiles(tmp_path)
    (tmp_path / "gone").unlink()
    touch("best.pt", "models/best.pt", "new", at=2)
    assert files.overwritten() == ["best.pt", "models/best.pt"]


def test_the_search_for_files_next_to_a_notebook_stops_after_a_maximum_number_of_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / f"class {number}").mkdir()
        (tmp_path / f"class {number}" / "1.png").touch()
    read: list[Path | str] = []
    entries = in_kernel._entries

    def count(folder: Path | str) -> list[os.DirEntry[str]]:
        read.append(folder)
        return entries(folder)

    monkeypatch.setattr(in_kernel, "_entries", count)
    monkeypatch.setattr(in_kernel, "_MOST_ENTRIES", 23)
    in_kernel.NotebookFiles(tmp_path)
    assert len(read) == 4, "the notebook's folder, and three of its subfolders"
