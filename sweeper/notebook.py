"""A notebook file as data: read, checked, given its trial, written whole, rendered.

The only owner of nbformat and nbconvert.
"""

from __future__ import annotations

import copy
import json
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from .cellcode import assigned_names, likely_parameters, parse, plain_python
from .complaints import nearest
from .errors import NotebookError, first_line
from .repair import mended
from .reporting import Point, encode_float
from .trials import TrialOutcome, TrialSpec, TrialState

#: The key of our own metadata, in executed notebooks.
METADATA = "sweeper"
PARAMETERS_TAG = "parameters"
_HOW_TO_TAG = "'parameters' (JupyterLab: property inspector, cell tags)"
_NAMES_SHOWN = 4


class ResearchNotebook:
    """The notebook that is swept; read once, never written.

    Raises:
        NotebookError: the file is missing or is no notebook, or has no parameters cell.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self.shown = str(path)
        self.node = _read(self.path, self.shown, is_mended=True)
        tagged = [c for c in _code_cells(self.node) if PARAMETERS_TAG in _tags(c)]
        if not tagged:
            raise NotebookError(f"{self.shown}: no parameters cell; {_what_to_tag(self.code)}")
        if len(tagged) > 1:
            raise NotebookError(
                f"{self.shown}: {len(tagged)} cells are tagged 'parameters'; keep the tag on one"
            )
        self.parameters_source = "".join(tagged[0].source)

    @property
    def kernel_name(self) -> str:
        """The kernel that the notebook asks for; python3 where a Python notebook names none.

        Raises:
            NotebookError: one in another language names none.
        """
        name = self.node.metadata.get("kernelspec", {}).get("name")
        if not name and self.language != "python":
            raise NotebookError(
                f"{self.shown}: names no kernel, and its language is {self.language}; choose a "
                "kernel with --kernel"
            )
        return str(name or "python3")

    @property
    def language(self) -> str:
        """The language of its cells; `python`, however it is spelled."""
        metadata = self.node.metadata
        told = metadata.get("kernelspec", {}).get("language") or metadata.get(
            "language_info", {}
        ).get("name")
        language = str(told or "python")
        return "python" if language.lower() == "python" else language

    @property
    def code(self) -> list[str]:
        """Sources of its code cells, in their order."""
        return ["".join(cell.source) for cell in _code_cells(self.node)]

    def parameters(self) -> list[str] | None:
        """Names that the parameters cell assigns; None for a language that we cannot read.

        Raises:
            NotebookError: the parameters cell is not valid Python.
        """
        if self.language != "python":
            return None
        try:
            return assigned_names(parse(plain_python(self.parameters_source)))
        except SyntaxError as error:
            where = f", line {error.lineno}" if error.lineno else ""
            raise NotebookError(
                f"{self.shown}: the parameters cell{where}: {error.msg}; "
                "it should only assign names, as in `lr = 1e-3`"
            ) from error

    def check_parameters(self, sources: Mapping[str, str]) -> None:
        """Refuse names that the parameters cell does not assign: papermill would only warn.

        Args:
            sources: from each name to where it was given, for the message.

        Raises:
            NotebookError: a name is not assigned; the text names it, and the nearest right one.
        """
        assigned = self.parameters()
        if assigned is None:
            return
        wrong = [
            f"{source}: {name!r} is not assigned in the parameters cell of {self.shown}; "
            f"{nearest(name, assigned)}"
            for name, source in sources.items()
            if name not in assigned
        ]
        if wrong:
            raise NotebookError("\n".join(wrong))

    def assigns(self, name: str) -> bool:
        """Whether the parameters cell assigns this name."""
        return name in (self.parameters() or ())

    def fresh_copy(self, kernel_name: str | None = None) -> NotebookNode:
        """The notebook as a trial starts from it: nothing left of an earlier execution.

        Args:
            kernel_name: the kernel that will run it, for a notebook that names none.
        """
        node = copy.deepcopy(self.node)
        for key in (METADATA, "papermill", "widgets"):
            node.metadata.pop(key, None)
        for cell in node.cells:
            cell.metadata.setdefault("tags", [])  # papermill looks for tags on every cell
            cell.metadata.pop("papermill", None)
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        spec = node.metadata.get("kernelspec", {})
        name = spec.get("name") or kernel_name or self.kernel_name
        usual = {"name": name, "display_name": name, "language": self.language}
        node.metadata["kernelspec"] = {**usual, **spec}
        return node


def _what_to_tag(sources: Sequence[str]) -> str:
    """What to do in a notebook without a parameters cell."""
    likely = likely_parameters(sources)
    if likely is None:
        return f"put what should vary into one, as in `lr = 1e-3`, and tag it {_HOW_TO_TAG}"
    names = ", ".join(likely.names[:_NAMES_SHOWN])
    more = len(likely.names) - _NAMES_SHOWN
    names += f" and {more} more" if more > 0 else ""
    which = f"code cell {likely.number} assigns {names}"
    if likely.is_pure:
        return f"{which}: tag it {_HOW_TO_TAG}"
    return f"{which} among other things: move these to a cell of their own, tagged {_HOW_TO_TAG}"


class ExecutedNotebook:
    """The file of one trial, from its first moment on: valid and true whenever one looks.

    `node` is shared with the engine, which fills in the outputs.
    """

    def __init__(self, node: NotebookNode, spec: TrialSpec, *, started_at: str) -> None:
        self.node = node
        if "parameters" in (papermills := node.metadata.get("papermill", {})):
            papermills["parameters"] = _as_json(papermills["parameters"])
        self.path = spec.notebook
        self._lock = threading.Lock()
        self.metadata: dict[str, Any] = {
            "study": spec.study,
            "study_id": spec.study_id,
            "run_id": spec.run_id,
            "state": str(TrialState.RUNNING),
            "params": _as_json(spec.params),
            "fixed": _as_json(spec.fixed),
            "seed": spec.seed,
            "attempt": spec.attempt,
            "code": spec.code,
            "scores": {},
            "started_at": started_at,
            "series": {},
            "printed": {},
            "finals": {},
            "variables": {},
        }
        earlier = None if spec.continues is None else read_metadata(spec.continues)
        #: A trial that goes on from a checkpoint says nothing of the steps before it.
        self._earlier: dict[str, Any] = dict((earlier or {}).get("series", {}))

    def record(self, point: Point, *, printed: bool = False) -> None:
        """Keep a reported or printed point; outputs may be cleared by the notebook, this is not."""
        kept = self.metadata["printed" if printed else "series"]
        for name, value in point.metrics.items():
            if point.step is None:
                self.metadata["finals"][name] = encode_float(value)
                continue
            if name not in kept:
                before = [] if printed else self._earlier_points(name, point.step)
                kept[name] = {"steps": [s for s, _ in before], "values": [v for _, v in before]}
            series = kept[name]
            series["steps"].append(point.step)
            series["values"].append(encode_float(value))

    def keep_earlier_series(self) -> None:
        """Take over what this try had no need to say again."""
        for name in self._earlier.keys() - self.metadata["series"].keys():
            self.metadata["series"][name] = self._earlier[name]

    def _earlier_points(self, name: str, step: int) -> list[tuple[int, float | str]]:
        """What an earlier try reported before a step."""
        series = self._earlier.get(name, {"steps": [], "values": []})
        points = zip(series["steps"], series["values"], strict=True)
        return [(s, value) for s, value in points if s < step]

    def finish(self, outcome: TrialOutcome) -> None:
        """State how the trial ended."""
        self.metadata["state"] = str(outcome.state)
        self.metadata["scores"] = {k: encode_float(v) for k, v in outcome.scores.items()}
        self.metadata["duration_s"] = round(outcome.duration_s, 3)
        if outcome.reason is not None:
            self.metadata["reason"] = str(outcome.reason)
            self.metadata["message"] = outcome.message

    def write(self) -> None:
        """Write the file beside its place and rename it into it."""
        with self._lock:
            self.node.metadata[METADATA] = self.metadata
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_beside(self.path, nbformat.writes(self.node, version=4))


def _as_json(value: Any) -> Any:
    """A parameter's value as JSON can carry it, however deep a NaN or an infinity sits."""
    if isinstance(value, float):
        return encode_float(value)
    if isinstance(value, Mapping):
        return {key: _as_json(inner) for key, inner in value.items()}
    return [_as_json(inner) for inner in value] if isinstance(value, list | tuple) else value


