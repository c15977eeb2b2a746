"""`pruner: auto` decides which trials are frozen, continue, or are pruned.

A frozen trial is paused, so that another trial gets its slot. The frozen trial may continue later.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from sweeper.search.pruners import Curve, Curves, PredictivePruner, Verdict

STEPS = 18  # trials are judged after a ninth of their steps, so first after two


def shape(end: float, steps: int = STEPS) -> list[float]:
    """Return a learning curve whose distance to `end` shrinks as 1 / (step + 1)."""
    return [end - 0.3 * (end + 0.2) / (step + 1) for step in range(steps)]


def study(
    *,
    completed: Sequence[Sequence[float]] = (),
    frozen: Sequence[Sequence[float]] = (),
    running: Sequence[Sequence[float]] = (),
    scale: Callable[[float], float] = float,
    sign: float = 1.0,
) -> Curves:
    """Return the curves of trials, numbered in the order of the arguments."""
    found = []
    for state, several in (("completed", completed), ("frozen", frozen), ("running", running)):
        for curve in several:
            values = {10 * step: scale(value) for step, value in enumerate(curve)}
            final = scale(curve[-1]) if state == "completed" else None
            found.append(Curve(values=values, state=state, final=final))  # type: ignore[arg-type]
    return Curves(by_number=dict(enumerate(found)), sign=sign)


ENDED = [shape(end) for end in (0.5, 0.7, 0.8)]
EARLY = [shape(end, 2) for end in (0.4, 0.6, 0.86, 0.9)]


def test_each_trial_but_the_leading_one_is_frozen_when_it_is_first_judged() -> None:
    pruner = PredictivePruner()
    curves = study(completed=ENDED, running=[shape(0.9, 1), *EARLY])
    verdicts = [pruner.judge(curves, number, to_begin=9) for number in range(3, 8)]
    assert verdicts == [Verdict.GO_ON, *3 * [Verdict.FREEZE], Verdict.GO_ON]


def test_until_a_trial_completes_all_trials_but_the_first_and_the_leading_one_are_frozen() -> None:
    pruner = PredictivePruner()
    curves = study(running=[shape(end, 5) for end in (0.3, 0.4, 0.6, 0.5)])
    verdicts = [pruner.judge(curves, number, to_begin=9) for number in range(4)]
    assert verdicts == [Verdict.GO_ON, Verdict.FREEZE, Verdict.GO_ON, Verdict.FREEZE]


@pytest.mark.parametrize("sign", [1, -1], ids=["maximize", "minimize"])
def test_once_all_trials_have_begun_the_most_promising_frozen_ones_continue_until_none_can_win(
    sign: int,
) -> None:
    def scale(value: float) -> float:
        return sign * 1e6 * value + 3

    pruner = PredictivePruner()
    done = [*ENDED, shape(0.89)]
    curves = study(completed=done, frozen=EARLY, scale=scale, sign=sign)
    assert pruner.thaw(curves, to_begin=0) == 7
    assert [outlook.number for outlook in pruner.order(curves)] == [7, 6, 5, 4]
    curves = study(completed=[*done, shape(1.3)], frozen=EARLY, scale=scale, sign=sign)
    assert pruner.thaw(curves, to_begin=0) is None
    best, *_ = outlooks = pruner.order(curves)
    assert not any(outlook.may_win for outlook in outlooks)
    assert best.likely == pytest.approx(scale(0.9), rel=0.1)
    assert str(best).endswith(f"completed trials has {scale(shape(1.3)[-1]):.6g}")


def test_a_trial_frozen_with_too_few_steps_for_a_prediction_has_priority_over_new_ones() -> None:
    assert PredictivePruner().thaw(study(completed=ENDED, frozen=[[0.1]]), to_begin=9) == 3


def test_only_one_of_four_slots_continues_a_frozen_trial_while_new_trials_are_left() -> None:
    pruner = PredictivePruner()
    beginning = [shape(0.5, 1)] * 3
    assert pruner.thaw(study(completed=ENDED, frozen=EARLY, running=beginning), to_begin=9) == 6
    running = [*beginning[1:], shape(0.92, 3)]
    curves = study(completed=ENDED, frozen=EARLY, running=running)
    assert pruner.thaw(curves, to_begin=9) is None


@pytest.mark.parametrize("beginning", [1, 2, 3, 4, 5])
def test_a_frozen_trial_gets_a_free_slot_however_many_running_trials_have_not_reported_yet(
    beginning: int,
) -> None:
    curves = study(completed=ENDED, frozen=EARLY, running=beginning * [[]])
    assert PredictivePruner().thaw(curves, to_begin=9) == 6


def test_one_of_two_slots_thaws_the_most_promising_frozen_trial() -> None:
    pruner = PredictivePruner()
    assert (
        pruner.thaw(study(completed=ENDED, frozen=EARLY, running=[shape(0.5, 1)]), to_begin=9) == 6
    )
    running = [shape(0.5, 1), shape(0.92, 3)]
    curves = study(completed=ENDED, frozen=EARLY, running=running)
    assert pruner.judge(curves, 8, to_begin=9) is Verdict.GO_ON


def test_a_trial_that_can_win_is_no_longer_frozen_after_two_ninths_of_its_training() -> None:
    pruner = PredictivePruner()
    for steps, verdict in ((4, Verdict.FREEZE), (5, Verdict.GO_ON)):
        curves = study(completed=ENDED, frozen=EARLY, running=[shape(0.5, 1), shape(0.82, steps)])
        assert pruner.judge(curves, 8, to_begin=9) is verdict
    curves = study(completed=ENDED, frozen=EARLY, running=[shape(0.5, 1), shape(0.5, 5)])
    assert pruner.judge(curves, 8, to_begin=9) is not Verdict.GO_ON


def test_every_frozen_trial_may_still_win_if_early_scores_do_not_predict_final_ones() -> None:
    chance = random.Random(1)
    done = [[*(chance.random() for _ in range(17)), 0.9 + chance.gauss(0, 0.01)] for _ in range(4)]
    curves = study(completed=done, frozen=[[chance.random() for _ in range(3)] for _ in range(20)])
    assert all(outlook.may_win for outlook in PredictivePruner().order(curves))


def test_a_bad_trial_at_its_last_step_continues_and_a_diverged_trial_is_pruned() -> None:
    curves = study(completed=ENDED, running=[shape(0.1), [0.5, math.nan], [0.9, 0.9, 0.9]])
    pruner = PredictivePruner()
    verdicts = [pruner.judge(curves, number, to_begin=9) for number in (3, 4)]
    assert verdicts == [Verdict.GO_ON, Verdict.PRUNE]


def test_with_freezing_the_best_trial_completes_and_more_than_half_of_the_steps_are_saved() -> None:
    chance = random.Random(5)
    ends = [chance.random() for _ in range(40)]
    curves = [
        [end - 0.6 * (step + 1) ** -chance.uniform(0.9, 1.1) for step in range(STEPS)]
        for end in ends
    ]
    trained, finished = replay(curves, jobs=4)
    assert ends.index(max(ends)) in finished
    assert trained < 0.5 * 40 * STEPS


def replay(curves: Sequence[Sequence[float]], *, jobs: int) -> tuple[int, list[int]]:
    """Train trials with these curves, as a scheduler would.

    Return the number of trained steps, and the numbers of the trials that complete.
    """
    pruner, begun, trained = PredictivePruner(), 0, 0
    seen: dict[int, Curve] = {}
    all_seen = Curves(by_number=seen, sign=1.0)
    running: list[int] = []
    while True:
        while len(running) < jobs:
            number = pruner.thaw(all_seen, to_begin=len(curves) - begun)
            if number is None and begun == len(curves):
                break
            if number is None:
                number, begun = begun, begun + 1
            held = seen[number].values if number in seen else {}
            seen[number] = Curve(values=held, state="running")
            running.append(number)
        if not running:
            return trained, [number for number, it in seen.items() if it.final is not None]
        number, curve = running[0], curves[running.pop(0)]
        values = {**seen[number].values, len(seen[number].values): curve[len(seen[number].values)]}
        trained += 1
        seen[number] = Curve(values=values, state="running")
        if len(values) == len(curve):
            seen[number] = Curve(values=values, state="completed", final=curve[-1])
        elif pruner.judge(all_seen, number, to_begin=len(curves) - begun) is Verdict.GO_ON:
            running.append(number)
        else:
            seen[number] = Curve(values=values, state="frozen")
