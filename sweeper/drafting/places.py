"""Choose the values of a notebook that a draft proposes to sweep, and say why others are not."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..notebooks.left_out import defaults_of
from ..notebooks.plain import LeftOut, is_plain, plain_value
from .metrics import split_of, words_of
from .modules import constants_to_assign, defaults_to_give
from .receivers import Receivers
from .spaces import (
    Receiver,
    Row,
    another_value,
    is_searched,
    optimizers,
    row_for,
    rows,
    usual_space,
)

if TYPE_CHECKING:
    from ..notebooks.flows import Flows, LibraryCall
    from ..notebooks.plain import Assignment
    from ..notebooks.research import ResearchNotebook
    from .score_guesses import Score

#: Layers of a network, each with the parameter that is its size.
_SIZED = {
    "Dense": "units",
    "Linear": "out_features",
    **dict.fromkeys(["LSTM", "GRU", "RNN"], "hidden_size"),
}
_MOST_SWEPT, _MOST_REFUSED, _MOST_NAMED = 8, 3, 6
#: First words of names that hold what a notebook has found, as in `best_lr = lr`.
_RESULTS = [["best"], ["opt"], ["optimal"], ["final"]]
#: One of this number of trials may change one value alone, to show whether it has an effect.
_PART_ALONE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What a draft says about the params.

    Attributes:
        start: Values of what is swept for the first trials: the notebook's own ones, then one of
            them changed at a time.
        swept: Lines of the search space.
        left_out: Lines of what is not swept, each with the reason.
    """

    start: Sequence[Mapping[str, Any]]
    swept: Sequence[str]
    left_out: Sequence[str]


