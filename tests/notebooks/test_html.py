"""An executed notebook as an HTML page."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

from sweeper.notebooks import render_html
from sweeper.testing import write_notebook


def test_the_page_has_the_outputs_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "print('<b>loss</b>')")
    node = nbformat.read(path, as_version=4)
    node.cells[1].outputs = [nbformat.v4.new_output("stream", text="<b>loss</b> 0.5\n")]
    nbformat.write(node, path)
    page = render_html(path)
    assert "&lt;b&gt;loss&lt;/b&gt; 0.5" in page
    assert re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page) == []
