"""Collect what one execution of a notebook has come to, and find how two executions differ.

Two executions in started kernels already differ in times, rates and addresses, and some notebooks
in more than that. A forked kernel may differ in the same places, and nowhere else.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbformat import NotebookNode

from ..cells.outputs import without_overwritten
from .zygote.generators import is_seeded_since

Series = Mapping[str, Sequence[tuple[int, float]]]
#: The states of the global random generators, as `zygote.generators.states` returns them.
GeneratorStates = Mapping[str, Mapping[str, Any]]

#: Two executions whose numbers differ by less than this, relatively, are close: sums over sets of
#: objects and atomic additions on a GPU come out in another order each time.
CLOSENESS = 1e-6
#: How much of a differing line a message quotes.
_EXCERPT_CHARACTERS = 60
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
#: What differs between any two processes: addresses, identifiers, times, rates.
_VOLATILE = re.compile(
    r"0x[0-9a-fA-F]{4,}"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|\b(?=\d*[a-f])[0-9a-f]{16,}\b"
    r"|ipykernel_\d+(?:/\d+)?"
    r"|\b\d+(?:\.\d+)?\s?(?:ns|µs|us|ms|s|secs?|seconds?|min|mins|minutes?|h|hours?)\b"
    r"|\b\d+(?:\.\d+)?\s?(?:[kKMG]i?B/s|\w+/s|s/\w+)"
    r"|\b\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)?\b"
    r"|\b\d{1,2}:\d\d(?::\d\d)?(?:\.\d+)?\b"
    r"|(?i:\b(?:time|elapsed|took|duration|eta|speed)\b\W{0,4}[\d.]+)"
)
#: Stands for a picture; without digits, which would be compared as numbers.
_DIGEST, _NO_DIGITS = "digest ", str.maketrans("0123456789", "ghijklmnop")
_PROGRESS_BAR = re.compile(r"^.*\d+%\|.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One output of a cell: its kind, and its text by MIME type or stream."""

    kind: str
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one execution of a notebook has come to.

    Attributes:
        cells: the outputs of each cell, in order.
        widgets: how many widget models of which type there are.
        at_start: states of the generators before the first cell that the kernel has run itself.
        at_end: states of the generators after the last cell.
        seeded: generators that shared cells had seeded before.
    """

    scores: Mapping[str, float]
    series: Series
    cells: Sequence[Sequence[Output]]
    widgets: Mapping[str, int] = field(default_factory=dict)
    at_start: GeneratorStates = field(default_factory=dict)
    at_end: GeneratorStates = field(default_factory=dict)
    seeded: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first thing in which two executions differ.

    Attributes:
        where: in the user's words, such as `code cell 3`, `val_acc` or `the random state`.
        what: how they differ.
        is_output: whether all numbers are the same, and an output is not.
        distance: how far two scores are apart, relatively; infinite for what is no number.
    """

    where: str
    what: str
    is_output: bool = False
    distance: float = math.inf

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def gather(
    node: NotebookNode,
    *,
    scores: Mapping[str, float],
    series: Series,
    at_start: GeneratorStates,
    at_end: GeneratorStates,
    seeded: Sequence[str] = (),
) -> Evidence:
    """The evidence of a notebook that was executed to its end."""
    models = node.metadata.get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {})
    names = (str(model.get("model_name")) for model in models.get("state", {}).values())
    return Evidence(
        scores=dict(scores),
        series={name: list(points) for name, points in series.items()},
        cells=[
            list(_outputs(cell.get("outputs", [])))
            for cell in node.cells
            if cell.cell_type == "code"
        ],
        widgets=Counter(names),
        at_start=at_start,
        at_end=at_end,
        seeded=seeded,
    )


