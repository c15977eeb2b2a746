"""Test each source of a score, which source counts, and that executed notebooks lose no value."""

from __future__ import annotations

import itertools
import math
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.notebook_api.messages import Point, PointSource, encode_float
from sweeper.notebooks.executed import ExecutedNotebook
from sweeper.notebooks.metadata import BLANK, StoredSeries, TrialMetadata, read_metadata
from sweeper.notebooks.reading import read_notebook
from sweeper.notebooks.research import ResearchNotebook
from sweeper.notebooks.scores import (
    PrintedScores,
    Scraped,
    displayed_point,
    scrape,
    series_of,
    variables_to_read,
)
from sweeper.settings.sections import Objective, ScoreSource
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, ScoreRank, TrialSpec

NAN = math.nan


def displayed(mime: str, content: Any) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {mime: content}, "metadata": {}}


def glued(name: str, value: Any) -> dict[str, Any]:
    content = {"name": name, "data": value, "encoder": "json", "version": 1}
    return displayed("application/scrapbook.scrap.json+json", content)


def recorded(**values: Any) -> dict[str, Any]:
    return displayed("application/papermill.record+json", values)


def reported(*values: float) -> dict[str, Any]:
    return {"steps": list(range(len(values))), "values": [encode_float(v) for v in values]}


def scraped(
    *outputs: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, Any]] | None = None,
    take: str = "last",
    direction: str = "maximize",
    **metadata: Any,
) -> Scraped:
    """Return the scores of a notebook with a cell of these outputs and this `metadata.sweeper`."""
    return scrape(
        [{"source": "# text"}, {"outputs": outputs}],
        TrialMetadata.decode(metadata) or BLANK,
        sources={name: ScoreSource.model_validate(s) for name, s in (scores or {}).items()},
        objectives={"acc": Objective.model_validate({"direction": direction, "take": take})},
    )


# --- the sources and their order -----------------------------------------------------------------

#: Sources of `acc`, from the strongest to the weakest, each with a different value.
SOURCES: dict[str, tuple[float, dict[str, Any], list[dict[str, Any]]]] = {
    "score": (1.0, {"finals": {"acc": 1.0}}, []),
    "report": (2.0, {"series": {"acc": reported(0.0, 2.0)}}, []),
    "pattern": (3.0, {"printed": {"acc": reported(0.0, 3.0)}}, []),
    "glue": (4.0, {}, [glued("acc", 4.0)]),
    "record": (5.0, {}, [recorded(acc=5.0)]),
    "variable": (6.0, {"variables": {"acc": 6.0}}, []),
    "library": (7.0, {"logged": {"acc": {**reported(0.0, 7.0), "library": "Keras"}}}, []),
}


def left_by(*names: str) -> Scraped:
    metadata = {key: value for name in names for key, value in SOURCES[name][1].items()}
    outputs = [output for name in names for output in SOURCES[name][2]]
    scores = {"acc": {"pattern": r"acc=(\S+)"}} if "pattern" in names else {}
    return scraped(*outputs, scores=scores, **metadata)


@pytest.mark.parametrize("name", SOURCES)
def test_a_score_is_found_in_each_kind_of_source(name: str) -> None:
    assert left_by(name).scores == {"acc": SOURCES[name][0]}


@pytest.mark.parametrize(("stronger", "weaker"), list(itertools.combinations(SOURCES, 2)))
def test_of_two_sources_of_a_score_the_one_earlier_in_the_order_of_priority_counts(
    stronger: str, weaker: str
) -> None:
    assert left_by(stronger, weaker).scores == {"acc": SOURCES[stronger][0]}
    assert left_by(weaker, stronger).scores == {"acc": SOURCES[stronger][0]}


@pytest.mark.parametrize("stronger", [name for name in SOURCES if name != "library"])
def test_a_logged_series_is_prefixed_with_the_librarys_name_if_another_source_gives_the_score(
    stronger: str,
) -> None:
    found = left_by("library", stronger)
    assert found.series.pop("Keras/acc") == [(0, 0.0), (1, 7.0)]
    assert found.series == left_by(stronger).series
    assert left_by("library").series == {"acc": [(0, 0.0), (1, 7.0)]}


