"""A sweep ends if its params have no effect on the first trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.notebooks.compare import Execution
from sweeper.notebooks.metadata import BLANK, TrialMetadata
from sweeper.sweep.scheduling import worthless
from sweeper.sweep.scheduling.worthless import Tied, Worthless, WorthlessRule
from sweeper.trials import TrialRecord, TrialState

LOSS, ACCURACY = 0.4971313231, 29 / 30


def trial(
    number: int,
    params: Mapping[str, Any],
    score: float,
    *,
    state: TrialState = TrialState.COMPLETED,
) -> TrialRecord:
    return TrialRecord(
        number=number,
        params=params,
        seed=number,
        attempt=1,
        notebook=Path(f"{number:04d}.ipynb"),
        state=state,
        scores={"loss": score},
    )


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorthlessRule]:
    """Return a function that makes a rule for trials whose notebooks have printed given texts."""

    def make(*outputs: str, code_of: Callable[[int], str] = lambda _: "") -> WorthlessRule:
        def read(record: TrialRecord) -> Execution:
            text = outputs[record.number] if record.number < len(outputs) else "the same"
            cell = {
                "cell_type": "code",
                "outputs": [{"output_type": "stream", "name": "stdout", "text": text}],
            }
            return Execution(cells=[cell], scores=record.scores, series={})

        def metadata(notebook: Path) -> TrialMetadata:
            return replace(BLANK, code=code_of(int(notebook.stem)))

        monkeypatch.setattr(worthless, "execution_of", read)
        monkeypatch.setattr(worthless, "read_metadata", metadata)
        return WorthlessRule("new", ["lr", "x"])

    return make


def test_three_trials_with_equal_results_and_different_params_end_the_sweep(
    rule: Callable[..., WorthlessRule],
) -> None:
    trials = [trial(n, {"lr": n / 10, "width": 8}, LOSS) for n in range(3)]
    assert rule().judge(trials[:2]) is None
    found = rule().judge(trials)
    assert isinstance(found, Worthless)
    assert (found.run_ids, found.names) == (["0000", "0001", "0002"], ["lr"])


def test_scores_are_compared_by_name_even_if_a_trial_has_them_in_another_order(
    rule: Callable[..., WorthlessRule],
) -> None:
    trials = [trial(n, {"lr": n / 10}, LOSS) for n in range(3)]
    orders = [("a", "b"), ("b", "a"), ("a", "b")]
    trials = [
        replace(record, scores=dict.fromkeys(names, LOSS))
        for record, names in zip(trials, orders, strict=True)
    ]
    assert isinstance(rule().judge(trials), Worthless)


def test_equal_results_end_the_sweep_only_after_each_param_was_varied(
    rule: Callable[..., WorthlessRule],
) -> None:
    alone = [{"lr": 0.1, "x": 1}, {"lr": 0.2, "x": 1}, {"lr": 0.3, "x": 1}]
    trials = [trial(n, params, LOSS) for n, params in enumerate(alone)]
    own_rule = rule()
    assert own_rule.judge(trials) is None
    assert isinstance(own_rule.judge([*trials, trial(3, {"lr": 0.4, "x": 2}, LOSS)]), Worthless)
    other = rule()
    assert other.judge(trials) is None
    assert other.judge([*trials, trial(3, {"lr": 0.4, "x": 2}, 0.51312)]) is None


@pytest.mark.parametrize(
    "trials",
    [
        [trial(0, {"lr": 0.1}, LOSS), trial(1, {"lr": 0.2}, LOSS), trial(2, {"lr": 0.3}, 0.51312)],
        [trial(n, {"lr": 0.1}, LOSS) for n in range(5)],
        [trial(n, {"lr": n / 10}, LOSS, state=TrialState.PRUNED) for n in range(5)],
    ],
    ids=["one differs", "of the same params", "none completed"],
)
def test_a_sweep_continues_if_results_differ_or_params_are_equal_or_no_trial_completed(
    trials: list[TrialRecord], rule: Callable[..., WorthlessRule]
) -> None:
    assert rule().judge(trials) is None


def test_equal_accuracies_with_few_digits_are_reported_but_do_not_end_the_sweep(
    rule: Callable[..., WorthlessRule],
) -> None:
    trials = [trial(n, {"lr": n / 10}, ACCURACY) for n in range(3)]
    found = rule().judge(trials)
    assert isinstance(found, Tied)
    assert found.run_ids == ["0000", "0001", "0002"]


def test_equal_scores_with_different_outputs_are_reported_but_do_not_end_the_sweep(
    rule: Callable[..., WorthlessRule],
) -> None:
    trials = [trial(n, {"lr": n / 10}, LOSS) for n in range(3)]
    assert isinstance(rule("a tree of depth 3", "a tree of depth 4").judge(trials), Tied)


def test_the_first_trials_are_searched_for_equal_results_only_once(
    rule: Callable[..., WorthlessRule],
) -> None:
    tied = rule("a", "b")
    trials = [trial(n, {"lr": n / 10}, LOSS) for n in range(4)]
    assert isinstance(tied.judge(trials[:3]), Tied)
    assert tied.judge(trials) is None


def test_equal_results_of_trials_with_earlier_code_do_not_end_the_sweep(
    rule: Callable[..., WorthlessRule],
) -> None:
    read = set()

    def code_of(number: int) -> str:
        read.add(number)
        return "old" if number < 3 else "new"

    def judged(*scores: float) -> Tied | Worthless | None:
        old = [trial(n, {"lr": n / 10}, LOSS) for n in range(3)]
        new = [trial(n, {"lr": n / 10}, score) for n, score in enumerate(scores, start=3)]
        return rule(code_of=code_of).judge([*old, *new])

    assert judged(LOSS, 0.51312, 0.50002) is None
    found = judged(LOSS, LOSS, LOSS)
    assert isinstance(found, Worthless)
    assert found.run_ids == ["0003", "0004", "0005"]
    assert judged(LOSS, LOSS) is None
    assert read == {2, 3, 4, 5}, "reading all executed notebooks of a long study takes minutes"
