"""Test executed notebooks as HTML: as a page, and as cells for the comparison page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from sweeper.notebooks.html import page_of, render, write_cells
from sweeper.testing import write_notebook


def rendered(path: Path, *cells: Any) -> list[str]:
    """Return cells of an executed notebook as HTML."""
    nbformat.write(new_notebook(cells=list(cells)), path)
    return render(path)


def displayed(data: dict[str, Any]) -> Any:
    return new_code_cell("x", outputs=[new_output("display_data", data=data)])


def test_a_rendered_notebook_has_its_outputs_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "print('<b>loss</b>')")
    node = nbformat.read(path, as_version=4)
    node.cells[1].outputs = [new_output("stream", text="<b>loss</b> 0.5\n")]
    nbformat.write(node, path)
    page = page_of(render(path))
    assert "&lt;b&gt;loss&lt;/b&gt; 0.5" in page
    assert re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page) == []


@pytest.mark.parametrize(
    "html",
    [
        "<script>alert(1)</script><b>kept</b>",
        "<b onclick='alert(1)'>kept</b>",
        "<a href='javascript:alert(1)'>kept</a>",
        "<a href='data:text/html,<script>alert(1)</script>'>kept</a>",
        "<svg onload='alert(1)'><script>alert(1)</script></svg>kept",
        "<iframe srcdoc='<script>alert(1)</script>'></iframe>kept",
        "<form action='https://elsewhere.example'><input name='a'>kept</form>",
        "<meta http-equiv='refresh' content='0;url=https://elsewhere.example'>kept",
        "<img src='https://elsewhere.example/pixel.png'>kept",
        "<base href='https://elsewhere.example'><b>kept</b>",
        "<math href='javascript:alert(1)'><mtext><script>alert(1)</script></mtext></math>kept",
    ],
)
@pytest.mark.parametrize("as_markdown", [False, True])
def test_rendered_cells_run_no_scripts_and_load_nothing(
    tmp_path: Path, html: str, as_markdown: bool
) -> None:
    cell = new_markdown_cell(html) if as_markdown else displayed({"text/html": html})
    (clean,) = rendered(tmp_path / "n.ipynb", cell)
    assert "kept" in clean
    for wrong in ("<script", "onclick", "onload", "javascript:", "<iframe", "<form", "<meta"):
        assert wrong not in clean
    assert "elsewhere.example" not in re.sub(r'<a href="https://elsewhere', "", clean)


def test_rendered_cells_keep_tables_styles_and_images(tmp_path: Path) -> None:
    html = "<style>td {color: red}</style><table border='1'><tr><td class='c'>1</td></tr></table>"
    cells = rendered(
        tmp_path / "n.ipynb", displayed({"text/html": html}), displayed({"image/png": "iVBORw0K"})
    )
    assert "<style>td {color: red}</style>" in cells[0]
    assert '<td class="c">1</td>' in cells[0]
    assert 'src="data:image/png;base64,iVBORw0K"' in cells[1]


def test_an_image_whose_attachment_is_missing_is_rendered_as_its_description(
    tmp_path: Path,
) -> None:
    lost, kept = (new_markdown_cell(f"![a {name}](attachment:{name}.png)") for name in "lk")
    kept["attachments"] = {"k.png": {"image/png": "AAAA"}}
    shown = displayed({"text/markdown": "![R&D *m*](attachment:m.png) beside"})
    first, second, third = rendered(tmp_path / "n.ipynb", lost, kept, shown)
    assert "a l" in first
    assert "data:image/png;base64,AAAA" in second
    assert "R&amp;D <em>m</em> beside" in third


def test_an_svg_drawing_becomes_an_image_that_runs_no_script(tmp_path: Path) -> None:
    drawing = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    (clean,) = rendered(tmp_path / "n.ipynb", displayed({"image/svg+xml": drawing}))
    assert 'src="data:image/svg+xml;base64,' in clean
    assert "<script" not in clean


def test_an_output_that_needs_a_script_is_shown_as_its_image_or_as_advice_to_open_the_notebook(
    tmp_path: Path,
) -> None:
    html = "<div id='plot'></div><script>draw('plot')</script>"
    found = rendered(
        tmp_path / "n.ipynb",
        displayed({"text/html": html, "text/plain": "Figure()"}),
        displayed({"text/html": html, "image/png": "iVBORw0K"}),
        displayed({"application/javascript": "draw()"}),
    )
    assert ["interactive: open the notebook" in cell for cell in found] == [True, False, True]
    assert "base64,iVBORw0K" in found[1]
    assert "<script" not in page_of(found)


@pytest.mark.slow
def test_a_very_long_output_is_cut_with_a_remark(tmp_path: Path) -> None:
    text = "first\n" + "x" * 50_000_000 + "\nlast"
    stream = new_code_cell("x", outputs=[new_output("stream", text=text)])
    table = displayed({"text/html": "<b>y</b>" * 1_000_000})
    cells = rendered(tmp_path / "n.ipynb", stream, table)
    assert sum(map(len, cells)) < 200_000
    assert "first" in cells[0]
    assert "… 50 MB more: open the notebook …" in cells[0]
    assert "last" in cells[0]
    assert "[8 MB: open the notebook]" in cells[1]


def test_rendered_cells_are_written_as_one_script_per_trial_and_the_styles_only_once(
    tmp_path: Path,
) -> None:
    found = rendered(tmp_path / "n.ipynb", new_markdown_cell("</script>\u2028é"))
    folder = tmp_path / "page" / "notebooks"
    write_cells(folder, "0003", found)
    styles = (folder / "styles.js").stat().st_mtime_ns
    write_cells(folder, "0004", found)
    assert (folder / "styles.js").stat().st_mtime_ns == styles
    text = (folder / "0003.js").read_text()
    assert text.startswith('sweeper.notebook("0003", ')
    assert json.loads(text.partition(", ")[2].strip().removesuffix(");")) == found


def test_writing_a_rendered_notebook_does_not_create_the_folder_of_a_removed_study_again(
    tmp_path: Path,
) -> None:
    found = rendered(tmp_path / "n.ipynb", new_markdown_cell("x"))
    with pytest.raises(FileNotFoundError):
        write_cells(tmp_path / "study" / "page" / "notebooks", "0003", found)
    assert not (tmp_path / "study").exists()


def test_mathematics_is_typeset_without_a_script(tmp_path: Path) -> None:
    aligned = r"$$\begin{aligned} a &= \log b \\ c &= d \end{aligned}$$"
    markdown = new_markdown_cell(f"The rate $\\frac{{1}}{{2}}$:\n\n{aligned}")
    aligned += r" $\href{javascript:alert(1)}{x} \text{<script>alert(1)</script>}$"
    text = {"text/latex": r"$\displaystyle \sqrt{2}$", "text/plain": "sqrt(2)"}
    first, second = rendered(tmp_path / "n.ipynb", markdown, displayed(text))
    assert "<mfrac>" in first
    assert first.count("<mtd") == 4
    assert re.search(r"\$|script", first) is None
    assert "<msqrt>" in second


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("costs $5 and $7", "costs $5 and $7"),
        ("$5/$7, $HOME and $PATH", "$5/$7, $HOME and $PATH"),
        (r"\$3 and \$4", "$3 and $4"),
        ("`$x$`", "<code>$x$</code>"),
        (r"$\frac$ & <b>", r"$\frac$"),
    ],
)
def test_dollar_signs_outside_of_formulas_are_kept(
    tmp_path: Path, written: str, shown: str
) -> None:
    (cell,) = rendered(tmp_path / "n.ipynb", new_markdown_cell(written))
    assert shown in cell
    assert "<math" not in cell
