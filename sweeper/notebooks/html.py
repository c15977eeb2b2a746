"""An executed notebook as one HTML page."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from .reading import read_notebook


def render_html(path: Path) -> str:
    """An executed notebook as one HTML page that loads nothing from elsewhere."""
    body, _ = _exporter().from_notebook_node(read_notebook(path, str(path)))
    return str(body)


@cache  # its templates take four times as long to compile as a small notebook to render
def _exporter() -> Any:
    from nbconvert import HTMLExporter  # 0.5 s and more: only who renders pays

    return HTMLExporter(
        mathjax_url="", require_js_url="", jquery_url="", mermaid_js_url="", embed_images=True
    )
