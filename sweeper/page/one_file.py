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
#: A frame contains at most this many bytes of rendered notebooks, before compression (chosen, not
#: measured), because it is saved as a cell's output in the notebook that displays it.
_MOST_BYTES = 20_000_000
_LOADED = re.compile(r'<(link rel="stylesheet" href|script)[^>]*?="(page/[^"]+)">(?:</script>)?')
#: Permissions of the frame's sandbox. `allow-same-origin` is missing, so that scripts in the frame
#: cannot access the notebook around it.
_ALLOWED = "allow-scripts allow-downloads allow-modals allow-popups allow-popups-to-escape-sandbox"
#: Style that gives a page in a frame the colours of JupyterLab's theme instead of the system's.
_THEME = """<style>
[data-jp-theme-light="true"] iframe.sweeper { color-scheme: light; }
[data-jp-theme-light="false"] iframe.sweeper { color-scheme: dark; }
</style>"""
#: HTML that contains the page with its scripts, and unpacks it: a sandboxed frame may not load
#: files. The page is compressed, because its scripts have a megabyte.
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
    """Return a frame (`<iframe>`) with a study's page, as HTML.

    The frame needs no other file, server or network.

    Args:
        index: `index.html` of the page.
        notebooks: Run ids of the trials whose rendered notebooks the frame should contain. The
            last ones are left out if all of them together exceed `_MOST_BYTES`.

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

    Args:
        file: Script or style sheet of the page.
        tag: Name of the element: `script` or `style`.
    """
    text = file.read_text(encoding="utf-8")
    if text.startswith("sweeper."):
        text = text.replace("<", "\\u003c")
    return f"<{tag}>{text}</{tag}>"
