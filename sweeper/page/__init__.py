"""The comparison page of a study: its data and its files.

The folder `assets/` has the page's JavaScript and ECharts. `notebooks` renders notebooks as HTML,
and `control` serves the page.
"""

from __future__ import annotations

from .one_file import frame_of
from .pages import Page, is_rendered, shown_surfaces, write_notes, write_page_of

__all__ = ["Page", "frame_of", "is_rendered", "shown_surfaces", "write_notes", "write_page_of"]
