"""Test the tools that the command `mcp` offers to coding agents, without a kernel."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from studies import trial_record

from sweeper.agents.server import Agent
from sweeper.errors import SettingsError, SweepError
from sweeper.testing import write_notebook
from sweeper.trials import Confirmation, RerunPlan, StudyPaths, TrialState

PARAMETERS = "objective: {val: maximize}\nspace: {x: {low: 0.0, high: 1.0}}\n"


def ranking(*scores: float) -> Confirmation:
    plan = RerunPlan.of_trials([trial_record()], [0, 1, 2], objective="val", direction="maximize")
    params = plan.trials[0].params
    runs = [
        trial_record(seed, seed=seed, params=params, scores={"val": score})
        for seed, score in enumerate(scores)
    ]
    return Confirmation.of("s-confirm", plan, runs)


@pytest.mark.parametrize(("repeats", "counts"), [(None, True), ("seeds", False)])
def test_a_difference_counts_as_an_improvement_only_if_both_studies_were_confirmed_on_fresh_seeds(
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


def existing_study(n_failed: int, *, replaced: int = 0, **facts: Any) -> Any:
    """Return a study that an agent has swept. All of its trials have failed."""
    records = [trial_record(number, state=TrialState.FAILED) for number in range(n_failed)]
    facts = {"replaced_trials": replaced, "confirms": None, **facts}
    study = SimpleNamespace(
        name="s",
        claimed=lambda: (n_failed, 0),
        records=lambda: records,
        facts=SimpleNamespace(**facts),
    )
    return SimpleNamespace(study=study)


def test_the_budget_also_counts_trials_of_a_study_that_was_replaced_by_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yml").write_text(PARAMETERS)
    with closing(Agent(tmp_path / "p.yml", budget=20, jobs=None)) as agent:
        for known in (existing_study(20), existing_study(0, replaced=20)):
            monkeypatch.setattr(agent, "_studies", lambda known=known: {"s": known})
            with pytest.raises(SettingsError, match="needs 20 trials, but 0 of the budget of 20"):
                agent.sweep("n.ipynb", "s", 20)


def test_an_agents_status_lists_a_search_with_repeats_but_not_the_study_that_confirms_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = existing_study(1, repeats={"by": "seeds"})
    confirming = existing_study(1, confirms={"of": "1"})
    monkeypatch.setattr("sweeper.control.lookup.clean_up_after_crash", lambda _: None)
    monkeypatch.setattr("sweeper.agents.server._described", lambda existing: existing)
    with closing(Agent(tmp_path / "p.yml", budget=20, jobs=None)) as agent:
        studies = {"s": search, "s-confirm": confirming}
        monkeypatch.setattr(agent, "_studies", lambda: studies)
        assert agent.status()["studies"] == [search]


def test_the_outputs_of_a_notebook_in_a_folder_with_braces_in_its_name_are_in_that_folder(
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
