"""Test the command `check`: a sound notebook passes, and each planted fault is found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from studies import small_settings

from sweeper.checking.check import Measured, Role, forecast, unknown_scores, what_params_change
from sweeper.checking.contrasts import contrast_of
from sweeper.cli import main
from sweeper.notebooks.research import ResearchNotebook
from sweeper.settings.space import IntDimension
from sweeper.testing import write_notebook
from sweeper.trials import TrialOutcome, TrialState

PARAMETERS = "x = 0.5\nsize = 1\nepochs = 3\nseed = 0"
SOUND = """
import random, time
import sweeper
rng = random.Random(seed)
for step in range(epochs):
    sweeper.report(step, val=rng.random() * x + size)
    time.sleep(0.3)
"""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The printed text and the exit code of the command."""

    code: int
    printed: str
    result: dict[str, Any]

    def finding(self, name: str) -> dict[str, Any]:
        return next(it for it in self.result["findings"] if it["name"] == name)

    @property
    def faults(self) -> list[str]:
        return [it["name"] for it in self.result["findings"] if it["holds"] is False]


def checked(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *cells: str,
    flags: tuple[str, ...] = (),
    more: str = "",
) -> Checked:
    notebook = write_notebook(folder / "a notebook.ipynb", *cells, parameters=PARAMETERS)
    file = folder / "study.yml"
    file.write_text(
        "objective: {val: maximize}\nspace: {x: {low: 0.0, high: 1.0}, size: [1, 2, 4]}\n" + more
    )
    output = f"{folder}/out/{{run_id}}.ipynb"
    words = ["check", "--json", "-i", str(notebook), "-p", str(file), "-o", output, *flags]
    code = main(words)
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    return Checked(code=code, printed=captured.err, result=json.loads(lines[-1]) if lines else {})


@pytest.mark.kernel
def test_a_sound_notebook_passes_all_checks_and_no_files_remain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "study: {trials: 10}\ncost: {price_per_hour: 3600}\n"
    found = checked(tmp_path, capsys, SOUND, more=more, flags=("-j", "2"))
    assert (found.code, found.faults, found.result["holds"]) == (0, [], True), found.printed
    names = ["notebook", "score", "repeats", "seed", "params", "memory", "disk", "forecast"]
    assert {name: found.finding(name)["holds"] for name in names} == dict.fromkeys(names, True)
    forecast = found.result["forecast"]
    assert (forecast["trials"], forecast["at_once"]) == (10, 2)
    # 10 trials, 2 at once: five in a row, at least 0.9 s each.
    assert 4 < forecast["duration_s"] < 60
    assert forecast["cost"] == pytest.approx(forecast["duration_s"])
    assert f"all {len(found.result['findings'])} checks hold" in found.printed
    assert [it.name for it in tmp_path.iterdir()] == ["a notebook.ipynb", "study.yml"]