def difference(
    one: Evidence, other: Evidence, *, twin: Evidence | None = None, closeness: float = 0.0
) -> Difference | None:
    """How `other` differs from `one`; None when it does not.

    Args:
        one: of a started kernel.
        twin: of a second started kernel: where it differs from `one`, `other` may differ too.
        closeness: how far two numbers may be apart, relatively.
    """
    return (
        _numbers_differ(one, other, closeness)
        or _outputs_differ(one, other, twin, closeness)
        or _widgets_differ(one, other, twin)
        or _generators_differ(one, other, twin)
    )


def scores_distance(one: Evidence, other: Evidence) -> float:
    """How far the scores and series of two executions are apart at most, relatively."""
    found = _numbers_differ(one, other, 0.0)
    if found is None:
        return 0.0
    if found.distance == math.inf or _numbers_differ(one, other, CLOSENESS) is not None:
        return math.inf
    return found.distance


def _numbers_differ(one: Evidence, other: Evidence, closeness: float) -> Difference | None:
    for name in {**one.scores, **other.scores}:
        if name not in one.scores or name not in other.scores:
            return Difference(where=name, what="found in one of them only")
        first, second = one.scores[name], other.scores[name]
        if not _is_close(first, second, closeness):
            what = f"{first!r} and {second!r}"
            return Difference(where=name, what=what, distance=_distance(first, second))
    for name in {**one.series, **other.series}:
        first_points, second_points = one.series.get(name, ()), other.series.get(name, ())
        if [step for step, _ in first_points] != [step for step, _ in second_points]:
            return Difference(where=f"the series {name}", what="other steps")
        for (step, first), (_, second) in zip(first_points, second_points, strict=True):
            if not _is_close(first, second, closeness):
                return Difference(
                    where=f"the series {name}",
                    what=f"{first!r} and {second!r} at step {step}",
                    distance=_distance(first, second),
                )
    return None


def _outputs_differ(
    one: Evidence, other: Evidence, twin: Evidence | None, closeness: float
) -> Difference | None:
    for index, (first, second) in enumerate(zip(one.cells, other.cells, strict=True)):
        where = f"code cell {index + 1}"
        allowed = None if twin is None else twin.cells[index]
        if allowed is not None and [o.kind for o in allowed] != [o.kind for o in first]:
            continue  # two started kernels put out different kinds, so nothing can be compared
        if [output.kind for output in first] != [output.kind for output in second]:
            what = f"shows {_kinds(first)}, and {_kinds(second)}"
            return Difference(where=where, what=what, is_output=True)
        for place, (before, after) in enumerate(zip(first, second, strict=True)):
            same = None if allowed is None else allowed[place]
            for key in {**before.texts, **after.texts}:
                texts = before.texts.get(key), after.texts.get(key)
                masked = None if same is None else same.texts.get(key)
                if not _texts_agree(*texts, twin=masked, closeness=closeness):
                    what = f"another {key} of its {before.kind}{_excerpt(*texts)}"
                    return Difference(where=where, what=what, is_output=True)
    return None


def _widgets_differ(one: Evidence, other: Evidence, twin: Evidence | None) -> Difference | None:
    is_stable = twin is None or twin.widgets == one.widgets
    if is_stable and one.widgets != other.widgets:
        return Difference(
            where="the widgets",
            what=f"{sum(one.widgets.values())} models, and {sum(other.widgets.values())}",
            is_output=True,
        )
    return None


def _generators_differ(one: Evidence, other: Evidence, twin: Evidence | None) -> Difference | None:
    for name in {**one.at_end, **other.at_end}:
        first, second = one.at_end.get(name), other.at_end.get(name)
        if first is None or second is None:
            # A library that only one of them has imported has drawn nothing for the notebook.
            present = first or second or {}
            if not present["has_moved"]:
                continue
            return Difference(where="the random state", what=f"{name} is used in one of them only")
        if first["digest"] == second["digest"]:
            continue
        if twin is not None and twin.at_end.get(name, {}).get("digest") != first["digest"]:
            continue  # nothing seeds it
        is_seeded = name in other.seeded or is_seeded_since(other.at_start.get(name), second)
        if is_seeded:
            what = f"the generator {name!r} was seeded, and is in another state in the end"
            return Difference(where="the random state", what=what)
        if first["has_moved"] != second["has_moved"]:
            what = f"numbers were drawn from the generator {name!r} in one of them only"
            return Difference(where="the random state", what=what)
    return None


