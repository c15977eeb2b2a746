"""Put a study's comparison page into one text, which Jupyter displays in a cell's output."""

from __future__ import annotations

import base64
import gzip
import html
import re
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

_HEIGHT_PX = 860
#: At most this many bytes of rendered notebooks, before compression, are put into an output
#: (chosen, not measured), because the output is saved with the notebook that displays it.
_MOST_BYTES = 20_000_000
_LOADED = re.compile(r'<(link rel="stylesheet" href|script)[^>]*?="(page/[^"]+)">(?:</script>)?')
#: Permissions of the frame's sandbox. `allow-same-origin` is missing, so that scripts in the frame
#: cannot access the notebook around it.
_ALLOWED = "allow-scripts allow-downloads allow-modals allow-popups allow-popups-to-escape-sandbox"
#: The page in a frame has the colours of JupyterLab's theme, and not those of the system.
_THEME = """<style>
[data-jp-theme-light="true"] iframe.sweeper { color-scheme: light; }
[data-jp-theme-light="false"] iframe.sweeper { color-scheme: dark; }
</style>"""
#: HTML that unpacks the page, because a sandboxed frame may not load files, and the page has a
#: megabyte of scripts.
_UNPACK = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<script>
const bytes = Uint8Array.from(atob("{packed}"), (character) => character.charCodeAt(0));
const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
new Response(unpacked).text().then((page) => {{
  document.open();
  document.write(page);
  document.close();
}});
</script>"""


def frame_of(index: Path, notebooks: Iterable[str]) -> str:
    """Return a frame with a page, as HTML that needs no other file, server or network.

    Args:
        index: `index.html` of the page.
        notebooks: Run ids of the trials whose rendered notebooks the frame should contain, as far
            as they fit.

    Raises:
        OSError: A file of the page cannot be read.
    """
    rendered = [index.parent / f"page/notebooks/{name}.js" for name in ("styles", *notebooks)]
    rendered = [file for file in rendered if file.exists()]
    sizes = accumulate(file.stat().st_size for file in rendered)
    fitting = [file for file, size in zip(rendered, sizes, strict=True) if size <= _MOST_BYTES]

    def inlined(match: re.Match[str]) -> str:
        tag, file = match.groups()
        return _inlined(index.parent / file, "script" if tag == "script" else "style")

    page = _LOADED.sub(inlined, index.read_text(encoding="utf-8"))
    page += "".join(map(_inlined, [index.parent / "page/curves.js", *fitting]))
    packed = base64.b64encode(gzip.compress(page.encode(), mtime=0)).decode()
    return (
        f'{_THEME}<iframe class="sweeper" sandbox="{_ALLOWED}" width="100%" height="{_HEIGHT_PX}" '
        f'style="border:0" srcdoc="{html.escape(_UNPACK.format(packed=packed))}"></iframe>'
    )


def _inlined(file: Path, tag: str = "script") -> str:
    """Return a file as an HTML element.

    In scripts that contain data, `<` is escaped. Otherwise, data such as `</script>` would end the
    element.
    """
    text = file.read_text(encoding="utf-8")
    if text.startswith("sweeper."):
        text = text.replace("<", "\\u003c")
    return f"<{tag}>{text}</{tag}>"
