"""The answer of a study: who has won, what mattered, where to look next; as data and in words.

Its data is defined in `trials`. What people see of it belongs to `display`, `page` and `cli`.
"""

from __future__ import annotations

from .making import StudySoFar, answer_of
from .of_study import answer_of_study, runs_page_of

__all__ = ["StudySoFar", "answer_of", "answer_of_study", "runs_page_of"]
