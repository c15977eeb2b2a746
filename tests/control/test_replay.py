"""Test that replays of trials are equal, and that differences are explained."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from environments import environment
from studies import assert_says, sweep_of

from sweeper.cli import main
from sweeper.control.lookup import ExistingStudy
from sweeper.notebooks.metadata import read_metadata
from sweeper.study.facts import StudyFacts
from sweeper.testing import write_notebook
from sweeper.trials import GpuUse, SweepResult

# Fresh kernels: the planted faults are in the environment that a new process inherits, such as
# the packages of its interpreter.
pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("started_kernels")]

#: Values of the param `fault`. With each of them, a trial gives other scores in a replay.
FAULTS = ("generator", "file", "package")
PARAMETERS = "fault = 'none'\nx = 0.5\nseed = 0\nrun_id = ''\nbound = 0.0\nword = ''"
CELLS = (
    "import os, random, time\nimport sweeper\nfrom shapes import Shape\ntrial = sweeper.trial()",
    """
rng = random.Random(seed)
bits = 0.0
if fault == "generator":
    bits = random.Random().random()
elif fault == "file":
    bits = float(open("data.txt").read())
elif fault == "package":
    import planted
    bits = planted.value
""",
    """
for step in range(4):
    sweeper.report(step, val=x + rng.random() + (bits if step > 1 else 0.0))
