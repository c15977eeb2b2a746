"""Put the params of a trial into a notebook, as papermill does."""

from __future__ import annotations

from nbformat import NotebookNode
from papermill.parameterize import parameterize_notebook
from papermill.translators import PythonTranslator, translate_parameters

from ...notebooks.research import injected_names, replace_values
from ...trials import Params


def inject(node: NotebookNode, params: Params, *, kernel_name: str, language: str) -> NotebookNode:
    """Return a notebook whose cells give the params the values of a trial.

    papermill's injected cell follows the parameters cell. It assigns the params that the parameters
    cell assigns but does not read. The values of other params are replaced in the statements that
    assign them.

    The injected cell is added whenever the parameters cell assigns a name that it does not read,
    even if no param has this name. So the notebooks of all trials have the same cells.

    If the language is not Python, the injected cell assigns all params.

    Args:
        node: Notebook. It is changed too, so only the returned notebook should be used afterwards.
        params: Values by name.
        kernel_name: Name of the Jupyter kernel.
        language: Language of the notebook.
    """
    node.metadata.setdefault("papermill", NotebookNode())
    if language == "python":
        names = injected_names(node)
        in_place = {name: value for name, value in params.items() if name not in names}
        replace_values(node, in_place, PythonTranslator.translate)
        injected = {name: value for name, value in params.items() if name in names}
    else:
        names, injected = list(params), dict(params)
    if names:
        node = parameterize_notebook(node, injected, kernel_name=kernel_name, language=language)
    node.metadata.papermill["parameters"] = dict(params)
    return node


def assignments(params: Params, node: NotebookNode) -> str:
    """Return the Python code that papermill's injected cell has for these params.

    Params that the injected cell does not assign are left out.
    """
    injected = {name: params[name] for name in injected_names(node) if name in params}
    code: str = translate_parameters("python3", "python", injected)
    return code
