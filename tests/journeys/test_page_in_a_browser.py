"""Test what users see of a study on its comparison page. Skip without Chromium or Playwright."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browsing import MARKS, opened_page, playwright
from http_servers import Handler, serving, started
from nbformat.v4 import new_code_cell, new_notebook, new_output
from studies import small_settings, study_of_page, sweep_of, trial_record, until

import sweeper
from sweeper.control.lookup import find_study
from sweeper.control.serving import StudyServer
from sweeper.page import Page, write_notes
from sweeper.testing import write_notebook
from sweeper.trials import (
    Confirmation,
    PlannedTrial,
    Reason,
    RerunPlan,
    RunningTrial,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)

pytestmark = MARKS
TRIALS = 12
SPACE = {
    "x": {"low": 0.0, "high": 1.0},
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "kind": ["a", "a name that is rather long"],
    "momentum": {"low": 0.0, "high": 1.0, "when": {"kind": "a"}},
    "layers": {"choices": [[32], [64, 64]]},
}
#: HTML that would set `window.top.ran`, open a dialog, or call another server if it could run.
HOSTILE = """<script>alert(1); top.ran = 1</script><b onclick="alert(2)" id="bold">bold</b>
<img src="x" onerror="alert(3)"><a id="link" href="javascript:alert(4)">link</a>
<svg onload="alert(5)"><script>alert(6)</script></svg><img src="http://127.0.0.1:PORT/pixel.png">
<iframe srcdoc="<script>alert(7)</script>"></iframe><style>@import "http://127.0.0.1:PORT/a.css";</style>
<form action="http://127.0.0.1:PORT/"><button id="send">send</button></form>
<meta http-equiv="refresh" content="0;url=http://127.0.0.1:PORT/">"""
DRAWING = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(8)</script></svg>"


def run_trial(elsewhere: int, spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    hostile = HOSTILE.replace("PORT", str(elsewhere))
    x = spec.params["x"]
    assert isinstance(x, float)
    curve = {"val": [(step, x * (1 - 0.5 ** (step + 1))) for step in range(5)]}
    state = {3: TrialState.FAILED, 5: TrialState.PRUNED}.get(spec.number, TrialState.COMPLETED)
    cells = [
        new_code_cell("import math"),
        new_code_cell(f"x = {x}"),
        new_code_cell("print(x)", outputs=[new_output("stream", text=f"x is {x:.6f}\n")]),
        new_code_cell("show()", outputs=[new_output("display_data", data={"text/html": hostile})]),
        new_code_cell("d", outputs=[new_output("display_data", data={"image/svg+xml": DRAWING})]),
        new_code_cell(
            "j",
            outputs=[new_output("display_data", data={"application/javascript": "alert(9)"})],
        ),
    ]
    node = new_notebook(cells=cells)
    steps, values = zip(*curve["val"], strict=True)
    node.metadata["sweeper"] = {"series": {"val": {"steps": steps, "values": values}}}
    nbformat.write(node, spec.notebook)
    reason = Reason.CELL_ERROR if state is TrialState.FAILED else None
    scores = {"val": x} if state is not TrialState.FAILED else {}
    message = "ValueError: <b>too wide</b>" if reason else ""
    return TrialOutcome(state=state, scores=scores, series=curve, reason=reason, message=message)


called: list[str] = []


class Elsewhere(Handler):
    """A server that HTML in the notebooks' outputs would call if the page let it."""

    def do_GET(self) -> None:
        called.append(self.path)
        self.send_error(404)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[int]:
    """Start a server that no displayed notebook may call. Yield its port."""
    with started(Elsewhere) as port:
        yield port


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, elsewhere: int) -> Path:
    """Sweep a study. Return its page."""
    folder = tmp_path_factory.mktemp("a sweep")
    names = "x = lr = kind = momentum = layers = 0"
    notebook = write_notebook(folder / "nb.ipynb", "val = x", parameters=names)
    run, study = partial(run_trial, elsewhere), {"trials": TRIALS}
    result = sweep_of(notebook, "drawn", run, study=study, space=SPACE).run()
    assert result.page is not None
    return result.page


