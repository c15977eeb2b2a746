"""Test that one study uses an artifact of another one, with real kernels, and replays of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeper.cli import main
from sweeper.notebooks.metadata import BLANK, TrialMetadata, read_metadata
from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

#: A notebook that saves its model after each epoch. The artifact folder of each attempt is empty at
#: its start.
PRETRAIN = (
    "import json, sweeper\nfrom pathlib import Path",
    "assert not list(sweeper.trial().artifact_dir.iterdir())",
    "for epoch in range(2):\n"
    "    Path(f'{width}.json').write_text(json.dumps({'width': width, 'epoch': epoch}))\n"
    "    sweeper.save_artifact(f'{width}.json', 'model.json')",
    "(sweeper.trial().artifact_dir / 'by_a_library').mkdir()",
    "(sweeper.trial().artifact_dir / 'by_a_library' / 'vocab').write_text('a b')",
    "sweeper.report(0, probe=width)",
)
FINETUNE = (
    "import json, sweeper\nfrom pathlib import Path",
    "model = json.loads(Path(encoder).read_text())",
    "sweeper.report(0, acc=model['width'] + lr)",
)
FILES = {
    "pretrain.yml": "study: {sampler: grid, trials: 3}\n"
    "objective: {probe: maximize}\nspace: {width: [8, 32, 16]}\n",
    "finetune.yml": "study: {sampler: random, trials: 2}\nobjective: {acc: maximize}\n"
    "inputs: {encoder: {study: pretrain, artifact: model.json, take: best}}\n"
    "space: {lr: {low: 0.0, high: 0.5}}\n",
}


def sweep(stage: str, *options: str) -> list[str]:
    output = ["-o", "out/{study}.{run_id}.ipynb"]
    return ["-i", f"{stage}.ipynb", *output, "-p", f"{stage}.yml", "--cold", *options]


def trials_of(stage: str) -> list[TrialMetadata]:
    notebooks = sorted(Path("out").glob(f"{stage}.[0-9][0-9][0-9][0-9].ipynb"))
    return [read_metadata(notebook) or BLANK for notebook in notebooks]


def test_a_second_study_and_its_replays_use_the_model_of_the_best_trial_of_the_first_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "two stages"  # the path contains a space
    write_notebook(folder / "pretrain.ipynb", *PRETRAIN, parameters="width = 1")
    write_notebook(folder / "finetune.ipynb", *FINETUNE, parameters="encoder = ''\nlr = 0.1")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)

    assert main(sweep("pretrain", "-j", "2")) == 0
    first = trials_of("pretrain")
    widths = {trial.run_id: int(str(trial.params["width"])) for trial in first}
    saved = {trial.run_id: trial.artifacts["model.json"] for trial in first}
    assert sorted(first[0].artifacts) == ["by_a_library", "model.json"]
    best = max(widths, key=lambda run_id: widths[run_id])
    for run_id, width in widths.items():
        model = Path("out/pretrain/artifacts", run_id, "model.json")
        assert json.loads(model.read_text()) == {"width": width, "epoch": 1}

    assert main(sweep("finetune", "-j", "2")) == 0
    for trial in trials_of("finetune"):
        encoder = trial.inputs["encoder"]
        assert (encoder.run_id, encoder.sha256) == (best, saved[best].sha256)
        assert trial.scores["acc"] == widths[best] + float(str(trial.params["lr"]))

    # A replay of the second study reads the same model, and one of the first study does not change
    # it.
    before = Path("out/pretrain/artifacts", best, "model.json").stat()
    assert main(["replay", f"out/pretrain.{best}.ipynb"]) == 0
    assert Path("out/pretrain/artifacts", best, "model.json").stat() == before
    assert main(["replay", "out/finetune.0000.ipynb"]) == 0
