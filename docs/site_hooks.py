"""Hooks of MkDocs: documents outside of `docs/` are pages, too, and links lead as on GitHub."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
#: Documents and pictures outside of `docs/`, whose places in the site are those in the repository.
OUTSIDE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "infra/README.md"]
#: Pages that the site's search leaves out.
NOT_SEARCHED = ("decisions/", "internals.md", "private-names.md", "architecture.md")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]*)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """List all decisions in the navigation."""
    inside = config.nav[-1]["Inside"]
    pages = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
    inside[-1]["Decisions"] += [f"decisions/{name}" for name in pages]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in `docs/`."""
    benchmarks = (ROOT / "benchmarks").glob("*.[ms][dv]*")
    for name in (*OUTSIDE, *(str(path.relative_to(ROOT)) for path in sorted(benchmarks))):
        files.append(File.generated(config, _place(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Have links lead to places in the site; what has none is only named.

    The site's search leaves out pages for people who change the code: their words are those of
    users, too, and they would come before the guide.
    """
    if page.file.src_uri.startswith(NOT_SEARCHED):
        page.meta["search"] = {"exclude": True}
    here = Path(page.file.abs_src_path).parent

    def moved(match: re.Match[str]) -> str:
        image, text, path, anchor = match.groups()
        place = _place(os.path.relpath(here / path, ROOT))
        if files.get_file_from_path(place) is None:
            return text
        way = os.path.relpath(place, os.path.dirname(page.file.src_uri))
        return f"{image}[{text}]({way}{anchor or ''})"

    # In a list, code needs one space more than on GitHub.
    return LINK.sub(moved, re.sub(r"^ {7}(?=\S)", " " * 8, markdown, flags=re.MULTILINE))


def _place(name: str) -> str:
    return "index.md" if name == "README.md" else name.removeprefix("docs/")
