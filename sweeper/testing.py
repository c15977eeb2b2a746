"""Builders for tests of sweeps, ours and yours."""

from __future__ import annotations

from pathlib import Path

import nbformat

from .notebook import PARAMETERS_TAG


def write_notebook(
    path: Path, *cells: str, parameters: str = "x = 1.0", kernel: str = "python3"
) -> Path:
    """Write a notebook from the source of its cells.

    Args:
        path: the file; folders above it are made.
        *cells: sources of the code cells after the parameters cell.
        parameters: source of the parameters cell; empty for none.
        kernel: the kernel that the notebook names.

    Returns:
        `path`.
    """
    v4 = nbformat.v4
    node = v4.new_notebook()
    node.metadata["kernelspec"] = {"name": kernel, "language": "python", "display_name": kernel}
    if parameters:
        tagged = v4.new_code_cell(parameters)
        tagged.metadata["tags"] = [PARAMETERS_TAG]
        node.cells.append(tagged)
    node.cells += [v4.new_code_cell(source) for source in cells]
    for index, cell in enumerate(node.cells):
        cell["id"] = f"cell-{index}"  # the same file each time
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(node), encoding="utf-8")
    return path
