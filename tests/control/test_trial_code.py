"""Test that `export --code` writes the notebook and the modules of a trial as they were."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from studies import mlflow_client, small_settings

from sweeper import Sweep
from sweeper.cli import main
from sweeper.control.diff import diff_trials
from sweeper.control.lookup import find_study
from sweeper.execution.workload import Workload
from sweeper.study_folder.snapshots import keep_environment
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import RunningTrial, SweepResult, TrialOutcome, TrialSpec, TrialState

pytestmark = pytest.mark.slow  # because the fixture's sweep writes to MLflow

CELLS = ("import sys; sys.path.append('../lib')", "import model, deep", "val = x")


def sweep(folder: Path, *, trials: int, allow_changes: bool = False) -> SweepResult:
    """Sweep a study whose trials edit the module next to their notebook."""

    def make(workload: Workload) -> InlineExecutor:
        def run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
            assert workload.snapshot is not None
            (folder / "notebooks" / "model.py").write_text(f"V = 'edited by {spec.run_id}'\n")
            node = nbformat.read(workload.notebook.path, as_version=4)
            metadata = {"study": spec.study, "study_id": spec.study_id, "state": "completed"}
            metadata["snapshot"] = workload.snapshot.name
            git = {"commit": "c0ffee", "is_dirty": True}
            environment = keep_environment(workload.paths, {"cores": 2, "git": git})
            node.metadata["sweeper"] = {**metadata, "environment": environment}
            nbformat.write(node, spec.notebook)
            return TrialOutcome(
                state=TrialState.COMPLETED, scores={"val": 1.0}, environment=environment
            )

        return InlineExecutor(run_trial)

    return Sweep.from_settings(
        small_settings("kept", study={"trials": trials}),
        notebook=folder / "notebooks" / "nb.ipynb",
        output=f"{folder}/out/{{run_id}}.ipynb",
        allow_changes=allow_changes,
        executor=make,
    ).run()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SweepResult]]:
    folder = tmp_path_factory.mktemp("project")
    write_notebook(folder / "notebooks" / "nb.ipynb", *CELLS)
    (folder / "lib").mkdir()
    (folder / "lib" / "deep.py").write_bytes(b"D = 1  # \xe9\r\n")
    (folder / "notebooks" / "model.py").write_text("V = 1\n")
    results = [sweep(folder, trials=2), sweep(folder, trials=3, allow_changes=True)]
    return folder, results


def test_the_files_of_a_trials_code_keep_their_relative_positions(
    project: tuple[Path, list[SweepResult]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = project
    study = folder / "out" / "kept"
    assert main(["export", str(study), "--code", "0001"]) == 0
    to = study / "code" / "0001"
    assert str(to / "notebooks" / "nb.ipynb") in capsys.readouterr().out
    assert (to / "notebooks" / "model.py").read_text() == "V = 1\n"
    assert (to / "lib" / "deep.py").read_bytes() == b"D = 1  # \xe9\r\n"
    written = nbformat.read(to / "notebooks" / "nb.ipynb", as_version=4)
    assert [cell.source for cell in written.cells[1:]] == list(CELLS)
    assert json.loads((to / "environment.json").read_text())["cores"] == 2
    # Two versions of the code and one environment.
    assert len(list((study / "code").glob("*.json"))) == 3


def test_export_writes_the_code_of_a_trials_own_sweep_and_replaces_no_edited_file(
    project: tuple[Path, list[SweepResult]], capsys: pytest.CaptureFixture[str]
) -> None:
    study = project[0] / "out" / "kept"
    command = ["export", str(study), "--code", "0002", "--json"]
    assert main(command) == 0
    written = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert written["code"] == str(study / "code" / "0002" / "notebooks" / "nb.ipynb")
    module = study / "code" / "0002" / "notebooks" / "model.py"
    assert module.read_text() == "V = 'edited by 0001'\n"
    module.write_text("V = 'edited by hand'\n")
    assert main(command) == 2
    assert "differs from the trial's code; move it away" in capsys.readouterr().err
    assert module.read_text() == "V = 'edited by hand'\n"


def test_a_diff_names_a_module_that_differed_between_two_trials(
    project: tuple[Path, list[SweepResult]],
) -> None:
    study = find_study(str(project[0] / "out" / "kept"), storage=None)
    assert "model.py" in diff_trials(study, "0000", "0002").environment
    assert not {"code cells", "../lib/deep.py"} & {*diff_trials(study, "0000", "0002").environment}
    assert "model.py" not in diff_trials(study, "0000", "0001").environment


def test_export_of_a_trial_whose_notebook_is_missing_is_refused_with_a_remedy(
    project: tuple[Path, list[SweepResult]], capsys: pytest.CaptureFixture[str]
) -> None:
    (project[0] / "out" / "0000.ipynb").unlink()
    assert main(["export", str(project[0] / "out" / "kept"), "--code", "0000"]) == 2
    assert "choose another trial" in capsys.readouterr().err


def test_mlflow_has_the_git_commit_in_its_standard_tags(
    project: tuple[Path, list[SweepResult]],
) -> None:
    result = project[1][-1]
    client = mlflow_client(result.tracking_uri)
    for mlflow_id in result.mlflow_run_ids.values():
        tags = client.get_run(mlflow_id).data.tags
        git = {name: tags[f"mlflow.source.git.{name}"] for name in ("commit", "dirty")}
        assert git == {"commit": "c0ffee", "dirty": "true"}
