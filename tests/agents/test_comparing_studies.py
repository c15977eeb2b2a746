"""Test the tools of coding agents that need no kernel."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from studies import trial_record

from sweeper.agents.server import Agent
from sweeper.errors import SweepError
from sweeper.testing import write_notebook
from sweeper.trials import Confirmation, StudyPaths, plan_of

PARAMETERS = "objective: {val: maximize}\nspace: {x: {low: 0.0, high: 1.0}}\n"


def ranking(*scores: float) -> Confirmation:
    plan = plan_of([trial_record()], [0, 1, 2], objective="val", direction="maximize")
    params = plan["trials"][0]["params"]
    runs = [
        trial_record(seed, seed=seed, params=params, scores={"val": score})
        for seed, score in enumerate(scores)
    ]
    return Confirmation.of("s-confirm", plan, runs)


@pytest.mark.parametrize(("repeats", "counts"), [(None, True), ("seeds", False)])
def test_only_fresh_seeds_show_an_improvement_and_not_the_repeats_of_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: str | None, counts: bool
) -> None:
    found = {"new": ranking(0.91, 0.92, 0.9), "old": ranking(0.5, 0.52, 0.51)}
    with closing(Agent(tmp_path / "p.yml", budget=9, jobs=None)) as agent:
        for changed in found:
            rankings = {**found, changed: replace(found[changed], repeats=repeats)}
            monkeypatch.setattr(
                agent,
                "_study",
                lambda name, known=rankings: SimpleNamespace(confirmation=lambda: known[name]),
            )
            assert agent.compare("new", "old")["counts"] is counts


def test_a_folder_with_braces_in_its_name_has_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a{x}"
    folder.mkdir()
    (folder / "p.yml").write_text(PARAMETERS)
    write_notebook(folder / "n.ipynb", "val = x", parameters="x = 0.5")

    def planned(*_: Any, output: str, **__: Any) -> Any:
        paths = StudyPaths.parse(output, study="s")
        raise SweepError(str(paths.notebook("0000")))

    monkeypatch.setattr("sweeper.sweep.Sweep.from_settings", planned)
    with (
        closing(Agent(folder / "p.yml", budget=99, jobs=None)) as agent,
        pytest.raises(SweepError, match=r"/a\{x\}/out/agent/s\.0000\.ipynb$"),
    ):
        agent.sweep("n.ipynb", "s")
