"""Without torch, an F test finds two params that only act together."""

from __future__ import annotations

from random import Random

from studies import trial_record

from sweeper.answer.effects import clear_effects


def test_two_params_that_act_only_together_are_found_without_torch() -> None:
    random = Random(1)
    params = [{name: random.random() for name in "abc"} for _ in range(80)]
    trials = [
        trial_record(number, params=each, scores={"val": abs(each["a"] - each["b"])})
        for number, each in enumerate(params)
    ]
    _, pair = clear_effects(trials, "val")
    assert pair is not None
    assert {*pair} == {"a", "b"}
