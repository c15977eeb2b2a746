"""Test tables, figures and ablations for a paper, with a study that ran without kernels."""

from __future__ import annotations

import csv
import random
import re
import shutil
import subprocess
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from opened_studies import asked, opened_in
from studies import small_settings, sweep_of

import sweeper
from sweeper.cli import main
from sweeper.control.ablating import ablation
from sweeper.control.lookup import find_study
from sweeper.control.tables import paper_table
from sweeper.display.screen import summary
from sweeper.errors import StudyError
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import RunningTrial, StudyPaths, TrialOutcome, TrialSpec, TrialState

pytestmark = pytest.mark.slow  # because MLflow is imported

SPACE = {
    "lr_rate": {"low": 0.001, "high": 0.1, "log": True},
    "kind": [["a_b"], "50%"],
    "depth": {"low": 1, "high": 3, "when": {"kind": [["a_b"]]}},
}


def noisy(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    bonus = 1.0 if spec.params["kind"] == "50%" else 0.0
    score = bonus + random.Random(spec.seed).gauss(0.0, 0.1)
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val_acc": score})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sweep `my_study`, and `confirmed` with runs on fresh seeds. Return my_study's folder."""
    folder = tmp_path_factory.mktemp("a paper")
    notebook = write_notebook(
        folder / "nb.ipynb", parameters="lr_rate, kind, depth, seed = 1, ['a_b'], 7, 0"
    )
    options: dict[str, Any] = {
        "objective": {"val_acc": "maximize"},
        "space": SPACE,
        "study": {"trials": 9},
        "output": "out/{study}.{run_id}.ipynb",
    }
    sweep_of(notebook, "my_study", noisy, **options).run()
    sweep_of(notebook, "confirmed", noisy, confirm={"best": 3, "seeds": 4}, **options).run()
    return folder / "out" / "my_study"


def export(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Return what `export` prints to stdout."""
    assert main(["export", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def rows_of_latex(text: str) -> list[list[str]]:
    (body,) = re.findall(r"\\toprule\n(.*)\\bottomrule", text, re.S)
    lines = [line.strip() for line in body.split(r"\\") if line.strip()]
    return [re.split(r"\s(?<!\\)&\s", line.removeprefix(r"\midrule").strip()) for line in lines]


def test_an_exported_table_has_a_mean_score_and_its_interval_for_each_value_of_each_param(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import scipy.stats  # imported here: at the top it would cost each test process 1 s

    rows = [*csv.DictReader(export(capsys, folder, "--table", "csv").splitlines())]
    assert [(row["param"], row["trials"]) for row in rows[:3]] == [("lr_rate", "3")] * 3
    frame = sweeper.load(folder).dataframe()
    scores = frame[frame["kind"] != "50%"]["val_acc"]
    row = next(row for row in rows if row["value"] == '["a_b"]')
    assert float(row["val_acc_mean"]) == pytest.approx(fmean(scores))
    half = scipy.stats.sem(scores) * scipy.stats.t.ppf(0.975, len(scores) - 1)
    assert float(row["val_acc_half_interval"]) == pytest.approx(half)
    assert [row["val_acc_is_best"] for row in rows[3:5]] == ["False", "True"]


def test_a_latex_table_is_escaped_and_compiles(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = export(capsys, folder, "--table", "latex", "--by", "kind,lr_rate")
    head, *rows = rows_of_latex(text)
    assert head == ["kind", r"lr\_rate", "trials", r"val\_acc"]
    assert {row[0] for row in rows} == {r'{[}"a\_b"]', r"50\%"}
    assert all(len(row) == 4 for row in rows)
    assert sum(int(row[2]) for row in rows) == 9
    assert any(re.search(r"^\$\\mathbf{\S+ \\pm \S+}\$$", row[3]) for row in rows)
    if shutil.which("pdflatex"):
        document = f"\\documentclass{{article}}\\begin{{document}}{text}\\end{{document}}"
        (tmp_path / "paper.tex").write_text(document)
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
        subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


def test_a_table_of_confirmed_trials_has_their_scores_on_fresh_seeds(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    confirmed = folder.with_name("confirmed")
    text = export(capsys, confirmed, "--table", "markdown")
    assert "means over runs on 4 fresh seeds" in text
    confirmation = sweeper.load(confirmed).confirmation
    assert confirmation is not None
    rows = [line for line in text.splitlines()[2:] if line.startswith("|")]
    assert len(rows) == 3
    means = sorted(float(re.findall(r"([\d.]+) ±", row)[0]) for row in rows)
    assert means == pytest.approx(sorted(one.mean or 0 for one in confirmation.ranking), abs=0.01)
    assert sum("**" in row for row in rows) == 1 + len(confirmation.alike)


def test_export_draws_the_figure_that_the_file_is_named_after_in_the_format_of_its_suffix(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, begins in (("parallel.svg", b"<?xml"), ("history.pdf", b"%PDF")):
        file = folder.with_name("figures") / name
        export(capsys, folder, "--figure", file)
        assert file.read_bytes().startswith(begins)


def test_an_ablation_states_by_how_much_each_value_of_the_best_trial_improves_the_score(
    folder: Path,
) -> None:
    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if spec.number == 4:
            sweep.stop("the test")
        return noisy(spec, running)

    existing = find_study(str(folder.with_name("confirmed")), storage=None)
    confirmation = existing.confirmation()
    assert confirmation is not None
    sweep = ablation(existing, executor=lambda _: InlineExecutor(run))
    assert len(sweep.run().records) == 5
    result = ablation(existing, executor=lambda _: InlineExecutor(noisy)).run()
    assert result.study == "confirmed-ablate"
    assert len(result.records) == 12
    best = existing.best(existing.confirmation())[0].params
    tried = [record.params for record in result.records[:3]]
    assert best["kind"] == "50%"
    assert tried == [best, {**best, "lr_rate": 1}, {**best, "kind": ["a_b"], "depth": 7}]
    assert {record.seed for record in result.records} == {*confirmation.seeds}
    assert result.confirmation is not None
    worths = result.confirmation.worths
    assert [*worths] == ['kind=["a_b"]', "lr_rate=1"]
    assert worths['kind=["a_b"]'] == pytest.approx((1.0, 1.0))
    assert worths["lr_rate=1"] == (0.0, 0.0)
    text = summary(result)
    assert 'kind=50% instead of ["a_b"]\n' in text
    assert "instead of 1; cannot be told apart from 0" in text


def test_a_table_has_a_row_for_a_conditional_param_that_later_settings_exclude(
    tmp_path: Path,
) -> None:
    paths = StudyPaths.parse(f"{tmp_path}/out/{{run_id}}.ipynb", study="s")
    momentum = {"low": 0.0, "high": 1.0, "when": {"opt": "sgd"}}
    start = [{"opt": "sgd", "momentum": 0.5}]
    begun = small_settings("s", space={"opt": ["sgd", "adam"], "momentum": momentum}, start=start)
    space = {"momentum": momentum, "lr": [1, 2]}
    later = small_settings("s", space=space, fixed={"opt": "adam"})
    study = opened_in(paths, begun, settings=later.as_mapping)
    asked(study, begun, paths)
    study.tell(0, TrialOutcome(state=TrialState.COMPLETED, scores={"val": 1.0}))
    study.close()
    existing = find_study(str(paths.folder), storage=None)
    assert "| momentum | 0.5 |" in paper_table(existing, by=[], kind="markdown")


def test_an_ablation_runs_the_code_of_the_search_on_seeds_that_the_search_has_not_used(
    tmp_path: Path,
) -> None:
    parameters = "lr_rate, kind, seed = 1, 'a', 0"
    notebook = write_notebook(tmp_path / "nb.ipynb", parameters=parameters)
    settings: dict[str, Any] = {
        "objective": {"val_acc": "maximize"},
        "space": {"lr_rate": {"low": 0.001, "high": 0.1}, "kind": ["50%"]},
        "repeat": {"seeds": 2},
    }
    sweep_of(notebook, "repeated", noisy, study={"trials": 4}, **settings).run()
    existing = find_study(str(tmp_path / "out" / "repeated"), storage=None)
    planned = ablation(existing, executor=lambda _: InlineExecutor(noisy)).plan
    assert planned.confirming is not None
    seeds = {record.seed for record in existing.study.records()}
    assert len({*planned.confirming.seeds} - seeds) == 5
    write_notebook(tmp_path / "nb.ipynb", "1 + 1", parameters=parameters)
    with pytest.raises(StudyError, match=r"ran its 4 trial.* with other code or settings"):
        ablation(existing, executor=lambda _: InlineExecutor(noisy))
    ablation(existing, executor=lambda _: InlineExecutor(noisy), allow_changes=True)


def test_an_ablation_runs_on_the_cluster_that_the_command_names(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", parameters="lr_rate, kind = 1, 'a'")
    settings: dict[str, Any] = {
        "objective": {"val_acc": "maximize"},
        "space": {"lr_rate": {"low": 0.001, "high": 0.1}, "kind": ["50%"]},
        "cluster": "tls://10.0.0.5:8786",
    }
    sweep_of(notebook, "elsewhere", noisy, study={"trials": 2}, **settings).run()
    existing = find_study(str(tmp_path / "out" / "elsewhere"), storage=None)
    planned = ablation(existing, executor=lambda _: InlineExecutor(noisy), cluster="local:2").plan
    cluster = planned.workload.settings.cluster
    assert cluster is not None
    assert cluster.local_workers == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--table", "latex", "--by", "lr"],
            "--by lr: no trial has such a param; known: lr_rate, kind",
        ),
        (["--by", "kind"], "--by kind: needs --table"),
        (["--figure", "nope.svg"], "there is no figure 'nope'; name the file after one of"),
        (["--figure", "slice.doc"], "slice.doc: cannot be written: Format 'doc' is not supported"),
    ],
)
def test_an_export_with_an_unknown_param_figure_or_format_is_refused(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(folder), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_study_that_confirms_the_best_trials_of_another_study_cannot_be_ablated(
    folder: Path,
) -> None:
    with pytest.raises(StudyError, match="'confirmed-confirm' repeats trials of another study"):
        ablation(find_study(str(folder.with_name("confirmed-confirm")), storage=None))
