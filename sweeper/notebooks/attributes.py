"""Find attributes with plain values, such as `class CFG: lr = 0.1` or `cfg.lr = 0.1`.

This module also finds the code that gives such an attribute another value.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .calls import Function, init_of, positional, texts_in
from .cell_code import parse_or_none
from .own_training import own_nodes
from .plain import Assignment, Parameter, is_plain
from .rebinding import rebinding, unpacked
from .replacing import Cell


def attributes_of(cell: Cell) -> Iterator[tuple[str, Assignment]]:
    """Yield the attributes that get a plain value at the top level or in the body of a class.

    Items with text keys, such as `cfg["lr"] = 0.1`, count as attributes.

    Yields:
        The name, which begins with its class or object, as in `CFG.lr`, and the assignment.
    """
    for index, statement in enumerate(cell.statements):
        fields = _fields(statement)
        for owner, attribute, target, value in _owned(statement):
            place = Assignment(
                cell=cell.number,
                line=value.lineno,
                index=index,
                target=target,
                value=value,
                is_plain=True,
                is_attribute=True,
                parameter=fields.get(attribute),
            )
            yield f"{owner}.{attribute}", place


def _owned(statement: ast.stmt) -> Iterator[tuple[str, str, ast.expr, ast.expr]]:
    """Yield the attributes to which a statement assigns a plain value.

    Yields:
        The class or object, the name of the attribute, the target and the value.
    """
    if not isinstance(statement, ast.ClassDef):
        for target, value in _plain_targets([statement]):
            match target:
                case (
                    ast.Attribute(value=ast.Name(id=owner), attr=attribute)
                    | ast.Subscript(
                        value=ast.Name(id=owner), slice=ast.Constant(value=str(attribute))
                    )
                ):
                    yield owner, attribute, target, value
        return
    for target, value in _plain_targets(statement.body):
        if isinstance(target, ast.Name):
            yield statement.name, target.id, target, value
    init = init_of(statement)
    for target, value in _plain_targets([] if init is None else init.body):
        match target:
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute) if init is not None:
                if [owner] == positional(init.args)[:1]:  # usually `self`
                    yield statement.name, attribute, target, value


def locals_of(cell: Cell) -> Iterator[tuple[str, Assignment]]:
    """Yield the local variables of functions whose only value is a plain value.

    Yields:
        The name, which begins with its function, as in `train.lr`, or with its class in `__init__`,
        and the assignment.
    """
    for statement in cell.statements:
        inside = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        for function in (inner for inner in inside if isinstance(inner, Function)):
            owner = statement if function is init_of(statement) else function
            bound = Counter(_bindings(function))
            for target, value in _plain_targets(function.body):
                if isinstance(target, ast.Name) and bound[target.id] == 1:
                    yield (
                        f"{getattr(owner, 'name', '')}.{target.id}",
                        Assignment(cell=cell.number, line=value.lineno, value=value, is_plain=True),
                    )


def _bindings(function: Function) -> Iterator[str]:
    """Yield each name that a function binds, once for each binding.

    Statements such as `lr *= 2` do not count. A name that is declared `global` or `nonlocal` is
    yielded twice, because other functions may bind it too. So it never counts as bound once.
    """
    changed = {node.target for node in ast.walk(function) if isinstance(node, ast.AugAssign)}
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if node not in changed:
                yield name
            case (
                ast.arg(arg=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                yield name
            case ast.alias(name=name, asname=short):
                yield short or name
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from (name for name in names for _ in range(2))


def attribute_rival(cells: Sequence[Cell], name: str, places: Sequence[Assignment]) -> str | None:
    """Return where code gives an attribute another value, or reads it before its assignment.

    Args:
        cells: All code cells.
        name: Name of the attribute with its owner, such as `CFG.lr`.
        places: Places where the notebook gives the attribute its plain value.

    Returns:
        A code cell with a line. None if there is no such code.
    """
    owner, _, attribute = name.rpartition(".")
    first = min((place.cell, place.index) for place in places)
    is_class = any(
        isinstance(cells[place.cell - 1].statements[place.index], ast.ClassDef) for place in places
    )
    own = {place.target for place in places}
    owners = {owner, *_others(cells, owner)}
    for cell in cells:
        for index, statement in enumerate(cell.statements):
            is_body = isinstance(statement, ast.ClassDef) and statement.name == owner
            is_early = not is_class and (cell.number, index) < first
            counted = None if is_body else owners
            allowed = own | _scheduled(statement, counted, attribute)
            found = [*_in_body(statement, attribute)] if is_body else []
            found += _uses(statement, counted, attribute, reads=is_early)
            found += _in_texts(statement, owners, attribute)
            for node in found:
                if node not in allowed:
                    return f"code cell {cell.number}, line {getattr(node, 'lineno', 1)}"
    return rebinding(cells, owner, at=(first[0], first[1] + 1), is_late=True)


def _others(cells: Iterable[Cell], owner: str) -> Iterator[str]:
    """Yield the other variables to which a class, or an instance of the class, is assigned."""
    for cell in cells:
        for node in ast.walk(cell.tree):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=other)],
                    value=ast.Name(id=known) | ast.Call(func=ast.Name(id=known)),
                ) if known == owner:
                    yield other


def _uses(
    statement: ast.stmt, owners: set[str] | None, attribute: str, *, reads: bool
) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that change an attribute, and on request those that read it.

    Args:
        statement: Top-level statement.
        owners: Variables whose attribute counts. None if that of every variable counts.
        attribute: Name of the attribute.
        reads: Whether to yield also the nodes that read the attribute.
    """
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(ctx=use) | ast.Subscript(ctx=use):
                is_its = _is_attribute(node, owners, attribute)
                if is_its and (reads or not isinstance(use, ast.Load)):
                    yield node
            case ast.Call(func=ast.Name(id="setattr"), args=[its_owner, ast.Constant(word), *_]):
                is_known = isinstance(its_owner, ast.Name) and its_owner.id in (owners or ())
                if word == attribute and (is_known or owners is None):
                    yield node
        for owner, key in _updated(node, {}):
            if key == attribute and (owners is None or owner in owners):
                yield node


