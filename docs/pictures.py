"""Make the pictures of the documents from a real sweep of the digits notebook.

    uv run --group browser docs/pictures.py [--sweep FOLDER] [--tutorial FOLDER]

It needs tmux and Chromium. The sweep runs in a terminal of 80 columns and 24 lines, whose screen is
recorded each second. With `--sweep FOLDER` the sweep runs in that folder. It is not run again if
the folder has a recording. `--tutorial` names the folder that `docs/tutorial/make.py --keep` has
left.

| picture | what it shows |
| --- | --- |
| `terminal.svg` | the sweep in the terminal, moving |
| `page.png` | the comparison page |
| `beside.png` | two executed notebooks beside each other |
| `mlflow.png` | the parallel coordinates of MLflow |
| `tutorial/first.png`, `tutorial/confirmed.png` | the pages of two sweeps in the tutorial |
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from rich.color import Color, ColorType
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS, ROWS = 80, 24
#: Seconds between two looks at the terminal.
_INTERVAL_S = 1.0
#: Seconds for which each screen of the recording is shown, and the last one (chosen).
_SHOWN_S, _LAST_S = 0.7, 6.0
#: Screens of a recording at most, which keeps the file below 300 kB (measured).
_SCREENS = 36
#: Pixels of a character and of a line.
_WIDTH, _HEIGHT = 8.4, 18
_MARGIN, _TITLE = 14, 34
#: The colours of the terminal: background, foreground, the eight colours, the eight bright ones.
_THEME = TerminalTheme(
    (24, 27, 33),
    (214, 217, 222),
    [
        *[(60, 64, 72), (224, 108, 117), (126, 186, 108), (214, 170, 92)],
        *[(97, 160, 224), (190, 122, 212), (86, 182, 194), (200, 204, 210)],
    ],
    [
        *[(110, 116, 128), (240, 130, 138), (150, 208, 132), (232, 190, 116)],
        *[(124, 182, 240), (208, 146, 228), (110, 204, 214), (240, 242, 245)],
    ],
)


def recorded(command: str, folder: Path) -> list[str]:
    """Run a command in a terminal. Return its screens, with the codes of their colours."""
    tmux = ["tmux", "-L", f"pictures-{os.getpid()}", "-f", "/dev/null"]
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    shell = (
        f"PS1='$ '; clear; printf '$ %s\\n' {json.dumps(command)}; {command}; touch ended; sleep 5"
    )
    ended = folder / "ended"
    subprocess.run(
        [*tmux, "new-session", "-d", *size, shell], cwd=folder, env=environment, check=True
    )
    screens: list[str] = []
    try:
        while True:
            is_over = ended.exists()
            shown = subprocess.run(
                [*tmux, "capture-pane", "-e", "-p"], capture_output=True, text=True, check=True
            ).stdout
            if not screens or shown != screens[-1]:
                screens.append(shown)
            if is_over:
                return screens
            time.sleep(_INTERVAL_S)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
        ended.unlink(missing_ok=True)


def chosen(screens: Sequence[str]) -> list[str]:
    """Return screens at even distances, the first and the last one among them."""
    screens = [screen for screen in screens if screen.strip()]
    if len(screens) <= _SCREENS:
        return list(screens)
    step = (len(screens) - 1) / (_SCREENS - 1)
    return [screens[round(number * step)] for number in range(_SCREENS)]


def moving_picture(screens: Sequence[str], *, title: str) -> str:
    """Return the screens as an SVG that shows one after the other, and then begins anew.

    Whoever has asked for less motion sees one screen in which trials run.
    """
    width = COLUMNS * _WIDTH + 2 * _MARGIN
    height = ROWS * _HEIGHT + _TITLE + _MARGIN
    total_s = len(screens) * _SHOWN_S + _LAST_S
    share = 100 / total_s
    rules = [
        f"text {{ font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; "
        f"fill: {_THEME.foreground_color.hex}; white-space: pre }}",
        ".screen { visibility: hidden }",
        f".s{len(screens) * 2 // 3} {{ visibility: visible }}",
        "@media (prefers-reduced-motion: no-preference) {",
        ".screen { visibility: hidden }",
    ]
    for number in range(len(screens)):
        start = number * _SHOWN_S * share
        end = 100.0 if number == len(screens) - 1 else (number + 1) * _SHOWN_S * share
        before = (
            f"0% {{ visibility: hidden }} {start:.2f}% {{ visibility: visible }} " if number else ""
        )
        after = (
            f" {end:.2f}% {{ visibility: hidden }} 100% {{ visibility: hidden }}"
            if end < 100
            else ""
        )
        first = "" if number else "0% { visibility: visible } "
        rules += [
            f"@keyframes k{number} {{ {before}{first}{after} }}",
            f".s{number} {{ animation: k{number} {total_s:.1f}s step-end infinite }}",
        ]
    rules.append("}")
    # Lines that are the same in several screens are in the file once.
    lines: dict[str, str] = {}
    drawn = []
    for number, screen in enumerate(screens):
        uses = []
        for row, line in enumerate(screen.split("\n")[:ROWS]):
            if line.strip():
                name = lines.setdefault(line, f"l{len(lines)}")
                y = _TITLE + (row + 1) * _HEIGHT
                uses.append(f'<use href="#{name}" x="{_MARGIN}" y="{y}"/>')
        drawn.append(f'<g class="screen s{number}">{"".join(uses)}</g>')
    console = Console(color_system="truecolor", width=COLUMNS, force_terminal=True)
    texts = "".join(
        f'<text id="{name}">{"".join(spans(line, console))}</text>' for line, name in lines.items()
    )
    dots = "".join(
        f'<circle cx="{_MARGIN + 6 + 18 * number}" cy="17" r="5.5" fill="{colour}"/>'
        for number, colour in enumerate(["#e06c75", "#d6aa5c", "#7eba6c"])
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img">\n<title>{escape(title)}</title>\n'
        f"<style>{chr(10).join(rules)}</style>\n<defs>{texts}</defs>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{_THEME.background_color.hex}"/>{dots}\n'
        f"{chr(10).join(drawn)}\n</svg>\n"
    )


def spans(line: str, console: Console) -> Iterator[str]:
    """Yield the parts of a terminal's line, each with its colour, as parts of an SVG text."""
    column = 0
    for segment in Segment.simplify(Text.from_ansi(line).render(console)):
        text = segment.text.rstrip("\n")
        if text.strip():
            place = f'x="{column * _WIDTH:.1f}" textLength="{len(text) * _WIDTH:.1f}"'
            yield f"<tspan {place}{_colours(segment.style)}>{escape(text)}</tspan>"
        column += len(text)