@pytest.mark.parametrize("take", ["last", "best", "mean"])
def test_a_source_stated_in_the_parameters_file_has_priority_over_a_librarys_series(
    take: str,
) -> None:
    logged = {"acc": {**reported(0.5, 1.0), "library": "Keras"}}
    named = {"acc": {"variable": "test_acc"}}
    found = scraped(scores=named, take=take, logged=logged, variables={"test_acc": 0.47})
    assert found.scores == {"acc": 0.47}
    assert [it.source for it in found.given["acc"]] == ["variable test_acc", "Keras"]
    assert scraped(scores=named, take=take, logged=logged).scores == {}
    stored = replace(
        BLANK, logged={"acc": StoredSeries(steps=(0,), values=(1.0,), library="Keras")}
    )
    assert series_of(replace(stored, given_by={"acc": ScoreRank.NAMED})).keys() == {"Keras/acc"}
    assert series_of(stored).keys() == {"acc"}


def test_a_variable_stated_for_a_score_has_priority_over_the_variable_with_its_name() -> None:
    found = scraped(scores={"loss": {"variable": "l"}}, variables={"l": 0.25, "acc": 0.5})
    assert found.scores == {"loss": 0.25, "acc": 0.5}
    worked_out = {"r2": {"expression": "m.score(X)"}}
    assert scraped(scores=worked_out, variables={"m.score(X)": 0.5}).scores == {"r2": 0.5}
    named = {"acc": {"variable": "a"}}
    assert scraped(scores=named, variables={"a": 1.0, "acc": 0.5}).scores == {"acc": 1.0}


@pytest.mark.parametrize(
    "source", [{"variable": "a"}, {"expression": "m.score(X)"}, {"pattern": "acc=(.*)"}]
)
def test_a_score_whose_stated_source_gives_nothing_is_missing_unless_it_was_reported(
    source: dict[str, str],
) -> None:
    named = {"acc": source}
    assert scraped(glued("acc", 0.25), scores=named, variables={"acc": 0.5}).scores == {}
    reports = {"acc": reported(0.75)}
    assert scraped(scores=named, variables={"acc": 0.5}, series=reports).scores == {"acc": 0.75}


def test_variables_in_settings_or_with_an_objectives_name_are_read_from_the_kernel() -> None:
    sources = {
        "loss": ScoreSource(variable="l"),
        "acc": ScoreSource(variable="a"),
        "x": ScoreSource(pattern="(.)"),
        "r2": ScoreSource(expression="m.score(X)"),
    }
    asked = variables_to_read(sources, ["acc", "f1", "val/acc", "train-auc"])
    assert asked == ["l", "a", "m.score(X)", "acc", "f1"]


@pytest.mark.parametrize("content", [True, "high", [1.0], {"a": 1}, None])
def test_a_displayed_value_that_is_not_a_number_is_no_score(content: Any) -> None:
    assert scraped(glued("acc", content), recorded(acc=content)).scores == {}


def test_a_display_output_that_cannot_be_read_gives_no_score_and_raises_no_error() -> None:
    scrap = "application/scrapbook.scrap.json+json"
    unreadable = [
        glued("acc", 10**400),
        recorded(acc=10**400),
        displayed(scrap, None),
        displayed(scrap, []),
        displayed(scrap, {}),
        displayed(scrap, "acc"),
        displayed(scrap, {"name": None, "data": "text"}),
        displayed(scrap, {"name": ["acc"], "data": {}}),
    ]
    for output in unreadable:
        assert displayed_point(output["data"]) is None
    assert scraped(*unreadable).scores == {}
    assert scraped(displayed(scrap, {"name": ["acc"], "data": 1})).scores == {"['acc']": 1.0}


@pytest.mark.parametrize("word", ["NaN", "nan", "Infinity", "-Infinity", "inf"])
def test_displayed_texts_for_nan_and_infinity_are_scores_and_the_last_displayed_value_counts(
    word: str,
) -> None:
    value = scraped(glued("acc", 1), glued("acc", word)).scores["acc"]
    assert encode_float(value) == encode_float(float(word))


