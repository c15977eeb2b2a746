"""Parameters as papermill puts them into a notebook."""

from __future__ import annotations

from nbformat import NotebookNode
from papermill.parameterize import parameterize_notebook
from papermill.translators import translate_parameters

from ...trials import Params


def inject(node: NotebookNode, params: Params, *, kernel_name: str, language: str) -> NotebookNode:
    """The notebook with a cell after its parameters cell that assigns `params`."""
    node.metadata.setdefault("papermill", NotebookNode())
    injected: NotebookNode = parameterize_notebook(
        node, dict(params), kernel_name=kernel_name, language=language
    )
    return injected


def assignments(params: Params) -> str:
    """Python that assigns `params`, as the injected cell does."""
    code: str = translate_parameters("python3", "python", dict(params))
    return code
