"""A notebook as data: the research notebook, the executed one, scores, shared cells, fingerprint.

The owner of nbformat and nbconvert. What executes cells does not belong here.
"""

from .executed import ExecutedNotebook, mark_stopped, read_executed, read_metadata
from .html import render_html
from .reading import METADATA
from .research import PARAMETERS_TAG, ResearchNotebook

__all__ = [
    "METADATA",
    "PARAMETERS_TAG",
    "ExecutedNotebook",
    "ResearchNotebook",
    "mark_stopped",
    "read_executed",
    "read_metadata",
    "render_html",
]
