"""When two executions of a notebook count as equal, and what they differ in."""

from __future__ import annotations

import random
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from sweeper.kernels import Evidence, gather
from sweeper.kernels.forking.evidence import CLOSENESS, difference, scores_distance
from sweeper.kernels.forking.zygote import generators

v4 = nbformat.v4


def cell(*outputs: NotebookNode) -> NotebookNode:
    made = NotebookNode(v4.new_code_cell("…"))
    made.outputs = list(outputs)
    return made


def printed(text: str, name: str = "stdout") -> NotebookNode:
    return NotebookNode(v4.new_output("stream", name=name, text=text))


def displayed(**data: Any) -> NotebookNode:
    named = {name.replace("_", "/", 1): part for name, part in data.items()}
    return NotebookNode(v4.new_output("display_data", data=named))


def evidence(*cells: NotebookNode, **stated: Any) -> Evidence:
    usual: dict[str, Any] = {"scores": {"val": 0.5}, "series": {}, "at_start": {}, "at_end": {}}
    return gather(v4.new_notebook(cells=list(cells)), **{**usual, **stated})


def differ(one: NotebookNode, other: NotebookNode, twin: NotebookNode | None = None) -> str:
    third = None if twin is None else evidence(twin)
    return str(difference(evidence(one), evidence(other), twin=third) or "")


# --- scores and steps -----------------------------------------------------------------------------


def test_a_score_that_differs_in_its_last_bit_differs() -> None:
    one, other = evidence(scores={"val": 0.1 + 0.2}), evidence(scores={"val": 0.3})
    assert str(difference(one, other)) == "val: 0.30000000000000004 and 0.3"
    assert difference(one, one) is None


def test_every_reported_step_is_compared_not_the_objective_alone() -> None:
    one = evidence(series={"loss": [(0, 1.0), (1, 0.5)]})
    other = evidence(series={"loss": [(0, 1.0), (1, 0.25)]})
    assert str(difference(one, other)) == "the series loss: 0.5 and 0.25 at step 1"
    shorter = evidence(series={"loss": [(0, 1.0)]})
    assert str(difference(one, shorter)) == "the series loss: other steps"


def test_nan_equals_nan() -> None:
    one = evidence(series={"loss": [(0, float("nan"))]})
    assert difference(one, evidence(series={"loss": [(0, float("nan"))]})) is None


def test_scores_are_close_up_to_a_millionth_and_not_beyond() -> None:
    one = evidence(scores={"val": 1.0})
    near, far = evidence(scores={"val": 1.0 + 1e-9}), evidence(scores={"val": 1.001})
    assert 0 < scores_distance(one, near) <= CLOSENESS
    assert scores_distance(one, far) == float("inf")
    assert scores_distance(one, one) == 0
    assert difference(one, near) is not None
    assert difference(one, near, closeness=CLOSENESS) is None
    assert difference(one, far, closeness=CLOSENESS) is not None


# --- outputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("took 1.52 s", "took 1.49 s"),
        ("<Model at 0x7f3a12b4c5d0>", "<Model at 0x7f11aabbccdd>"),
        ("started 2026-11-21 10:11:12", "started 2026-11-22 09:00:01"),
        ("epoch 1, 93.2 it/s", "epoch 1, 88.1 it/s"),
        ("Elapsed: 12.25", "Elapsed: 13.5"),
        ("run 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "run 6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("100%|████| 10/10 [00:01<00:00, 9.31]", "100%|███▌| 10/10 [00:02<00:00, 4.02]"),
        ("/tmp/ipykernel_123/4567.py:1: UserWarning", "/tmp/ipykernel_9/88.py:1: UserWarning"),
    ],
)
def test_times_rates_and_addresses_may_differ(one: str, other: str) -> None:
    assert differ(cell(printed(one)), cell(printed(other))) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("acc 0.91", "acc 0.92"),
        ("0.6177530000000001", "0.6177530000000002"),
        ("3 rows", "4 rows"),
        ("cat", "dog"),
    ],
)
def test_other_numbers_and_words_may_not(one: str, other: str) -> None:
    assert differ(cell(), cell()) == ""
    where = differ(cell(printed(one)), cell(printed(other)))
    assert where == f"code cell 1: another text of its stdout, {one!r} and {other!r}"


def test_of_long_texts_the_place_where_they_differ_is_quoted() -> None:
    lines = [f"line {n}" for n in range(100)]
    other = [*lines[:50], "x" * 500 + " here " + "y" * 500, *lines[51:]]
    third = [*lines[:50], "x" * 500 + " there " + "y" * 500, *lines[51:]]
    where = differ(cell(printed("\n".join(other))), cell(printed("\n".join(third))))
    assert "here" in where
    assert "there" in where
    assert len(where) < 200


