"""Measure how fast the comparison page draws many trials, and reacts to a range on an axis.

    uv run --group browser benchmarks/page.py [--trials 1000,10000] [--rounds 5]

The trials are made up: six params, two of them categories, a tenth of the trials failed and a fifth
pruned. Each trial that did not fail has a learning curve of 30 steps. Chromium has no GPU and opens
the page from the disk. "first paint" is the time that the browser itself reports. "lines" is the
time until the lines of all trials are drawn. "frame" is the time from a movement of the pointer to
the end of the next frame, while a range is dragged along an axis. "all else" is the time from the
end of this drag to the last change of the table.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
from playwright.sync_api import sync_playwright

from sweeper import Settings
from sweeper.page import Page
from sweeper.study.facts import StudyFacts
from sweeper.trials import TrialRecord, TrialState

SPACE = {
    "lr": {"low": 1e-5, "high": 1e-1, "log": True},
    "width": {"low": 16, "high": 512, "log": True},
    "dropout": {"low": 0.0, "high": 0.5},
    "depth": {"low": 2, "high": 12},
    "activation": ["relu", "gelu", "tanh"],
    "optimizer": ["adam", "sgd"],
}
STATES = [TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED]
#: Script in the page that records when the lines are drawn, how long the frame after each movement
#: of the pointer takes, and when the table last changed.
WATCH = """
window.frames_ms = [];
window.lines_ms = null;
const poll = setInterval(() => {
  const canvas = document.querySelector('#parallel canvas[data-layer=lines]');
  if (!canvas || canvas.width < 400 || !window.sweeperIsDrawn?.(canvas)) return;
  lines_ms = performance.now();
  clearInterval(poll);
}, 5);
window.sweeperIsDrawn = (canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, canvas.height / 2, canvas.width, 1);
  return data.some((channel) => channel > 0);
};
addEventListener('pointermove', () => {
  const began_ms = performance.now();
  requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => frames_ms.push(performance.now() - began_ms);
    port2.postMessage(0);
  });
}, true);
addEventListener('pointerup', () => {
  const began_ms = performance.now();
  const note = () => { window.table_ms = performance.now() - began_ms; };
  const table = document.getElementById('trials');
  new MutationObserver(note).observe(table, { childList: true, subtree: true });
}, true);
"""


def record_of(number: int, rng: random.Random, folder: Path) -> TrialRecord:
    params: dict[str, Any] = {
        "lr": 10 ** rng.uniform(-5, -1),
        "width": round(2 ** rng.uniform(4, 9)),
        "dropout": rng.uniform(0, 0.5),
        "depth": rng.randint(2, 12),
        "activation": rng.choice(["relu", "gelu", "tanh"]),
        "optimizer": rng.choice(["adam", "sgd"]),
    }
    state = rng.choices(STATES, [7, 2, 1])[0]
    loss = 0.3 + 0.2 * (math.log10(params["lr"]) + 3) ** 2 + 0.1 * rng.random()
    return TrialRecord(
        number=number,
        state=state,
        params=params,
        seed=number,
        attempt=1,
        notebook=folder / f"{number:04d}.ipynb",
        scores={} if state is TrialState.FAILED else {"loss": loss},
        started_at_s=1.7e9 + 10 * number,
        duration_s=60 * rng.random(),
    )


def page_of(folder: Path, count: int) -> Path:
    """Write the page of a study with made-up trials, and return the path of its `index.html`.

    Args:
        folder: Folder for the page.
        count: Number of trials.
    """
    rng = random.Random(0)
    records = [record_of(number, rng, folder) for number in range(count)]
    for record in records:
        if "loss" not in record.scores:
            continue
        values = [record.scores["loss"] * (1 + math.exp(-step / 6)) for step in range(30)]
        node = nbformat.v4.new_notebook()
        node.metadata["sweeper"] = {
            "series": {"loss": {"steps": list(range(30)), "values": values}}
        }
        nbformat.write(node, record.notebook)
    best = min(
        (r for r in records if r.state is TrialState.COMPLETED), key=lambda r: r.scores["loss"]
    )
    facts = StudyFacts(id="1", objectives=["loss"], notebook="made-up.ipynb")
    study: Any = SimpleNamespace(
        name="made-up", facts=facts, confirmation=None, records=lambda: records, best=lambda: [best]
    )
    settings = Settings.from_mapping(
        {
            "objective": {"loss": "minimize"},
            "space": SPACE,
            "study": {"name": "made-up", "trials": count},
        }
    )
    page = Page(folder / "index.html", folder / "page", folder / "notes.json")
    page.write(study, settings, is_running=False)
    return folder / "index.html"


@contextmanager
def chromium() -> Iterator[Any]:
    with sync_playwright() as started:
        path = shutil.which("chromium") or started.chromium.executable_path
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def measured(browser: Any, index: Path) -> dict[str, float]:
    """Open the page once, and drag a range on an axis.

    Returns:
        Milliseconds by the names of the columns, which the module's docstring describes.
    """
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(WATCH)
    page.goto(index.as_uri())
    page.wait_for_function("() => lines_ms !== null", timeout=60_000)
    page.wait_for_timeout(3000)
    paint = page.evaluate("() => performance.getEntriesByType('paint')[0].startTime")
    lines = page.evaluate("() => lines_ms")
    page.evaluate("() => document.getElementById('parallel').scrollIntoView({ block: 'center' })")
    page.wait_for_timeout(1000)
    box = page.locator("#parallel").bounding_box()
    x = box["x"] + page.evaluate("() => sweeper.placeOf('dropout')")
    page.mouse.move(x, box["y"] + 40)
    page.mouse.down()
    page.evaluate("() => { frames_ms = []; }")
    for step in range(20):
        page.mouse.move(x, box["y"] + 50 + 8 * step)
        page.wait_for_timeout(40)
    frames = page.evaluate("() => frames_ms")
    page.mouse.up()
    page.wait_for_function("() => window.table_ms !== undefined", timeout=60_000)
    page.wait_for_timeout(1000)
    all_else = page.evaluate("() => table_ms")
    page.close()
    return {
        "first paint": paint,
        "lines": lines,
        "frame, median": statistics.median(frames),
        "frame, slowest": max(frames),
        "all else": all_else,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", default="1000,10000")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with chromium() as browser:
        for count in map(int, options.trials.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                index = page_of(Path(folder), count)
                rounds = [measured(browser, index) for _ in range(options.rounds)]
            medians = {
                name: round(statistics.median(r[name] for r in rounds)) for name in rounds[0]
            }
            print(json.dumps({"trials": count, **medians}))


if __name__ == "__main__":
    main()