def params_of(
    notebook: ResearchNotebook,
    candidates: Mapping[str, Candidate],
    others: Mapping[str, Candidate],
    unfit: Mapping[str, str],
    *,
    trials: int,
) -> Params:
    """Choose what is swept of the candidates: those that people search first.

    Args:
        others: Candidates that do not lead to the score.
        unfit: Names of candidates that are not swept, each with the reason.
        trials: Number of trials of the sweep. At most a third of them change one value alone.
    """
    drafted = {
        name: candidate.drafted(notebook.why_not(name)) for name, candidate in candidates.items()
    }
    for name, why in {**_later_batch_sizes(notebook, candidates), **unfit}.items():
        drafted[name] = Drafted(text=f"{drafted[name]}; {why}", is_swept=False)
    by_rank = sorted(
        (name for name, line in drafted.items() if line.is_swept),
        key=lambda name: candidates[name].rank,
    )
    chosen = {*by_rank[:_MOST_SWEPT]}
    left_out = [str(line) for name, line in drafted.items() if name not in chosen]
    left_out += [
        f"{candidate.drafted(notebook.why_not(name))}; is not seen to lead to this score"
        for name, candidate in _one_each(notebook, others, candidates).items()
    ]
    own = {name: candidates[name].value for name in candidates if name in chosen}
    others_of = {name: another_value(own[name], candidates[name].space) for name in own}
    alone = [name for name in by_rank if name in chosen and others_of[name] != own[name]]
    return Params(
        start=[
            own,
            *({**own, name: others_of[name]} for name in alone[: trials // _PART_ALONE]),
        ],
        swept=[str(line) for name, line in drafted.items() if name in chosen],
        left_out=left_out + _unswept(notebook, [*candidates, *others]),
    )


def _later_batch_sizes(
    notebook: ResearchNotebook, candidates: Mapping[str, Candidate]
) -> dict[str, str]:
    """Return the batch sizes except that of training, each with the reason not to sweep it.

    That of training is the first one whose name is not that of an evaluation.
    """

    def place(name: str) -> tuple[int, int]:
        found = notebook.assignments.places(name)
        return min(((at.cell, at.line) for at in found), default=(0, 0))

    sizes = [name for name, candidate in candidates.items() if candidate.is_batch_size]
    training = [name for name in sizes if split_of(words_of(name)) in ("", "train")]
    first = min(training, key=place, default=None)
    return {
        name: "of an evaluation"
        if split_of(words_of(name)) in ("val", "test")
        else "not the first, so probably of an evaluation"
        for name in sizes
        if name != first
    }


def unfit_for(score: Score, candidates: Mapping[str, Candidate]) -> dict[str, str]:
    """Return the candidates that change a score by themselves, each with the reason.

    A score of the last batch depends on the size of batches, and a loss may be made of the numbers
    with which its training computes.
    """
    found = {}
    for name, candidate in candidates.items():
        if score.is_of_batches and candidate.is_batch_size:
            found[name] = f"changes {score.name} by itself, which is that of the last batch"
        elif score.is_loss and candidate.row is not None and candidate.row.usual == "fraction":
            found[name] = f"may be a factor of {score.name} itself"
    return found


def why_nothing(
    notebook: ResearchNotebook, candidates: Mapping[str, Candidate], score: Score | None
) -> str:
    """Say why a notebook has nothing to sweep, or what to do.

    Args:
        candidates: What could be swept, but leads to no score.
        score: The first score. None if none is known.
    """
    if error := notebook.syntax_error():
        return error
    searching = next(
        (call for call in notebook.flows.calls if "SearchCV" in call.callee),
        None,
    )
    if searching is not None:
        return (
            f"the notebook searches itself, with {searching}: give the model numbers in place of "
            "the search, and score what it predicts"
        )
    unknown = [
        f"{as_flow(name)}: {as_flow(candidate.space)}"
        for name, candidate in candidates.items()
        if candidate.row is None and candidate.space and candidate.space != [False, True]
    ]
    remedy = (
        "choose what to vary, and assign it in a cell that is tagged `parameters`; the other cells "
        "use its name"
    )
    if unknown:
        name, way = (as_flow(score.name), score.direction) if score else ("SCORE", "maximize")
        sections = [f"objective: {{{name}: {way}}}"]
        sections += [f"scores: {{{name}: {score.entry}}}"] if score and score.source else []
        sections.append(f"space: {{{', '.join(unknown[:_MOST_NAMED])}}}")
        remedy = (
            f"write {notebook.path.stem}.yml with `{'` and `'.join(sections)}`, and keep in "
            "`space` what you want to vary"
        )
    return "; ".join(_unswept(notebook, [*candidates])[:_MOST_REFUSED]) or remedy


def _unswept(notebook: ResearchNotebook, named: Sequence[str]) -> list[str]:
    """Say why main arguments, and names that people search, are not swept.

    Args:
        named: Names that are in the draft already.
    """
    assignments = notebook.assignments
    flows = notebook.flows
    known = {place.value for name in named for place in assignments.places(name)}
    found = []
    code, modules = "\n".join(notebook.code), notebook.modules
    for target, why in constants_to_assign(flows, code, modules):
        if not assignments.knows(target):
            found.append(why)
    found += _sizes_of_layers(notebook, flows, known)
    last = {call.callee: call for call in flows.calls}  # one remedy for each callee is enough
    for call in last.values():
        found += defaults_to_give(call, modules)
        found += _optimizer_to_write(call, flows)
        main = next(iter(defaults_of(call.callee)), None)
        if main is None or call.is_open or main not in call.given:
            continue
        value = call.given[main]
        if known & {value, *flows.origins(value)}:
            continue
        if why_not := assignments.why_overridden(value):
            found.append(f"{main} of {call} is {why_not}")
            continue
        remedy = "write a number in its place"
        if flows.origins(value):
            remedy = "assign it to a name at the top level, and pass that"
        read = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
        own = next((name for name in read if name in assignments.names()), None)
        if own is not None:
            why_not = notebook.why_not(own)
            remedy = f"{own} is {why_not}" if why_not else f"sweep {own!r}"
        found.append(f"{main} is {ast.unparse(value)} in {call}: {remedy}")
    for cell, value in flows.steps[-1:]:
        found.append(
            f"the learning rate is {ast.unparse(value)} in code cell {cell}, line {value.lineno}: "
            "assign it to a name at the top level"
        )
    in_draft = {part for name in named for part in (name, name.rpartition(".")[2])}
    for name in assignments.names():
        is_number = assignments.is_ever_number(name) or any(
            _is_part_of_import(place.value, flows) for place in assignments.at_top(name)
        )
        is_result = words_of(name)[:1] in _RESULTS
        if name not in in_draft and is_number and is_searched(name) and not is_result:
            obstacle = notebook.why_not(name)
            found += [] if obstacle is None else [f"{name} is {obstacle}"]
    return [*dict.fromkeys(found)]


def _is_part_of_import(value: ast.expr | None, flows: Flows) -> bool:
    """Return whether a value is an item or attribute of something imported: `CONFIG["lr"]`."""
    if not isinstance(value, ast.Subscript | ast.Attribute):
        return False
    while isinstance(value, ast.Subscript | ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name) and value.id in flows.imported


def _sizes_of_layers(
    notebook: ResearchNotebook, flows: Flows, known: Set[ast.AST | None]
) -> Iterator[str]:
    """Yield the sizes of hidden layers that are no plain number of their own, with the remedy.

    Args:
        known: Values that the draft names already.
    """
    layers = []
    for call in flows.calls:
        if name := _SIZED.get(call.callee.rpartition(".")[2]):
            position = 1 if name == "out_features" else 0
            given = call.given.get(name) or call.given.get("units")
            given = given or next(iter(call.node.args[position:]), None)
            if given is not None and not known & {given, *flows.origins(given)}:
                layers.append((call, given))
    hidden = {ast.unparse(size): call for call, size in layers[:-1] if is_plain(size)}
    if hidden:
        first = next(iter(hidden.values()))
        yield (
            f"sizes of layers are {', '.join(hidden)}, the first in {first}: assign each size to a "
            "name at the top level, and use that"
        )
    assignments = notebook.assignments
    told: set[Assignment] = set()
    for name in (*assignments.names(), *assignments.arguments()):
        places = {*assignments.places(name)}
        if "hidden" not in words_of(name) or "layer" not in name or places & told:
            continue
        told |= places
        value, why_not = assignments.plain_value(name), notebook.why_not(name)
        if why_not:
            yield f"{name} is {why_not}"
        elif isinstance(value, list | tuple):
            yield f"{name} is {value}: choices sweep it, as {name}: [{[*value]}, …]"


def _optimizer_to_write(call: LibraryCall, flows: Flows) -> Iterator[str]:
    """Yield the code to write if Keras gets an optimizer as a text, which has no learning rate."""
    value = call.given.get("optimizer") if call.callee == ".compile" else None
    imports = " ".join(flows.imported.values())
    if value is None or not re.search("keras|tensorflow", imports):
        return
    for origin in flows.origins(value):
        if written := optimizers().get(str(plain_value(origin)).lower()):
            first = "tensorflow.keras" if "tensorflow" in imports else "keras"
            yield (
                f"learning_rate is not given in {call}: write optimizer={written} there, and above "
                f"it `from {first}.optimizers import {written.partition('(')[0]}`"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """The line of one name in a draft.

    Attributes:
        text: The line.
        is_swept: Whether the line may stand without a `#`.
    """

    text: str
    is_swept: bool

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A value of the notebook that a sweep might replace.

    Attributes:
        value: The notebook's own value.
        comment: The comment on its line.
        receiver: The first thing that gets the value.
        row: Row of the table that fits the value. None if only the value's kind is known.
        is_left_out: Whether a call leaves the value out, so that it is a library's default.
    """

    name: str
    value: Any
    comment: str
    receiver: Receiver
    row: Row | None
    is_left_out: bool = False

    @property
    def rank(self) -> int:
        """How early a search of a few params includes this one. Small ranks come first."""
        return len(rows()) if self.row is None else self.row.rank

    @property
    def is_searched(self) -> bool:
        """Whether people search the value, and a range around it is known."""
        return self.row is not None and not self.row.not_swept and bool(self.space)

    @property
    def is_batch_size(self) -> bool:
        """Whether the value is a size of batches."""
        return self.row is not None and "batch_size" in self.row.names

    @property
    def space(self) -> Any:
        """The dimension around the own value. None if nothing is known about values of its kind."""
        return self.row.space_around(self.value) if self.row else usual_space(self.value)

    def drafted(self, why_not: str | None) -> Drafted:
        """Write the candidate's line.

        Args:
            why_not: Why the name cannot get a trial's value. None if it can.
        """
        from ..settings.messages import as_yaml
        from ..settings.secrets import masked

        if masked(self.value, self.name) != self.value:
            return Drafted(text=f"{self.name}: a secret?", is_swept=False)
        if why_not:
            return Drafted(text=f"{self.name} is {why_not}", is_swept=False)
        space = self.space
        about = [f"{as_yaml(self.value)} {'by default' if self.is_left_out else 'in the notebook'}"]
        if self.receiver.callee:
            about.append(str(self.receiver))
        if self.row is not None and self.row.not_swept:
            about.append(self.row.not_swept)
        if self.comment:
            about.append(self.comment)
        text = f"{as_flow(self.name)}: {as_flow(space) if space else '[…]'}    # {'; '.join(about)}"
        is_usual = self.row is None or not self.row.not_swept
        return Drafted(text=text, is_swept=bool(space) and is_usual and space != [False, True])


def candidates_of(notebook: ResearchNotebook) -> dict[str, Candidate]:
    """Find the values that might be swept.

    Those of the parameters cell; else those of names that never change, and arguments of calls for
    which the table has a row.
    """
    from ..notebooks.assignments import plain_values

    receivers = Receivers(notebook)

    def candidate(name: str, value: Any, comment: str) -> Candidate:
        found = receivers.of(name)
        by_name = row_for([Receiver(parameter=name)])
        places = notebook.assignments.places(name)
        return Candidate(
            name=name,
            value=value,
            comment=comment,
            receiver=found[0],
            # A number of classes stays one, also where it is the `n_components` of a model.
            row=by_name if by_name is not None and by_name.not_swept else row_for(found),
            is_left_out=any(isinstance(place.value, LeftOut) for place in places),
        )

    if notebook.parameters_cell:
        values = plain_values(notebook.code[notebook.parameters_cell - 1])
        return {name: candidate(name, *found) for name, found in values.items()}
    values = {}
    for cell in notebook.code:
        values |= plain_values(cell)
    constants = notebook.assignments.constants()
    candidates = {
        name: candidate(name, *found)
        for name, found in values.items()
        if name in constants and not receivers.is_dead(name)
    }

    def is_of_one_layer(argument: Candidate) -> bool:
        # The next layer of torch has the same size, which a number in the call does not show.
        return (
            argument.row is not None
            and argument.row.sizes
            and argument.receiver.callee.startswith("torch.nn.")
            and not any(
                place.value is not None and receivers.flows.names(place.value)
                for place in notebook.assignments.places(argument.name)
            )
        )

    handed_on = receivers.flows.handed_on
    for name in notebook.assignments.arguments():
        if len(name) == 1:
            # A single letter does not say which argument it is; a longer name such as `SVC.C` does.
            continue
        if all(
            place.parameter is not None and place.parameter.callee in handed_on
            for place in notebook.assignments.places(name)
        ):
            continue  # Nobody sees which arguments a function gets that is passed to another one.
        argument = candidate(name, notebook.assignments.plain_value(name), "")
        if argument.is_searched and not receivers.is_dead(name) and not is_of_one_layer(argument):
            candidates[name] = argument
    return candidates


def _one_each(
    notebook: ResearchNotebook, others: Mapping[str, Candidate], taken: Mapping[str, Candidate]
) -> dict[str, Candidate]:
    """Choose one name for each value and parameter that the names in `taken` do not cover."""
    found = {}
    known = {place for name in taken for place in notebook.assignments.places(name)}
    parameters = {candidate.receiver.parameter for candidate in taken.values()}
    for name, candidate in others.items():
        places = {*notebook.assignments.places(name)}
        if places and not places & known and candidate.receiver.parameter not in parameters:
            found[name] = candidate
            known |= places
            parameters.add(candidate.receiver.parameter)
    return found


def searched(candidates: Mapping[str, Candidate]) -> dict[str, Candidate]:
    """Choose the candidates that people search."""
    return {name: candidate for name, candidate in candidates.items() if candidate.is_searched}


def behind(
    notebook: ResearchNotebook,
    candidates: Mapping[str, Candidate],
    lines: set[tuple[int, int]] | None,
    passed_by: Sequence[tuple[int, ast.expr]] = (),
) -> dict[str, Candidate]:
    """Choose the candidates that people search: one for each value.

    Args:
        lines: Cells and lines in which values count. None if all count.
        passed_by: Code in which values do not count, each with its cell.
    """
    own: list[str] = []
    taken: set[ast.expr | None] = set()
    by_name = {name: notebook.assignments.places(name) for name in candidates}

    words = {*re.findall(r"\w+", _code_of(notebook, lines or set()))}

    def is_passed_by(place: Assignment) -> bool:
        value = place.value
        return value is not None and any(
            cell == place.cell
            and (part.lineno, part.col_offset)
            <= (value.lineno, value.col_offset)
            < (part.end_lineno or 0, part.end_col_offset or 0)
            for cell, part in passed_by
        )

    def not_counting(name: str) -> int:
        # `lines` lacks the lines of attributes. An attribute counts if the code of the lines names
        # its object.
        is_used = name.partition(".")[0] in words
        return sum(
            lines is not None
            and (
                (place.cell, place.line) not in lines
                or is_passed_by(place)
                or notebook.assignments.is_overridden(place, lines)
            )
            and not (place.is_attribute and is_used)
            for place in by_name[name]
        )

    # Names of which all places count come before names of which only some places count.
    for name in sorted(candidates, key=not_counting):
        values = {place.value for place in by_name[name]}
        if not_counting(name) < len(by_name[name]) and not values & taken:
            own.append(name)
            taken |= values
    found = {name: candidate for name, candidate in candidates.items() if name in own}
    return searched(found)


def without_given_defaults(
    notebook: ResearchNotebook, candidates: Mapping[str, Candidate]
) -> dict[str, Candidate]:
    """Leave out the defaults of parameters to which another candidate gives a value."""
    is_default = {
        name: all(
            place.parameter is not None or place.block == "a default"
            for place in notebook.assignments.places(name)
        )
        for name in candidates
    }
    given = {name.rpartition(".")[2] for name in candidates if not is_default[name]}
    return {
        name: candidate
        for name, candidate in candidates.items()
        if not is_default[name] or name.rpartition(".")[2] not in given
    }


def _code_of(notebook: ResearchNotebook, lines: Set[tuple[int, int]]) -> str:
    """Join lines of the notebook. A line is given by its cell and its number."""
    by_cell = {cell.number: cell.lines for cell in notebook.assignments.cells}
    return b"".join(by_cell[cell][line - 1] for cell, line in sorted(lines)).decode()


def as_flow(value: Any) -> str:
    """Write a value as YAML. All JSON is YAML, but names and plain words need no quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(as_flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {as_flow(part)}' for key, part in value.items())}}}"
    reserved = {"true", "false", "null"}
    if isinstance(value, str) and re.fullmatch(r"[^\W\d][\w.]*", value):
        return value if value.lower() not in reserved else f'"{value}"'
    return json.dumps(value, ensure_ascii=False, default=str)