# --- which value of a series ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("take", "direction", "values", "score"),
    [
        ("last", "maximize", [3.0, 1.0, 2.0], 2.0),
        ("best", "maximize", [3.0, 1.0, 2.0], 3.0),
        ("best", "minimize", [3.0, 1.0, 2.0], 1.0),
        ("mean", "maximize", [3.0, 1.0, 2.0], 2.0),
        ("last", "maximize", [1.0, NAN], NAN),
        ("best", "maximize", [1.0, NAN, 0.5], 1.0),
        ("best", "minimize", [NAN, 1.0, 0.5], 0.5),
        ("best", "maximize", [NAN, NAN], NAN),
        ("best", "maximize", [1.0, math.inf], math.inf),
        ("mean", "maximize", [1.0, NAN], NAN),
        ("mean", "maximize", [math.inf, -math.inf], NAN),
        ("mean", "maximize", [math.inf, 1.0], math.inf),
        ("mean", "maximize", [1e308, 1e308], 1e308),
        ("mean", "maximize", [1e16, 1.0, -1e16, 1.0], 0.5),
    ],
)
def test_the_setting_take_decides_which_value_of_a_series_is_the_score(
    take: str, direction: str, values: list[float], score: float
) -> None:
    found = scraped(take=take, direction=direction, series={"acc": reported(*values)})
    assert encode_float(found.scores["acc"]) == encode_float(score)


def test_a_final_score_has_priority_over_the_reported_series_with_its_name() -> None:
    found = scraped(take="best", series={"acc": reported(1.0, 9.0)}, finals={"acc": 5.0})
    assert found.scores == {"acc": 5.0}
    assert found.series == {"acc": [(0, 1.0), (1, 9.0)]}


# --- printed lines while a cell runs -------------------------------------------------------------


class Heard:
    """Reads values of the score `loss` from printed text with a pattern, and stores them."""

    def __init__(self, pattern: str = r"loss=([0-9.a-z+-]+)") -> None:
        self.points: list[Point] = []
        self.sources = {"loss": ScoreSource(pattern=pattern)}
        self.reader = PrintedScores(self.sources, self.points.append)

    def read(self, *pieces: str, stream: str = "stdout") -> list[float]:
        for piece in pieces:
            self.reader.read(stream, piece)
        return self.values

    @property
    def values(self) -> list[float]:
        return [it.metrics["loss"] for it in self.points if it.metrics]

    def scraped(self, make_file: Callable[[], ExecutedNotebook], **objective: Any) -> Scraped:
        """Return the scores of a trial whose executed notebook has the values found so far."""
        file = make_file()
        for point in self.points:
            file.points.record(point)
        goal = Objective.model_validate({"direction": "minimize", **objective})
        objectives = {"loss": goal}
        return scrape(file.node.cells, file.metadata, sources=self.sources, objectives=objectives)


@pytest.fixture
def make_file(tmp_path: Any, make_spec: Callable[..., TrialSpec]) -> Any:
    """Return a function that makes a new executed notebook."""
    research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb"))
    return lambda: ExecutedNotebook(research.fresh_copy(), make_spec())


def test_every_match_of_a_pattern_in_a_line_gives_a_value_unless_its_group_matches_nothing() -> (
    None
):
    observed = Heard(r"^(?:final )?loss=(\S+)?|loss=(?=$)")
    assert observed.read("final loss=3\nno loss=2\nloss=nan\nloss= loss=\nloss=n/a\n")[0] == 3.0
    assert [str(value) for value in observed.values] == ["3.0", "nan"]
    assert observed.points[-1].unread == {"loss": "n/a"}
    assert Heard().read("loss=3 then loss=2.5\nnothing\nloss=1e-3\n") == [3.0, 2.5, 0.001]


def test_a_printed_line_that_stderr_interrupts_stays_one_line_until_the_cell_ends() -> None:
    observed = Heard()
    observed.read("loss=0.")
    observed.read("loss=1\n", stream="stderr")
    assert observed.read("25\nloss=") == [1.0, 0.25]
    observed.reader.end_cell()
    assert observed.read("3\n") == [1.0, 0.25]


def test_a_number_in_an_unfinished_printed_line_is_read_only_once() -> None:
    observed = Heard()
    observed.read("loss=0.5,")
    observed.reader.settle()
    observed.reader.settle()
    assert observed.values == [0.5]
    observed.read(" then loss=0.")
    observed.reader.settle()
    # A number at the end of the text is not read yet, because digits may follow.
    assert observed.values == [0.5]
    observed.read("25")
    observed.reader.end_cell()
    assert observed.values == [0.5, 0.25]
    observed.reader.end_cell()
    assert observed.values == [0.5, 0.25]


