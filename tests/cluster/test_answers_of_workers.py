"""Test that a wrong answer of a cluster's worker fails at most its trial."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from studies import workload_of

from sweeper.cluster import executor
from sweeper.cluster.dask_cluster import DaskWorker
from sweeper.cluster.executor import Member
from sweeper.execution.verdict import failed
from sweeper.notebooks.metadata import BLANK, put_metadata
from sweeper.study_folder.patience import Patience, is_of_the_machine
from sweeper.testing import trial_spec, write_notebook
from sweeper.trials import Reason, RunningTrial, TrialOutcome, TrialState

pytestmark = pytest.mark.slow  # because Dask is imported

HOSTILE: list[Any] = [
    *(None, True, -1, 0.5, 10**30, float("nan"), "", "x", "\0", "\ud800", "a\x1b[2J", "m" * 10**6),
    *([], [[]], {}, {"x": 1}, [1, 2, 3], {"\ud800": None}, "running", "completed", "worker_lost"),
]
NAMES = [
    *("../out", "/etc/x", "artifacts/../../out", "artifacts/a", "artifacts/a/b", "checkpoints/"),
    *("artifacts/" + "n" * 300, "artifacts/\ud800", "notebook", "artifacts/.", "", "\0", "x/y"),
]


class AnsweringCluster:
    """A cluster whose worker answers each call with the result of a function.

    Args:
        answer: Returns the worker's answer to a call, given the call's name.
    """

    key = "key"

    def __init__(self, answer: Callable[[str], bytes]) -> None:
        self._answer = answer

    def submit(self, worker: DaskWorker, payload: bytes, *, task: str) -> Any:
        """Return a finished future with the worker's answer."""
        answered: Any = Future()
        answered.status = "finished"
        answered.set_result(self._answer(pickle.loads(payload)["act"]))
        return answered


def member_of(folder: Path, answer: Callable[[str], bytes]) -> Member:
    cluster: Any = AnsweringCluster(answer)
    return Member(
        cluster=cluster,
        worker=DaskWorker(address="tcp://there", identity="1", threads=1),
        workload=workload_of(write_notebook(folder / "nb.ipynb", "val = x")),
        patience=Patience("outputs", may_pass=is_of_the_machine),
        findings=[],
        running={},
    )


def run_on(member: Member, folder: Path, **stated: Any) -> TrialOutcome:
    spec = trial_spec(
        0,
        notebook=folder / "out" / "0000.ipynb",
        checkpoint_dir=folder / "out" / "c",
        artifact_dir=folder / "out" / "a",
        **stated,
    )
    return member.run_trial(spec, RunningTrial(trials_left=1))


class PolledCluster(AnsweringCluster):
    """A cluster whose worker runs a trial until the sweep has polled its files often enough.

    Args:
        polls: Files on the worker at each poll: by name, a number that changes with the file. The
            last poll comes after the trial's end.
        at_home: Called at each poll, to look at the files on the sweep's machine.
        lost: Files that are gone when the sweep reads them.
        data: Content of each file.
    """

    def __init__(
        self,
        polls: list[dict[str, int]],
        *,
        at_home: Callable[[], object] = lambda: None,
        lost: Collection[str] = (),
        data: bytes = b"data",
    ) -> None:
        self.polls, self.at_home, self.lost, self.data = polls, at_home, lost, data
        self.read: list[str] = []
        self.ran: Any = Future()

    def submit(self, worker: DaskWorker, payload: bytes, *, task: str) -> Any:
        """Return a finished future of the answer. That of `run` finishes before the last poll."""
        asked = pickle.loads(payload)
        act, arguments = asked["act"], asked["arguments"]
        if act == "run":
            return self.ran
        answer: dict[str, Any] = {}
        data = b""
        if act == "follow":
            self.at_home()
            files = {name: [4, number] for name, number in self.polls[0].items()}
            answer = {"files": files, "cells": [1, 2]}
            self.polls = self.polls[1:] or self.polls
            if len(self.polls) == 1 and not self.ran.done():
                whole = TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5})
                ended = {"outcome": asdict(whole), "findings": []}
                self.ran.status = "finished"
                self.ran.set_result(json.dumps(ended).encode() + b"\n")
        if act == "read" and arguments["name"] not in self.lost:
            self.read.append(arguments["name"])
            data = self.data
        answered: Any = Future()
        answered.status = "finished"
        answered.set_result(json.dumps(answer).encode() + b"\n" + data)
        return answered


