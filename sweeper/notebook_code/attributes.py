"""Find attributes with plain values, such as `class CFG: lr = 0.1` or `cfg.lr = 0.1`.

This module also finds the code that gives such an attribute, or an item of a dict, another value.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from .calls import Function, init_of, positional
from .own_training import own_nodes
from .plain import Assignment, Parameter, Place, is_plain
from .rebinding import assigned_in, rebinding, unpacked
from .replacing import Cell
from .syntax import Named, items_of, keywords_of, part_of


def attributes_of(cell: Cell) -> Iterator[tuple[str, Assignment]]:
    """Yield the attributes to which a cell assigns a plain value, such as `0.1`.

    The assignment is at the top level, in the body of a class or in its `__init__`. At the top
    level, items with text keys, such as `cfg["lr"] = 0.1`, count as attributes.

    Yields:
        The name with its class or object in front, as in `CFG.lr`, and the assignment.
    """
    for index, statement in enumerate(cell.statements):
        owned, fields = _owned(statement), dict[str, Parameter]()
        if isinstance(statement, ast.ClassDef):
            owned, fields = _owned_by_class(statement), _fields(statement)
        for owner, attribute, target, value in owned:
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
    """Yield the attributes of variables to which a statement assigns a plain value: `cfg.lr = 0.1`.

    Yields:
        The variable, the name of the attribute, the target and the value.
    """
    for target, value in _plain_targets([statement]):
        owner, attribute = _owner_and_key(target)
        if owner.isidentifier():
            yield owner, attribute, target, value


def _owned_by_class(statement: ast.ClassDef) -> Iterator[tuple[str, str, ast.expr, ast.expr]]:
    """Yield the attributes that get a plain value in the body of a class or in its `__init__`.

    Yields:
        The class, the name of the attribute, the target and the value.
    """
    for target, value in _plain_targets(statement.body):
        if isinstance(target, ast.Name):
            yield statement.name, target.id, target, value
    init = init_of(statement)
    if init is None:
        return
    itself = positional(init.args)[:1]  # usually `self`
    for target, value in _plain_targets(init.body):
        owner, attribute = _owner_and_key(target)
        if isinstance(target, ast.Attribute) and [owner] == itself:
            yield statement.name, attribute, target, value


def locals_of(cell: Cell) -> Iterator[tuple[str, Assignment]]:
    """Yield the local variables of functions and methods that are bound once, to a plain value.

    A plain value is a literal such as `0.1`. Statements such as `lr *= 2` do not count as bindings.

    Yields:
        The name with its function in front, as in `train.lr`, and the assignment. A variable of
        `__init__` has the name of the class in front, as in `Net.lr`.
    """
    for statement in cell.statements:
        inside = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        for function in inside:
            if not isinstance(function, Function):
                continue
            owner = function.name
            if isinstance(statement, ast.ClassDef) and owner == "__init__":
                owner = statement.name
            bound = Counter(_bindings(function))
            for target, value in _plain_targets(function.body):
                if isinstance(target, ast.Name) and bound[target.id] == 1:
                    place = Assignment(
                        cell=cell.number, line=value.lineno, value=value, is_plain=True
                    )
                    yield f"{owner}.{target.id}", place


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
            case ast.arg(arg=name):
                yield name
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
                yield from names


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Place):
    """Code that assigns or deletes an attribute or an item of a dict.

    Attributes:
        index: Position of the top-level statement in the cell, from 0.
        owner: Code of the object or dict, such as `cfg`, or `cfg.optimizer` for an inner one. Empty
            for other code, such as the result of a call.
        key: Name of the attribute, or key of the item.
        node: The target of the assignment or `del`. For code such as `cfg.update(lr=3)` or
            `cfg |= {"lr": 3}`, the whole call or statement.
    """

    index: int
    owner: str
    key: str
    node: ast.expr | ast.stmt

    @property
    def deletes(self) -> bool:
        return isinstance(getattr(self.node, "ctx", None), ast.Del)


def writes_in(cells: Sequence[Cell]) -> Iterator[Write]:
    """Yield the code that assigns or deletes attributes and dict items, as in `cfg.update(lr=3)`.

    A dict literal, as in `cfg = {"lr": 0.1}`, does not count. Code that computes a value from the
    old one is left out, because it is a schedule, such as a decaying learning rate.
    """
    dicts: dict[str, ast.expr] = {}
    for cell in cells:
        for part in cell.nodes:
            match part:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    dicts[name] = value
    for cell in cells:
        for index, statement in enumerate(cell.statements):
            for owner, key, node in _written(statement, dicts):
                yield Write(
                    cell=cell.number,
                    line=node.lineno,
                    index=index,
                    owner=owner,
                    key=key,
                    node=node,
                )


def _written(
    statement: ast.stmt, dicts: Mapping[str, ast.expr]
) -> Iterator[tuple[str, str, ast.expr | ast.stmt]]:
    """Yield the attributes and dict items that a statement assigns or deletes.

    Those whose new value is computed from the old one are left out.

    Args:
        statement: Top-level statement.
        dicts: Code of the value of each variable. The value of `more` states which items
            `cfg.update(more)` assigns.

    Yields:
        The owner, the key and the node, as in the attributes of `Write`.
    """
    kept = {target for target, value in assigned_in(statement) if _keeps(target, value)}
    for node in ast.walk(statement):
        match node:
            case (
                ast.Attribute(ctx=ast.Store() | ast.Del())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
            ) if node not in kept:
                owner, key = _owner_and_key(node)
                if key:
                    yield owner, key, node
        stated = _stated(node, dicts)
        if isinstance(node, ast.expr | ast.stmt) and stated is not None:
            owner = _path(stated[0])
            for key, value in stated[1]:
                if not _reads(value, owner, key):
                    yield owner, key, node
    match statement:
        # `optimizer.param_groups[0]["lr"] = 0.1` counts only at the top level. In a loop, it is a
        # schedule of a training that has begun with the original value.
        case ast.Assign(
            targets=[
                ast.Subscript(
                    value=ast.Subscript(value=ast.Attribute(value=whole, attr="param_groups"))
                ) as target
            ]
        ) if target not in kept:
            yield _path(whole), _owner_and_key(target)[1], target


def _keeps(target: ast.expr, value: ast.expr | None) -> bool:
    """Return whether an assignment only declares its target, or computes it from its old value."""
    return value is None or value is target or _reads(value, *_owner_and_key(target))


def _stated(node: ast.AST, dicts: Mapping[str, ast.expr]) -> tuple[ast.expr, list[Named]] | None:
    """Return the object whose parts code sets by `setattr` or `update`, and their new values.

    A part is an attribute or a dict item. The operators `|` and `|=` of dicts count like `update`.

    Args:
        node: Syntax tree node of any code.
        dicts: Code of the value of each variable. The value of `more` states which items
            `cfg.update(more)` sets.

    Returns:
        The object, and the name and new value of each part. None if the code is neither such a
        call nor such an operation.
    """
    items: list[Named] = []
    match node:
        case ast.Call(func=ast.Name(id="setattr"), args=[whole, ast.Constant(str(key)), value]):
            return whole, [(key, value)]
        case ast.Call(func=ast.Attribute(value=whole, attr="update"), args=updates):
            items += keywords_of(node)
        case ast.AugAssign(target=whole, op=ast.BitOr(), value=update):
            updates = [update]
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.BinOp(left=ast.Name(id=old) as whole, op=ast.BitOr(), right=update),
        ) if old == name:
            updates = [update]
        case _:
            return None
    for update in updates:
        if isinstance(update, ast.Name):
            update = dicts.get(update.id, update)
        items += items_of(update)
    return whole, items


def _reads(value: ast.expr, owner: str, key: str) -> bool:
    return any(_owner_and_key(node) == (owner, key) for node in ast.walk(value))


def _owner_and_key(node: ast.AST) -> tuple[str, str]:
    """Return the names of an object and its attribute, such as `cfg` and `lr` for `cfg.lr`.

    An item with a text key, such as `cfg["lr"]`, counts as an attribute.

    Returns:
        Empty texts for other code. The first text is empty if the object has no name.
    """
    part = part_of(node)
    if part is None:
        return "", ""
    owner, key = part
    return _path(owner), key


def _path(whole: ast.expr) -> str:
    """Return the name of an object, such as `cfg` or `cfg.optimizer`.

    The item `cfg["optimizer"]` has the same name as the attribute `cfg.optimizer`.

    Returns:
        An empty text for an object without such a name, such as the result of a call.
    """
    if isinstance(whole, ast.Name):
        return whole.id
    owner, key = _owner_and_key(whole)
    return f"{owner}.{key}" if owner else ""


def attribute_rival(
    cells: Sequence[Cell], writes: Iterable[Write], name: str, places: Sequence[Assignment]
) -> Place | None:
    """Return where code deletes an attribute, or gives it or its owner another value.

    If the owner is an object and not a class, this may also be code that reads the attribute before
    its first assignment.

    Args:
        cells: All code cells.
        writes: Code in these cells that sets or deletes attributes, as `writes_in` yields it.
        name: Name of the attribute with its owner, such as `CFG.lr`.
        places: Places where the notebook gives the attribute its plain value, such as `0.1`.

    Returns:
        None if there is no such code.
    """
    owner, _, attribute = name.rpartition(".")
    first = min((place.cell, place.index) for place in places)
    own = {place.target for place in places}
    owners = {owner, *_others(cells, owner)}
    statements = {
        (cell.number, index): statement
        for cell in cells
        for index, statement in enumerate(cell.statements)
    }
    is_class = any(
        isinstance(statements[place.cell, place.index], ast.ClassDef) for place in places
    )
    in_classes = set[tuple[int, int]]()
    for at, statement in statements.items():
        found = list[ast.expr | ast.stmt]()
        if isinstance(statement, ast.ClassDef) and statement.name == owner:
            in_classes.add(at)
            found += _in_body(statement, attribute)
        elif at < first and not is_class:
            found += _early_reads(statement, owners, attribute)
        for node in found:
            if node not in own:
                return Place(cell=at[0], line=node.lineno)
    for write in writes:
        is_its = write.owner in owners or (write.cell, write.index) in in_classes
        if is_its and write.key == attribute and write.node not in own:
            return write
    return rebinding(cells, owner, at=(first[0], first[1] + 1), is_late=True)


def _others(cells: Iterable[Cell], owner: str) -> Iterator[str]:
    """Yield the variables to which an object, or a new instance of a class, is assigned.

    Args:
        cells: All code cells.
        owner: Variable of the object, or name of the class: `cfg` in `other = cfg`, and `CFG` in
            `other = CFG()`.
    """
    for cell in cells:
        for node in cell.nodes:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=other)],
                    value=ast.Name(id=known) | ast.Call(func=ast.Name(id=known)),
                ) if known == owner:
                    yield other


def _early_reads(statement: ast.stmt, owners: Set[str], attribute: str) -> Iterator[ast.expr]:
    for node in ast.walk(statement):
        owner, key = _owner_and_key(node)
        if key == attribute and owner in owners and isinstance(node, ast.expr):
            yield node


def _in_body(statement: ast.ClassDef, attribute: str) -> Iterator[ast.expr | ast.stmt]:
    """Yield the nodes in the body of a class that assign or delete an attribute.

    A definition of a method of the same name counts, too. Code inside of methods and inner classes
    does not count.

    Args:
        statement: The class.
        attribute: Name of the attribute.
    """
    for node in own_nodes(statement.body):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store() | ast.Del())
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ) if name == attribute:
                yield node


def _plain_targets(statements: Iterable[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets to which statements assign plain values, such as `0.1`, with these values.

    In `lr: float = field(default=0.1)`, the default counts as the assigned value.
    """
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
                for option in options:
                    if option.arg == "default" and is_plain(option.value):
                        yield target, option.value
            case ast.AnnAssign(target=target, value=value) if is_plain(value):
                yield target, value


def _fields(statement: ast.ClassDef) -> dict[str, Parameter]:
    """Return the parameters that a dataclass or a similar class makes of its fields, by field.

    Empty if the class defines `__init__`, or has neither a decorator nor a base class.
    """
    is_like_dataclass = bool(statement.decorator_list or statement.bases)
    if init_of(statement) is not None or not is_like_dataclass:
        return {}
    annotated = [
        inner.target.id
        for inner in statement.body
        if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)
    ]
    found: dict[str, Parameter] = {}
    for index, name in enumerate(annotated):
        position = None if statement.bases else index
        found[name] = Parameter(callee=statement.name, name=name, position=position)
    return found