assert bound > 1 and word == "inf"
print(run_id, seed)
""",
)


@dataclass(frozen=True, kw_only=True)
class Swept:
    """A study with a replicable trial, a trial with each of `FAULTS`, and a trial that failed.

    A fault, such as a random generator without a seed, can make a replay give other numbers.
    """

    folder: Path
    packages: Path
    result: SweepResult

    def trial(self, fault: str) -> Path:
        return next(r.notebook for r in self.result.records if r.params["fault"] == fault)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    folder = tmp_path_factory.mktemp("re play")
    (folder / "shapes.py").write_text("class Shape:\n    def __init__(self, n): self.n = n\n")
    (folder / "data.txt").write_text("1.0")
    packages = tmp_path_factory.mktemp("packages")
    install_planted(packages, 1.0)
    faults = ["none", *FAULTS, "error"]
    cells = (*CELLS, "assert fault != 'error', 'planted'")
    notebook = write_notebook(folder / "nb.ipynb", *cells, parameters=PARAMETERS)
    sections: dict[str, Any] = {
        "study": {"trials": len(faults)},
        "space": {"fault": faults, "x": {"low": 0.0, "high": 1.0}},
        "fixed": {"bound": math.inf, "word": "inf"},
        "start": [{"fault": fault, "x": 0.25} for fault in faults],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(packages))
        result = sweep_of(notebook, "again", jobs=2, **sections).run()
        yield Swept(folder=folder, packages=packages, result=result)


def install_planted(folder: Path, number: float) -> None:
    """Install a version of a package whose results depend on its version."""
    for old in folder.glob("planted-*"):
        shutil.rmtree(old)
    (folder / "planted.py").write_text(f"value = {number}")
    described = folder / f"planted-{number}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: planted\nVersion: {number}")


def replayed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[Any], str]:
    """Run `replay`. Return its exit code, the replays in its JSON, and its text for people."""
    code = main(["replay", "--json", *map(str, words)])
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    return code, json.loads(lines[-1])["replays"] if lines else [], printed.err


def test_a_replay_repeats_a_trial_bit_for_bit_and_does_not_change_the_original(
    swept: Swept, capsys: pytest.CaptureFixture[str]
) -> None:
    original = swept.trial("none")
    before = original.read_bytes(), (swept.folder / "out/again/study.db").read_bytes()
    code, (found,), printed = replayed(capsys, original)
    assert code == 0
    assert found["verdict"] == "equal"
    assert found["compared"] == {"scores": 1, "points": 4}
    assert "0000: equal, bit for bit (final scores: 1, reported points: 4;" in printed
    assert (original.read_bytes(), (swept.folder / "out/again/study.db").read_bytes()) == before
    metadata = read_metadata(swept.folder / "out" / "0000.replay.ipynb")
    assert metadata is not None
    assert (metadata.seed, metadata.params["x"]) == (swept.result.records[0].seed, 0.25)


def test_a_replay_uses_the_trials_own_modules_and_fixed_values_after_both_have_changed(
    swept: Swept, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes, notebook = swept.folder / "shapes.py", swept.trial("none")
    kept, as_swept = shapes.read_text(), notebook.read_text()
    shapes.write_text("1 / 0\n")
    node = nbformat.reads(as_swept, as_version=4)
    # As if `fixed` had stated run_id when the trial began, and no longer did.
    node.metadata["sweeper"]["fixed"]["run_id"] = "0"
    nbformat.write(node, notebook)
    try:
        code, (found,), _ = replayed(capsys, notebook)
    finally:
        shapes.write_text(kept)
        notebook.write_text(as_swept)
    assert (code, found["verdict"]) == (0, "equal")


def test_a_replay_in_a_copy_of_the_project_has_the_modules_that_the_trial_had(
    swept: Swept, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(swept.folder, copy)
    (copy / "shapes.py").write_text("1 / 0\n")
    code, (found,), printed = replayed(capsys, copy / "out" / swept.trial("none").name)
    assert (code, found["verdict"]) == (0, "equal"), printed


def test_each_trial_is_replayed_with_the_settings_of_its_own_sweep(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    notebook = write_notebook(
        tmp_path / "nb.ipynb",
        "import os, random\nrandom.seed(42)",
        "extra = 1.0\nval = float(os.environ['OMP_NUM_THREADS']) + random.random()",
        parameters="x = 0.5",
    )
    sweep_of(notebook, "twice", study={"trials": 1}).run()
    later: dict[str, Any] = {
        "study": {"trials": 3},
        "resources": {"cpus_per_trial": 2},
        "scores": {"extra": {"variable": "extra"}},
        "repeat": {"seeds": 2},
        "kernels": "cold",
    }
    result = sweep_of(notebook, "twice", options={"allow_changes": True}, **later).run()
    values = [record.scores["val"] for record in result.records]
    assert len(values) == 3
    assert values[0] < 2 < values[1]
    assert [len(record.scores) for record in result.records] == [1, 2, 2]
    code, found, printed = replayed(capsys, tmp_path / "out" / "twice", "--all")
    assert (code, [it["verdict"] for it in found]) == (0, ["equal"] * 3), printed


def test_a_replay_that_differs_names_as_possible_cause_a_forked_kernel_that_was_never_checked(
    swept: Swept, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = swept.trial("generator")
    as_swept = notebook.read_text()
    node = nbformat.reads(as_swept, as_version=4)
    node.metadata["sweeper"] |= {"kernel": "warm", "proof": "none"}
    nbformat.write(node, notebook)
    try:
        code, (found,), _ = replayed(capsys, notebook)
    finally:
        notebook.write_text(as_swept)
    assert (code, found["verdict"]) == (1, "different")
    assert "forked kernel" in found["causes"][-1]


def test_a_trial_whose_kernelspec_is_no_longer_installed_is_replayed_only_with_the_option_here(
    swept: Swept,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(StudyFacts, "kernel", property(lambda _: "gone"))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    interpreter = environment(tmp_path / "active")
    code, _, printed = replayed(capsys, swept.trial("none"))
    assert code == 2
    assert_says(printed, "'gone' is not installed", "activate the environment", "--here")
    assert "--kernel" not in printed
    code, (found,), printed = replayed(capsys, swept.trial("none"), "--here")
    assert (code, found["verdict"]) == (0, "equal"), printed
    assert f"{interpreter!r} is used instead" in caplog.text


def test_a_replay_that_differs_names_the_step_and_what_has_changed_since(
    swept: Swept, capsys: pytest.CaptureFixture[str]
) -> None:
    (swept.folder / "data.txt").write_text("2.0")
    install_planted(swept.packages, 2.0)
    code, found, printed = replayed(capsys, swept.folder / "out" / "again", "--all", "-j", 2)
    assert code == 1
    assert [it["verdict"] for it in found] == ["equal", *["different"] * len(FAULTS)]
    for it in found[1:]:
        # The planted faults change the values from step 2 on.
        assert it["series"]["val"]["step"] == 2
        assert it["distance"] > 0
        assert it["causes"][0] == "since the study was swept: planted: 1.0 → 2.0"
    assert "replays: 1 equal, 3 different" in printed


def test_a_trial_that_used_a_gpu_is_replayed_without_one_only_with_the_option_here(
    swept: Swept, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = swept.result.records[0]
    with_gpu = replace(record, gpu=GpuUse(peak_bytes=10**9))
    monkeypatch.setattr(ExistingStudy, "record", lambda *_: with_gpu)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, _, printed = replayed(capsys, record.notebook)
    assert code == 2
    assert "0000 used a GPU, and none is used here; --here replays it" in printed
    code, (found,), _ = replayed(capsys, record.notebook, "--here")
    assert (code, found["verdict"]) == (0, "equal")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0004"], "0004 is failed, and only completed trials"),
        (["out/again", "0099"], "has no trial 0099"),
        (["out/again"], "Give run ids, --all, or --sample N"),
        (["out/again", "--sample", "0"], "--sample: expected a whole number of 1 or more"),
        (["out/0000.ipynb", "out/again"], "one executed notebook, or a study"),
        (["out/none.ipynb"], "there is no executed notebook of a trial"),
    ],
)
def test_a_trial_that_cannot_be_replayed_is_refused_with_one_message(
    swept: Swept,
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(swept.folder)
    code, _, printed = replayed(capsys, *words)
    assert code == 2
    assert message in printed
    assert len(printed.strip().splitlines()) == 1


def test_a_replay_never_overwrites_another_file(
    swept: Swept, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = swept.trial("generator").with_suffix(".replay.ipynb")
    other.write_text("mine")
    copied = tmp_path / "copy.ipynb"
    copied.write_bytes(swept.trial("generator").read_bytes())
    code, _, printed = replayed(capsys, copied, "--storage", swept.result.storage)
    assert code == 2
    assert f"{other.name}: exists, and is not a replay" in printed
    assert other.read_text() == "mine"
    code, _, printed = replayed(capsys, copied)
    assert code == 2
    assert_says(printed, "'again'", "--storage")
    other.unlink()
