"""The plot of a study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from studies import small_settings

from sweeper.display.plot import as_png, plotted, study_figure
from sweeper.trials import TrialRecord, TrialState

SPACE = {
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "kind": ["a", "a kind with a $long$ name", [64, 64]],
    "momentum": {"low": 0.0, "high": 1.0, "when": {"kind": "a"}},
    "once": [True],
}
KINDS: list[Any] = SPACE["kind"]  # type: ignore[assignment]


def record(number: int, **scores: float) -> TrialRecord:
    params = {"lr": 10.0 ** -(number % 5), "kind": KINDS[number % 3], "once": True}
    return TrialRecord(
        number=number,
        state=TrialState.COMPLETED if scores else TrialState.FAILED,
        params=params | ({"momentum": 0.5} if number % 3 == 0 else {}),
        seed=1,
        attempt=1,
        notebook=Path("a.ipynb"),
        scores=scores,
    )


VALUES = [0.25, 0.75, 0.5, 1.0, 0.0]
RECORDS = [record(n, val=value, loss=2.0) for n, value in enumerate(VALUES)] + [record(5)]


def drawn(direction: str = "maximize", records: list[TrialRecord] = RECORDS) -> Any:
    return study_figure(
        "study seen",
        records,
        space=small_settings("seen", space=SPACE).search_space,
        objectives={"val": direction, "loss": "minimize"},
        objective="val",
    )


@pytest.fixture(scope="module")
def figure() -> Any:
    return drawn()


def axes_of(figure: Any) -> dict[str, Any]:
    return {axes.get_title(): axes for axes in figure.axes[0].child_axes}


def test_each_param_and_objective_has_an_axis_with_its_own_scale(figure: Any) -> None:
    axes = axes_of(figure)
    assert list(axes) == ["lr", "kind", "once", "momentum", "loss", "val"]
    assert (axes["lr"].get_yscale(), axes["lr"].get_ylim()) == ("log", (1e-4, 1.0))
    assert (axes["momentum"].get_yscale(), axes["momentum"].get_ylim()) == ("linear", (0.0, 1.0))
    assert axes["loss"].get_ylim()[0] < 2.0 < axes["loss"].get_ylim()[1]  # all are equal


def test_categories_stand_at_their_axis_in_full(figure: Any) -> None:
    labels = [label.get_text() for label in axes_of(figure)["kind"].get_yticklabels()]
    assert labels == ["a", "a kind with a $long$ name", "[64, 64]"]


def test_a_trial_without_a_param_passes_its_axis_at_n_a(figure: Any) -> None:
    host = figure.axes[0]
    place = 3  # of momentum
    heights = [segment[place][1] for segment in host.collections[0].get_segments()]
    assert sorted(heights) == [-0.12, -0.12, -0.12, 0.5, 0.5]
    assert [text.get_text().strip() for text in host.texts] == ["n/a"]


@pytest.mark.parametrize(
    ("direction", "in_order"), [("maximize", sorted(VALUES)), ("minimize", sorted(VALUES)[::-1])]
)
def test_lines_are_coloured_by_score_and_the_best_one_is_on_top(
    direction: str, in_order: list[float]
) -> None:
    lines = drawn(direction).axes[0].collections[0]
    assert list(lines.get_array()) == in_order
    assert lines.get_linewidths()[-1] > lines.get_linewidths()[0]


def test_the_history_has_each_score_and_the_best_so_far(figure: Any) -> None:
    scores, best = figure.axes[1].lines
    assert list(scores.get_ydata()) == VALUES
    assert list(best.get_ydata()) == [0.25, 0.75, 0.75, 1.0, 1.0]


def test_trials_without_a_finite_score_are_counted_and_not_drawn() -> None:
    records = [*RECORDS, record(6, val=float("inf"))]
    assert [one.number for one in plotted(records, "val")] == [0, 1, 2, 3, 4]
    assert drawn(records=records).get_suptitle() == "study seen (not drawn: 2 without val)"


@pytest.mark.slow
def test_a_figure_is_a_picture_without_pyplot_and_without_a_warning(
    figure: Any, recwarn: pytest.WarningsRecorder
) -> None:
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert as_png(drawn(records=RECORDS[:1])).startswith(b"\x89PNG")
    assert [str(warning.message) for warning in recwarn] == []
    assert not any(figure is manager.canvas.figure for manager in _pyplots_managers())


def _pyplots_managers() -> list[Any]:
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return list(helpers.Gcf.get_all_fig_managers()) if helpers else []