def _updated(node: ast.AST, dicts: Mapping[str, ast.expr]) -> Iterator[tuple[str, str]]:
    """Yield the items that a node writes into a dict, as in `cfg.update(lr=3)` or `cfg |= more`.

    A value that is computed from the item's old one is left out, because it is a schedule, such as
    a decaying learning rate.

    Args:
        node: Any node.
        dicts: Dicts that are assigned to variables, by the variable.

    Yields:
        The variable of the dict, such as `cfg`, or `cfg.optimizer` for an inner dict, and the key.
    """
    options: list[ast.keyword] = []
    match node:
        case ast.Call(func=ast.Attribute(value=whole, attr="update")):
            owner, given, options = _path(whole), node.args, node.keywords
        case ast.AugAssign(target=ast.Name(id=owner), op=ast.BitOr(), value=whole):
            given = [whole]
        case ast.Assign(
            targets=[ast.Name(id=owner)],
            value=ast.BinOp(left=ast.Name(id=old), op=ast.BitOr(), right=whole),
        ) if old == owner:
            given = [whole]
        case _:
            return
    found = [(option.arg, option.value) for option in options if option.arg]
    for part in given:
        found += _items(dicts.get(part.id, part) if isinstance(part, ast.Name) else part)
    owners = None if "." in owner else {owner}
    for key, value in found:
        if owner and not _reads_attribute(value, owners, key):
            yield owner, key


def _path(whole: ast.expr) -> str:
    """Return a variable, or an inner dict in the form `cfg.optimizer`. Empty for other code."""
    match whole:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=outer, slice=ast.Constant(value=str(key))) if path := _path(outer):
            return f"{path}.{key}"
    return ""


