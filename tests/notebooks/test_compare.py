"""Test which differences between two executions of a notebook are found and how they are stated."""

from __future__ import annotations

import math
import time
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from sweeper.notebooks.compare import Execution, Parting, compare

v4: Any = nbformat.v4


def ran(*outputs: NotebookNode, **stated: Any) -> Execution:
    """Return an execution of a notebook whose only cell has these outputs."""
    cell = v4.new_code_cell("…", outputs=list(outputs))
    return Execution(**{"scores": {"val": 0.5}, "series": {}, "cells": [cell], **stated})


def printed(text: str, name: str = "stdout") -> NotebookNode:
    return NotebookNode(v4.new_output("stream", name=name, text=text))


def displayed(**data: Any) -> NotebookNode:
    named = {name.replace("_", "/", 1): part for name, part in data.items()}
    return NotebookNode(v4.new_output("display_data", data=named))


# --- scores and steps -----------------------------------------------------------------------------


def test_two_scores_that_differ_only_in_the_last_bit_count_as_different() -> None:
    one, other = ran(scores={"val": 0.1 + 0.2}), ran(scores={"val": 0.3})
    found = compare(one, other)
    assert not found.has_equal_numbers
    assert str(found) == "val 0.30000000000000004 → 0.3 (-5.55e-17)"
    assert 0 < found.distance < 1e-15
    assert str(compare(one, one)) == ""


def test_in_a_comparison_nan_equals_nan_and_a_missing_score_has_an_infinite_distance() -> None:
    nan = ran(scores={"val": math.nan}, series={"loss": [(0, math.nan)]})
    also = ran(scores={"val": float("nan")}, series={"loss": [(0, float("nan"))]})
    assert not str(compare(nan, also))
    lost = compare(ran(), ran(scores={}))
    assert (lost.distance, lost.agrees_in_kind) == (math.inf, False)


@pytest.mark.parametrize(
    ("other", "parting", "words"),
    [
        ([(0, 1.0), (1, 0.5)], Parting(n_equal=2), "equal at all 2 points"),
        (
            [(0, 1.0), (1, 0.25)],
            Parting(n_equal=1, step=1, first=0.5, second=0.25, distance=0.5),
            "equal at the first 1 points; from step 1 on 0.5 → 0.25 (-0.25)",
        ),
        (
            [(0, 1.0)],
            Parting(n_equal=1, step=1, first=0.5, second=None, distance=math.inf),
            "equal at the first 1 points; from step 1 on 0.5 → none",
        ),
        (
            [(1, 0.5)],
            Parting(n_equal=0, step=0, first=1.0, second=None, distance=math.inf),
            "from step 0 on 1.0 → none",
        ),
    ],
)
def test_a_comparison_names_the_first_step_at_which_two_series_differ(
    other: list[tuple[int, float]], parting: Parting, words: str
) -> None:
    found = compare(ran(series={"loss": [(0, 1.0), (1, 0.5)]}), ran(series={"loss": other}))
    assert found.series == {"loss": parting}
    assert str(parting) == words
    assert found.has_equal_numbers == (parting.step is None)


def test_a_comparison_lists_the_series_with_the_earliest_difference_first() -> None:
    one = ran(series={"a": [(0, 1.0), (1, 1.0)], "b": [(0, 1.0), (1, 1.0)]})
    other = ran(series={"a": [(0, 1.0), (1, 2.0)], "b": [(0, 3.0), (1, 1.0)]})
    assert str(compare(one, other)).startswith("b: from step 0 on")


def test_params_and_package_versions_that_differ_are_listed_with_both_values() -> None:
    facts = {f"package{n}": "1.0" for n in range(20)}
    found = compare(
        ran(params={"x": 1, "y": "a"}, environment={"Python": "3.11", **facts}),
        ran(params={"x": 2, "y": "a"}, environment={"Python": "3.11"}),
    )
    assert found.params == {"x": (1, 2)}
    assert found.environment_in_words()[0] == "package0: 1.0 → none"
    assert found.environment_in_words()[-1] == "and 12 more"
    assert found.to_json()["params"] == {"x": [1, 2]}


