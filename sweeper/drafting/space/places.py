"""Choose the values that a drafted parameters file sweeps, and say why it sweeps no others."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...notebook_code.left_out import defaults_of
from ...notebook_code.plain import LeftOut, is_plain, plain_value
from ..scores.metrics import split_of, words_of
from ..scores.score_guesses import UNKNOWN_DIRECTION
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
    from ...notebook_code.flows import Flows, LibraryCall
    from ...notebook_code.plain import Assignment
    from ...notebooks.research import ResearchNotebook
    from ..scores.score_guesses import Score

#: Classes of layers of a network, each with the parameter for the layer's size.
_SIZED = {
    "Dense": "units",
    "Linear": "out_features",
    **dict.fromkeys(["LSTM", "GRU", "RNN"], "hidden_size"),
}
#: A draft sweeps at most `_MOST_SWEPT` values. If nothing can be swept, the error names at most
#: `_MOST_REFUSED` remedies, or at most `_MOST_NAMED` values to choose from (all chosen).
_MOST_SWEPT, _MOST_REFUSED, _MOST_NAMED = 8, 3, 6
#: First words of names that hold results of the notebook, as in `best_lr = lr`.
_RESULTS = [["best"], ["opt"], ["optimal"], ["final"]]
#: At most one in this number of trials changes a single value, to show whether it has an effect.
_PART_ALONE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a drafted parameters file says about one value of the notebook.

    Attributes:
        name: Name of the variable or argument. None if the text is a sentence.
        text: Line of the search space, with a comment: `lr: {low: 0.01, high: 1}    # 0.1 …`. Or a
            sentence, which says why a value cannot be swept and what to change in the notebook.
        space: Range or choices to sweep. None if the value must not be swept.
    """

    name: str | None = None
    text: str
    space: Any = None

    def excluded(self, why: str) -> Entry:
        """Return the same entry for a value that must not be swept, with the reason in its text."""
        return replace(self, text=f"{self.text}; {why}", space=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What a drafted parameters file says about the params.

    Attributes:
        start: Params of the first trials: the notebook's original values, then these with one value
            changed at a time.
        swept: Entries of the search space, by the name of the param.
        left_out: Entries of values that are not swept, and sentences with the reason and a remedy.
    """

    start: Sequence[Mapping[str, Any]]
    swept: Mapping[str, Entry]
    left_out: Sequence[Entry]


def params_of(
    notebook: ResearchNotebook,
    candidates: Mapping[str, Candidate],
    others: Mapping[str, Candidate],
    unfit: Mapping[str, str],
    *,
    trials: int,
) -> Params:
    """Choose at most eight candidates to sweep: the most important ones (see `Candidate.rank`).

    Args:
        candidates: Values of the notebook that could be swept and that change the score, by name.
        others: Values that could be swept, but do not change the score.
        unfit: Names of candidates that must not be swept for this score, each with the reason.
        trials: Number of trials of the sweep. At most a third of them change one value alone.
    """
    drafted = {
        name: candidate.drafted(notebook.why_not(name)) for name, candidate in candidates.items()
    }
    reasons = {**_later_batch_sizes(notebook, candidates), **unfit}
    for name, why in reasons.items():
        drafted[name] = drafted[name].excluded(why)
    possible = [name for name, entry in drafted.items() if entry.space]
    chosen = sorted(possible, key=lambda name: candidates[name].rank)[:_MOST_SWEPT]
    left_out = [entry for name, entry in drafted.items() if name not in chosen]
    for name, candidate in _one_each(notebook, others, candidates).items():
        entry = candidate.drafted(notebook.why_not(name))
        left_out.append(entry.excluded("the code shows no effect on this score"))
    sentences = dict.fromkeys(_unswept(notebook, [*candidates, *others]))
    own = {name: candidate.value for name, candidate in candidates.items() if name in chosen}
    alone = []
    for name in chosen:
        other = another_value(own[name], candidates[name].space)
        if other != own[name]:
            alone.append({**own, name: other})
    return Params(
        start=[own, *alone[: trials // _PART_ALONE]],
        swept={name: entry for name, entry in drafted.items() if name in chosen},
        left_out=[*left_out, *(Entry(text=sentence) for sentence in sentences)],
    )


def _later_batch_sizes(
    notebook: ResearchNotebook, candidates: Mapping[str, Candidate]
) -> dict[str, str]:
    """Return the batch sizes that are not for the training, each with the reason not to sweep it.

    The batch size of the training is the first one whose name has no word for validation or test
    data.
    """

    def place(name: str) -> tuple[int, int]:
        places = notebook.assignments.places(name)
        return min(((place.cell, place.line) for place in places), default=(0, 0))

    sizes = [name for name, candidate in candidates.items() if candidate.is_batch_size]
    found, training = {}, []
    for name in sizes:
        if split_of(words_of(name)) in ("val", "test"):
            found[name] = "of an evaluation, not of the training"
        else:
            training.append(name)
    training.sort(key=place)
    for name in training[1:]:
        found[name] = "not the first batch size, so probably that of an evaluation"
    return found


def unfit_for(score: Score, candidates: Mapping[str, Candidate]) -> dict[str, str]:
    """Return the candidates that may change a score even if the model stays the same.

    A score of the last batch depends on the batch size. A loss may contain a candidate as a factor,
    for example the weight of one of its terms.

    Returns:
        Names of the candidates, each with the reason not to sweep it.
    """
    found = {}
    for name, candidate in candidates.items():
        if score.is_of_batches and candidate.is_batch_size:
            found[name] = (
                f"changes {score.name} (a sum over batches or of the last batch) even for the same "
                "model"
            )
        elif score.is_loss and candidate.row is not None and candidate.row.usual == "fraction":
            found[name] = (
                f"may be a factor of {score.name}, which then changes even for the same model"
            )
    return found


def why_nothing(
    notebook: ResearchNotebook, candidates: Mapping[str, Candidate], score: Score | None
) -> str:
    """Return, for the error message, why a notebook has nothing to sweep and what the user can do.

    Args:
        candidates: All values that could be swept, by name.
        score: The likeliest score. None if no score is known.
    """
    if error := notebook.syntax_error():
        return error
    for call in notebook.flows.calls:
        if "SearchCV" in call.callee:
            return (
                f"the notebook itself searches params, with {call}: give the model numbers in "
                "place of the search, and score what it predicts"
            )
    remedies = [*dict.fromkeys(_unswept(notebook, [*candidates]))]
    if remedies:
        return "; ".join(remedies[:_MOST_REFUSED])
    unknown = [
        f"{as_flow(name)}: {as_flow(candidate.space)}"
        for name, candidate in candidates.items()
        if candidate.row is None and candidate.space and candidate.space != [False, True]
    ]
    if not unknown:
        return (
            "choose what to vary, and assign it in a cell that is tagged `parameters`; the other "
            "cells use its name"
        )
    sections = ["objective: {SCORE: maximize}"]
    if score is not None:
        sections = [f"objective: {{{as_flow(score.name)}: {score.direction or UNKNOWN_DIRECTION}}}"]
        if score.key:
            sections.append(f"scores: {{{as_flow(score.name)}: {score.entry}}}")
    sections.append(f"space: {{{', '.join(unknown[:_MOST_NAMED])}}}")
    return (
        f"write {notebook.path.stem}.yml with `{'` and `'.join(sections)}`, and keep in `space` "
        "what you want to vary"
    )


def _unswept(notebook: ResearchNotebook, named: Sequence[str]) -> Iterator[str]:
    """Yield why arguments and variables that people usually tune are not swept.

    Args:
        named: Names that could be swept. They and their values get no clause.

    Yields:
        Clauses for a draft's comments or an error message, some of them several times. Most of them
        state a change to the notebook after which the value can be swept.
    """
    assignments, flows, modules = notebook.assignments, notebook.flows, notebook.modules
    known = {place.value for name in named for place in assignments.places(name)}
    for target, why in constants_to_assign(flows, "\n".join(notebook.code), modules):
        if not assignments.knows(target):
            yield why
    yield from _sizes_of_layers(notebook, flows, known)
    last = {call.callee: call for call in flows.calls}  # one remedy for each callee is enough
    for call in last.values():
        yield from defaults_to_give(call, modules)
        yield from _optimizer_to_write(call, flows)
        yield from _main_argument(call, notebook, known)
    if flows.steps:
        cell, value = flows.steps[-1]
        yield (
            f"the learning rate is {ast.unparse(value)} in code cell {cell}, line {value.lineno}: "
            "assign it to a name at the top level"
        )
    in_draft = {*named, *(name.rpartition(".")[2] for name in named)}
    for name in assignments.names():
        is_result = words_of(name)[:1] in _RESULTS
        if name in in_draft or is_result or not is_searched(name):
            continue
        is_number = assignments.is_ever_number(name) or any(
            _is_part_of_import(place.value, flows) for place in assignments.at_top(name)
        )
        obstacle = notebook.why_not(name)
        if is_number and obstacle is not None:
            yield f"{name} is {obstacle}"


def _main_argument(
    call: LibraryCall, notebook: ResearchNotebook, known: Set[ast.AST | None]
) -> Iterator[str]:
    """Yield why the main argument of a library call, such as a learning rate, is not swept.

    Args:
        known: Values in the notebook's code that are in the draft already.
    """
    assignments, flows = notebook.assignments, notebook.flows
    main = next(iter(defaults_of(call.callee)), None)
    if main is None or call.is_open or main not in call.given:
        return
    value = call.given[main]
    if known & {value, *flows.origins(value)}:
        return
    if why_not := assignments.why_overridden(value):
        yield f"{main} of {call} is {why_not}"
        return
    read = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
    own = [name for name in read if name in assignments.names()]
    if own:
        why_not = notebook.why_not(own[0])
        remedy = f"{own[0]} is {why_not}" if why_not else f"sweep {own[0]!r}"
    elif flows.origins(value):
        remedy = "assign it to a name at the top level, and pass that"
    else:
        remedy = "write a number in its place"
    yield f"{main} is {ast.unparse(value)} in {call}: {remedy}"


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
    """Yield lines about the sizes of hidden layers that cannot be swept as they are written.

    Such sizes are numbers inside of a call, or several sizes in a list. Each line has the remedy.

    Args:
        known: Values in the notebook's code that are in the draft already.
    """
    layers = []
    for call in flows.calls:
        given = _size_of_layer(call)
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


def _size_of_layer(call: LibraryCall) -> ast.expr | None:
    """Return the size that is passed to a layer of a network. None if the call makes no layer."""
    name = _SIZED.get(call.callee.rpartition(".")[2])
    if name is None:
        return None
    position = 1 if name == "out_features" else 0
    by_position = call.node.args[position:]
    given = call.given.get(name) or call.given.get("units")
    return given or (by_position[0] if by_position else None)


def _optimizer_to_write(call: LibraryCall, flows: Flows) -> Iterator[str]:
    """Yield the code to write where Keras gets an optimizer by its name, such as `"adam"`.

    A name has no learning rate that could be swept, but an object such as `Adam(…)` has.
    """
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
class Candidate:
    """A value of the notebook that a sweep might replace.

    Attributes:
        name: Name of the variable or argument.
        value: The notebook's original value.
        comment: The comment on the line of the value.
        receiver: The library's parameter that gets the value. The variable if there is none.
        row: Row of the table `spaces.yml` that fits the value. None if no row fits, so that only
            the type and size of the value are known.
        is_left_out: Whether a call does not state the value, so that it is a library's default.
    """

    name: str
    value: Any
    comment: str
    receiver: Receiver
    row: Row | None
    is_left_out: bool = False

    @property
    def rank(self) -> int:
        """Rank in the table `spaces.yml`. A draft sweeps the candidates with the smallest ranks."""
        return len(rows()) if self.row is None else self.row.rank

    @property
    def is_searched(self) -> bool:
        """Whether people usually tune such a value, and a range around it is known."""
        return self.row is not None and not self.why_excluded and bool(self.space)

    @property
    def why_excluded(self) -> str:
        """Why people do not tune such a value. Empty if they do, or if no row of the table fits."""
        return "" if self.row is None else self.row.not_swept

    @property
    def is_batch_size(self) -> bool:
        """Whether the value is a size of batches."""
        return self.row is not None and "batch_size" in self.row.names

    @property
    def space(self) -> Any:
        """Range or choices around the original value. None if none are known for such a value."""
        return self.row.space_around(self.value) if self.row else usual_space(self.value)

    def drafted(self, why_not: str | None) -> Entry:
        """Return the entry for the candidate in a drafted parameters file.

        Args:
            why_not: Why trials cannot replace the candidate's value. None if they can.
        """
        from ...settings.messages import as_yaml
        from ...settings.secrets import masked

        if masked(self.value, self.name) != self.value:
            return Entry(name=self.name, text=f"{self.name}: a secret?")
        if why_not:
            return Entry(text=f"{self.name} is {why_not}")
        space = self.space
        where = "by default" if self.is_left_out else "in the notebook"
        about = [f"{as_yaml(self.value)} {where}"]
        if self.receiver.callee:
            about.append(str(self.receiver))
        about += [text for text in (self.why_excluded, self.comment) if text]
        values = as_flow(space) if space else "[…]"
        text = f"{as_flow(self.name)}: {values}    # {'; '.join(about)}"
        is_swept = space != [False, True] and not self.why_excluded
        return Entry(name=self.name, text=text, space=space if is_swept else None)


def candidates_of(notebook: ResearchNotebook) -> dict[str, Candidate]:
    """Return the values of a notebook that might be swept, by name.

    If the notebook has a parameters cell, they are the values in it. Else they are the values of
    variables that never change, and of arguments for which `spaces.yml` gives a range or choices.
    """
    from ...notebook_code.assignments import plain_values

    receivers, assignments = Receivers(notebook), notebook.assignments

    def candidate(name: str, value: Any, comment: str) -> Candidate:
        found = receivers.of(name)
        # The name decides first: `n_classes` is not swept, even where it is passed to a parameter
        # that people search, such as `n_components` of a model.
        by_name = row_for([Receiver(parameter=name)])
        is_excluded = by_name is not None and by_name.not_swept
        places = assignments.places(name)
        return Candidate(
            name=name,
            value=value,
            comment=comment,
            receiver=found[0],
            row=by_name if is_excluded else row_for(found),
            is_left_out=any(isinstance(place.value, LeftOut) for place in places),
        )

    if notebook.parameters_cell:
        values = plain_values(notebook.code[notebook.parameters_cell - 1])
        return {name: candidate(name, *found) for name, found in values.items()}
    values = {}
    for cell in notebook.code:
        values |= plain_values(cell)
    constants, candidates = assignments.constants(), {}
    for name, found in values.items():
        if name in constants and not receivers.is_dead(name):
            candidates[name] = candidate(name, *found)
    for name in assignments.arguments():
        places = assignments.places(name)
        callees = {place.parameter.callee if place.parameter else None for place in places}
        if len(name) == 1 or callees <= notebook.flows.handed_on:
            # A single letter does not say which argument it is; a longer name such as `SVC.C` does.
            # The code does not show what calls a function that is passed as an argument.
            continue
        argument = candidate(name, assignments.plain_value(name), "")
        is_useless = receivers.is_dead(name) or _is_of_one_layer(argument, notebook)
        if argument.is_searched and not is_useless:
            candidates[name] = argument
    return candidates


def _is_of_one_layer(argument: Candidate, notebook: ResearchNotebook) -> bool:
    """Return whether an argument is the size of a torch layer, written as a number in its call.

    Then it cannot be swept: the next layer states the same size again, and only one of the two
    numbers would change.
    """
    is_size = argument.row is not None and argument.row.sizes
    if not (is_size and argument.receiver.callee.startswith("torch.nn.")):
        return False
    values = [place.value for place in notebook.assignments.places(argument.name)]
    return not any(value is not None and notebook.flows.names(value) for value in values)


def _one_each(
    notebook: ResearchNotebook, others: Mapping[str, Candidate], taken: Mapping[str, Candidate]
) -> dict[str, Candidate]:
    """Choose one name for each value that has several, and one value for each parameter.

    Args:
        others: Values of the notebook, by name. The result is chosen from them.
        taken: Values that are chosen already. Their other names, and values for the same parameters
            as theirs, are left out.
    """
    found = {}
    known = {place for name in taken for place in notebook.assignments.places(name)}
    receivers = {candidate.receiver for candidate in taken.values()}
    for name, candidate in others.items():
        places = {*notebook.assignments.places(name)}
        if places and not places & known and candidate.receiver not in receivers:
            found[name] = candidate
            known |= places
            receivers.add(candidate.receiver)
    return found


def searched(candidates: Mapping[str, Candidate]) -> dict[str, Candidate]:
    """Choose the candidates that people usually tune and for which a range is known."""
    return {name: candidate for name, candidate in candidates.items() if candidate.is_searched}


def behind(
    notebook: ResearchNotebook,
    candidates: Mapping[str, Candidate],
    lines: Set[tuple[int, int]] | None = None,
    passed_by: Sequence[tuple[int, ast.expr]] = (),
) -> dict[str, Candidate]:
    """Choose the candidates that people usually tune and that change a score.

    If a value has several names, only one of them is chosen.

    Args:
        candidates: Values of the notebook that a sweep might replace, by name.
        lines: Cells and lines on which the score depends. Values in other lines do not count. None
            if all lines count.
        passed_by: Code of other models in these lines, each with its cell. Values in it do not
            count.
    """
    code = "" if lines is None else _code_of(notebook, lines)
    words = {*re.findall(r"\w+", code)}
    all_places = {name: notebook.assignments.places(name) for name in candidates}
    effective = {}
    for name, places in all_places.items():
        # `lines` lacks the lines that assign attributes, such as `config.lr = 0.1`. Such a value
        # counts if code in `lines` names its object, here `config`.
        is_object_used = name.partition(".")[0] in words
        effective[name] = [
            place
            for place in places
            if lines is None
            or (place.is_attribute and is_object_used)
            or _is_in(place, lines, passed_by, notebook)
        ]
    own: list[str] = []
    taken: set[ast.expr | None] = set()

    def n_ineffective(name: str) -> int:
        return len(all_places[name]) - len(effective[name])

    # Of several names for one value, take the one with the fewest assignments that do not change
    # the score.
    for name in sorted(candidates, key=n_ineffective):
        values = {place.value for place in all_places[name]}
        if effective[name] and not values & taken:
            own.append(name)
            taken |= values
    return searched({name: candidates[name] for name in candidates if name in own})


def _is_in(
    place: Assignment,
    lines: Set[tuple[int, int]],
    passed_by: Sequence[tuple[int, ast.expr]],
    notebook: ResearchNotebook,
) -> bool:
    """Return whether an assignment is in lines on which a score depends, and its value is used.

    It is not if the assignment is a part of the code of another model, or if other code overrides
    the value.

    Args:
        place: The assignment.
        lines: Cells and lines on which a score depends.
        passed_by: Expressions in these lines that make models to which the score does not belong,
            each with its cell.
    """
    if (place.cell, place.line) not in lines:
        return False
    if any(_contains(cell, part, place) for cell, part in passed_by):
        return False
    return not notebook.assignments.is_overridden(place, lines)


def _contains(cell: int, part: ast.expr, place: Assignment) -> bool:
    """Return whether a part of a code cell contains the value of an assignment."""
    value = place.value
    if value is None or cell != place.cell:
        return False
    start = part.lineno, part.col_offset
    end = part.end_lineno or 0, part.end_col_offset or 0
    return start <= (value.lineno, value.col_offset) < end


def without_given_defaults(
    notebook: ResearchNotebook, candidates: Mapping[str, Candidate]
) -> dict[str, Candidate]:
    """Leave out each default of a parameter if a candidate that is no default has the same name.

    In `def train(lr=0.1)`, the default has no effect if the notebook calls `train(lr=lr)`. Of each
    name, only the part after the last dot is compared.
    """
    is_default = {
        name: all(
            place.parameter is not None or place.is_default
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
    """Return the text of some lines of the notebook, each given by its cell and its line number."""
    by_cell = {cell.number: cell.lines for cell in notebook.assignments.cells}
    return b"".join(by_cell[cell][line - 1] for cell, line in sorted(lines)).decode()


def as_flow(value: Any) -> str:
    """Return a value as YAML on one line, without quotes around names and plain words."""
    if isinstance(value, list):
        return f"[{', '.join(map(as_flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {as_flow(part)}' for key, part in value.items())}}}"
    reserved = {"true", "false", "null"}
    if isinstance(value, str) and re.fullmatch(r"[^\W\d][\w.]*", value):
        return value if value.lower() not in reserved else f'"{value}"'
    return json.dumps(value, ensure_ascii=False, default=str)