def _items(value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the items with text keys of a dict that code writes out."""
    match value:
        case ast.Dict(keys=keys, values=values):
            for key, part in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, part
        case ast.Call(func=ast.Name(id="dict"), keywords=options):
            yield from ((option.arg, option.value) for option in options if option.arg)


def _in_texts(statement: ast.stmt, owners: set[str], attribute: str) -> Iterator[ast.AST]:
    """Yield calls that run a text as code, if this code changes an attribute or its owner."""
    for node in ast.walk(statement):
        trees = [tree for text in texts_in(node) if (tree := parse_or_none(text)) is not None]
        for hidden in (inner for tree in trees for inner in tree.body):
            changed = {*_uses(hidden, owners, attribute, reads=False)}
            changed -= _scheduled(hidden, owners, attribute)
            if changed or any(_binds(inner, owners) for inner in ast.walk(hidden)):
                yield node


def _binds(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.ClassDef(name=name):
            return name in names
    return False


def _in_body(statement: ast.stmt, attribute: str) -> Iterator[ast.AST]:
    """Yield nodes in the body of a class, outside of its methods, that assign an attribute."""
    for node in own_nodes(getattr(statement, "body", [])):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store() | ast.Del())
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ) if name == attribute:
                yield node
            case ast.alias(name=name, asname=short) if (short or name) == attribute:
                yield node


def _scheduled(statement: ast.stmt, owners: set[str] | None, attribute: str) -> set[ast.expr]:
    """Return the targets with which a statement does not replace an attribute's value.

    A declaration assigns no value, and a schedule such as `cfg.lr *= 0.9` computes the value from
    the attribute's old one.
    """
    found: set[ast.expr] = set()
    for node in ast.walk(statement):
        match node:
            case ast.AugAssign(target=changed) | ast.AnnAssign(target=changed, value=None):
                found.add(changed)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    for inner, part, _ in unpacked(target, value):
                        if part is not None and _reads_attribute(part, owners, attribute):
                            found.add(inner)
    return found


def _reads_attribute(value: ast.expr, owners: set[str] | None, attribute: str) -> bool:
    return any(_is_attribute(node, owners, attribute) for node in ast.walk(value))


def _is_attribute(node: ast.AST, owners: set[str] | None, attribute: str) -> bool:
    match node:
        case (
            ast.Attribute(value=owner, attr=word)
            | ast.Subscript(value=owner, slice=ast.Constant(value=word))
        ) if word == attribute:
            return owners is None or (isinstance(owner, ast.Name) and owner.id in owners)
    return False


def overwritten_items(cells: Sequence[Cell]) -> dict[tuple[str, str], str]:
    """Return the items of dicts, attributes and optimizers' options that are assigned a value.

    Items that `update` or `|=` writes into a dict are included if the code states them. A value
    that is computed from the old one does not count, because it is a schedule, such as a decaying
    learning rate. An option of an optimizer counts only if it is assigned at the top level: in a
    loop, the training has begun with the old value.

    Returns:
        The code cell and line of the first assignment, by variable and key.
    """
    found: dict[tuple[str, str], str] = {}
    dicts = {
        node.targets[0].id: node.value
        for cell in cells
        for node in ast.walk(cell.tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for cell in cells:
        for statement in cell.statements:
            place = f"code cell {cell.number}, line {{}}".format
            for node in ast.walk(statement):
                match node:
                    case (
                        ast.Attribute(value=whole, attr=key, ctx=ast.Store())
                        | ast.Subscript(
                            value=whole, slice=ast.Constant(value=str(key)), ctx=ast.Store()
                        )
                    ) if owner := _path(whole):
                        owners = {owner} if isinstance(whole, ast.Name) else None
                        if node in _scheduled(statement, owners, key):
                            continue
                        found.setdefault((owner, key), place(node.lineno))
                for item in _updated(node, dicts):
                    found.setdefault(item, place(getattr(node, "lineno", 1)))
            match statement:
                case ast.Assign(
                    targets=[
                        ast.Subscript(
                            value=ast.Subscript(
                                value=ast.Attribute(value=ast.Name(id=owner), attr="param_groups")
                            ),
                            slice=ast.Constant(value=str(key)),
                        ) as target
                    ]
                ) if target not in _scheduled(statement, None, key):
                    found.setdefault((owner, key), place(statement.lineno))
    return found


def _plain_targets(statements: Iterable[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for statement in statements:
        match statement:
            case ast.Assign(targets=[whole], value=values):
                for target, part, is_own in unpacked(whole, values):
                    if is_own and is_plain(part):
                        yield target, part
            case ast.AnnAssign(
                target=target,
                value=ast.Call(func=ast.Name(id="field" | "Field"), keywords=options),
            ):
                defaults = (option.value for option in options if option.arg == "default")
                yield from ((target, value) for value in defaults if is_plain(value))
            case ast.AnnAssign(target=target, value=value) if is_plain(value):
                yield target, value


def _fields(statement: ast.stmt) -> dict[str, Parameter]:
    """Return the fields of a dataclass or a similar class as parameters of its calls."""
    if not isinstance(statement, ast.ClassDef):
        return {}
    if init_of(statement) or not (statement.decorator_list or statement.bases):
        return {}
    annotated = [
        inner.target.id
        for inner in statement.body
        if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)
    ]
    return {
        name: Parameter(
            callee=statement.name, name=name, position=None if statement.bases else position
        )
        for position, name in enumerate(annotated)
    }
