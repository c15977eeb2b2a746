"""Find the seeds that a notebook sets, as in `torch.manual_seed(SEED)` or `random_state=42`.

Trials of `confirm`, `ablate` and `repeat: {seeds: …}` replace these seeds with their own.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nbformat import NotebookNode

from ..notebook_code.flows import Flows, LibraryCall
from ..notebook_code.plain import plain_value
from ..notebook_code.replacing import Cell
from .reading import code_cells, is_skipped
from .research import RESEARCH_SOURCE
from .shared_cells import last_shared_cell

#: Functions whose first argument is a seed, by the last part of their name.
_SEEDING = frozenset(
    "seed manual_seed manual_seed_all set_seed set_random_seed seed_everything default_rng "
    "RandomState PRNGKey seed_all".split()
)
#: Functions and classes whose objects draw random numbers with a generator of their own, not with
#: the global generator of a library.
_OWN_GENERATORS = frozenset(
    "default_rng RandomState Random SystemRandom Generator PCG64 make create_study".split()
)
#: Names of arguments that take a seed.
_PARAMETERS = ("random_state", "seed", "random_seed")
#: Functions that split, sample or generate data. Their seeds are never replaced, so that all trials
#: use the same data.
_OF_DATA = (
    "sklearn.model_selection.*",
    "sklearn.datasets.*",
    "sklearn.utils.*",
    "torch.utils.data.*",
    "*split*",
    "*Split*",
    "*Fold*",
    ".sample",
    ".shuffle",
    "*.make_*",
    "*dataset_from_directory",
)
#: Functions that split or reorder data. A generator that is made and seeded inside of such a call,
#: as in `torch.randperm(n, generator=torch.Generator().manual_seed(0))`, gives all trials the same
#: data, so its seed is not replaced either.
_ORDERS_DATA = ("*split*", "*Split*", "torch.randperm", "*.permutation", "*.shuffle")


#: Text for people about a notebook that sets no seed: how its trials draw random numbers then.
NO_SEED = (
    "its training sets no seed: all trials of a search draw the same random numbers; the trials of "
    "`confirm` and `repeat` draw other numbers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSeed:
    """An argument with which a notebook seeds a library.

    Attributes:
        cell: Number of the code cell, from 1.
        line: Line in the cell, from 1.
        value: Expression that is passed.
        number: Value of the expression: the seed.
    """

    cell: int
    line: int
    value: ast.expr
    number: int

    def __str__(self) -> str:
        return f"{ast.unparse(self.value)} in code cell {self.cell}, line {self.line}"


def own_seeds(cells: Sequence[Cell]) -> list[OwnSeed]:
    """Find the arguments with which a notebook seeds libraries with a whole number.

    Left out are seeds of functions that split, sample, generate or reorder data, so that all trials
    use the same data. Arguments that may get several numbers, such as the variable of a loop over
    seeds, are left out, too.
    """
    flows, found = Flows(cells), list[OwnSeed]()
    of_data = _in_orders_of_data(flows.calls)
    for call in flows.calls:
        if call.node in of_data:
            continue
        for value in _seeding(call):
            numbers = {_number(origin) for origin in flows.origins(value)}
            if flows.may_be_another(value) or len(numbers) != 1:
                continue
            if (number := numbers.pop()) is not None:
                line = value.lineno
                found.append(OwnSeed(cell=call.cell, line=line, value=value, number=number))
    return found


def replaceable(found: Sequence[OwnSeed], node: NotebookNode) -> list[OwnSeed]:
    """Return those of a notebook's original seeds that a trial replaces.

    Cells tagged `shared` and the cells before them keep their seeds: they run once for all trials.
    """
    last_shared = last_shared_cell(node)
    return [own for own in found if own.cell > last_shared]


def seeds_in_words(found: Sequence[OwnSeed]) -> str:
    """Return a sentence that states a notebook's original seeds, and which commands replace them.

    Args:
        found: Seeds of the notebook, at least one.
    """
    numbers = ", ".join(map(str, dict.fromkeys(own.number for own in found)))
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"the notebook sets the seed {numbers} ({found[0]}{more}): the search keeps it, "
        "`--confirm` and `repeat` replace it"
    )


def is_unseeded(flows: Flows, code: str) -> bool:
    """Return whether a notebook seeds nothing and has no random generator of its own.

    The result is False for a notebook that runs another file with `%run`, because the file may set
    a seed.

    Args:
        flows: The flows of values in the notebook.
        code: Code of the notebook and of its local modules.
    """
    last_names = [call.callee.rpartition(".")[2] for call in flows.calls]
    return not (
        any(True for call in flows.calls for _ in _seeding(call))
        or _OWN_GENERATORS & {*last_names}
        or any("seed" in name.lower() for name in last_names)
        or re.search(r"%run\b|\bseed\w*\(", code)
    )


def replace_seeds(node: NotebookNode, seed: int) -> None:
    """Replace a notebook's original seeds with the seed of a trial. Comments state the old ones.

    Args:
        node: Notebook whose cells are changed in place.
        seed: Seed of the trial.
    """
    in_cells = code_cells(node)
    cells = [
        Cell(number, "" if is_skipped(cell) else cell.source)
        for number, cell in enumerate(in_cells, start=1)
    ]
    news: defaultdict[int, dict[ast.expr, str]] = defaultdict(dict)
    found = own_seeds(cells)
    # Different seeds stay different: they become `seed`, `seed + 1` and so on, in this order.
    order = list(dict.fromkeys(own.number for own in found))
    for own in replaceable(found, node):
        new = seed + order.index(own.number)
        if own.number != new:
            news[own.cell][own.value] = str(new)
    for cell, in_cell in zip(cells, in_cells, strict=True):
        changed = cell.with_values(news[cell.number])
        if changed not in (None, cell.source):
            in_cell.metadata.setdefault(RESEARCH_SOURCE, cell.source)
            in_cell.source = changed


def _seeding(call: LibraryCall) -> Iterable[ast.expr]:
    """Yield the arguments of a call that are seeds."""
    if any(fnmatchcase(call.callee, pattern) for pattern in _OF_DATA):
        return
    yield from (call.given[name] for name in _PARAMETERS if name in call.given)
    is_seeding = call.callee.rpartition(".")[2] in _SEEDING or call.callee == "jax.random.key"
    if is_seeding and call.node.args:
        yield call.node.args[0]


def _in_orders_of_data(calls: Iterable[LibraryCall]) -> set[ast.AST]:
    """Return the syntax tree nodes of the arguments of calls that split or reorder data."""
    return {
        node
        for call in calls
        if any(fnmatchcase(call.callee, pattern) for pattern in _ORDERS_DATA)
        for node in ast.walk(call.node)
        if node is not call.node
    }


def _number(value: ast.expr) -> int | None:
    number = plain_value(value)
    return number if type(number) is int else None