def write_beside(path: Path, text: str) -> None:
    """Write a whole file so that no reader and no crash ever meets half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.write("" if text.endswith("\n") else "\n")
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read_metadata(path: Path) -> Mapping[str, Any] | None:
    """What an executed notebook says of its trial; None when we did not write the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        metadata = data["metadata"][METADATA]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return metadata if isinstance(metadata, Mapping) else None


def read_executed(path: Path) -> NotebookNode:
    """Read an executed notebook, to scrape it again.

    Raises:
        NotebookError: the file is missing or is no notebook.
    """
    return _read(path, str(path))


def mark_stopped(path: Path, message: str) -> None:
    """Correct the state in the file of a trial whose sweep was killed under it."""
    node = _read(path, str(path))
    node.metadata[METADATA].update(state=str(TrialState.STOPPED), message=message)
    for cell in node.cells:
        if cell.metadata.get("papermill", {}).get("status") == "running":
            cell.metadata["papermill"]["status"] = "stopped"
    write_beside(path, nbformat.writes(node, version=4))


def render_html(path: Path) -> str:
    """An executed notebook as one HTML page that loads nothing from elsewhere."""
    body, _ = _exporter().from_notebook_node(_read(path, str(path)))
    return str(body)


@cache  # its templates take four times as long to compile as a small notebook to render
def _exporter() -> Any:
    from nbconvert import HTMLExporter  # 0.5 s and more: only who renders pays

    return HTMLExporter(
        mathjax_url="", require_js_url="", jquery_url="", mermaid_js_url="", embed_images=True
    )