def test_a_redrawn_progress_bar_gives_values_of_a_score_only_when_they_change() -> None:
    observed = Heard()
    observed.read("\r10% loss=0.5", "\r20% loss=0.5", "\r30%", "\r40% loss=0.5", "\r50% loss=nan")
    observed.reader.settle()
    observed.read("\r60% loss=nan", "\r70% loss=0.25\n", "\r10% loss=0.25\r\n")
    assert [repr(value) for value in observed.values] == ["0.5", "nan", "0.25", "0.25"]


@pytest.mark.parametrize("text", ["n/a", "0,31", "1.2.3", "3/10", "12h30", ""])
def test_a_score_from_the_last_printed_value_is_missing_if_that_is_not_a_number(
    text: str, make_file: Any
) -> None:
    observed = Heard(r"loss=(\S*)")
    observed.read("loss=0.5\n", f"loss={text}\n")
    found = observed.scraped(make_file)
    assert (found.scores, found.unread) == ({}, {"loss": text})
    assert found.series == {"loss": [(0, 0.5)]}
    assert observed.scraped(make_file, take="best").scores == {"loss": 0.5}
    assert observed.scraped(make_file, take="mean").scores == {}
    observed.read("loss=0.25\n")
    assert observed.scraped(make_file).scores == {"loss": 0.25}
    assert observed.points[-1].step == 2


def test_the_score_of_a_diverged_training_is_nan_and_not_its_last_finite_loss(
    make_file: Any,
) -> None:
    observed = Heard(r"loss=([0-9.]+)")
    observed.read("loss=0.5\n", "loss=nan\n")
    assert repr(observed.scraped(make_file).scores["loss"]) == "nan"


