"""The comparison page of a study: what it draws, and the files it consists of.

The owner of the page's JavaScript and of ECharts, in `assets/`. How a notebook becomes HTML belongs
to `notebooks`, serving the page to `control`.
"""

from __future__ import annotations

from .pages import Page, is_rendered

__all__ = ["Page", "is_rendered"]
