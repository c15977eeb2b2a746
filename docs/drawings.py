"""Draw the pictures of docs/how-it-works: uv run python docs/drawings.py"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "how-it-works"
INK, PALE, BLUE, ORANGE, GREEN, GREY = (
    *("#1f2430", "#f4f6f9", "#2f6fb3", "#d9822b", "#4b9560", "#9aa3b0"),
)


class Drawing:
    """An SVG on a white ground, so that it can be read on light and dark pages.

    Args:
        width, height: Its size in pixels.
        title: What it shows, for people who do not see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" '
            'font-family="system-ui, DejaVu Sans, Arial, sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            f'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/>'
            "</marker></defs>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        ]

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", colour: str = INK
    ) -> None:
        """Write one line. A colour says what it belongs to."""
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
        )

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, colour: str = BLUE
    ) -> None:
        """Draw a box with lines of text in its middle."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{PALE}" '
            f'stroke="{colour}" stroke-width="1.6"/>'
        )
        first = y + height / 2 + 4.5 - 8.5 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 17 * number, line, anchor="middle")

    def bar(self, x: float, y: float, width: float, text: str, *, colour: str) -> None:
        """Draw a filled bar of a timeline."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="26" rx="3" fill="{colour}"/>'
        )
        self.text(x + width / 2, y + 17.5, text, anchor="middle", colour="#ffffff")

    def arrow(self, *points: tuple[float, float], is_dashed: bool = False) -> None:
        """Draw an arrow through these points."""
        path = " ".join(f"{'L' if number else 'M'}{x} {y}" for number, (x, y) in enumerate(points))
        dash = ' stroke-dasharray="4 4"' if is_dashed else ""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="1.4"{dash} '
            'marker-end="url(#head)"/>'
        )

    def save(self, name: str) -> None:
        """Write the file next to its place, and move it there."""
        part = FOLDER / f"{name}.part"
        part.write_text("\n".join([*self._parts, "</svg>", ""]), "utf-8")
        part.replace(FOLDER / name)


def forking() -> None:
    """Draw the proof that forked kernels change no number."""
    drawing = Drawing(760, 300, "The first trial is run in a fresh kernel and in a forked one")
    drawing.box(20, 30, 180, 60, "trial 0000", "in a fresh kernel", colour=ORANGE)
    drawing.box(280, 30, 200, 60, "zygote: imports what", "the notebook's code shows", colour=BLUE)
    drawing.box(560, 14, 180, 40, "0001 …, withheld", colour=GREY)
    drawing.box(560, 66, 180, 40, "trial 0000, forked", colour=BLUE)
    drawing.arrow((480, 52), (558, 36))
    drawing.arrow((480, 66), (558, 84))
    drawing.box(280, 140, 200, 50, "scores, steps, outputs:", "equal to the last bit?", colour=INK)
    drawing.arrow((110, 90), (110, 165), (278, 165))
    drawing.arrow((650, 106), (650, 165), (482, 165))
    drawing.box(20, 230, 220, 50, "no: 0001 … run again,", "in fresh kernels", colour=ORANGE)
    drawing.box(
        520, 230, 220, 50, "yes: 0001 … count, and", "later kernels are forked", colour=GREEN
    )
    drawing.arrow((330, 190), (330, 255), (242, 255))
    drawing.arrow((430, 190), (430, 255), (518, 255))
    drawing.save("forking.svg")