def test_outputs_are_compared_in_their_order() -> None:
    figure, text = displayed(image_png="aGk="), printed("a")
    assert "shows stdout, display_data, and display_data, stdout" in differ(
        cell(text, figure), cell(figure, text)
    )


def test_of_two_streams_only_what_lies_between_displays_has_an_order() -> None:
    out, err = printed("a"), printed("b", "stderr")
    assert differ(cell(out, err), cell(err, out)) == ""
    figure = displayed(text_plain="f")
    assert differ(cell(out, figure, err), cell(err, figure, out)) != ""


def test_errors_that_a_cell_may_raise_are_compared_but_for_their_tracebacks() -> None:
    def raised(evalue: str, line: int) -> NotebookNode:
        frames = [f"line {line}"]
        made = v4.new_output("error", ename="ValueError", evalue=evalue, traceback=frames)
        return cell(NotebookNode(made))

    assert differ(raised("a", 1), raised("a", 2)) == ""
    assert differ(raised("a", 1), raised("b", 1)) == (
        "code cell 1: another error of its error, 'ValueError: a' and 'ValueError: b'"
    )


def test_pictures_are_compared() -> None:
    one, other = cell(displayed(image_png="aGk=")), cell(displayed(image_png="aGo="))
    assert differ(one, other) == "code cell 1: another image/png of its display_data"
    assert differ(one, one) == ""


def test_widgets_are_counted_by_their_type() -> None:
    def with_models(*names: str) -> Evidence:
        node = v4.new_notebook()
        state = {str(index): {"model_name": name} for index, name in enumerate(names)}
        kind = "application/vnd.jupyter.widget-state+json"
        node.metadata["widgets"] = {kind: {"state": state}}
        return gather(node, scores={}, series={}, at_start={}, at_end={})

    assert difference(with_models("HBox", "HTML"), with_models("HTML", "HBox")) is None
    lost = difference(with_models("HBox", "HTML"), with_models())
    assert str(lost) == "the widgets: 2 models, and 0"


def test_where_two_started_kernels_differ_a_forked_one_may_too_and_nowhere_else() -> None:
    one, twin = cell(printed("noise 0.1, acc 5")), cell(printed("noise 0.2, acc 5"))
    assert differ(one, cell(printed("noise 0.3, acc 5")), twin) == ""
    assert differ(one, cell(printed("noise 0.3, acc 6")), twin) != ""


# --- random generators ----------------------------------------------------------------------------


def states(draws: int, *, seed: int | None) -> Any:
    """The state of a generator after so many draws."""
    before = random.getstate()
    try:
        random.seed(seed)
        for _ in range(draws):
            random.random()
        return {"random": generators.states()["random"]}
    finally:
        random.setstate(before)


def test_a_generator_that_was_seeded_has_to_end_in_the_same_state() -> None:
    start = states(0, seed=None)
    one = evidence(at_end=states(3, seed=7))
    same = evidence(at_start=start, at_end=states(3, seed=7))
    more = evidence(at_start=start, at_end=states(4, seed=7))
    assert difference(one, same) is None
    assert "'random' was seeded" in str(difference(one, more))


def test_of_a_generator_that_nothing_seeds_only_whether_it_moved_counts() -> None:
    def forked(draws: int) -> Evidence:
        before = random.getstate()
        try:
            random.seed()
            start = {"random": generators.states()["random"]}
            for _ in range(draws):
                random.random()
            return evidence(at_start=start, at_end={"random": generators.states()["random"]})
        finally:
            random.setstate(before)

    moved = evidence(at_end=states(5, seed=None))
    assert difference(moved, forked(2000)) is None, "it has drawn, as often as it liked"
    assert "in one of them only" in str(difference(moved, forked(0)))


def test_a_seed_of_numpy_is_distinguished_from_draws_as_for_python() -> None:
    numpy = pytest.importorskip("numpy")
    before = numpy.random.get_state()
    try:
        numpy.random.seed(3)
        start = generators.states()["numpy"]
        numpy.random.rand(5000)
        assert not generators.is_seeded_since(start, generators.states()["numpy"])
        numpy.random.seed(4)
        assert generators.is_seeded_since(start, generators.states()["numpy"])
    finally:
        numpy.random.set_state(before)


def test_a_seed_of_torch_is_distinguished_from_draws_by_its_number() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_rng_state()
    try:
        torch.manual_seed(3)
        start = generators.states()["torch"]
        assert not start["has_moved"]
        torch.rand(5)
        end = generators.states()["torch"]
        assert end["has_moved"]
        assert not generators.is_seeded_since(start, end)
        torch.manual_seed(4)
        assert generators.is_seeded_since(start, generators.states()["torch"])
    finally:
        torch.set_rng_state(before)
