"""The result of a sweep as `--json` prints it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies import sweep_result, trial_record

from sweeper.trials import (
    GpuUse,
    Notice,
    Reason,
    SweepResult,
    TrialRecord,
    TrialState,
    count_by_state,
    is_coarse,
)


def record(number: int, state: TrialState, **fields: Any) -> TrialRecord:
    notebook = Path(f"out/{number:04d}.ipynb")
    usual = {"params": {"lr": 0.1}, "seed": number, "notebook": notebook, "scores": {}}
    return trial_record(number, state=state, **{**usual, **fields})


BEST = record(0, TrialState.COMPLETED, scores={"acc": 0.9})
FAILED = record(
    1,
    TrialState.FAILED,
    scores={"acc": math.nan},
    reason=Reason.NOT_FINITE,
    message="acc is nan",
    duration_s=1.23456,
    retry_of=0,
)


def result(**fields: Any) -> SweepResult:
    usual = {"study": "s", "objectives": ["acc"], "records": [BEST, FAILED], "best": [BEST]}
    return sweep_result(**{**usual, "mlflow_run_ids": {"0000": "abc"}, **fields})


def test_counts_of_trials_have_zeros_for_states_of_ended_trials_but_not_for_running() -> None:
    counts = {"completed": 1, "pruned": 0, "failed": 1, "stopped": 0}
    assert count_by_state([BEST, FAILED]) == counts
    running = record(2, TrialState.RUNNING)
    assert count_by_state([BEST, FAILED, running]) == {**counts, "running": 1}


def test_jupyter_shows_why_the_best_trials_were_not_confirmed() -> None:
    page = result(not_confirmed="cost.budget: 5 is <spent>")._repr_html_()
    assert "<p>the best trials were not confirmed: cost.budget: 5 is &lt;spent&gt;</p>" in page


def test_the_json_of_a_result_is_valid_even_with_a_score_that_is_not_finite() -> None:
    data = json.loads(json.dumps(result().to_json(), allow_nan=False))
    best, failed = data["trials"]
    assert (best["scores"], best["mlflow_run_id"]) == ({"acc": 0.9}, "abc")
    assert (failed["scores"], failed["reason"]) == ({"acc": "nan"}, "not_finite")
    assert (failed["duration_s"], failed["retry_of"]) == (1.235, "0000")
    assert failed["mlflow_run_id"] is None


def test_every_trial_in_the_json_of_a_result_has_the_same_keys_wherever_it_ran() -> None:
    far = replace(BEST, host="b", notices={Notice.NOT_REPLICABLE: ("put_",)})
    near, away = result(records=[BEST, far]).to_json()["trials"]
    assert near.keys() == away.keys()
    assert (near["host"], near["notices"]) == ("", {})
    assert away["notices"] == {"not_replicable": ["put_"]}


def test_the_json_of_a_result_contains_gpu_use_and_cost() -> None:
    records = [replace(BEST, gpu=GpuUse(peak_bytes=8, busy_share=0.5)), FAILED]
    data = result(records=records, duration_s=3600.0, cost=1.5).to_json()
    best, failed = data["trials"]
    assert (best["gpu_peak_bytes"], best["gpu_busy_share"]) == (8, 0.5)
    assert (failed["gpu_peak_bytes"], failed["gpu_busy_share"]) == (None, None)
    assert (data["cost"], data["cost_per_trial"]) == (1.5, 1.5)
    assert result(records=[FAILED], best=[], cost=5.0).to_json()["cost_per_trial"] is None
    assert result().to_json()["cost"] is None


def test_in_the_json_of_a_result_best_is_one_trial_or_a_list_for_several_objectives() -> None:
    assert result().to_json()["best"]["run_id"] == "0000"
    assert result(best=[]).to_json()["best"] is None
    both = replace(BEST, scores={"acc": 0.9, "size": 3.0})
    several = result(objectives=["acc", "size"], records=[both], best=[both]).to_json()["best"]
    assert [trial["run_id"] for trial in several] == ["0000"]


def test_in_jupyter_a_result_shows_the_best_trial_first_and_links_to_its_files() -> None:
    better = record(2, TrialState.COMPLETED, scores={"acc": 0.95})
    worse = replace(BEST, number=3, params={"lr": "<b>"}, scores={"acc": 0.5})
    found = result(records=[worse, BEST, FAILED, better], best=[better])
    page = replace(found, page=Path("out/a study/index.html"))._repr_html_()
    places = [page.index(f">{run_id}</a>") for run_id in ("0002", "0000", "0001", "0003")]
    assert places == sorted(places)
    assert "study s: 3 completed, 1 failed" in page
    assert "<dd>0002  acc=0.95, not confirmed</dd>" in page
    assert 'href="out/a%20study/index.html"' in page
    assert 'href="out/0002.ipynb"' in page
    assert "<b>" not in page


def test_in_jupyter_a_trials_row_is_one_line_and_a_tooltip_shows_its_whole_message() -> None:
    message = "ValueError: the <hidden> layers\ndo not fit into memory"
    page = result(records=[replace(FAILED, message=message, duration_s=61.25)])._repr_html_()
    assert ">failed: ValueError: the &lt;hidden&gt; layers…</td>" in page
    assert 'title="failed: ValueError: the &lt;hidden&gt; layers\ndo not fit into memory"' in page
    assert page.index(">duration_s</th>") < page.index(">lr</th>")
    assert ">61.2</td>" in page


def test_a_result_with_several_objectives_shows_all_best_trials_first() -> None:
    records = [
        record(n, TrialState.COMPLETED, scores={"acc": n / 50, "loss": n / 50}) for n in range(30)
    ]
    several = result(records=records, best=[records[25], records[9]], objectives=["acc", "loss"])
    page = several._repr_html_()
    assert page.index(">0009</a>") < page.index(">0025</a>") < page.index(">0000</a>")
    assert "and 10 more" in page


def test_the_repr_of_a_sweeps_result_is_one_line() -> None:
    assert repr(result()) == "<study s: 1 completed, 1 failed; best: 0000, acc=0.9>"
    assert repr(result(records=[], best=[])) == "<study s: no trials>"


@pytest.mark.parametrize(
    ("score", "coarse"),
    [
        (520 / 540, True),
        (0.9629629850387573, True),  # 520 / 540 as torch's `.float().mean().item()` computes it
        (97.33999633789062, True),  # 97.34 %, in single precision
        (42.0, True),
        (0.6931471805599453, False),
        (0.013045982457697392, False),  # a loss in single precision
    ],
)
def test_an_accuracy_over_few_examples_is_coarse_and_a_loss_is_not_also_in_single_precision(
    score: float, coarse: bool
) -> None:
    assert is_coarse(score) is coarse
