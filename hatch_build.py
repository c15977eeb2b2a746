"""Make the README of the package index, which has none of the repository's files.

Links and pictures lead to the `Source` of `project.urls`. Without one, a link is only named, and
pictures are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Set the field `readme` of the package's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        source = metadata.get("urls", {}).get("Source")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_links(text, source),
        }


def with_links(text: str, source: str | None) -> str:
    """Return a text whose relative links lead to the repository at this address."""

    def moved(match: re.Match[str]) -> str:
        image, words, path = match.groups()
        if source is None:
            return "" if image else words
        return f"{image}[{words}]({source}/{'raw' if image else 'blob'}/main/{path})"

    return _LINK.sub(moved, text)