def damaged(value: Any, chance: random.Random) -> Any:
    """Return a copy of an answer in which one value is wrong, or one key is missing."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.2:
        return chance.choice(HOSTILE)
    if isinstance(value, list):
        place = chance.randrange(len(value))
        return [*value[:place], damaged(value[place], chance), *value[place + 1 :]]
    key = chance.choice([*value])
    if chance.random() < 0.1:
        return {it: value[it] for it in value if it != key}
    return {**value, key: damaged(value[key], chance)}


def test_an_invalid_answer_of_a_worker_fails_at_most_one_trial_and_never_the_sweep(
    tmp_path: Path,
) -> None:
    whole = TrialOutcome(
        state=TrialState.COMPLETED, scores={"val": 0.5}, series={"val": [(0, 0.5)]}, message="m"
    )
    states = set()
    for seed in range(250):
        chance = random.Random(seed)
        named = {name: [4, 5] for name in chance.sample(NAMES, 2)}
        answers: dict[str, Any] = {
            "run": {"outcome": asdict(whole), "findings": ["f"]},
            "follow": {"files": named if seed % 3 == 0 else {}, "cells": [1, 2]},
            "open": {"environment": {"git": {"commit": "c", "is_dirty": False}}},
        }
        call = chance.choice([*answers, ""])
        if call:
            answers[call] = damaged(answers[call], chance)

        def line(act: str, answers: dict[str, Any] = answers, garbage: bool = not call) -> bytes:
            if garbage and act == "run":
                return b"\xff{"
            return json.dumps(answers.get(act, {})).encode() + b"\ndata"

        home = tmp_path / str(seed)
        (home / "out").mkdir(parents=True)
        member = member_of(home, line)
        outcome = run_on(member, home)
        states.add(outcome.state)
        assert outcome.reason is not Reason.FILE, "this reason would end the sweep"
        assert len(outcome.message) < 20_000
        assert outcome.environment == ""
        assert all(isinstance(it, str) for it in member.findings)
        assert {path.name for path in home.iterdir()} == {"nb.ipynb", "out"}
    assert all(path.name.isdigit() for path in tmp_path.iterdir()), (
        "a file is outside of the trial's folder"
    )
    assert {TrialState.COMPLETED, TrialState.STOPPED} <= states


@pytest.mark.parametrize(
    "reason", [Reason.KERNEL_START, Reason.NO_GPU, Reason.FILE, Reason.INTERNAL]
)
def test_a_worker_whose_machine_has_a_fault_is_not_used_again_and_its_trial_is_stopped(
    tmp_path: Path, reason: Reason
) -> None:
    outcome = TrialOutcome(state=TrialState.STOPPED, reason=reason, message="no such library")
    answer = {"outcome": asdict(outcome), "findings": []}
    member = member_of(tmp_path, lambda act: json.dumps(answer if act == "run" else {}).encode())
    lost = run_on(member, tmp_path)
    assert (lost.state, lost.reason) == (TrialState.STOPPED, Reason.WORKER_LOST)
    assert member.is_lost
    assert member.refusal is not None and "no such library" in member.refusal
    assert "no such library" in lost.message


def test_a_trial_whose_files_do_not_fit_on_a_workers_disk_runs_on_another_worker(
    tmp_path: Path,
) -> None:
    (tmp_path / "out" / "c").mkdir(parents=True)
    (tmp_path / "out" / "c" / "000001.ckpt").write_text("saved")
    earlier = write_notebook(tmp_path / "out" / "0000.attempt1.ipynb", "val = x")
    full = {"error": "OSError: [Errno 28] No space left on device"}
    member = member_of(tmp_path, lambda act: json.dumps(full if act == "write" else {}).encode())
    lost = run_on(member, tmp_path, attempt=2, continues=earlier)
    assert (lost.state, lost.reason) == (TrialState.STOPPED, Reason.WORKER_LOST)
    assert member.refusal is not None and "No space left on device" in member.refusal


def test_a_worker_is_still_used_after_a_trial_has_failed_on_it(tmp_path: Path) -> None:
    answer = {"outcome": asdict(failed(Reason.CELL_ERROR, "no")), "findings": []}
    member = member_of(tmp_path, lambda act: json.dumps(answer if act == "run" else {}).encode())
    assert run_on(member, tmp_path).reason is Reason.CELL_ERROR
    assert not member.is_lost


def test_the_sweeps_machine_keeps_a_checkpoint_until_a_newer_one_has_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_LOOK_S", 0.01)
    epochs = [{"notebook": 1, f"checkpoints/{epoch:06d}.ckpt": epoch} for epoch in (1, 2, 3, 4)]
    kept: list[list[str]] = []
    folder = tmp_path / "out" / "c"
    (tmp_path / "out").mkdir()
    member = member_of(tmp_path, lambda _: b"{}")
    cluster: Any = PolledCluster(
        epochs,
        at_home=lambda: kept.append(sorted(path.name for path in folder.glob("*"))),
        lost=["checkpoints/000003.ckpt"],  # the next epoch replaced this file before it was fetched
    )
    member.cluster = cluster
    assert run_on(member, tmp_path).state is TrialState.COMPLETED
    assert kept == [[], ["000001.ckpt"], ["000002.ckpt"], ["000002.ckpt"]]
    assert [path.name for path in folder.iterdir()] == ["000004.ckpt"]


def test_no_checkpoint_arrives_before_its_notebook_without_which_no_attempt_resumes_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_LOOK_S", 0.01)
    (tmp_path / "out").mkdir()
    notebook, checkpoint = tmp_path / "out" / "0000.ipynb", tmp_path / "out" / "c" / "000001.ckpt"
    at_home: list[tuple[bool, bool]] = []

    def look() -> None:
        at_home.append((notebook.exists(), checkpoint.exists()))
        if len(at_home) == 2:  # Until now, the kernel has written the notebook at each poll.
            cluster.lost = []

    member = member_of(tmp_path, lambda _: b"{}")
    polls = [{"notebook": poll, "checkpoints/000001.ckpt": 1} for poll in range(4)]
    cluster: Any = PolledCluster(polls, at_home=look, lost=["notebook"])
    member.cluster = cluster
    assert run_on(member, tmp_path).state is TrialState.COMPLETED
    assert at_home == [(False, False), (False, False), (True, True), (True, True)]


def test_a_workers_notebook_that_says_completed_is_fetched_only_after_the_trial_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_LOOK_S", 0.01)
    (tmp_path / "out").mkdir()
    ended: Any = {"cells": [], "metadata": {}}
    put_metadata(ended, replace(BLANK, state=TrialState.COMPLETED))
    notebook = tmp_path / "out" / "0000.ipynb"
    kept: list[bool] = []
    member = member_of(tmp_path, lambda _: b"{}")
    cluster: Any = PolledCluster(
        [{"notebook": 2, "artifacts/encoder.pt": 1}] * 3,
        at_home=lambda: kept.append(notebook.exists()),
        data=json.dumps(ended).encode(),
    )
    member.cluster = cluster
    assert run_on(member, tmp_path).state is TrialState.COMPLETED
    assert kept == [False, False, False]
    assert notebook.exists()


def test_the_last_version_of_a_workers_notebook_arrives_after_the_trials_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_LOOK_S", 0.01)
    (tmp_path / "out").mkdir()
    member = member_of(tmp_path, lambda _: b"{}")
    encoder = "artifacts/encoder.pt"
    cluster: Any = PolledCluster([{"notebook": 1}, {"notebook": 2, encoder: 1}])
    member.cluster = cluster
    assert run_on(member, tmp_path).state is TrialState.COMPLETED
    assert cluster.read == ["notebook", encoder, "notebook"]
