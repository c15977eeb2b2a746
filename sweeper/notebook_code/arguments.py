"""Find literals that are not assigned to a variable: arguments, dict items and defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .calls import defaults, definitions_in, last_name, parameters_of
from .left_out import LeftOutArguments
from .plain import Assignment, LeftOut, Place, is_plain
from .replacing import Cell
from .signatures import Signatures
from .syntax import Named, items_of, keywords_of

_PARSING = ("parse_args", "parse_known_args")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The values that one call, dict or function definition states.

    Attributes:
        named: The values, each with the name of its parameter or key.
        owners: Texts that may come before these names, with a dot: `Adam` in `Adam.lr`.
        variable: Variable to which the dict, or the result of the call, is assigned. Empty if it
            is assigned to none.
        is_default: Whether the values are defaults of a function's parameters.
    """

    named: Sequence[Named]
    owners: Sequence[str] = ()
    variable: str = ""
    is_default: bool = False


class Arguments:
    """Finds arguments, dict items and parameter defaults with plain values, such as `0.1`.

    It finds a positional argument if it is the first one, or if the name of its parameter is known.
    It finds an argument that a call leaves out if the argument's default is known. A command line
    option has the name by which code reads its value: `lr` for `--lr`, because code reads
    `args.lr`.

    Args:
        cells: All code cells.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._signatures = Signatures(cells)
        self._left_out = LeftOutArguments(cells, self._signatures)
        #: Variable that gets the parsed options of a command line, such as `args`. Empty if there
        #: is none.
        self._options = next(_parsed_into(cells), "")

    def of(self, cell: Cell) -> Iterator[tuple[str, Assignment]]:
        """Yield the arguments, dict items and defaults of a cell, each under all its names.

        Only those with a plain value, such as `0.1`, are yielded. Whether a trial can set a name is
        not checked.

        The short name is that of the parameter or key alone, such as `lr`. An argument that a call
        leaves out has no short name. A longer name begins with an owner and a dot, such as
        `Adam.lr`. The owner is one of these:

        - the function that is called, or that has the default
        - the variable, keyword or key that gets the dict, or the result of the call
        - the variable that gets the parsed options of a command line, such as `args`
        - the cell, such as `cell12`

        The name of a called function alone, such as `Dropout`, means the first argument of its
        calls.

        Yields:
            Each name with the place of its value in the notebook.
        """
        parameters = parameters_of(cell)
        for group in self._groups(cell):
            owners = [owner for owner in dict.fromkeys(group.owners) if owner]
            for name, value in group.named:
                if not is_plain(value):
                    continue
                place = Assignment(
                    cell=cell.number,
                    line=value.lineno,
                    is_default=group.is_default,
                    value=value,
                    is_plain=True,
                    parameter=parameters.get(value),
                    item=(group.variable, name) if group.variable else None,
                )
                if not isinstance(value, LeftOut):
                    yield name, place
                for owner in owners:
                    yield f"{owner}.{name}", place

    def _groups(self, cell: Cell) -> Iterator[_Group]:
        definitions = {found.node: found for found in definitions_in(cell.nodes)}
        here = f"cell{cell.number}"
        owners: dict[ast.AST, str] = {}
        variables: dict[ast.AST, str] = {}
        for node in cell.nodes:
            owner = owners.get(node, "")
            variable = variables.get(node, "")
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value):
                    owners[value] = variables[value] = target
                case ast.Call(func=ast.Attribute(attr="add_argument")):
                    yield _Group(
                        named=[*option_default(node)],
                        owners=[self._options, here],
                        variable=self._options,
                    )
                case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)):
                    named = keywords_of(node)
                    for name, value in named:
                        owners[value] = name
                    named += self._signatures.named(node)
                    named += self._left_out.of(node, variable)
                    yield _Group(named=named, owners=[function, owner, here], variable=variable)
                    for first in node.args[:1]:
                        yield _Group(named=[(function, first)])
                case ast.Dict():
                    items = [item for item in items_of(node) if item[0].isidentifier()]
                    for key, value in items:
                        owners[value] = key
                        if variable and isinstance(value, ast.Dict):
                            variables[value] = f"{variable}.{key}"
                    yield _Group(named=items, owners=[owner, here], variable=variable)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    function = definitions[node].name
                    stated = [*defaults(node.args)]
                    yield _Group(named=stated, owners=[function, here], is_default=True)


def option_default(call: ast.Call) -> Iterator[Named]:
    """Yield the name of a command line option, as `option_name` returns it, and its default.

    Nothing is yielded for an option without a default, or without a name.

    Args:
        call: Call of `add_argument`, which defines the option.
    """
    stated, name = dict(keywords_of(call)), option_name(call)
    if name and "default" in stated:
        yield name, stated["default"]


def option_name(call: ast.Call) -> str:
    """Return the name by which code reads a command line option, such as `lr` in `args.lr`.

    The argument `dest` states the name. Without it, the first long flag gives the name: `lr` for
    `add_argument("-l", "--lr")`. Without a long flag, the first flag does.

    Args:
        call: Call of `add_argument`, which defines the option.

    Returns:
        An empty text if the call does not state the option's name as a literal.
    """
    dest = dict(keywords_of(call)).get("dest")
    if isinstance(dest, ast.Constant):
        return str(dest.value)
    flags = _flags(call)
    long_flags = [flag for flag in flags if flag.startswith("--")]
    for flag in (long_flags or flags)[:1]:
        return flag.lstrip("-").replace("-", "_")
    return ""


def _flags(call: ast.Call) -> list[str]:
    constants = [argument for argument in call.args if isinstance(argument, ast.Constant)]
    return [str(constant.value) for constant in constants]


def is_parsing(node: ast.AST | None) -> bool:
    """Return whether a node is a call of `parse_args` or `parse_known_args`."""
    return isinstance(node, ast.Call) and last_name(node.func) in _PARSING


def _parsed_into(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield the variables that get the parsed options of a command line, such as `args`."""
    for cell in cells:
        for node in cell.nodes:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)] | [ast.Tuple(elts=[ast.Name(id=name), *_])],
                    value=value,
                ) if is_parsing(value):
                    yield name


def given_options(cells: Sequence[Cell]) -> Mapping[ast.expr, Place]:
    """Return where the notebook itself passes options, as in `parse_args(["--lr", "0.1"])`.

    Such an option replaces the default that `add_argument` states.

    Returns:
        The place of the call of `parse_args`, by the syntax tree node of the replaced default.
    """
    defaults_by_flag: dict[str, ast.expr] = {}
    parsing: list[tuple[Place, ast.Call]] = []
    for cell in cells:
        for node in cell.nodes:
            if not isinstance(node, ast.Call):
                continue
            if last_name(node.func) == "add_argument":
                for _, default in option_default(node):
                    defaults_by_flag |= dict.fromkeys(_flags(node), default)
            elif is_parsing(node):
                parsing.append((Place(cell=cell.number, line=node.lineno), node))
    found: dict[ast.expr, Place] = {}
    for place, call in parsing:
        for part in ast.walk(call):
            words = str(part.value).split() if isinstance(part, ast.Constant) else []
            for word in words:
                flag = word.partition("=")[0]
                if flag in defaults_by_flag:
                    found[defaults_by_flag[flag]] = place
    return found
