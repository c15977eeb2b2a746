"""How fast is the comparison page, and how large?

    uv run --group browser benchmarks/page.py

Makes pages of 200, 1,000 and 5,000 trials with nine params and two scores, opens each from its file
in headless Chromium (the system's), and drags a brush along an axis. Frames are timed in the page.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import sync_playwright

from sweeper import Settings
from sweeper.notebooks import render, write_cells
from sweeper.page import Page, content_of
from sweeper.trials import TrialRecord, TrialState

FRAMES = """
window.frames_ms = [];
let last = performance.now();
const count = (now) => {
  window.frames_ms.push(now - last);
  last = now;
  requestAnimationFrame(count);
};
requestAnimationFrame(count);
"""
SPACE: dict[str, Any] = {
    **{f"log{i}": {"low": 1e-5, "high": 1.0, "log": True} for i in range(3)},
    **{f"whole{i}": {"low": 1, "high": 64} for i in range(3)},
    "kind": ["sgd", "adam", "adamw", "lion"],
    "momentum": {"low": 0.0, "high": 1.0, "when": {"kind": "sgd"}},
    "layers": [2, 4, 8],
}
N_RENDERED = 200


def main() -> None:
    """Print one row for each number of trials."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", default="200,1000,5000")
    sizes = [int(text) for text in parser.parse_args().trials.split(",")]
    print(
        "| trials | size MB | of it notebooks MB | opens s | frames while brushing, ms: median, "
        "90 %, longest |"
    )
    print("|---|---|---|---|---|")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as started, tempfile.TemporaryDirectory() as folder:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for n_trials in sizes:
            index = make(Path(folder) / str(n_trials), n_trials)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            began_s = time.perf_counter()
            page.goto(index.as_uri())
            page.locator("#parallel canvas").first.wait_for()
            page.locator("#history canvas").first.wait_for()
            page.evaluate("() => new Promise((then) => requestAnimationFrame(then))")
            opened_s = time.perf_counter() - began_s
            page.wait_for_timeout(1500)
            frames = brushed(page)
            files = [path for path in index.parent.rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files) / 1e6
            cells = sum(p.stat().st_size for p in files if p.parent.name == "notebooks") / 1e6
            print(
                f"| {n_trials:,} | {size:.1f} | {cells:.1f} | {opened_s:.1f} | "
                f"{median(frames):.0f}, {frames[int(len(frames) * 0.9)]:.0f}, {frames[-1]:.0f} |"
            )
            page.close()
        browser.close()


def brushed(page: BrowserPage) -> list[float]:
    """The frames of a drag along the second axis, in milliseconds, in their order of length."""
    box = page.locator("#parallel canvas").first.bounding_box()
    assert box is not None
    x = box["x"] + page.evaluate("() => sweeper.placeOf('log1')")
    top = box["y"] + 60
    page.evaluate(FRAMES)
    page.mouse.move(x, top)
    page.mouse.down()
    for step in range(60):
        page.mouse.move(x, top + 4 * step)
    page.mouse.up()
    page.wait_for_timeout(300)
    frames: list[float] = page.evaluate("() => window.frames_ms")
    return sorted(frames)


def make(folder: Path, n_trials: int) -> Path:
    """A page with made-up trials; the first ones have a notebook, with a picture of 30 kB."""
    folder.mkdir(parents=True)
    rng = random.Random(0)
    settings = Settings.from_mapping(
        {"objective": {"acc": "maximize"}, "space": SPACE, "study": {"name": "made-up"}}
    )
    records = [record(n, folder, rng) for n in range(n_trials)]
    for done in records[:N_RENDERED]:
        write_notebook(done, rng)
        write_cells(folder / "page" / "notebooks", done.run_id, render(done.notebook))
    page = Page(folder / "index.html", folder / "page")
    page.write(
        content_of(
            "made-up",
            records,
            settings=settings,
            notebook="made-up.ipynb",
            best=records[:1],
            importances={"acc": {name: 1 / len(SPACE) for name in SPACE}},
            compare_url=None,
            is_running=False,
        )
    )
    return folder / "index.html"


def record(number: int, folder: Path, rng: random.Random) -> TrialRecord:
    kind = rng.choice(SPACE["kind"])
    params: dict[str, Any] = {f"log{i}": 10 ** rng.uniform(-5, 0) for i in range(3)}
    params |= {f"whole{i}": rng.randint(1, 64) for i in range(3)}
    params |= {"kind": kind, "layers": rng.choice([2, 4, 8])}
    params |= {"momentum": rng.random()} if kind == "sgd" else {}
    acc = 1 / (1 + abs(math.log10(params["log0"]) + 2)) + rng.gauss(0, 0.05)
    return TrialRecord(
        number=number,
        state=TrialState.COMPLETED,
        params=params,
        seed=number,
        attempt=1,
        notebook=folder / "notebooks" / f"{number:04d}.ipynb",
        scores={"acc": acc, "loss": 1 / max(0.01, acc)},
        started_at_s=1.7e9 + number * 5,
        duration_s=rng.uniform(5, 20),
    )


def write_notebook(done: TrialRecord, rng: random.Random) -> None:
    cells = [new_code_cell(f"print('cell {i}')\n" * 10) for i in range(20)]
    for cell in cells:
        cell.outputs = [new_output("stream", text="cell\n" * 10)]
    picture = "".join(rng.choices("ABCDEFGH", k=40_000))
    cells[-1].outputs.append(new_output("display_data", data={"image/png": picture}))
    node = new_notebook(cells=cells)
    values = [1 - math.exp(-step / 10) for step in range(50)]
    node.metadata["sweeper"] = {"series": {"acc": {"steps": [*range(50)], "values": values}}}
    done.notebook.parent.mkdir(exist_ok=True)
    nbformat.write(node, done.notebook)


if __name__ == "__main__":
    main()
