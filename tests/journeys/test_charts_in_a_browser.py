"""Test what the charts of the comparison page show. Skip without Chromium or Playwright."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from browsing import MARKS, opened_page
from studies import note_in, small_settings, study_of_page, trial_record, until

from sweeper.page import Page
from sweeper.testing import write_notebook
from sweeper.trials import GpuUse, Importance, Reason, TrialRecord, TrialState

pytestmark = MARKS
SPACE = {
    "x": {"low": 0.0, "high": 1.0},
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "kind": ["a", "b", "c"],
}
SURFACE = {
    "params": ["x", "kind"],
    "places": [[0.0, 0.5, 1.0], [0, 1, 2]],
    "means": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]],
    "stds": [[0.01, 0.01, 0.01], [0.02, 0.02, 0.02], [0.3, 0.3, 0.3]],
    "interaction": 0.25,
}


def trial(folder: Path, number: int, **more: Any) -> TrialRecord:
    """Return the record of a trial that never ran. Its score is close to its param `x`."""
    x = number * 37 % 60 / 60
    kind = "abc"[number % 3]
    return trial_record(
        number,
        **{
            "params": {"x": x, "lr": 10.0 ** -(number % 4), "kind": kind},
            "notebook": folder / f"{number:04d}.ipynb",
            "scores": {"val": x + number / 10_000},
            "started_at_s": 1.7e9 + 60 * number,
            "duration_s": 90.0,
            **more,
        },
    )


def write_page(folder: Path, trials: Sequence[TrialRecord], **more: Any) -> Path:
    done = [one for one in trials if one.state is TrialState.COMPLETED]
    best = sorted(done, key=lambda one: -one.scores["val"])[:1]
    study = study_of_page("charts", trials, best=best)
    settings = small_settings("charts", space=SPACE)
    Page(folder / "index.html", folder / "page", folder / "notes.json").write(
        study, settings, is_running=False, **more
    )
    return folder / "index.html"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    with opened_page(browser, width=1280, height=900) as page:
        wrong: list[str] = []
        page.on("console", lambda line: wrong.append(line.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        yield page
    assert wrong == []


def open_page(page: Any, index: Path, fragment: str = "") -> None:
    page.goto("about:blank")
    page.goto(index.as_uri() + fragment)
    until(lambda: page.evaluate("() => sweeper.data !== null"))


def hover(page: Any, name: str, across: float, down: float) -> str:
    """Move the pointer into a chart. Return the text of the tooltip.

    `across` and `down` are shares of the chart's width and height.
    """
    page.evaluate(f"() => document.getElementById('{name}').scrollIntoView({{ block: 'center' }})")
    page.locator(f"#{name} canvas").first.wait_for()
    box = page.locator(f"#{name}").bounding_box()

    def is_shown() -> bool:
        page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"] - 1)
        page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
        return bool(page.locator("#tip").is_visible())

    until(is_shown)
    return str(page.locator("#tip").inner_text())


def is_drawn(page: Any, name: str) -> bool:
    chart = f"echarts.getInstanceByDom(document.getElementById('{name}'))"
    return bool(page.evaluate(f"() => Boolean({chart}?.getOption()?.series?.length)"))


def series_of(page: Any, name: str) -> list[dict[str, Any]]:
    page.evaluate(f"() => document.getElementById('{name}').scrollIntoView({{ block: 'center' }})")
    until(lambda: is_drawn(page, name))
    chart = f"echarts.getInstanceByDom(document.getElementById('{name}'))"
    text = page.evaluate(f"() => JSON.stringify({chart}.getOption().series)")
    return list(json.loads(text))


def test_the_table_of_the_page_begins_within_two_screens(tmp_path: Path, page: Any) -> None:
    importances = {"val": {"x": Importance(0.9, 0.8, 1.0), "kind": Importance(0.1, 0.0, 0.2)}}
    trials = [trial(tmp_path, n) for n in range(60)]
    open_page(page, write_page(tmp_path, trials, importances=importances))
    page.locator("#importance canvas").first.wait_for()
    assert page.locator("#trials").bounding_box()["y"] < 2 * 900


def test_a_score_with_the_name_of_a_swept_param_has_an_axis_of_its_own(
    tmp_path: Path, page: Any
) -> None:
    trials = [trial(tmp_path, n, scores={"val": n / 9, "x": 5.0 + n}) for n in range(9)]
    open_page(page, write_page(tmp_path, trials))
    page.locator("#parallel canvas").first.wait_for()
    ends = "(name) => [sweeper.axisOf(name).low, sweeper.axisOf(name).high]"
    low, high = page.evaluate(ends, "x")
    assert (low >= 0.0, high <= 1.0) == (True, True)
    low, high = page.evaluate(ends, "score.x")
    assert low >= 5
    is_shown = page.evaluate("(name) => sweeper.axisOf(name).isShown", "x")
    assert is_shown


def test_the_tooltip_of_a_line_describes_a_selected_trial_completely(
    tmp_path: Path, page: Any
) -> None:
    trials = [trial(tmp_path, n) for n in range(60)]
    # Only one trial is in this range: x = 0.5.
    brush = "#brush=" + json.dumps({"x": [[0.49, 0.51]]})
    open_page(page, write_page(tmp_path, trials), brush)
    page.get_by_text("1 of 60 trials", exact=True).wait_for()
    place = page.evaluate(
        """() => {
          const axis = sweeper.axisOf('x');
          const [trial] = sweeper.selected();
          const height = document.getElementById('parallel').clientHeight;
          const share = (axis.position(trial) - axis.bottom) / (axis.high - axis.bottom);
          const width = document.getElementById('parallel').clientWidth;
          return [(sweeper.placeOf('x') + 1) / width, (14 + (height - 34) * (1 - share)) / height];
        }"""
    )
    text = hover(page, "parallel", *place)
    selected = page.evaluate("() => sweeper.selected()[0].run_id")
    assert text.startswith(selected)
    assert {"val", "x", "lr", "kind", "duration"} <= set(text.split())


def test_the_tooltip_of_curves_lists_all_trials_values_at_the_step_under_the_pointer(
    tmp_path: Path, page: Any
) -> None:
    trials = [trial(tmp_path, n) for n in range(3)]
    for number, one in enumerate(trials):
        steps = list(range(11))
        series = {"val": {"steps": steps, "values": [number + step / 10 for step in steps]}}
        note_in(write_notebook(one.notebook, "val = x"), series=series)
    open_page(page, write_page(tmp_path, trials))
    text = hover(page, "curves", 0.5, 0.5)
    assert text.startswith("step 5 val")
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["0002", "2.5"],
        ["0001", "1.5"],
        ["0000", "0.5"],
    ]
    assert page.locator("#tip .marked").inner_text().startswith("0001")
    assert page.locator(".guide").is_visible()


def test_the_predicted_surface_of_two_params_is_drawn_with_its_uncertainty_and_the_trials(
    tmp_path: Path, page: Any
) -> None:
    trials = [trial(tmp_path, n) for n in range(60)]
    open_page(page, write_page(tmp_path, trials, surfaces={"val": [SURFACE]}))
    surface, points = series_of(page, "pair")
    assert len(surface["data"]) == 9
    assert len(points["data"]) == 60
    assert "predicted val: <b>0.100 ± 0.020" in surface["data"][0]["about"]
    assert page.locator("#pair-strongest").inner_text() == "interact most: x × kind (25 %)"
    page.locator("#pair-y").select_option(label="lr")
    until(lambda: len(series_of(page, "pair")) == 1)
    page.get_by_role("button", name="x × kind").click()
    until(lambda: len(series_of(page, "pair")) == 2)


def test_the_history_is_drawn_over_time_if_the_reader_chooses_it(tmp_path: Path, page: Any) -> None:
    open_page(page, write_page(tmp_path, [trial(tmp_path, n) for n in range(60)]))
    page.get_by_label("what the history is drawn over").select_option("time")
    last_min = pytest.approx(59 + 1.5)
    until(lambda: max(p["value"][0] for p in series_of(page, "history")[0]["data"]) == last_min)
    assert "over=time" in page.url
    page.get_by_label("what the history is drawn over").select_option("cost")
    all_min = pytest.approx(60 * 1.5)  # 60 trials took 90 s each
    until(lambda: max(p["value"][0] for p in series_of(page, "history")[0]["data"]) == all_min)


def test_a_chart_over_a_categorical_param_has_box_plots_and_points_spread_sideways(
    tmp_path: Path, page: Any
) -> None:
    open_page(page, write_page(tmp_path, [trial(tmp_path, n) for n in range(60)]))
    element = "document.querySelector('[data-column=\"param.kind\"]')"
    page.evaluate(f"() => {element}.scrollIntoView({{ block: 'center' }})")
    chart = f"echarts.getInstanceByDom({element})"
    until(lambda: page.evaluate(f"() => Boolean({chart}?.getOption()?.series?.length)"))
    boxes, points = json.loads(page.evaluate(f"() => JSON.stringify({chart}.getOption().series)"))
    assert len(boxes["data"]) == 3
    places = {point["value"][0] for point in points["data"]}
    assert len(places) == 60
    assert {round(place) for place in places} == {0, 1, 2}


def test_sections_of_the_page_that_have_nothing_to_show_are_hidden(
    tmp_path: Path, page: Any
) -> None:
    failed = {"state": TrialState.FAILED, "reason": Reason.CELL_ERROR, "scores": {}}
    open_page(page, write_page(tmp_path, [trial(tmp_path, n, **failed) for n in range(3)]))
    hidden = ["history", "importance", "pair", "distribution", "pareto", "memory", "slices"]
    for name in hidden:
        assert page.locator(f"#{name}-section").is_hidden(), name
    assert page.locator("#timeline-section").is_visible()


def test_the_colour_scale_of_the_page_covers_only_the_selected_trials(
    tmp_path: Path, page: Any
) -> None:
    index = write_page(tmp_path, [trial(tmp_path, n) for n in range(60)])

    def ends() -> list[float]:
        words = page.locator("#legend").inner_text().split()
        return [float(word) for word in words if word not in ("≤", "≥")]

    open_page(page, index)
    low, high = ends()
    assert low < 0.1
    assert high > 0.9
    open_page(page, index, "#brush=" + json.dumps({"x": [[0.49, 0.61]]}))
    low, high = ends()
    assert 0.49 < low < high < 0.62


def test_the_url_of_the_page_remembers_which_sections_are_folded(tmp_path: Path, page: Any) -> None:
    index = write_page(tmp_path, [trial(tmp_path, n) for n in range(60)])
    open_page(page, index)
    page.get_by_label("fold History").click()
    page.locator("#history").wait_for(state="hidden")
    again = page.url
    open_page(page, index, "#" + again.partition("#")[2])
    assert page.locator("#history").is_hidden()
    page.get_by_label("fold History").click()
    page.locator("#history canvas").first.wait_for()


def test_the_table_is_within_two_screens_of_the_top_and_below_importances_slices_and_surface(
    tmp_path: Path, page: Any
) -> None:
    importances = {"val": {"x": Importance(0.9, 0.8, 1.0), "kind": Importance(0.1, 0.0, 0.2)}}
    trials = [trial(tmp_path, n) for n in range(60)]
    surfaces = {"val": [SURFACE]}
    open_page(page, write_page(tmp_path, trials, importances=importances, surfaces=surfaces))
    top = "(id) => document.getElementById(id).getBoundingClientRect().top + scrollY"
    names = ["importance", "slices", "pair", "trials"]
    tops = {name: page.evaluate(top, name) for name in names}
    assert max(tops, key=tops.__getitem__) == "trials"
    assert tops["trials"] < 2 * page.viewport_size["height"]


def test_on_a_phone_the_large_charts_above_the_table_are_folded_until_they_are_opened(
    tmp_path: Path, page: Any
) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    index = write_page(tmp_path, [trial(tmp_path, n) for n in range(60)])
    open_page(page, index)
    large = ["#pair", "#slices", "#parallel"]
    assert [page.locator(chart).is_hidden() for chart in large] == [True, True, True]
    page.get_by_label("fold Parallel coordinates").click()
    assert [page.locator(chart).is_hidden() for chart in large] == [True, True, False]
    again = page.url
    open_page(page, index, "#" + again.partition("#")[2])
    assert [page.locator(chart).is_hidden() for chart in large] == [True, True, False]


def test_triangles_for_values_outside_of_the_axis_are_explained_only_in_charts_that_have_one(
    tmp_path: Path, page: Any
) -> None:
    far_off = trial(tmp_path, 60, scores={"val": 1e6})
    open_page(page, write_page(tmp_path, [*(trial(tmp_path, n) for n in range(60)), far_off]))
    series_of(page, "history")
    said = "(id) => getComputedStyle(document.getElementById(id), '::after').content"
    assert "▲" in page.evaluate(said, "history-section")
    assert "▲" not in page.evaluate(said, "distribution-section")


def test_the_timeline_shows_gpu_memory_where_it_is_recorded(tmp_path: Path, page: Any) -> None:
    use = GpuUse(peak_bytes=2_000_000_000, busy_share=0.75)
    trials = [trial(tmp_path, n, gpu=use if n else None) for n in range(5)]
    open_page(page, write_page(tmp_path, trials))
    bars, memory = series_of(page, "timeline")
    assert len(bars["data"]) == 5
    assert max(gb for _, gb in memory["data"]) == 4  # two trials of 2 GB each ran at a time
    text = hover(page, "timeline", 0.6, 0.12)
    assert "GPU memory [GB]" in text
    assert "GPU busy" in text


def test_a_long_number_is_short_in_the_page_table_and_complete_in_its_tooltip(
    tmp_path: Path, page: Any
) -> None:
    params = {"x": 0.123456789, "lr": 0.000241234, "kind": "a"}
    trials = [trial(tmp_path, n) for n in range(20)] + [trial(tmp_path, 20, params=params)]
    open_page(page, write_page(tmp_path, trials), "#find=0020")
    page.get_by_text("1 of 21 trials", exact=True).wait_for()
    cells = page.locator("#trials tbody td")
    until(lambda: cells.count() > 5)
    shown = {cell.get_attribute("title"): cell.inner_text() for cell in cells.all()}
    assert shown["0.123456789"] == "0.123"
    assert shown["0.000241234"] == "2.41e-4"
