"""Find literals that are not assigned to a variable: arguments, dict items and defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .calls import defaults, parameters_of
from .plain import Assignment, is_plain
from .replacing import Cell
from .signatures import Signatures

_ADDING = ".add_argument"
PARSING = ("parse_args", "parse_known_args")


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
    parameters = parameters_of(cell)
    for node in ast.walk(cell.tree):  # Outer nodes come before the nodes inside of them.
        function, named = functions.get(node, ""), list[tuple[str, ast.expr]]()
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                owners[value] = variables[value] = target
            case ast.Call(func=ast.Attribute(attr="add_argument")):
                named, function = [*option_default(node)], "".join(parsed[:1])
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)):
                named = [(option.arg, option.value) for option in node.keywords if option.arg]
                owners |= {value: name for name, value in named}
                named += signatures.named(node)
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                named = [(str(k.value), v) for k, v in pairs if isinstance(k, ast.Constant)]
            case ast.arguments():
                named = [*defaults(node)]
            case ast.ClassDef(name=owner, body=body):
                methods = (inner for inner in body if isinstance(inner, ast.FunctionDef))
                functions |= {method.args: owner for method in methods if method.name == "__init__"}
            case ast.FunctionDef(name=defined) | ast.AsyncFunctionDef(name=defined):
                functions.setdefault(node.args, defined)
        belongs = [
            f"{owner}." for owner in (function, owners.get(node), f"cell{cell.number}") if owner
        ]
        found = {f"{before}{name}": value for name, value in named for before in ("", *belongs)}
        is_option = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_ADDING)
        if isinstance(node, ast.Call) and node.args and not is_option:
            found[function] = node.args[0]
        variable = variables.get(node, "") if not is_option else "".join(parsed[:1])
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


def option_default(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the name of a command line option's attribute with its default, if it has a default.

    Args:
        call: Call of `add_argument`.
    """
    stated = {option.arg: option.value for option in call.keywords}
    flags = [str(argument.value) for argument in call.args if isinstance(argument, ast.Constant)]
    flags.sort(key=lambda flag: not flag.startswith("--"))
    match stated.get("dest"):
        case ast.Constant(value=str(name)):
            flags.insert(0, name)
    if flags and "default" in stated:
        yield flags[0].lstrip("-").replace("-", "_"), stated["default"]


def parsed_into(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield the variables that get the parsed options of a command line, such as `args`."""
    for cell in cells:
        for node in ast.walk(cell.tree):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)] | [ast.Tuple(elts=[ast.Name(id=name), *_])],
                    value=ast.Call(func=ast.Attribute(attr=called)),
                ) if called in PARSING:
                    yield name


def given_options(cells: Iterable[Cell]) -> Mapping[str, str]:
    """Return the options that the notebook itself passes to `parse_args`.

    Returns:
        The code cell and line of each call, by the name of the option.
    """
    found: dict[str, str] = {}
    for cell in cells:
        for node in ast.walk(cell.tree):
            match node:
                case ast.Call(func=ast.Attribute(attr=called)) if called in PARSING:
                    texts = [
                        constant.value
                        for constant in ast.walk(node)
                        if isinstance(constant, ast.Constant)
                    ]
                    words = [word for text in texts for word in str(text).split()]
                    flags = [word.partition("=")[0] for word in words if word.startswith("-")]
                    place = f"code cell {cell.number}, line {node.lineno}"
                    found |= {flag.lstrip("-").replace("-", "_"): place for flag in flags}
    return found
