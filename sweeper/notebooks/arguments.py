"""Find literals that are not assigned to a variable: arguments, dict items and defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .calls import defaults, init_of, last_name, parameters_of
from .plain import Assignment, is_plain
from .replacing import Cell
from .signatures import Signatures

_PARSING = ("parse_args", "parse_known_args")


def arguments_of(
    cell: Cell, signatures: Signatures, parsed: Sequence[str] = ()
) -> Iterator[tuple[str, Assignment]]:
    """Yield call arguments, dict items and parameter defaults that have plain values.

    Keyword arguments count, and positional arguments if the names of their parameters are known. A
    command line option has the name of the attribute that gets its value: `lr` for `--lr`.

    Each value is yielded under several names. The short name stands alone, such as `lr`. A longer
    name has an owner and a dot in front, such as `Adam.lr`. The owner is one of these:

    - the function that is called, or that has the default
    - the variable or keyword that gets the dict, or the result of the call
    - the cell, such as `cell12`

    The name of a function alone means the first argument of its calls.

    Args:
        cell: Code cell.
        signatures: Parameter names of the functions that the notebook calls.
        parsed: Variables that get the parsed options of a command line, such as `args`.

    Yields:
        Each name with the place of its value in the notebook.
    """
    owners: dict[ast.AST, str] = {}
    variables: dict[ast.AST, str] = {}
    functions: dict[ast.AST, str] = {}
    parameters, of_options = parameters_of(cell), "".join(parsed[:1])
    for node in ast.walk(cell.tree):  # Outer nodes come before the nodes inside of them.
        function, named = functions.get(node, ""), list[tuple[str, ast.expr]]()
        is_option = False
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                owners[value] = variables[value] = target
            case ast.Call(func=ast.Attribute(attr="add_argument")):
                named, function, is_option = [*option_default(node)], of_options, True
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)):
                named = [(option.arg, option.value) for option in node.keywords if option.arg]
                owners |= {value: name for name, value in named}
                named += signatures.named(node)
            case ast.Dict():
                named = [*_items(node)]
                if of := variables.get(node):
                    inner = [(key, part) for key, part in named if isinstance(part, ast.Dict)]
                    variables |= {part: f"{of}.{key}" for key, part in inner}
            case ast.arguments():
                named = [*defaults(node)]
            case ast.ClassDef(name=owner):
                if (init := init_of(node)) is not None:
                    functions[init.args] = owner
            case ast.FunctionDef(name=defined) | ast.AsyncFunctionDef(name=defined):
                functions.setdefault(node.args, defined)
        belongs = [
            f"{owner}." for owner in (function, owners.get(node), f"cell{cell.number}") if owner
        ]
        found = {f"{before}{name}": value for name, value in named for before in ("", *belongs)}
        if isinstance(node, ast.Call) and node.args and not is_option:
            found[function] = node.args[0]
        variable = of_options if is_option else variables.get(node, "")
        for name, value in found.items():
            if name and is_plain(value):
                key = name.rpartition(".")[2]
                yield (
                    name,
                    Assignment(
                        cell=cell.number,
                        line=value.lineno,
                        block="a default" if isinstance(node, ast.arguments) else "",
                        value=value,
                        is_plain=True,
                        parameter=parameters.get(value),
                        item=(variable, key) if variable or is_option else None,
                        is_option=is_option,
                    ),
                )


def in_keys_of(cell: Cell) -> Iterator[tuple[str, ast.expr]]:
    """Yield the values in dicts and calls that are themselves items of a dict.

    Yields:
        Each value with its name, which begins with the key of the inner dict or call. For example,
        0.1 has the name `optimizer.lr` in `{"optimizer": {"lr": 0.1}}`.
    """
    for outer in ast.walk(cell.tree):
        for owner, part in _items(outer) if isinstance(outer, ast.Dict) else ():
            named = [*_items(part)] if isinstance(part, ast.Dict) else []
            if isinstance(part, ast.Call):
                named = [(option.arg, option.value) for option in part.keywords if option.arg]
            if owner.isidentifier():
                yield from ((f"{owner}.{name}", value) for name, value in named)


def _items(whole: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    for key, value in zip(whole.keys, whole.values, strict=True):
        if isinstance(key, ast.Constant):
            yield str(key.value), value


def option_default(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the name of a command line option's attribute with its default, if it has a default.

    Args:
        call: Call of `add_argument`.
    """
    stated = {option.arg: option.value for option in call.keywords}
    if (name := option_name(call)) and "default" in stated:
        yield name, stated["default"]


def option_name(call: ast.Call) -> str:
    """Return the name of a command line option's attribute: `lr` of `-l`, `--lr`.

    Args:
        call: Call of `add_argument`.

    Returns:
        An empty text if no name is stated.
    """
    dest = [option.value for option in call.keywords if option.arg == "dest"]
    if dest and isinstance(dest[0], ast.Constant):
        return str(dest[0].value)
    flags = sorted(_flags(call), key=lambda flag: not flag.startswith("--"))
    return _as_name(flags[0]) if flags else ""


def _flags(call: ast.Call) -> list[str]:
    return [str(argument.value) for argument in call.args if isinstance(argument, ast.Constant)]


def _as_name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def is_parsing(node: ast.AST | None) -> bool:
    """Return whether a node is a call that parses a command line."""
    return isinstance(node, ast.Call) and last_name(node.func) in _PARSING


def parsed_into(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield the variables that get the parsed options of a command line, such as `args`."""
    for node in (node for cell in cells for node in ast.walk(cell.tree)):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)] | [ast.Tuple(elts=[ast.Name(id=name), *_])],
                value=value,
            ) if is_parsing(value):
                yield name


def given_options(cells: Sequence[Cell]) -> Mapping[str, str]:
    """Return the options that the notebook itself passes to `parse_args` or `set_defaults`.

    Returns:
        The code cell and line of each call, by the name of the option.
    """
    calls = [
        (cell.number, node)
        for cell in cells
        for node in ast.walk(cell.tree)
        if isinstance(node, ast.Call)
    ]
    names = {
        flag: option_name(call)
        for _, call in calls
        if last_name(call.func) == "add_argument"
        for flag in _flags(call)
    }
    found: dict[str, str] = {}
    for number, call in calls:
        place = f"code cell {number}, line {call.lineno}"
        if last_name(call.func) == "set_defaults":
            found |= {option.arg: place for option in call.keywords if option.arg}
        if not is_parsing(call):
            continue
        texts = [part.value for part in ast.walk(call) if isinstance(part, ast.Constant)]
        for word in (word for text in texts for word in str(text).split()):
            flag = word.partition("=")[0]
            if flag.startswith("-"):
                found[names.get(flag, _as_name(flag))] = place
    return found
