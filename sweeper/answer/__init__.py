"""Make the answer of a study: which trial is the best, which params matter, what to do next.

The folder `trials` defines the answer's data. The folders `display`, `page` and `cli` show it.
"""

from __future__ import annotations

from .making import StudySoFar, answer_of
from .no_effect import are_equal, execution_of, without_effect
from .of_study import answer_of_study, runs_page_of

__all__ = [
    "StudySoFar",
    "answer_of",
    "answer_of_study",
    "are_equal",
    "execution_of",
    "runs_page_of",
    "without_effect",
]