class Visit:
    """A browser tab in which the page is open, with the errors that the page has caused."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.on("console", lambda line: self._note(line.text))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: self.wrong.append(dialog.message))

    def _note(self, line: str) -> None:
        # Ignore scripts of a hostile notebook that the browser has blocked.
        if "Content Security Policy" not in line:
            self.wrong.append(line)

    def open(self, index: Path, fragment: str = "") -> Any:
        self.page.goto(index.as_uri() + fragment)
        self.page.locator("#parallel canvas").first.wait_for()
        return self.page

    def run_ids(self) -> list[str]:
        """Return the run ids in the table, from its top."""
        self.page.locator("#trials").scroll_into_view_if_needed()
        self.page.locator("#trials tbody tr").first.wait_for()
        return list(self.page.locator("#trials tbody td:nth-child(2) a").all_text_contents())

    def brush(self, axis: str, low: float, high: float) -> None:
        """Drag along an axis, between two shares of its height."""
        chart = self.page.locator("#parallel")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        x = box["x"] + self.page.evaluate(f"() => sweeper.placeOf('{axis}')")
        top, height = box["y"] + 14, box["height"] - 34
        self.page.mouse.move(x, top + height * (1 - high))
        self.page.mouse.down()
        self.page.mouse.move(x, top + height * (1 - (low + high) / 2))
        self.page.mouse.move(x, top + height * (1 - low))
        self.page.mouse.up()

    def expect(self, selected: str) -> None:
        """Wait for the text about the number of selected trials."""
        self.page.get_by_text(selected, exact=True).wait_for()


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    with opened_page(browser, width=1280, height=900) as page:
        visit = Visit(page)
        yield visit
    assert visit.wrong == []
    assert called == []


def values(index: Path, visit: Visit) -> dict[str, dict[str, Any]]:
    """Return what the page knows about each trial, by run id."""
    return {trial["run_id"]: trial for trial in visit.page.evaluate("() => sweeper.data.all")}


def test_every_chart_is_drawn_from_the_file_without_a_network(index: Path, visit: Visit) -> None:
    page = visit.open(index)
    assert page.locator("#headline").inner_text() == "nb.ipynb: maximize val"
    assert " val=" in page.locator("#answer dd").first.inner_text()
    for name in ("history", "importance", "curves", "timeline"):
        page.locator(f"#{name}").scroll_into_view_if_needed()
        page.locator(f"#{name} canvas").first.wait_for()
    assert page.locator("#slices > div").count() == len(SPACE)
    assert page.evaluate("() => sweeper.data.surfaces.val[0].means.flat().every(numbers.isNumber)")
    assert page.locator("#pareto-section").is_hidden()
    axes = page.locator("#axes button[aria-pressed=true]").all_text_contents()
    assert sorted(axes) == sorted([*SPACE, "val"])


def test_on_the_page_a_brush_shows_only_trials_in_its_range_until_it_is_removed(
    index: Path, visit: Visit
) -> None:
    page = visit.open(index)
    visit.brush("x", 0.5, 0.96)
    known = values(index, visit)
    xs = sorted(trial["params"]["x"] for trial in known.values())
    low, high = (xs[0] + share * (xs[-1] - xs[0]) for share in (0.5, 0.96))
    inside = {run_id for run_id, trial in known.items() if low <= trial["params"]["x"] <= high}
    visit.expect(f"{len(inside)} of {TRIALS} trials")
    until(lambda: set(visit.run_ids()) == inside)
    again = page.url
    page.goto("about:blank")
    visit.open(Path(index), "#" + again.partition("#")[2])
    visit.expect(f"{len(inside)} of {TRIALS} trials")
    page.get_by_role("button", name="show all").click()
    visit.expect(f"all {TRIALS} trials")


def test_on_the_page_a_brush_can_select_the_trials_that_lack_a_param(
    index: Path, visit: Visit
) -> None:
    visit.open(index)
    visit.brush("momentum", -0.05, 0.08)
    without = {i for i, trial in values(index, visit).items() if "momentum" not in trial["params"]}
    assert without
    visit.expect(f"{len(without)} of {TRIALS} trials")
    until(lambda: set(visit.run_ids()) == without)


def test_trials_can_be_filtered_by_state_and_word_and_the_best_is_first(
    index: Path, visit: Visit
) -> None:
    page = visit.open(index)
    known = values(index, visit)
    best = max(
        (t for t in known.values() if t["state"] == "completed"), key=lambda t: t["scores"]["val"]
    )
    assert visit.run_ids()[0] == best["run_id"]
    page.get_by_label("failed (1)").uncheck()
    visit.expect(f"{TRIALS - 1} of {TRIALS} trials")
    until(lambda: "0003" not in visit.run_ids())
    page.get_by_label("failed (1)").check()
    page.get_by_label("find").fill("too wide")
    visit.expect(f"1 of {TRIALS} trials")
    until(lambda: visit.run_ids() == ["0003"])
    assert "cell_error: ValueError: <b>too wide</b>" in page.locator("#trials").inner_text()


def test_an_axis_of_the_page_can_be_moved_and_hidden_with_the_keyboard(
    index: Path, visit: Visit
) -> None:
    page = visit.open(index)
    axes = page.locator("#axes button")
    page.locator("#axes").get_by_role("button", name="lr", exact=True).focus()
    page.keyboard.press("ArrowLeft")
    assert axes.all_text_contents()[:2] == ["lr", "x"]
    left_of = "() => sweeper.placeOf('lr') < sweeper.placeOf('x')"
    assert page.evaluate(left_of)
    page.keyboard.press("Delete")
    assert page.evaluate("() => sweeper.placeOf('lr')") is None
    page.reload()
    until(lambda: page.locator("#axes button[aria-pressed=false]").all_text_contents() == ["lr"])


def test_the_table_of_the_page_sorts_by_any_column(index: Path, visit: Visit) -> None:
    page = visit.open(index)
    known = values(index, visit)
    visit.run_ids()
    page.locator("#trials th").get_by_role("button", name="x", exact=True).click()
    wanted = sorted(known, key=lambda run_id: known[run_id]["params"]["x"])
    until(lambda: visit.run_ids() == wanted)
    page.locator("#trials th").get_by_role("button", name="x ↑").click()
    until(lambda: visit.run_ids() == wanted[::-1])


def test_a_notebook_is_opened_scrolled_and_closed_by_the_keyboard_alone(
    index: Path, visit: Visit
) -> None:
    page = visit.open(index)
    focused = "() => document.activeElement.textContent.trim() || document.activeElement.id"

    def tab_to(name: str) -> None:
        until(lambda: page.keyboard.press("Tab") or page.evaluate(focused) == name)

    page.set_viewport_size({"width": 400, "height": 400})
    tab_to(visit.run_ids()[0])
    page.keyboard.press("Enter")
    page.frame_locator("#frame").get_by_text("x is").wait_for()
    tab_to("frame")
    page.keyboard.press("PageDown")
    until(lambda: page.frames[-1].evaluate("() => scrollY") > 0)
    page.keyboard.press("Shift+Tab")
    # The frame is another process, so the focus changes a moment later.
    until(lambda: page.evaluate(focused) != "frame")
    page.keyboard.press("Escape")
    page.locator("#notebook").wait_for(state="hidden")


def test_a_run_id_opens_its_notebook_and_arrow_keys_and_browser_history_change_it(
    index: Path, visit: Visit
) -> None:
    page = visit.open(index)
    first, second, *_ = visit.run_ids()
    frame, known = page.frame_locator("#frame"), values(index, visit)
    page.locator("#trials").get_by_role("link", name=first, exact=True).click()
    frame.get_by_text(f"x is {known[first]['params']['x']:.6f}").wait_for()
    page.keyboard.press("ArrowRight")
    frame.get_by_text(f"x is {known[second]['params']['x']:.6f}").wait_for()
    assert page.locator("#notebook-title").inner_text() == second
    until(lambda: f"open={second}" in page.url)
    page.go_back()
    page.locator("#notebook").wait_for(state="hidden")
    page.go_forward()
    until(lambda: page.locator("#notebook-title").inner_text() == second)
    page.keyboard.press("Escape")
    page.locator("#notebook").wait_for(state="hidden")
    until(lambda: "open=" not in page.url)  # the URL changes a moment later
    with page.context.expect_page() as another:
        page.locator("#trials").get_by_role("link", name=first, exact=True).click(
            modifiers=["Control"]
        )
    another.value.locator("#notebook-title").get_by_text(first).wait_for()
    another.value.close()


def test_the_charts_and_the_table_of_the_page_can_be_downloaded(index: Path, visit: Visit) -> None:
    page = visit.open(index)
    ids = visit.run_ids()
    with page.expect_download() as svg:
        page.get_by_label("save history").click()
        page.locator("#history-section").get_by_role("button", name="SVG").click()
    assert svg.value.suggested_filename == "drawn-history.svg"
    assert svg.value.path().read_text().startswith("<svg")
    with page.expect_download() as table:
        page.get_by_label("save trials").click()
        page.locator("#trials-section").get_by_role("button", name="CSV").click()
    rows = table.value.path().read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ['"run"', *(f'"{run_id}"' for run_id in ids)]


def test_grouping_trials_by_a_param_shows_means_with_intervals_and_curves_as_bands(
    index: Path, visit: Visit
) -> None:
    page = visit.open(index)
    assert page.locator("#groups-section").is_hidden()
    page.get_by_label("parameter of the groups").select_option(label="kind")
    texts = page.locator("#groups tbody tr").all_inner_texts()
    known = [t for t in values(index, visit).values() if t["state"] == "completed"]
    xs = [trial["scores"]["val"] for trial in known if trial["params"]["kind"] == "a"]
    name, number, mean, *_ = texts[0].split("\t")
    assert (name, number) == ("a", str(len(xs)))
    low, _, half = mean.partition(" ± ")
    assert float(low) == pytest.approx(statistics.fmean(xs), abs=float(half) / 20)
    import scipy.stats  # imported here: at the top it would cost each test process 1 s

    expected = scipy.stats.t.ppf(0.975, len(xs) - 1) * statistics.stdev(xs) / len(xs) ** 0.5
    assert float(half) == pytest.approx(expected, rel=0.05)
    page.locator("#curves").scroll_into_view_if_needed()
    chart = "echarts.getInstanceByDom(document.getElementById('curves'))"
    option = f"() => {chart}?.getOption() || {{ series: [] }}"  # the chart is drawn a moment later
    until(
        lambda: [one["type"] for one in page.evaluate(option)["series"]][:2] == ["line", "custom"]
    )
    page.get_by_label("logarithmic").check()
    until(lambda: page.evaluate(option)["yAxis"][0]["max"] < 0.1)  # the axis now shows logarithms
    assert "group=param.kind" in page.url
    assert "log=1" in page.url


def test_a_trials_bar_in_the_timeline_lasts_until_its_kernel_ended_or_until_now(
    tmp_path: Path, visit: Visit
) -> None:
    times: dict[str, Any] = {"started_at_s": 100.0, "duration_s": 50.0}
    ended = [trial_record(0, **times, ended_at_s=4000.0), trial_record(1, **times)]
    frozen = trial_record(2, started_at_s=100.0, state=TrialState.FROZEN)
    Page(tmp_path / "index.html", tmp_path / "page", tmp_path / "notes.json").write(
        study_of_page("digits", [*ended, frozen], best=ended[:1]),
        small_settings("digits"),
        is_running=True,
    )
    page = visit.page
    page.goto((tmp_path / "index.html").as_uri())
    page.locator("#timeline").scroll_into_view_if_needed()
    page.locator("#timeline canvas").first.wait_for()
    chart = "echarts.getInstanceByDom(document.getElementById('timeline'))"
    bars = page.evaluate(f"() => {chart}.getOption().series[0].data")
    written_s = page.evaluate("() => sweeper.data.written_at_s")
    ends = {bar["run_id"]: bar["value"][1] / 1000 for bar in bars}
    assert ends == {"0000": 4000.0, "0001": 150.0, "0002": pytest.approx(written_s)}


def note(page: Any, run_id: str, name: str, text: str) -> None:
    """Write a note about a trial of the table."""
    page.get_by_label(f"note on {run_id}").click()
    page.get_by_label("name", exact=True).fill(name)
    page.get_by_label("note", exact=True).fill(text)
    page.get_by_role("button", name="save", exact=True).click()
    until(lambda: text in page.locator("#trials").inner_text())


def test_notes_written_on_the_page_that_the_command_ui_serves_are_stored_in_the_study(
    index: Path, visit: Visit
) -> None:
    existing = find_study(str(index.parent), storage=None, tracking_uri="http://127.0.0.1:9")
    with StudyServer(existing, port=None) as server, serving(server):
        page = visit.page
        page.goto(server.page)
        first, second, *_ = visit.run_ids()
        page.get_by_text("names and notes are kept in the study").wait_for()
        page.get_by_label(f"star {first}").click()
        note(page, second, "the wide one", "look again")
        assert "notes=" not in page.url
    assert sweeper.load(index.parent).dataframe().loc[second, "trial_name"] == "the wide one"
    visit.open(index)
    visit.run_ids()
    assert "the wide one" in page.locator("#trials").inner_text()
    page.get_by_label("only ★ (1)").check()
    until(lambda: visit.run_ids() == [first])
    existing.paths.notes.unlink()  # remove the notes, because the next tests use the same page
    write_notes(existing.paths.notes, existing.paths.page_files)


def test_notes_written_on_a_page_opened_as_a_file_are_stored_in_its_url(
    index: Path, visit: Visit
) -> None:
    page = visit.open(index)
    first, *_ = visit.run_ids()
    page.get_by_text("that you change here are kept in the address").wait_for()
    note(page, first, "", "look again")
    again = page.url
    page.goto("about:blank")
    visit.open(index, "#" + again.partition("#")[2])
    visit.run_ids()
    assert "look again" in page.locator("#trials").inner_text()


def test_a_comparison_of_two_trials_shows_their_differences(index: Path, visit: Visit) -> None:
    page = visit.open(index)
    one, other, *_ = visit.run_ids()
    for run_id in (one, other):
        page.get_by_label(f"compare {run_id}").check()
    page.get_by_role("button", name="compare", exact=True).click()
    frame = page.frame_locator("#frame")
    known = values(index, visit)
    for run_id in (one, other):
        frame.get_by_text(f"x is {known[run_id]['params']['x']:.6f}").wait_for()
    assert frame.get_by_text("import math").count() == 1
    page.get_by_label("only cells that differ").check()
    frame.get_by_text("import math").wait_for(state="detached")
    # Two things differ: the parameters cell, and the output of the third cell.
    assert frame.locator(".differs").count() == 2
    marked = "".join(frame.locator("mark").all_text_contents())
    assert all(f"x = {known[run_id]['params']['x']}" in marked for run_id in (one, other))
    left, right = frame.locator(".outputs > div").all()
    assert left.bounding_box()["y"] == right.bounding_box()["y"]
    facts = frame.locator(".facts")
    assert known[one]["params"]["kind"] != known[other]["params"]["kind"] or (
        "kind" not in facts.inner_text()
    )
    again = page.url
    page.goto("about:blank")
    visit.open(index, "#" + again.partition("#")[2])
    assert page.locator("#notebook-title").inner_text() == f"{one} beside {other}"
    frame.locator(".differs").first.wait_for()


def cell(code: str, *, output: str = "", tag: str = "") -> str:
    """Return a rendered cell as the page gets it."""
    shown = f'<div class="jp-Cell-outputWrapper"><pre>{output}</pre></div>' if output else ""
    pre = f'<div class="jp-Cell-inputWrapper"><pre>{code}</pre></div>'
    return f'<div class="jp-Cell {tag}">{pre}{shown}</div>'


def test_in_a_comparison_a_cell_that_only_one_notebook_has_does_not_shift_the_other_cells(
    index: Path, visit: Visit
) -> None:
    page = visit.open(index)
    one = [cell("a"), cell("b", output="1\n2\n3"), cell("c")]
    other = [cell("a"), cell("new"), cell("b", output="1\n<i>two\n3</i>"), cell("c")]
    drawn = page.evaluate("(both) => sweeper.beside(['0001', '0002'], both, true)", [one, other])
    page.evaluate("(html) => { document.body.innerHTML = html; }", drawn)
    rows = page.locator(".differs")
    assert rows.count() == 2
    assert rows.nth(0).locator("[data-run]").all_inner_texts() == ["", "new"]
    assert rows.nth(1).locator("mark").all_text_contents() == ["2", "two"]
    assert rows.nth(1).get_by_text("b", exact=True).count() == 1


def test_on_the_page_default_params_that_the_injected_cell_overrides_are_struck_through(
    index: Path, visit: Visit
) -> None:
    page = visit.open(index)
    tagged = cell("lr = 0.1\nepochs = 3  # all\nlr_end: float = 0.2", tag="celltag_parameters")
    injected = cell("# Parameters\nlr = 0.5\nlr_end = 2", tag="celltag_injected-parameters")
    drawn = page.evaluate("(cells) => sweeper.struck(cells)", [cell("x"), tagged, injected])
    page.evaluate("(html) => { document.body.innerHTML = html; }", "".join(drawn))
    assert page.locator("del").all_text_contents() == ["lr = 0.1", "lr_end: float = 0.2"]


def test_scripts_in_displayed_outputs_do_not_run(index: Path, visit: Visit) -> None:
    page = visit.open(index, "#open=0000")
    frame = page.frame_locator("#frame")
    frame.get_by_text("bold").click()
    frame.get_by_text("link").click()
    frame.get_by_text("interactive: open the notebook").wait_for()
    page.wait_for_timeout(500)
    assert page.evaluate("() => window.ran") is None
    assert (
        frame.locator(
            "script, iframe, form, [onclick], [onerror], meta[http-equiv=refresh]"
        ).count()
        == 0
    )
    sandbox = page.locator("#frame").get_attribute("sandbox").split()
    assert "allow-scripts" not in sandbox
    assert "allow-same-origin" not in sandbox


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_whole_page_is_visible_on_a_narrow_screen(
    index: Path, visit: Visit, scheme: str
) -> None:
    visit.page.set_viewport_size({"width": 400, "height": 800})
    visit.page.emulate_media(color_scheme=scheme)
    page = visit.open(index, "#folded=")  # with all sections open
    visit.run_ids()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 400
    grounds = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (grounds == "rgb(255, 255, 255)") is (scheme == "light")


def test_the_page_in_a_cell_of_jupyter_has_everything_in_a_frame_of_its_own(
    index: Path, visit: Visit, tmp_path: Path
) -> None:
    cell = tmp_path / "cell.html"
    cell.write_text(sweeper.load(index.parent).page()._repr_html_())
    page = visit.page
    page.goto(cell.as_uri())
    copy = page.frame_locator("iframe")
    copy.get_by_text(f"all {TRIALS} trials").wait_for()
    copy.locator("#trials").scroll_into_view_if_needed()
    copy.locator("#trials tbody a").first.click()
    copy.frame_locator("#frame").get_by_text("x is").wait_for()
    page.keyboard.press("Escape")
    copy.locator("#notebook").wait_for(state="hidden")
    copy.locator("#curves").scroll_into_view_if_needed()
    copy.locator("#curves canvas").first.wait_for()
    frame = page.frames[1]
    assert len(frame.evaluate("() => sweeper.selected()")) == TRIALS
    # The frame cannot reach the notebook around it.
    with pytest.raises(playwright.Error, match="cross-origin"):
        frame.evaluate("() => parent.document")


def trial(folder: Path, number: int, x: float, score: float) -> TrialRecord:
    """Return the record of a trial that never ran."""
    return trial_record(
        number,
        params={"x": x, "lr": 10.0 ** -(round(10 * x) % 4), "kind": "a", "layers": [32]},
        seed=100 + number // 2,
        notebook=folder / f"{number:04d}.ipynb",
        scores={"val": score},
        started_at_s=1.7e9 + number,
    )


def write_page(
    folder: Path, trials: Sequence[TrialRecord], *, is_running: bool = False, **changes: Any
) -> Path:
    """Write the page of these trials."""
    study = study_of_page("made-up", trials, **{"best": trials[:1], **changes})
    settings = small_settings("made-up", space=SPACE)
    Page(folder / "index.html", folder / "page", folder / "notes.json").write(
        study, settings, is_running=is_running
    )
    return folder / "index.html"


def made_up(folder: Path, count: int) -> list[TrialRecord]:
    return [trial(folder, n, n / count, (n * 7919) % count / count) for n in range(count)]


def test_run_ids_in_the_pages_first_section_are_links_and_other_four_digit_numbers_are_not(
    tmp_path: Path, visit: Visit
) -> None:
    page = visit.open(write_page(tmp_path, made_up(tmp_path, 30)))
    text = "0018  val=0.0018 ± 0.0019, lr=0.0011 of 0012 trials; alike: 0009, 0010."
    insights = {
        "best": {"run_id": "0018", "mean": {"alike": ["0009", "0010"]}},
        "sentences": [{"topic": "best", "text": text}],
    }
    page.evaluate("(it) => { sweeper.data.insights = it; sweeper.changed('all'); }", insights)
    assert page.locator("#answer dd").inner_text() == text.replace("  ", " ")
    assert page.locator("#answer a").all_inner_texts() == ["0018", "0009", "0010"]


@pytest.mark.parametrize("pair", [["x", "lr"], None])
def test_the_chart_of_importances_says_too_early_to_say_only_if_the_first_section_does(
    tmp_path: Path, visit: Visit, pair: list[str] | None
) -> None:
    page = visit.open(write_page(tmp_path, made_up(tmp_path, 30)))
    page.evaluate(
        """(pair) => {
          const mattered = [{ objective: "val", groups: [], pair }];
          const sentences = [{ topic: "mattered", text: pair ? "both" : "too early to say" }];
          const importances = { val: { x: [0.6, 0.3, 0.8], lr: [0.4, 0.2, 0.6] } };
          Object.assign(sweeper.data, { insights: { mattered, sentences }, importances });
          sweeper.changed("all");
        }""",
        pair,
    )
    about = page.locator("#importance-about").text_content()
    assert about.startswith("Too early to say. ") is (pair is None)
    assert "may be noise" in about


def test_on_the_page_a_thousand_trials_can_be_brushed_and_listed(
    tmp_path: Path, visit: Visit
) -> None:
    page = visit.open(write_page(tmp_path, made_up(tmp_path, 1000)))
    visit.brush("x", 0.7, 0.99)
    until(lambda: 270 < page.evaluate("() => sweeper.selected().length") < 310)
    n_selected = page.evaluate("() => sweeper.selected().length")
    visit.expect(f"{n_selected} of 1000 trials")

    def listed() -> int:
        """Scroll to the end of the table. Return its number of rows, which are added there."""
        page.evaluate("() => document.getElementById('trials').parentElement.scrollBy(0, 1e6)")
        return len(visit.run_ids())

    assert len(visit.run_ids()) < 100, "only the visible rows are made"
    until(lambda: listed() == 100)
    left = n_selected - 100
    page.get_by_role("button", name=f"{left} more").click()
    until(lambda: listed() == n_selected)


def test_the_page_is_updated_while_a_sweep_runs(tmp_path: Path, visit: Visit) -> None:
    page = visit.open(write_page(tmp_path, made_up(tmp_path, 3), is_running=True))
    visit.expect("all 3 trials")
    write_page(tmp_path, made_up(tmp_path, 8))
    visit.expect("all 8 trials")
    assert "running" not in page.locator("#moment").inner_text()


def test_the_page_of_a_study_that_reruns_the_best_trials_has_their_ranking(
    tmp_path: Path, visit: Visit
) -> None:
    search = [trial(tmp_path, 7, 0.0, 0.9), trial(tmp_path, 8, 0.1, 0.8)]
    plan = RerunPlan.of_trials(search, [100, 101], objective="val", direction="maximize")
    scores = (0.5, 0.7, 0.6, 0.81)
    runs = [trial(tmp_path, n, n % 2 / 10, score) for n, score in enumerate(scores)]
    confirmation = Confirmation.of("confirmed", plan, runs)
    index = write_page(tmp_path, runs, best=confirmation.own_best, confirmation=confirmation)
    page = visit.open(index)
    visit.expect("all 4 trials")
    page.get_by_role("button", name="fold Confirmed on fresh seeds").wait_for()
    rows = page.locator("#confirmed tbody tr").all_inner_texts()
    assert [row.split()[:3] for row in rows] == [["1", "0008", "0.76"], ["2", "0007", "0.55"]]
    assert "0008 cannot be told apart from" not in page.inner_text("#confirmed-about")
    fresh = page.locator("#confirmed tbody tr").first.locator("td").last.get_by_role("button")
    assert fresh.all_text_contents() == ["0.7", "0.81"]


def test_the_page_of_an_ablation_shows_the_gain_of_the_best_trial_over_each_changed_value(
    tmp_path: Path, visit: Visit
) -> None:
    base = trial(tmp_path, 7, 0.0, 0.9)
    plan = RerunPlan.of_trials([base], [100, 101], objective="val", direction="maximize")
    params = trial(tmp_path, 8, 0.1, 0.0).params
    change = PlannedTrial(run_id="x=0.1", params=params, score=None)
    plan = replace(plan, ablated="0007", trials=[*plan.trials, change])
    runs = [trial(tmp_path, n, n % 2 / 10, score) for n, score in enumerate((0.7, 0.5, 0.8, 0.4))]
    ablation = Confirmation.of("ablated", plan, runs)
    page = visit.open(write_page(tmp_path, runs, best=ablation.own_best, confirmation=ablation))
    visit.expect("all 4 trials")
    assert "0007 is better by" in page.inner_text("#confirmed thead")
    cells = [page.locator("#confirmed tbody tr").nth(n).locator("td").nth(5) for n in (0, 1)]
    assert [cell.inner_text() for cell in cells] == ["", "0.3 (-0.971 to 1.57)"]
