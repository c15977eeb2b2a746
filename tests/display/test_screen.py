"""Test lines and tables about a running study, at the usual widths of terminals."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from snapshots import completed, progress, snapshot
from studies import assert_says, sweep_result, trial_record

from sweeper.display import screen
from sweeper.trials import (
    Chore,
    ChoreKind,
    Notice,
    Snapshot,
    StopCause,
    SweepResult,
    TrialRecord,
)


def drawn(state: Snapshot, monkeypatch: pytest.MonkeyPatch, *, width: int = 100) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    screen.print_table(state, stream)
    return stream.getvalue().splitlines()


def test_in_the_live_table_a_running_trial_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    head, header, row = drawn(snapshot(progress()), monkeypatch)
    assert head == "digits · 10 of 40 trials · about 2m30s left · 9 completed, 1 failed, 1 running"
    params = ("lr", "optimizer", "width")
    assert header.split() == ["trial", *params, "val_acc", "step", "cell", "time", "memory"]
    assert row.split() == [
        *("0007", "0.01235", "adam", "128", "0.8765", "12", "4/9", "1m15s", "512", "MB")
    ]


def test_below_the_live_table_a_line_states_the_resource_that_trials_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = progress("0008", waits_for="9.2 GB of a GPU: GPU-a has 3.1 GB free (0007 9.2 GB)")
    others = [progress(f"{n:04d}", waits_for="a memory") for n in range(9, 16)]
    *_, first, second = drawn(snapshot(progress(), waiting, *others), monkeypatch)
    assert first == "0008 waits for 9.2 GB of a GPU: GPU-a has 3.1 GB free (0007 9.2 GB)"
    assert second == "0009, 0010, 0011, 0012, 0013 and 2 more wait for a memory"


@pytest.mark.parametrize("width", [60, 80, 160, 250])
def test_a_row_of_the_live_table_is_one_line_for_any_number_of_params(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {f"parameter_{i}": i / 7 for i in range(30)}
    rows = [progress(f"{i:04d}", params=params) for i in range(8)]
    lines = drawn(snapshot(*rows), monkeypatch, width=width)
    assert len([line for line in lines if line.startswith("000")]) == 8
    assert max(map(len, lines)) <= width
    assert all("4/9" in line for line in lines if line.startswith("000"))


def test_long_param_names_keep_their_beginning_and_end_and_params_that_do_not_fit_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = {f"learning_rate_of_the_{name}": 0.5 for name in ("encoder", "head", "x")}
    params |= {"kind": "a name that is rather long"}  # type: ignore[dict-item]
    _, header, row = drawn(snapshot(progress(params=params)), monkeypatch, width=80)
    assert header.split()[1:5] == ["lear…der", "lear…ead", "lear…e_x", "+1"]
    assert row.split()[1:4] == ["0.5"] * 3


def test_in_a_narrow_window_columns_of_the_live_table_may_be_narrower_than_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = snapshot(progress(params={"lr": 0.01, "width": 64}))
    *_, header, _ = drawn(state, monkeypatch, width=60)
    assert header.split()[1:3] == ["lr", "width"]


def test_params_that_are_attributes_of_one_class_are_shown_without_the_name_of_the_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = {"Config.lr": 0.001, "Config.batch_size": 32, "Config.hidden": 64}
    _, header, _ = drawn(snapshot(progress(params=params)), monkeypatch, width=80)
    assert header.split()[1:4] == ["lr", "batch_size", "hidden"]
    params |= {"Config.dropout": 0.2, "Config.weight_decay": 0.0001}
    _, header, _ = drawn(snapshot(progress(params=params)), monkeypatch, width=80)
    assert header.split()[1:5] == ["lr", "batch_size", "hidden", "+2"]
    _, header, _ = drawn(snapshot(progress(params={"Config.lr": 0.1})), monkeypatch, width=80)
    assert header.split()[1] == "Config.lr"


def test_a_trial_that_waits_is_not_counted_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = progress("0008", waits_for="the proof of forked kernels")
    counts = {"completed": 1, "running": 2, "frozen": 0}
    (head, *_) = drawn(snapshot(progress(), waits, counts=counts), monkeypatch)
    assert head.endswith("1 completed, 1 running, 1 waiting")


def test_the_columns_of_the_live_table_keep_their_positions_while_values_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = progress(cells=0, step=None, metrics={}, memory_bytes=None, elapsed_s=0.25)
    later = progress(params={"lr": 0.5, "optimizer": "adam", "width": 64}, memory_bytes=10**10)
    headers = {drawn(snapshot(it), monkeypatch)[1] for it in (begun, progress(), later)}
    assert len(headers) == 1, headers


def test_the_live_table_does_not_show_values_that_are_not_yet_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = progress(cells=0, step=None, metrics={}, memory_bytes=None, elapsed_s=0.25)
    lines = drawn(snapshot(begun, left_s=None), monkeypatch)
    assert "left" not in lines[0]
    assert lines[2].split()[-2:] == ["start", "0.2s"]


def test_the_live_table_shows_values_and_names_as_they_are_and_not_as_markup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = {"stop": "[/INST]", "pool": "[cls]", "mood": ":smile:", "cfg[lr]": 0.5}
    _, header, row = drawn(snapshot(progress(params=params)), monkeypatch)
    assert header.split()[1:5] == [*params]
    assert row.split()[1:5] == ["[/INST]", "[cls]", ":smile:", "0.5"]


@pytest.mark.parametrize("name", ["trial", "time", "step", "cell", "memory"])
def test_an_objective_named_like_a_column_of_the_live_table_has_a_second_column_of_that_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = progress(params={}, metrics={name: 0.25})
    _, header, row = drawn(snapshot(running, objectives=[name]), monkeypatch)
    assert header.split() == ["trial", name, "step", "cell", "time", "memory"]
    assert row.split() == ["0007", "0.25", "12", "4/9", "1m15s", "512", "MB"]


def test_the_live_table_shows_the_attempt_of_a_trial_that_is_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert drawn(snapshot(progress(attempt=3)), monkeypatch)[2].startswith("0007 (3)")


def test_the_live_table_has_a_column_host_if_trials_run_on_other_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, header, row, _ = drawn(
        snapshot(progress(host="node7", memory_bytes=None), progress("0008")), monkeypatch
    )
    assert header.split()[-1] == "host"
    assert row.split()[-1] == "node7"


def test_the_best_trial_and_its_notebook_are_below_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    *_, best, notebook = drawn(snapshot(progress(), best=[completed(3)]), monkeypatch)
    assert best == "best: 0003  val_acc=0.9375  (lr=0.5)"
    assert notebook == "  notebook: out/0003.ipynb"


def test_the_live_table_shows_one_of_several_pareto_optimal_trials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    best = [completed(3), completed(5)]
    assert drawn(snapshot(best=best), monkeypatch)[1].endswith("(1 of 2 Pareto-optimal)")


def result(**stated: Any) -> SweepResult:
    trials = {"records": [completed(0), completed(1)], "best": [completed(0)]}
    usual = {"objectives": ["val_acc"], "duration_s": 7200.0, **trials}
    return sweep_result(**{**usual, **stated})


def test_the_summary_mentions_the_remote_copy_only_if_it_is_incomplete() -> None:
    complete = screen.summary(result()) + screen.summary(result(sync_lag_s=0.0))
    assert "remote copy" not in complete
    lagging = screen.summary(result(sync_lag_s=90))
    assert "remote copy: not complete, 1m30s behind" in lagging


def test_a_sweeps_summary_names_the_command_that_shows_page_and_mlflow(tmp_path: Path) -> None:
    folder = tmp_path / "my work" / "digits"
    near = result(page=folder / "index.html", storage=f"sqlite:///{folder}/study.db")
    shown = f"MLflow and page: notebook_hpo.py ui '{folder}'"
    assert shown in screen.summary(near).splitlines()
    far = result(page=folder / "index.html", storage="postgresql://here/db")
    assert_says(screen.summary(far), "ui digits --storage postgresql://here/db")
    server = result(tracking_uri="http://here:5000", compare_url="http://here:5000/#/x")
    assert_says(screen.summary(server), "MLflow: http://here:5000", "http://here:5000/#/x")


def test_the_summary_after_a_spent_budget_says_that_a_greater_budget_resumes_the_sweep() -> None:
    spent = screen.summary(result(stopped_by="cost.budget", stop_cause=StopCause.BUDGET))
    assert "the same command with a greater budget resumes" in spent
    stopped = screen.summary(result(stopped_by="Ctrl-C", stop_cause=StopCause.ASKED))
    assert "stopped by Ctrl-C; the same command resumes" in stopped


def test_a_sweep_that_did_not_confirm_trials_has_failed_and_says_why_even_if_quiet() -> None:
    refused = result(not_confirmed="cost.budget is spent")
    line = "the best trials were not confirmed: cost.budget is spent"
    assert line in screen.summary(refused)
    assert line in screen.trouble_lines(refused)
    assert refused.is_failure
    assert not result().is_failure


def test_a_sweeps_summary_says_that_mlflow_draws_only_the_100_best_runs() -> None:
    def lines(trials: int) -> str:
        records = [trial_record(n, scores={"val_acc": 0.5}) for n in range(trials)]
        return screen.summary(result(records=records, compare_url="http://127.0.0.1:1/#/x"))

    assert "100 best" in lines(101)
    assert "best runs" not in lines(100)


def test_a_sweeps_summary_states_what_the_study_has_shown_and_ends_with_notes() -> None:
    found = result(findings=["kernels are started: because"])
    lines = screen.summary(found).splitlines()
    assert found.insights is not None
    for topic, text in found.insights.sentences:
        assert (f"  {text}" if topic == "params" else f"{topic}: {text}") in lines
    assert "  notebook: out/0000.ipynb" in lines
    assert lines[-1] == "note: kernels are started: because"


def test_a_summary_names_the_trials_that_do_not_fit_into_memory() -> None:
    assert screen.infeasible_lines([completed(0)]) == []
    large = [replace(completed(number), is_infeasible=True) for number in range(7)]
    (line,) = screen.infeasible_lines([*large[:2], completed(9)])
    assert_says(line, "0000, 0001;", "tpe and gp")
    assert "0004 and 2 more;" in screen.infeasible_lines(large)[0]


def test_a_summary_names_the_operations_that_may_not_repeat_bit_for_bit() -> None:
    def noticed(number: int, *names: str) -> TrialRecord:
        return replace(completed(number), notices={Notice.NOT_REPLICABLE: names})

    assert screen.notice_lines([completed(0)]) == []
    first = noticed(1, "put_", "grid_sampler_2d_backward_cuda")
    (line,) = screen.notice_lines([completed(0), first])
    assert_says(line, "1 trial", "put_, grid_sampler_2d_backward_cuda;", "strict=True")
    second = noticed(2, *(f"op_{n}" for n in range(5)))
    (line,) = screen.notice_lines([first, second])
    assert line.startswith("2 trials used")
    assert "grid_sampler_2d_backward_cuda, op_0, op_1, op_2 and 2 more;" in line


def test_the_line_about_a_task_of_the_sweep_has_its_predicted_duration_or_its_progress() -> None:
    proving = Chore(kind=ChoreKind.PROVING, since_s=0.0, expected_s=40.0)
    assert screen.chore_line(proving).endswith("forked (about 40.0s)")
    tracking = Chore(kind=ChoreKind.TRACKING, since_s=0.0, progress=(640, 1000))
    assert screen.chore_line(tracking) == "writing trials to MLflow: 640 of 1,000"
    nothing = Chore(kind=ChoreKind.TRACKING, since_s=0.0, progress=(0, 0))
    assert screen.chore_line(nothing) == "writing trials to MLflow"
    assert len({screen.chore_line(Chore(kind=kind, since_s=0.0)) for kind in ChoreKind}) == len(
        ChoreKind
    )


def test_the_summary_counts_the_trials_of_this_call_and_those_of_the_study() -> None:
    whole, resumed, repeated = (
        screen.summary(result(counts_here=counts)).strip().splitlines()[0]
        for counts in (result().counts, {"completed": 0, "stopped": 1}, {})
    )
    assert whole == "2 completed in 2h00m"
    assert resumed == "1 stopped in 2h00m; the study has 2 completed"
    assert repeated == "this call ran no trials; the study has 2 completed"


def test_the_summary_counts_trials_and_runs_on_fresh_seeds_of_this_command_separately() -> None:
    confirmed = screen.summary(result(confirmed_here={"completed": 6})).strip()
    assert confirmed.startswith("2 completed, and 6 completed on fresh seeds in 2h00m\n")