# --- outputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("took 1.52 s", "took 1.49 s"),
        ("<Model at 0x7f3a12b4c5d0>", "<Model at 0x7f11aabbccdd>"),
        (
            "/a/auto.py:21: TqdmWarning: no\n  from .a import b\nend",
            "/z/imports.py:9: TqdmWarning: no\n  run()\nend",
        ),
        ("started 2026-11-21 10:11:12", "started 2026-11-22 09:00:01"),
        ("\x1b[1m3s\x1b[0m 56ms/step - loss: 0.5", "\x1b[1m2s\x1b[0m 48ms/step - loss: 0.5"),
        ("epoch 1, 93.2 it/s", "epoch 1, 88.1 it/s"),
        ("Elapsed: 12.25", "Elapsed: 13.5"),
        ("run 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "run 6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("100%|████| 10/10 [00:01<00:00, 9.31]", "100%|███▌| 10/10 [00:02<00:00, 4.02]"),
        ("/tmp/ipykernel_123/4567.py:1: UserWarning", "/tmp/ipykernel_9/88.py:1: UserWarning"),
    ],
)
def test_times_rates_and_addresses_in_outputs_are_not_compared(one: str, other: str) -> None:
    assert not str(compare(ran(printed(one)), ran(printed(other))))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("acc 0.91", "acc 0.92"),
        ("0.6177530000000001", "0.6177530000000002"),
        ("3 rows", "4 rows"),
        ("cat", "dog"),
    ],
)
def test_changed_numbers_and_words_in_outputs_count_as_differences(one: str, other: str) -> None:
    found = compare(ran(printed(f"a\n{one}")), ran(printed(f"a\n{other}")))
    assert found.has_equal_numbers
    assert found.agrees_in_kind
    assert str(found) == f"cell 1, from line 2 on: {one!r} → {other!r}"


def test_a_long_line_is_quoted_around_its_first_difference() -> None:
    one, other = ("x" * 500 + f" {word} " + "y" * 500 for word in ("here", "there"))
    words = str(compare(ran(printed(one)), ran(printed(other))))
    assert "here" in words
    assert "there" in words
    assert len(words) < 200


def test_outputs_are_compared_in_their_order_except_between_stdout_and_stderr() -> None:
    figure, out, err = displayed(image_png="aGk="), printed("a"), printed("b", "stderr")
    assert not compare(ran(out, figure), ran(figure, out)).agrees_in_kind
    assert not str(compare(ran(out, err), ran(err, out)))
    assert str(compare(ran(out, figure, err), ran(err, figure, out)))
    pieces = [printed("a"), err, printed("c")]
    assert not str(compare(ran(*pieces), ran(printed("ac"), err)))


@pytest.mark.parametrize(
    "log",
    [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
        "I0000 00:00:1795973455.721041   27702 cpu_feature_guard.cc:227] This TensorFlow binary …\n"
        "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow\n",
        "2026-11-29 17:33:37.123456: W tensorflow/core/util/port.cc:153] oneDNN operations are on.",
        "E0000 00:00:1795973455.72 1 cuda_dnn.cc:8579] Unable to register cuDNN factory\n",
    ],
)
def test_log_lines_of_native_libraries_are_not_compared(log: str) -> None:
    same = ran(printed("loss 0.5"))
    assert str(compare(ran(printed(log, "stderr"), printed("loss 0.5")), same)) == ""
    with_warning = ran(printed(f"a warning\n{log}", "stderr"), printed("loss 0.5"))
    assert "a warning" in str(compare(with_warning, same))


def test_errors_in_outputs_are_compared_without_their_tracebacks() -> None:
    def raised(evalue: str, line: int) -> Execution:
        frames = [f"line {line}"]
        return ran(v4.new_output("error", ename="ValueError", evalue=evalue, traceback=frames))

    assert not str(compare(raised("a", 1), raised("a", 2)))
    words = "cell 1, from line 1 on: 'ValueError: a' → 'ValueError: b'"
    assert str(compare(raised("a", 1), raised("b", 1))) == words


def test_images_are_compared_but_widget_views_are_not() -> None:
    one, other = ran(displayed(image_png="aGk=")), ran(displayed(image_png="aGo="))
    assert "a picture, or another output that is not text" in str(compare(one, other))
    view = "application/vnd.jupyter.widget-view+json"
    widgets = [ran(v4.new_output("display_data", data={view: {"model_id": n}})) for n in "ab"]
    assert not str(compare(*widgets))


def test_two_numbers_of_200_000_digits_are_compared_in_less_than_a_second() -> None:
    began_s = time.process_time()
    found = compare(ran(printed("1" * 200_000)), ran(printed("1" * 199_999 + "2")))
    assert time.process_time() - began_s < 1
    assert len(found.outputs) == 1


@pytest.mark.parametrize("rate", ["12.5it/s", "12345/s", "80 kB/s"])
def test_a_rate_in_an_output_is_not_compared(rate: str) -> None:
    assert not compare(ran(printed(rate)), ran(printed("7.25it/s"))).outputs