def _is_close(one: float, other: float, closeness: float) -> bool:
    if one.hex() == other.hex():
        return True
    return closeness > 0 and _distance(one, other) <= closeness


def _distance(one: float, other: float) -> float:
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    largest = max(abs(one), abs(other))
    return abs(one / largest - other / largest) if largest else 0.0


def _texts_agree(one: str | None, other: str | None, *, twin: str | None, closeness: float) -> bool:
    if one is None or other is None:
        return one == other
    if one == other or (closeness > 0 and one.startswith(_DIGEST) and other.startswith(_DIGEST)):
        return True
    words, numbers = _split(one)
    other_words, other_numbers = _split(other)
    if twin is not None:
        twin_words, twin_numbers = _split(twin)
        if twin_words != words:
            return True  # two started kernels print different text here
        stable = [a == b for a, b in zip(numbers, twin_numbers, strict=True)]
    else:
        stable = [True] * len(numbers)
    if words != other_words:
        return False
    return all(
        not is_stable or a == b or (closeness > 0 and _distance(float(a), float(b)) <= closeness)
        for is_stable, a, b in zip(stable, numbers, other_numbers, strict=True)
    )


def _excerpt(one: str | None, other: str | None) -> str:
    """The first lines in which two texts differ, shortened."""
    if one is None or other is None or one.startswith(_DIGEST):
        return ""
    lines = itertools.zip_longest(one.split("\n"), other.split("\n"), fillvalue="")
    first, second = next((a, b) for a, b in lines if a != b)
    # Of a long line, quote the part from shortly before the difference.
    place = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
    start = max(0, place - _EXCERPT_CHARACTERS // 3)
    parts = (line[start : start + _EXCERPT_CHARACTERS] for line in (first, second))
    return ", {!r} and {!r}".format(*parts)


def _split(text: str) -> tuple[list[str], list[str]]:
    """The words of a text, and the numbers between them."""
    return _NUMBER.split(text), _NUMBER.findall(text)


def _outputs(outputs: Sequence[NotebookNode]) -> Iterator[Output]:
    """The outputs of a cell; of streams, only what lies between two displays is in order.

    ipykernel sends each stream by itself, several times a second.
    """
    streams: dict[str, str] = {}
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] = streams.get(output.name, "") + output.text
            continue
        yield from _streams(streams)
        streams = {}
        data = dict(output.get("data", {}))
        if output.output_type == "error":  # its traceback has places in it, which may move
            data["error"] = f"{output.ename}: {output.evalue}"
        if _WIDGET_VIEW in data:
            data[_WIDGET_VIEW] = "a widget"
        texts = {mime: _masked(_text_of(mime, part)) for mime, part in data.items()}
        yield Output(kind=output.output_type, texts=texts)
    yield from _streams(streams)


def _streams(streams: Mapping[str, str]) -> Iterator[Output]:
    for name, text in sorted(streams.items()):
        yield Output(kind=name, texts={"text": _masked("".join(without_overwritten([text])))})


def _text_of(mime: str, part: Any) -> str:
    text = part if isinstance(part, str) else json.dumps(part, sort_keys=True)
    if mime.startswith(("image/", "audio/", "video/")) and mime != "image/svg+xml":
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return _DIGEST + digest.translate(_NO_DIGITS)
    return text


def _masked(text: str) -> str:
    bars = _PROGRESS_BAR.sub(lambda bar: re.sub(r"[\d.,:?█▏▎▍▌▋▊▉# ]+", "…", bar[0]), text)
    return _VOLATILE.sub("…", bars)


def _kinds(outputs: Sequence[Output]) -> str:
    return ", ".join(output.kind for output in outputs) or "nothing"
