"""A study is compared with the plan of its next sweep before the sweep writes anything."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from opened_studies import completed, failed
from optuna.storages import RDBStorage
from studies import assert_says, note_in, small_settings, trial_record

from sweeper.errors import StudyError
from sweeper.notebooks.fingerprint import version
from sweeper.search.samplers import SamplerFactory
from sweeper.settings.addresses import Address
from sweeper.study.facts import StudyFacts
from sweeper.study.study import Study
from sweeper.sweep.opening import _begins_anew
from sweeper.sweep.resume_checks import (
    check_resumed,
    refuse_another_folder,
    refuse_changes,
    refuse_leaving_the_store,
    refuse_older_copy,
    refuse_other_outputs,
    refuse_run_for_nothing,
)
from sweeper.trials import StudyPaths, TrialOutcome, TrialRecord, run_id_of

OLD, MISTAKEN = ({"cells": cells, "files": {}, "kernel": "python3"} for cells in (["a"], ["b"]))


def paths_of(template: Path | str, study: str = "my") -> StudyPaths:
    return StudyPaths.parse(str(template), study=study)


def study_of(*records: TrialRecord, **facts: Any) -> Any:
    """Return a study that has stored these facts and these trials."""
    stored = StudyFacts(id="1", objectives=["val"], **facts)
    return SimpleNamespace(name="my", facts=stored, records=lambda: [*records])


@pytest.mark.parametrize(("is_there", "remedy"), [(True, "give the -o"), (False, "move its outp")])
def test_a_study_is_not_resumed_with_outputs_at_other_paths(
    tmp_path: Path, is_there: bool, remedy: str
) -> None:
    study = study_of(trial_record(), template=f"{tmp_path}/out/my.{{run_id}}.ipynb")
    if is_there:
        (tmp_path / "out" / "my").mkdir(parents=True)
    for template in ("out/other.{run_id}.ipynb", "new/my.{run_id}.ipynb"):
        with pytest.raises(StudyError) as error:
            refuse_other_outputs(study, paths_of(tmp_path / template))
        old = str(tmp_path / "out/my.{run_id}.ipynb")
        assert_says(str(error.value), "-o ", template, old, remedy, "--study NAME")


def test_a_study_resumes_if_another_output_template_means_the_same_paths(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    study = study_of(trial_record(), template=f"{tmp_path}/out/my.{{run_id}}.ipynb")
    for template in (
        "out/my.{run_id}.ipynb",
        "out/{study}.{run_id}.ipynb",
        "link/my.{run_id}.ipynb",
    ):
        refuse_other_outputs(study, paths_of(tmp_path / template))


def test_a_study_without_trials_may_get_other_output_paths_and_another_mlflow_store(
    tmp_path: Path,
) -> None:
    template = f"{tmp_path}/out/my.{{run_id}}.ipynb"
    study = study_of(template=template, tracking_uri="http://server:5000")
    paths = paths_of(tmp_path / "new" / "{run_id}.ipynb")
    refuse_other_outputs(study, paths)
    refuse_leaving_the_store(study, paths)


def test_a_study_that_logs_to_a_server_is_not_moved_to_the_default_store(tmp_path: Path) -> None:
    paths = paths_of(tmp_path / "out" / "{run_id}.ipynb")
    with pytest.raises(StudyError) as error:
        study = study_of(trial_record(), tracking_uri="http://me:***@server:5000")
        refuse_leaving_the_store(study, paths)
    assert_says(
        str(error.value),
        "logs its runs to http://me:***@server:5000",
        "MLFLOW_TRACKING_URI",
        f"--tracking-uri {Address.of_file(paths.tracking)}",
    )
    other = tmp_path / "other.db"
    # A store whose file is missing counts as one on another machine.
    for file in (paths.tracking, other):
        study = study_of(trial_record(), tracking_uri=str(Address.of_file(file)))
        refuse_leaving_the_store(study, paths)
    other.touch()
    with pytest.raises(StudyError, match="logs its runs to sqlite:"):
        refuse_leaving_the_store(study, paths)


def test_a_notebook_in_another_folder_continues_a_study_only_if_the_old_notebook_is_gone(
    tmp_path: Path,
) -> None:
    first, second = (tmp_path / name / "train.ipynb" for name in ("exp1", "exp2"))
    for notebook in (first, second):
        notebook.parent.mkdir()
        notebook.touch()
    study, paths = study_of(trial_record(), notebook=str(first)), paths_of("out/{run_id}.ipynb")
    with pytest.raises(StudyError) as error:
        refuse_another_folder(study, second, paths)
    assert_says(str(error.value), str(first), str(second), "--study NAME", "--allow-changes")
    refuse_another_folder(study, first.with_name("copy.ipynb"), paths)
    first.unlink()
    refuse_another_folder(study, second, paths)


def ran(folder: Path, number: int, made_of: Any) -> TrialRecord:
    """Return a trial whose executed notebook names the version of the code that it ran."""
    record = trial_record(number, notebook=folder / f"{run_id_of(number)}.ipynb")
    nbformat.write(nbformat.v4.new_notebook(), record.notebook)
    note_in(record.notebook, code=version(made_of))
    return record


def test_a_study_resumes_after_a_change_that_was_undone_before_a_trial_ran_with_it(
    tmp_path: Path,
) -> None:
    paths = paths_of(tmp_path / "{run_id}.ipynb")
    trials = [ran(tmp_path, number, OLD) for number in range(2)]
    refuse_changes(study_of(*trials, made_of=MISTAKEN), OLD, sources="my.ipynb", paths=paths)
    # Trial 0 was interrupted, and run again after the change.
    trials[0] = ran(tmp_path, 0, MISTAKEN)
    with pytest.raises(StudyError, match="code cell 1 changed"):
        refuse_changes(study_of(*trials, made_of=MISTAKEN), OLD, sources="my.ipynb", paths=paths)


def test_an_old_database_copy_without_trials_is_refused_if_notebooks_of_ended_trials_exist(
    storage: RDBStorage, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name, paths = str(abs(hash(request.node.nodeid))), paths_of(tmp_path / "{run_id}.ipynb")
    study = Study.open(storage, small_settings(name, objective={"acc": "maximize"}))
    notebook = ran(tmp_path, 0, OLD).notebook
    note_in(notebook, study_id=study.study_id, state="completed", attempt=1, scores={"acc": 0.5})
    plan: Any = SimpleNamespace(paths=paths, allow_changes=False, fingerprint=OLD, remote=None)
    assert not _begins_anew(plan, study)
    with pytest.raises(StudyError, match="lacks the end of the trial"):
        refuse_older_copy(study, paths, Address.of("postgresql://server/studies"))
    note_in(notebook, state="running")
    assert _begins_anew(plan, study)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [({}, {"a.py": "1"}, "a.py is new"), ({"a.py": "1"}, {}, "a.py is gone")],
)
def test_a_module_that_appeared_or_disappeared_is_named_in_a_warning_and_the_study_resumes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: Any, now: Any, said: str
) -> None:
    study = study_of(trial_record(), made_of={**OLD, "files": before})
    plan: Any = SimpleNamespace(
        paths=paths_of(tmp_path / "{run_id}.ipynb"),
        fingerprint={**OLD, "files": now},
        notebook=SimpleNamespace(path=tmp_path / "my.ipynb", display_name="my.ipynb"),
        settings=SimpleNamespace(file=None, study=SimpleNamespace(trials=1)),
        storage_url=Address.of("postgresql://server/my"),
        tracks_by_default=False,
        confirming=None,
        allow_changes=False,
    )
    check_resumed(plan, study, is_restored=False)
    (line,) = caplog.messages
    assert_says(line, "'my'", said)


@pytest.mark.parametrize(
    ("outcomes", "is_refused"),
    [([], False), ([failed()], False), ([failed(), completed()], True)],
    ids=["no trial", "only failures", "a completed trial"],
)
def test_a_notebook_is_not_run_to_draft_parameters_for_a_study_with_a_completed_trial(
    storage: RDBStorage,
    tmp_path: Path,
    outcomes: list[TrialOutcome],
    is_refused: bool,
    request: pytest.FixtureRequest,
) -> None:
    name = str(abs(hash(request.node.nodeid)))
    objective = {"objective": {"acc": "maximize"}}
    settings, paths = small_settings(name, **objective), paths_of(tmp_path / "{run_id}.ipynb", name)
    plan: Any = SimpleNamespace(storage_url=Address.of(str(storage.url)), paths=paths)
    refuse_run_for_nothing(plan, Path("my.yml"))
    study = Study.open(storage, settings)
    for outcome in outcomes:
        record = study.ask(SamplerFactory(settings), lambda n: paths.notebook(run_id_of(n)))
        assert record is not None
        study.tell(record.number, outcome)
    if not is_refused:
        refuse_run_for_nothing(plan, Path("my.yml"))
        return
    with pytest.raises(StudyError) as error:
        refuse_run_for_nothing(plan, Path("my.yml"))
    text = str(error.value)
    assert_says(text, "2 trial(s)", "no my.yml", "export", "--code 0000", "--study NAME")