def test_a_pattern_that_backtracks_is_stopped_by_a_time_limit_and_blocks_no_other_thread(
    make_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.settings.patterns.LIMIT_S", 0.2)
    observed = Heard(r"loss=([0-9.]+)$|^(?:a|aa)+$")
    observed.read("loss=0.5\n")
    reading = threading.Thread(target=observed.read, args=("a" * 60 + " \n",))
    reading.start()
    # If the pattern held the interpreter's lock, the thread would have ended by now.
    assert reading.is_alive()
    reading.join()
    observed.read("loss=0.25\n")
    found = observed.scraped(make_file, take="best")
    assert (found.scores, found.too_slow) == ({}, {"loss"})


def test_a_pattern_that_is_slow_on_each_line_is_stopped_by_a_time_limit_for_the_trial(
    make_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.notebooks.scores.TRIAL_LIMIT_S", 0.3)
    observed = Heard(r"loss=([0-9.]+)$|^(?:a|aa)+$")
    began_s = time.thread_time()
    observed.read(*["loss=0.5\n", f"{'a' * 28} \n"] * 500)
    assert time.thread_time() - began_s < 3.0
    assert observed.scraped(make_file).too_slow == {"loss"}


def test_a_variable_gives_no_score_if_the_scores_pattern_matched_a_text_without_a_number() -> None:
    unread = {"loss": {"steps": [], "values": [], "unread": {"step": 0, "text": "n/a"}}}
    found = scraped(
        scores={"acc": {"pattern": "acc=(.*)"}},
        printed={"acc": unread["loss"]},
        variables={"acc": 0.5},
    )
    assert (found.scores, found.series, found.unread) == ({}, {}, {"acc": "n/a"})


@pytest.mark.slow  # the test computes for a second
def test_numbers_are_found_in_a_line_that_never_ends(make_file: Any) -> None:
    """Each number is found once, as soon as the line is long enough to be cut."""
    observed = Heard()
    numbers = [n / 8 for n in range(30_000)]
    observed.read(*(f" loss={number}" for number in numbers))
    assert len(observed.values) > len(numbers) / 2
    observed.reader.end_cell()
    assert observed.values == numbers
    assert observed.scraped(make_file).scores == {"loss": numbers[-1]}


def test_a_printed_number_is_read_completely_even_if_a_group_matches_only_a_part(
    make_file: Any,
) -> None:
    observed = Heard(r"loss=([0-9.]+)")
    observed.read("loss=1.2e+0")
    observed.reader.settle()
    # A number at the end of the text is not read yet, because digits may follow.
    assert observed.values == []
    observed.read("5\nloss=8")
    observed.read(",453\n")
    assert observed.read("\x1b[1mloss=\x1b[32m0.25\x1b[0m.\n") == [1.2e5, 8453.0, 0.25]
    one = Heard(r"([0-9.]+)")  # the pattern matches twice in 8,453, which is one number
    assert one.read("8,453\n") == [8453.0]


def test_two_equal_printed_lines_give_two_values_of_a_score() -> None:
    assert Heard().read("loss=1\nloss=1\n", "loss=1\r\nloss=1\r\n") == [1.0] * 4


@given(
    st.lists(st.sampled_from(["loss=1", "loss=2", " ", "\n", "\r", "x"]), max_size=30), st.data()
)
def test_printed_scores_do_not_depend_on_how_the_text_is_split_into_pieces(
    parts: list[str], data: Any
) -> None:
    text = "".join(parts)
    whole, pieces = Heard(), Heard()
    whole.read(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    for start, end in itertools.pairwise([0, *cuts, len(text)]):
        pieces.read(text[start:end])
    whole.reader.end_cell()
    pieces.reader.end_cell()
    assert pieces.values == whole.values


def test_a_displayed_score_has_a_value_and_no_step() -> None:
    for data, value in ((glued("acc", 0.5), 0.5), (recorded(acc=1), 1.0)):
        point = displayed_point(data["data"])
        assert point == Point(step=None, metrics={"acc": value}, source=PointSource.DISPLAYED)
    assert displayed_point({"text/plain": "0.5"}) is None


def test_attempts_of_one_trial_make_one_printed_and_one_logged_series(
    tmp_path: Any, make_spec: Callable[..., TrialSpec]
) -> None:
    research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb"))

    def points(step: int, value: float, logged_step: int) -> list[Point]:
        metrics = {"acc": value}
        return [
            Point(step=step, metrics=metrics, source=PointSource.PRINTED),
            Point(step=logged_step, metrics=metrics, source=PointSource.LOGGED, library="MLflow"),
        ]

    first = ExecutedNotebook(research.fresh_copy(), make_spec())
    for point in [*points(0, 0.5, 0), *points(1, 0.9, 1)]:
        first.points.record(point)
    first.points.record(
        Point(step=2, metrics={}, source=PointSource.PRINTED, unread={"acc": "n/a"})
    )
    first.write()
    earlier = first.path.rename(tmp_path / "earlier.ipynb")
    spec = make_spec(continues=earlier)
    spec.checkpoint_dir.mkdir(parents=True)
    (spec.checkpoint_dir / "000001.ckpt").touch()
    second = ExecutedNotebook(research.fresh_copy(), spec)
    assert second.points.steps_before(PointSource.PRINTED) == {"acc": 3}
    assert second.points.steps_before(PointSource.LOGGED) == {"acc": 2}
    running = RunningTrial()
    steps_before = second.points.steps_before(PointSource.PRINTED)
    running.points.keep(second.points.record, steps_before=steps_before)
    for point in points(0, 0.7, 2):
        running.points.publish(point)
    found = scrape(
        second.node.cells,
        second.metadata,
        sources={"acc": ScoreSource(pattern="acc=(.*)")},
        objectives={"acc": Objective.model_validate({"direction": "maximize", "take": "best"})},
    )
    assert found.scores == {"acc": 0.9}
    assert found.series["acc"] == [(0, 0.5), (1, 0.9), (3, 0.7)]
    assert found.series["MLflow/acc"] == [(0, 0.5), (1, 0.9), (2, 0.7)]


# --- through a file ------------------------------------------------------------------------------


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


AWKWARD = [0.1 + 0.2, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2**53 + 1.0, NAN, -math.inf]


def test_scores_read_again_from_disk_are_the_same_to_the_last_bit(
    tmp_path: Any, make_spec: Callable[..., TrialSpec]
) -> None:
    research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb"))
    file = ExecutedNotebook(research.fresh_copy(), make_spec())
    for step, value in enumerate(AWKWARD):
        file.points.record(Point(step=step, metrics={"acc": value}))
        file.points.record(Point(step=None, metrics={f"final{step}": value}))
    file.write()
    node, metadata = read_notebook(file.path), read_metadata(file.path)
    assert metadata is not None
    found = scrape(node.cells, metadata, sources={}, objectives={})
    assert [step for step, _ in found.series["acc"]] == list(range(len(AWKWARD)))
    assert [bits(v) for _, v in found.series["acc"]] == [bits(v) for v in AWKWARD]
    finals = [found.scores[f"final{step}"] for step in range(len(AWKWARD))]
    assert [bits(v) for v in finals] == [bits(v) for v in AWKWARD]