def _colours(style: Style | None) -> str:
    found = ""
    if style is not None and style.color is not None:
        found += f' fill="{_hex(style.color)}"'
    if style is not None and style.bold:
        found += ' font-weight="bold"'
    if style is not None and style.dim:
        found += ' opacity="0.6"'
    return found


def _hex(colour: Color) -> str:
    is_default = colour.type == ColorType.DEFAULT
    return _THEME.foreground_color.hex if is_default else colour.get_truecolor(_THEME).hex


@contextmanager
def opened_page(width: int, height: int) -> Iterator[Any]:
    """Open Chromium with a page of this size."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(90_000)
        yield page
        browser.close()


def shoot_page(index: Path, picture: Path, *, height: int) -> None:
    """Take a picture of a comparison page."""
    with opened_page(1280, height) as page:
        page.goto(index.as_uri())
        page.locator("#parallel svg, #parallel canvas").first.wait_for()
        page.wait_for_timeout(1_000)  # until the charts have come to rest
        page.screenshot(path=picture)


def shoot_beside(index: Path, picture: Path) -> None:
    """Take a picture of two executed notebooks beside each other."""
    with opened_page(1280, 1000) as page:
        page.goto(f"{index.as_uri()}")
        page.locator("#trials tbody button, #trials tbody a").first.click()
        page.locator("#beside").select_option(index=2)
        page.get_by_label("only cells that differ").check()
        page.frame_locator("#frame").locator(".differs").first.wait_for()
        page.screenshot(path=picture)


def shoot_mlflow(study: Path, picture: Path) -> None:
    """Take a picture of a study's parallel coordinates in MLflow."""
    program = Path(sys.executable).with_name("notebook_hpo.py")
    command = [str(program), "ui", str(study)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    try:
        url = next(
            match[1] for line in server.stdout if (match := re.search(r"MLflow: (\S+)", line))
        )
        with opened_page(1600, 860) as page:
            page.goto(url)
            page.get_by_text("Parallel Coordinates").wait_for()
            page.locator("svg .dimension .label, svg text.label").first.wait_for()
            hint = page.get_by_text("Welcome to MLflow Assistant")
            if hint.count():
                page.get_by_role("button", name=re.compile("close", re.I)).last.click()
            page.wait_for_timeout(3_000)  # the lines are drawn after the axes
            page.screenshot(path=picture)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description="Make the pictures of the documents.")
    parser.add_argument("--sweep", type=Path, help="where the sweep runs, or has run")
    parser.add_argument("--tutorial", type=Path, help="the folder of the tutorial's sweeps")
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    folder = options.sweep or Path(tempfile.mkdtemp())
    recording = folder / "recording.json"
    if not recording.exists():
        for name in ("notebooks", "parameters"):
            shutil.copytree(ROOT / name, folder / name)
        command = (
            "notebook_hpo.py -i notebooks/digits.ipynb -o './out/digits.{run_id}.ipynb' "
            "-p parameters/digits.yml -j 2"
        )
        recording.write_text(json.dumps(recorded(command, folder)), "utf-8")
    screens = chosen(json.loads(recording.read_text("utf-8")))
    svg = moving_picture(screens, title="A sweep of the digits notebook in a terminal")
    (PICTURES / "terminal.svg").write_text(svg, "utf-8")
    index = folder / "out" / "digits" / "index.html"
    shoot_page(index, PICTURES / "page.png", height=1420)
    shoot_beside(index, PICTURES / "beside.png")
    shoot_mlflow(folder / "out" / "digits", PICTURES / "mlflow.png")
    if options.tutorial is not None:
        for study, name in {"simclr": "first.png", "wide": "confirmed.png"}.items():
            index = options.tutorial / "out" / study / "index.html"
            shoot_page(index, ROOT / "docs" / "tutorial" / name, height=960)


if __name__ == "__main__":
    main()