def freezing() -> None:
    """Draw the slots of a sweep in which trials are frozen and resumed."""
    drawing = Drawing(
        760, 292, "Two slots over time: trials are frozen, and two of them are resumed"
    )
    for row, name in enumerate(["slot 1", "slot 2"]):
        drawing.text(20, 52 + 44 * row, name)
    drawing.bar(90, 34, 210, "0000 completes", colour=GREEN)
    drawing.bar(90, 78, 54, "0001", colour=BLUE)
    drawing.bar(150, 78, 144, "0002 can win", colour=BLUE)
    drawing.bar(306, 34, 54, "0003", colour=BLUE)
    drawing.bar(366, 34, 54, "0004", colour=BLUE)
    drawing.bar(300, 78, 120, "0002 completes", colour=GREEN)
    drawing.bar(430, 34, 200, "0003 resumes", colour=GREEN)
    drawing.bar(430, 78, 120, "0001 resumes", colour=ORANGE)
    drawing.arrow((425, 22), (425, 208), is_dashed=True)
    drawing.text(432, 22, "all trials have begun")
    drawing.text(20, 150, "frozen: in memory, without a slot")
    for x, width, y, name in [
        (144, 286, 162, "0001"),
        (360, 70, 194, "0003"),
        (420, 210, 226, "0004"),
    ]:
        drawing.bar(x, y, width, name, colour=GREY)
    drawing.text(638, 243, "pruned", colour=ORANGE)
    drawing.text(558, 95, "pruned: cannot win any more", colour=ORANGE)
    drawing.arrow((90, 272), (740, 272))
    drawing.text(740, 264, "time", anchor="end")
    drawing.save("freezing.svg")


def search() -> None:
    """Draw which trials of a study are proposed by what."""
    drawing = Drawing(760, 150, "The trials of a study in their order, by what proposes them")
    parts = [
        (20, 70, "start", ORANGE),
        (96, 180, "10 that cover the space", GREY),
        (282, 210, "Gaussian process", BLUE),
    ]
    for x, width, name, colour in parts:
        drawing.bar(x, 44, width, name, colour=colour)
    for number in range(6):
        name, colour = ("TPE", GREEN) if number % 2 else ("GP", BLUE)
        drawing.bar(498 + number * 40, 44, 37, name, colour=colour)
    drawing.text(498, 34, "from the 25th trial on: in turns")
    drawing.text(20, 34, "yours")
    drawing.arrow((20, 100), (740, 100))
    drawing.text(740, 122, "trials", anchor="end")
    drawing.text(20, 122, "each ended trial, pruned ones too, is known to the next proposal")
    drawing.save("search.svg")


def recovery() -> None:
    """Draw what is written while a trial runs, and what the next start reads."""
    drawing = Drawing(760, 256, "What is written while trials run, and what the next start reads")
    drawing.box(20, 95, 140, 60, "a sweep,", "killed at any time", colour=ORANGE)
    stores = [
        ("the study: study.db", "trials that have ended, what was proposed"),
        ("executed notebooks", "state, scores and outputs, at every moment"),
        ("checkpoints", "weights, optimizer, random states"),
    ]
    for row, lines in enumerate(stores):
        y = 20 + 75 * row
        drawing.box(225, y, 320, 56, *lines, colour=BLUE)
        drawing.arrow((160, 110 + 15 * row), (223, y + 28))
        drawing.arrow((545, y + 28), (598, 110 + 15 * row))
    drawing.box(600, 95, 140, 60, "the same", "command again", colour=GREEN)
    drawing.arrow((330, 96), (330, 78), is_dashed=True)
    drawing.text(338, 91, "rebuild")
    drawing.text(740, 246, "the same run id, seed, file and MLflow run", anchor="end")
    drawing.save("recovery.svg")


def slots() -> None:
    """Draw how trials share the memory of a GPU."""
    drawing = Drawing(
        760, 240, "Trials over time on one GPU: the first one alone, then as many as fit"
    )
    drawing.text(20, 30, "GPU memory")
    drawing.arrow((90, 200), (90, 40))
    drawing.arrow((90, 200), (740, 200))
    drawing.text(740, 222, "time", anchor="end")
    for number, (x, row, width) in enumerate(
        [(92, 3, 170), (190, 2, 190), (268, 3, 150), (300, 1, 200), (300, 0, 170), (384, 2, 160)]
    ):
        drawing.bar(x, 70 + 31 * row, width, f"000{number}", colour=BLUE if number else ORANGE)
    drawing.bar(424, 163, 180, "0006", colour=BLUE)
    drawing.bar(476, 70, 150, "0007", colour=BLUE)
    drawing.arrow((190, 60), (190, 130), is_dashed=True)
    drawing.text(110, 54, "0000 has shown its peak: one more joins")
    drawing.arrow((640, 66), (92, 66), is_dashed=True)
    drawing.text(648, 70, "full")
    drawing.save("slots.svg")


if __name__ == "__main__":
    for draw in (forking, freezing, search, recovery, slots):
        draw()