def _read(path: Path, shown: str, *, is_mended: bool = False) -> NotebookNode:
    """Read a notebook.

    Args:
        is_mended: for one that will be run: it loses its outputs, and is spared for what keeps
            nobody from running it.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode(json.detect_encoding(raw))
    except FileNotFoundError as error:
        raise NotebookError(f"{shown}: there is no such notebook") from error
    except (OSError, UnicodeDecodeError) as error:
        raise NotebookError(f"{shown}: cannot be read: {error}") from error
    try:
        node = _parsed(text, is_mended=is_mended)
        nbformat.validate(node)
        if is_mended:
            nbformat.writes(node).encode()  # or no trial could write it
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        raise NotebookError(f"{shown}: holds {half!r}, half a character; take it out") from error
    except ValueError as error:
        raise NotebookError(f"{shown}: not a notebook: {error}") from error
    except Exception as error:  # nbformat raises its own and jsonschema's, which share no base
        raise NotebookError(f"{shown}: not a valid notebook: {first_line(error)}") from error
    # Every cell of ours and of papermill's needs these two; formats before 4.5 had no ids.
    node.nbformat_minor = max(node.nbformat_minor, 5)
    for cell in node.cells:
        cell.setdefault("id", nbformat.v4.new_code_cell().id)
    return node


def _parsed(text: str, *, is_mended: bool) -> NotebookNode:
    # Python alone writes NaN into JSON, and only where nobody misses it.
    data = json.loads(text, parse_constant=lambda _: None)
    if is_mended and isinstance(data, dict) and data.get("nbformat") == 4:
        text = json.dumps(mended(data))
    node: NotebookNode = nbformat.convert(nbformat.reader.reads(text), 4)
    if is_mended:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of each cell that gets an id
            _, node = nbformat.validator.normalize(node, strip_invalid_metadata=True)
    return node


def _code_cells(node: NotebookNode) -> list[Any]:
    return [cell for cell in node.cells if cell.cell_type == "code"]


def _tags(cell: Any) -> list[str]:
    return list(cell.metadata.get("tags", []))
