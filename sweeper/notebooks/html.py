"""Render an executed notebook as one HTML page.

Only this module uses nbconvert.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from .reading import read_notebook


def render_html(path: Path) -> str:
    """Render an executed notebook as one HTML page that loads nothing from other servers.

    Raises:
        NotebookError: the file is missing or is not a notebook.
    """
    body, _ = _exporter().from_notebook_node(read_notebook(path, str(path)))
    return str(body)


@cache  # compiling the templates takes four times as long as rendering a small notebook
def _exporter() -> Any:
    from nbconvert import HTMLExporter  # takes 0.5 s or more, so it is imported only to render

    return HTMLExporter(
        mathjax_url="", require_js_url="", jquery_url="", mermaid_js_url="", embed_images=True
    )