@pytest.mark.kernel
def test_a_score_that_depends_on_only_one_of_two_swept_params_passes_the_check_of_params(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = "import random; random.seed(seed)\nval = (x - 0.3) ** 2 + random.random() / 1000"
    found = checked(tmp_path, capsys, cell)
    assert (found.code, found.faults) == (0, [])
    assert found.finding("params")["holds"] is True


@pytest.mark.kernel
def test_check_accepts_differing_scores_if_the_notebook_draws_random_numbers_from_the_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = write_notebook(
        tmp_path / "n.ipynb",
        "import random\nloss = (x - 0.3) ** 2 + random.SystemRandom().random() / 1000",
        parameters="x = 0.5\nn = 4",
    )
    file = tmp_path / "p.yml"
    space = "{x: {low: 0.0, high: 1.0}, n: {low: 1, high: 8}}"
    file.write_text(f"objective: {{loss: minimize}}\nspace: {space}\n")
    options = ["--json", "-i", str(notebook), "-p", str(file)]
    code = main(["check", *options, "-o", f"{tmp_path}/out/{{run_id}}.ipynb"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    holds = {finding["name"]: finding["holds"] for finding in found}
    assert (code, holds["repeats"], holds["params"]) == (0, None, True)


@pytest.mark.kernel
def test_a_score_that_depends_on_a_smoke_value_but_on_no_swept_param_fails_the_check_of_params(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = checked(tmp_path, capsys, "val = epochs / 7e5 + seed", more="smoke: {epochs: 1}\n")
    assert found.faults == ["params"]


@pytest.mark.kernel
def test_the_forecast_of_check_is_from_a_run_that_ignores_the_values_of_smoke(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = ("import time", "time.sleep(0.05 * epochs); val = x * epochs + seed")
    more = "smoke: {epochs: 1}\nfixed: {epochs: 60}\nstudy: {trials: 5}\n"
    found = checked(tmp_path, capsys, *cells, more=more)
    assert found.faults == []
    assert 3 < found.result["forecast"]["trial_s"] < 30
    assert "runs in 3" in found.finding("score")["text"]


@pytest.mark.kernel
def test_a_notebook_is_checked_also_if_smoke_fixes_all_swept_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "smoke: {x: 0.25, size: 1}\n"
    found = checked(tmp_path, capsys, "val = x + size + seed", more=more)
    assert (found.code, found.faults) == (0, []), found.printed


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("cell", "name", "words"),
    [
        ("import random; random.seed(seed); val = random.random()", "params", "the same score"),
        ("val = float('nan') if size == 4 else x + seed", "runs", "sizes (x=0.191, size=4)"),
        (
            "import random\nval = x + seed + random.SystemRandom().random()",
            "repeats",
            "different scores: val",
        ),
    ],
)
def test_check_finds_the_fault_of_a_notebook_and_states_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str, name: str, words: str
) -> None:
    found = checked(tmp_path, capsys, cell)
    assert (found.code, found.faults) == (1, [name] if "seed" in cell else [name, "seed"][::-1])
    finding = found.finding(name)
    assert words in finding["text"]
    assert finding["remedy"]
    assert "✗" in found.printed


@pytest.mark.kernel
def test_check_finds_a_swept_name_that_the_notebook_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = checked(tmp_path, capsys, "exec('size = 2')\nval = x + size + seed")
    assert found.code == 1
    assert found.finding("values")["holds"] is False
    assert all(part in found.finding("values")["text"] for part in ("size", "code cell 2, line 1"))


@pytest.mark.parametrize(
    ("cell", "more", "name", "words"),
    [
        ("acc = x + seed", "", "score", "nothing in the notebook assigns, reports or prints val"),
        ("val = x + seed", "scores: {val: {variable: best}}\n", "score", "prints best"),
        ("val = x", "", "seed", "assigns seed and nothing reads it"),
    ],
)
def test_check_finds_faults_in_the_code_before_it_starts_a_kernel(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    cell: str,
    more: str,
    name: str,
    words: str,
) -> None:
    found = checked(tmp_path, capsys, cell, flags=("--dry-run",), more=more)
    assert (found.code, found.faults) == (1, [name])
    assert words in found.finding(name)["text"]
    assert found.result["forecast"] is None


@pytest.mark.parametrize(
    "name", ["mAP@[.5:.95]", "R^2", "val_loss (mean)", "f1 (macro", "a[", "é²"]
)
def test_a_score_whose_name_has_special_characters_is_found_in_the_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    notebook = write_notebook(
        tmp_path / "n.ipynb", f"report({{{name!r}: x}}, seed)", parameters="x = seed = 1"
    )
    file = tmp_path / "p.yml"
    file.write_text(
        f"objective: {{{json.dumps(name)}: maximize}}\nspace: {{x: {{low: 0, high: 9}}}}\n"
    )
    options = ["--json", "--dry-run", "-i", str(notebook), "-p", str(file)]
    assert main(["check", *options, "-o", f"{tmp_path}/out/{{run_id}}.ipynb"]) == 0


@pytest.mark.parametrize("more", ["fixed: {seed: 7}\n", "  seed: [0, 1]\n"])
def test_check_does_not_advise_a_seed_variable_if_the_parameters_file_sets_the_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    notebook = write_notebook(tmp_path / "n.ipynb", "val = x + seed", parameters="x = seed = 1")
    file = tmp_path / "p.yml"
    file.write_text(f"objective: {{val: maximize}}\nspace:\n  x: {{low: 0.0, high: 1.0}}\n{more}")
    options = ["--json", "--dry-run", "-i", str(notebook), "-p", str(file)]
    assert main(["check", *options, "-o", f"{tmp_path}/out/{{run_id}}.ipynb"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    (seed,) = [finding for finding in found if finding["name"] == "seed"]
    assert (seed["holds"], seed["remedy"]) == (True, "")
    assert more.split(":")[0].strip() in seed["text"]


def test_check_finds_an_integer_range_for_a_variable_that_the_notebook_sets_to_a_fraction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = write_notebook(
        tmp_path / "n.ipynb", "drop = 0.25\nval = drop\nseed = 0\nprint(seed)"
    )
    file = tmp_path / "p.yml"
    file.write_text("objective: {val: maximize}\nspace: {drop: {low: 0, high: 1}}\n")
    options = ["--json", "--dry-run", "-i", str(notebook), "-p", str(file)]
    code = main(["check", *options, "-o", f"{tmp_path}/out/{{run_id}}.ipynb"])
    found = json.loads(capsys.readouterr().out)["findings"]
    (fault,) = [finding for finding in found if finding["holds"] is False]
    assert (code, fault["name"]) == (1, "space")
    assert all(word in fault["text"] for word in ("drop", "whole numbers only", "0.25"))
    assert "low: 0.0" in fault["remedy"]


@pytest.mark.parametrize(
    ("cells", "shared", "holds", "words"),
    [
        (("SEED = 42", "val = x; torch.manual_seed(SEED)"), 0, True, ("42", "SEED", "code cell 3")),
        (("SEED = 42", "val = x; torch.manual_seed(SEED)"), 1, True, ("42", "SEED", "code cell 3")),
        (("val = RandomForest(random_state=7)",), 0, True, ("7", "code cell 2")),
        (("np.random.seed(42)", "val = x"), 1, None, ("sweeper.trial().seed",)),
        (("val = x",), 0, True, ("sets no seed", "`confirm`")),
    ],
)
def test_check_states_which_seed_the_notebook_sets_or_how_to_use_the_seed_of_the_trial(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    cells: tuple[str, ...],
    shared: int,
    holds: bool | None,
    words: tuple[str, ...],
) -> None:
    notebook = write_notebook(tmp_path / "n.ipynb", *cells, parameters="x = 0.5", shared=shared)
    file = tmp_path / "p.yml"
    file.write_text("objective: {val: maximize}\nspace: {x: {low: 0.0, high: 1.0}}\n")
    options = ["--json", "--dry-run", "-i", str(notebook), "-p", str(file)]
    main(["check", *options, "-o", f"{tmp_path}/out/{{run_id}}.ipynb"])
    found = json.loads(capsys.readouterr().out)["findings"]
    (seed,) = [finding for finding in found if finding["name"] == "seed"]
    assert seed["holds"] is holds
    assert all(word in f"{seed['text']} {seed['remedy']}" for word in words)


def test_a_check_without_a_clear_result_does_not_count_as_passed_in_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = ("np.random.seed(42)", "val = x")
    notebook = write_notebook(tmp_path / "n.ipynb", *cells, parameters="x = 0.5", shared=1)
    file = tmp_path / "p.yml"
    file.write_text("objective: {val: maximize}\nspace: {x: {low: 0.0, high: 1.0}}\n")
    output = f"{tmp_path}/out/{{run_id}}.ipynb"
    assert main(["check", "--dry-run", "-i", str(notebook), "-p", str(file), "-o", output]) == 0
    *findings, summary = capsys.readouterr().out.splitlines()
    assert [line[0] for line in findings].count("–") == 1
    assert "2 of 3" in summary and "1 unclear" in summary


def test_a_score_that_may_be_among_unpacked_keyword_arguments_is_not_reported_as_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = "import sweeper\nsweeper.report(0, **measure(seed))"
    assert checked(tmp_path, capsys, cell, flags=("--dry-run",)).code == 0


@pytest.mark.parametrize(
    ("code", "more", "holds"),
    [
        ("from tensorflow import keras\nmodel.fit(data)", {}, [None]),
        ("import module_that_trains", {}, [None]),
        ("import module_that_reports", {}, []),
        ("import keras\nmodel.fit(data)", {"reports": "explicit"}, [False]),
        ("import kerastic", {}, [False]),
    ],
)
def test_a_score_that_a_library_or_a_module_may_log_is_not_reported_as_missing(
    tmp_path: Path, code: str, more: dict[str, str], holds: list[bool | None]
) -> None:
    (tmp_path / "module_that_trains.py").write_text("import lightgbm")
    (tmp_path / "module_that_reports.py").write_text("sweeper.score(**{'valid_0-auc': 0.5})")
    notebook = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", code, parameters="x = 0.5"))
    settings = small_settings("s", objective={"valid_0-auc": "maximize"}, **more)
    found = [*unknown_scores(notebook, settings)]
    assert [finding.holds for finding in found] == holds
    # The score's name is no Python identifier, so no remedy can name it as a keyword argument.
    assert not any("sweeper.score" in finding.remedy for finding in found)


@pytest.mark.parametrize(
    ("cell", "more", "flags", "message"),
    [
        ("val = x", "smoke: {epoch: 1}\n", (), "smoke: 'epoch' is not assigned"),
        ("val = x\nfor", "", ("--dry-run",), "code cell 2, line 2: invalid syntax"),
        ("val = x", "", ("-k", "nowhere"), "the kernel 'nowhere' is not installed"),
    ],
)
def test_a_wrong_check_command_is_refused_with_one_message(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    cell: str,
    more: str,
    flags: tuple[str, ...],
    message: str,
) -> None:
    found = checked(tmp_path, capsys, cell, more=more, flags=flags)
    assert found.code == 2
    assert message in found.printed
    assert len(found.printed.strip().splitlines()) == 1


# --- params of the runs that `check` makes --------------------------------------------------------

SPACE = {
    "lr": {"low": 1e-4, "high": 1e-2, "log": True},
    "width": {"low": 16, "high": 100, "step": 32},
    "batch": [32, 256, 64],
    "kind": ["a", "b"],
    "deep": {"low": 1, "high": 9, "when": {"kind": "b"}},
}


def test_typical_params_of_check_are_those_of_start_else_the_notebook_else_the_smallest(
    tmp_path: Path,
) -> None:
    start = [{"lr": 3e-3, "kind": "b"}]
    settings = small_settings("corners", space=SPACE, start=start)
    source = "lr = 1e-3\nwidth = 48\nbatch = 7  # outside\ndeep = depth()"
    path = write_notebook(tmp_path / "n.ipynb", parameters=source)
    contrast = contrast_of(settings, ResearchNotebook(path))
    assert contrast.typical == {"lr": 3e-3, "width": 48, "batch": 32, "kind": "a"}
    assert contrast.quick == contrast.typical
    largest = contrast.largest
    assert largest == {**largest, "width": 80, "batch": 256, "kind": "b", "deep": 9}
    assert isinstance(largest["lr"], float)
    assert 1e-4 < largest["lr"] < 3e-3


SPACES = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(
        [
            {"low": 0.0, "high": 1.0},
            {"low": 1e-5, "high": 1.0, "log": True},
            {"low": 1, "high": 8},
            {"low": 1, "high": 1000, "log": True},
            {"low": 16, "high": 100, "step": 32},
            {"low": 0.0, "high": 0.3, "step": 0.1},
            {"low": -5, "high": -4},
            [1, 2],
            [True, False],
            ["x", "y", None],
            [[32], [64, 64]],
        ]
    ),
    min_size=1,
)
OWN = st.lists(st.sampled_from([0.0, 1.0, 8, 80, 0.3, -4, True, "'y'", None, 1e-5, "[32]"]))


@given(SPACES, OWN)
@hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_param_differs_between_the_runs_of_check_with_largest_and_typical_params(
    tmp_path: Path, space: dict[str, Any], own: list[Any]
) -> None:
    settings = small_settings("contrast", space=space)
    source = "\n".join(f"{name} = {value}" for name, value in zip(space, own, strict=False))
    path = write_notebook(tmp_path / "n.ipynb", parameters=source or "pass")
    contrast = contrast_of(settings, ResearchNotebook(path))
    settings.check_params(contrast.typical)
    settings.check_params(contrast.largest)
    for name, dimension in settings.search_space.items():
        assert contrast.typical[name] != contrast.largest[name]
        largest = contrast.largest[name]
        if isinstance(dimension, IntDimension) and isinstance(largest, int):
            assert not dimension.allows(largest + (dimension.step or 1))


def test_the_run_of_check_with_the_largest_params_keeps_the_values_of_smoke_and_the_fold(
    tmp_path: Path,
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="x = 0.5\nepochs = 2\nfold = 3")
    space = {"x": {"low": 0.0, "high": 1.0}, "epochs": {"low": 1, "high": 9}}
    settings = small_settings("folds", space=space, repeat={"fold": 5}, smoke={"epochs": 2})
    contrast = contrast_of(settings, ResearchNotebook(path))
    assert contrast.largest.keys() == {"x", "fold"}
    assert contrast.largest["fold"] == contrast.typical["fold"] == 3
    assert contrast.typical["epochs"] != 2


def test_if_smoke_fixes_all_swept_names_only_the_typical_run_of_check_sets_a_param(
    tmp_path: Path,
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="epochs = 20")
    settings = small_settings("s", space={"epochs": {"low": 1, "high": 50}}, smoke={"epochs": 1})
    contrast = contrast_of(settings, ResearchNotebook(path))
    assert (contrast.largest, contrast.quick, contrast.typical) == ({}, {}, {"epochs": 20})


def test_a_param_with_a_single_value_is_the_same_in_all_runs_of_check(tmp_path: Path) -> None:
    space = {"a": [1], "b": {"low": 2, "high": 2}, "c": {"low": 2.0, "high": 2.0}}
    contrast = contrast_of(
        small_settings("single", space=space),
        ResearchNotebook(write_notebook(tmp_path / "n.ipynb")),
    )
    assert contrast.typical == contrast.largest == {"a": 1, "b": 2, "c": 2.0}


# --- equal scores of two runs ---------------------------------------------------------------------


def compared(first: float, again: float, other: float, *, printed: tuple[str, str]) -> bool | None:
    """Return whether `check` finds that the params change the scores. None if that is unclear.

    Args:
        first: Score of the run with the largest params.
        again: Score of a second run with the same params.
        other: Score of the run with typical params.
        printed: Printed texts of the runs with the largest and with typical params.
    """

    def run(role: Role, score: float, text: str) -> Measured:
        cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("stream", text=text)])
        return Measured(
            role=role,
            params={"x": role.value},
            outcome=TrialOutcome(state=TrialState.COMPLETED, scores={"val": score}),
            memory_bytes=0,
            disk_bytes=0,
            cells=[cell],
        )

    runs = (run(Role.LARGEST, first, printed[0]), run(Role.AGAIN, again, printed[0]))
    return what_params_change(*runs, run(Role.TYPICAL, other, printed[1]), objective=["val"]).holds


@pytest.mark.parametrize(
    ("scores", "printed", "holds"),
    [
        ((0.123456789, 0.123456789, 0.5), ("", ""), True),
        ((0.123456789, 0.123456789, 0.123456789), ("same", "same"), False),
        ((0.123456789, 0.123456789, 0.123456789), ("loss 0.3", "loss 0.4"), None),
        ((0.95, 0.95, 0.95), ("same", "same"), None),  # an accuracy often ties by chance
        ((0.95, 0.95 + 1e-12, 0.9), ("", ""), True),  # a GPU may change the last bits
        ((0.95, 0.91, 0.9), ("", ""), None),
    ],
)
def test_check_reports_params_without_effect_only_if_outputs_and_scores_with_many_digits_are_equal(
    scores: tuple[float, float, float], printed: tuple[str, str], holds: bool | None
) -> None:
    assert compared(*scores, printed=printed) is holds


# --- the forecast for the whole sweep -------------------------------------------------------------


def measured(duration_s: float, **changes: Any) -> Measured:
    outcome = TrialOutcome(state=TrialState.COMPLETED, duration_s=duration_s)
    sizes: dict[str, Any] = {"memory_bytes": 10**6, "disk_bytes": 2 * 10**7, **changes}
    return Measured(role=Role.TYPICAL, params={}, outcome=outcome, **sizes)


def test_the_forecast_of_check_assumes_that_all_trials_take_as_long_as_the_typical_one() -> None:
    runs = [measured(duration_s) for duration_s in (5, 2, 10)]
    settings = small_settings("plan", study={"trials": 9}, cost={"price_per_hour": 40.0})
    found = forecast(settings, runs, jobs=1, free_disk_bytes=10**9)
    assert found.text == (
        "9 trials, 1 at once, take about 1m30s, cost 1.00 and at most 180 MB of disk"
    )
    it = found.forecast or {}
    assert (it["trial_s"], it["duration_s"], it["disk_bytes"]) == (
        10,
        90,
        18 * 10**7,
    )
    confirming = small_settings("plan", study={"trials": 9}, confirm={"best": 3, "seeds": 5})
    more = forecast(confirming, runs, jobs=1, free_disk_bytes=10**9)
    assert (more.forecast or {})["trials"] == 9 + 15


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({}, ""),
        ({"disk_bytes": 10**9}, "only 1.0 GB are free: make room, or keep fewer checkpoints"),
        ({"memory_bytes": 10**18}, "memory is enough for 1 at once: lower -j"),
    ],
)
def test_the_forecast_of_check_fails_only_if_memory_or_disk_is_too_small_for_the_sweep(
    changes: dict[str, int], remedy: str
) -> None:
    settings = small_settings("plan", study={"trials": 9})
    found = forecast(settings, [measured(1, **changes)], jobs=2, free_disk_bytes=10**9)
    assert found.holds is not bool(remedy)
    assert remedy in found.remedy
