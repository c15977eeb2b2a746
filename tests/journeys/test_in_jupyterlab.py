"""Test what a user sees in JupyterLab. Skip without Chromium, Playwright or JupyterLab."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browsing import MARKS
from jupyter_labs import Lab, opened_lab
from studies import until

from sweeper.testing import write_notebook

pytestmark = [*MARKS, pytest.mark.kernel]
#: The third trial waits for a file, so that its notebook can be looked at while it runs.
TRAINING = """
import os
import time

import sweeper

trial = sweeper.trial()
print(f"trial {trial.number} with {lr}")
while trial.number == 2 and not os.path.exists("go on"):
    time.sleep(0.1)
for epoch in range(3):
    sweeper.report(epoch, val_acc=1 - lr / (epoch + 1))
"""
PARAMETERS = """
objective: {val_acc: maximize}
study: {name: digits, trials: 3, sampler: random}
space: {lr: {low: 0.001, high: 0.5, log: true}}
"""
SWEEP = "%load_ext sweeper\n%sweep training.ipynb -p digits.yml -o out/digits.{run_id}.ipynb -j 1"
LOOK = ("import sweeper\nstudy = sweeper.load('out/digits')\nstudy", "study.best", "study.page()")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a training, its parameters, and notebooks that sweep or load the study."""
    folder = tmp_path_factory.mktemp("project")
    write_notebook(folder / "training.ipynb", TRAINING, parameters="lr = 0.05")
    (folder / "digits.yml").write_text(PARAMETERS)
    for name, sources in {"sweep": (SWEEP,), "look": LOOK}.items():
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        node = nbformat.v4.new_notebook(cells=cells)
        node.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(node, folder / f"{name}.ipynb")
    return folder


@pytest.fixture(scope="module")
def lab(folder: Path, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with opened_lab(folder, browser, tmp_path_factory.mktemp("settings")) as lab:
        yield lab


@pytest.fixture(scope="module")
def swept(folder: Path, lab: Lab) -> list[str]:
    """Sweep in a cell of JupyterLab, and open the notebook of a running trial.

    Return the text of the first cell of this notebook, and the output of the completed sweep.
    """
    third = folder / "out" / "digits.0002.ipynb"
    seen = []
    with lab.opened("sweep.ipynb") as page:
        page.get_by_text("| Idle").wait_for()
        page.locator(".jp-CodeCell .cm-content").click()
        page.keyboard.press("Control+Enter")
        until(lambda: third.exists() and "trial 2 with" in third.read_text())
        page.locator(".jp-OutputArea progress").wait_for()
        with lab.opened("out/digits.0002.ipynb") as other:
            other.get_by_role("strong").get_by_text("Trial 0002").wait_for()
            seen.append(other.locator(".jp-Cell").first.inner_text())
        (folder / "go on").touch()
        page.locator(".jp-OutputArea table").wait_for()
        seen.append(page.locator(".jp-OutputArea").inner_text())
    return seen


def test_a_sweep_in_a_cell_shows_its_summary_and_its_trials(swept: list[str]) -> None:
    shown = swept[1]
    assert "study digits: 3 completed" in shown
    assert "val_acc=" in shown
    assert "IProgress" not in shown
    assert "<trial" not in shown


def test_the_first_cell_of_an_executed_notebook_states_the_state_of_its_trial(
    swept: list[str], lab: Lab, folder: Path
) -> None:
    assert "Trial 0002: running" in swept[0]
    assert "lr = " in swept[0]
    with lab.opened("out/digits.0002.ipynb") as page:
        first = page.locator(".jp-Cell").first
        first.get_by_role("strong").get_by_text("Trial 0002: completed").wait_for()
        assert "val_acc = " in first.inner_text()
        assert first.locator("del").inner_text() == "0.05"


def test_jupyter_shows_a_study_its_best_trial_and_its_page_also_after_reopening(
    swept: list[str], lab: Lab, folder: Path
) -> None:
    with lab.opened("look.ipynb") as page:
        lab.run(page)
        texts = page.locator(".jp-OutputArea").all_inner_texts()
        assert "study digits: 3 completed" in texts[0]
        assert "trial 000" in texts[1]
        assert "<trial" not in "".join(texts)
    saved = json.loads((folder / "look.ipynb").read_text())
    assert "iframe" in str(saved["cells"][2]["outputs"])
    with lab.opened("look.ipynb") as page:
        copy = page.frame_locator(".jp-OutputArea iframe")
        copy.get_by_text("all 3 trials", exact=True).wait_for()
        copy.locator("#trials").scroll_into_view_if_needed()
        copy.locator("#trials tbody a").first.click()
        notebook = copy.frame_locator("#frame")
        notebook.get_by_text("completed", exact=False).first.wait_for()
        # A value is struck through in the cell that states the trial and in the parameters cell.
        assert notebook.locator("del").count() >= 2
