"""Find training that a notebook programs itself, such as gradient descent without a library.

This module finds its gradient steps, its code, and the numbers that it computes with.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from .calls import last_names_called, methods_of
from .plain import is_plain
from .replacing import Cell

#: Used in place of the name of a library's function, for numbers that flow to training that the
#: notebook itself programs. `OWN_TRAINING` is for numbers with which this training computes.
#: `OWN_LOOP` is for numbers that state how often a method repeats something.
OWN_TRAINING, OWN_LOOP = "own training", "own loop"
#: Names of methods that train a model, as in scikit-learn, or an agent (reinforcement learning).
_TRAINING_METHODS = frozenset({"fit", "train", "learn"})
#: Last names of functions that draw a random number from 0 to 1, and of those that choose the best
#: of several objects.
_DRAWS = frozenset({"random", "rand", "uniform", "random_sample"})
_CHOOSES = frozenset({"max", "min", "argmax", "argmin", "sort", "sorted", "argsort", "nlargest"})


def own_nodes(body: Iterable[ast.AST], skipped: Set[ast.AST] = frozenset()) -> Iterator[ast.AST]:
    """Yield the nodes of code, except those inside of functions and classes.

    Args:
        body: Outermost nodes of the code.
        skipped: Nodes to leave out, with all nodes inside of them.
    """
    waiting = deque(body)
    while waiting:
        node = waiting.popleft()
        if node in skipped:
            continue
        yield node
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                waiting += node.decorator_list
            case _:
                waiting += ast.iter_child_nodes(node)


def steps_in(tree: ast.AST) -> dict[ast.AST, list[ast.expr]]:
    """Return the gradient steps in code, each with its possible learning rates.

    A step changes an object by a product: `w -= rate * grad`, `q += rate * (r - q)`. The product
    may have a name: `change = rate * (y - p) * x` and `w += change` are one step.
    """
    found: dict[ast.AST, list[ast.expr]] = {}
    functions = [part for part in ast.walk(tree) if isinstance(part, ast.FunctionDef)]
    for block in (tree, *functions):
        nodes = [*own_nodes(getattr(block, "body", [block]))]
        values = {
            node.targets[0].id: node.value
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in nodes:
            if factors := _step_factors(node, values):
                found[node] = factors
    return found


def _step_factors(node: ast.AST, values: Mapping[str, ast.expr]) -> list[ast.expr]:
    """List the possible learning rates in a gradient step. Empty if the node is no such step.

    Args:
        node: Any syntax tree node.
        values: Code of the value of each variable in the code around the node. The product may be
            the value of a variable, as in `w += change`.
    """

    def known(part: ast.expr) -> ast.expr:
        return values.get(part.id, part) if isinstance(part, ast.Name) else part

    is_mean = False
    match node:
        case ast.AugAssign(target=target, op=ast.Sub() | ast.Add(), value=step):
            is_down = isinstance(node.op, ast.Sub)
        case ast.Assign(targets=[target], value=value):
            whole = value if isinstance(target, ast.Name) else known(value)
            if not isinstance(whole, ast.BinOp) or not isinstance(whole.op, ast.Sub | ast.Add):
                return []
            before, step, is_down = whole.left, whole.right, isinstance(whole.op, ast.Sub)
            if not is_down and _is_same(target, step):
                before, step = step, before
            elif not is_down and _occurrences(target, before) and not _is_same(target, before):
                before, is_mean = target, True  # A moving average: `q = (1 - rate) * q + rate * r`.
            if not _is_same(target, before) and not _is_same(target, known(before)):
                return []
        case _:
            return []
    if isinstance(step, ast.Name) and isinstance(known(step), ast.BinOp | ast.UnaryOp):
        step = known(step)
    factors, waiting, is_negative = list[ast.expr](), [step], False
    while waiting:
        match waiting.pop():
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                waiting += [left, right]
            case ast.BinOp(left=inner, op=ast.Div()):
                waiting.append(inner)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                is_negative = True
                waiting.append(inner)
            case factor:
                factors.append(factor)
    is_pulled = any(_is_difference(known(factor)) for factor in factors)
    if not (is_down or is_negative or is_pulled or is_mean or _occurrences(target, step)):
        return []
    if len(factors) == 1:
        return []
    rates = [factor for factor in factors if ast.unparse(factor) != ast.unparse(target)]
    # In `m = beta * m + (1 - beta) * grad`, `beta` is the share of `m` that is kept, and `1 - beta`
    # is no number that the code states. So `1 - beta` is no learning rate.
    rates = [rate for rate in rates if not _is_rest(rate)]
    return rates if len(factors) == 2 else [rate for rate in rates if not is_plain(rate)]


def _is_rest(part: ast.expr) -> bool:
    """Return whether an expression is a number minus a value, such as `1 - beta`."""
    return _is_difference(part) and is_plain(part.left)  # type: ignore[attr-defined]


def _is_difference(part: ast.expr) -> bool:
    return isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub)


def _is_same(target: ast.expr, before: ast.expr) -> bool:
    """Return whether two expressions name the same object, or elements of the same array."""
    match target, before:
        case ast.Subscript(value=first), ast.Subscript(value=second):
            return ast.unparse(first) == ast.unparse(second)
    return ast.unparse(target) == ast.unparse(before)


def _occurrences(part: ast.expr, whole: ast.expr) -> int:
    """Return how often an expression occurs in another expression."""
    text = ast.unparse(part)
    same = (node for node in ast.walk(whole) if isinstance(node, type(part)))
    return sum(ast.unparse(node) == text for node in same)


def takes_steps(node: ast.AST) -> bool:
    """Return whether code contains a gradient step, such as `w -= rate * grad`."""
    return bool(steps_in(node))


def training_code(cells: Sequence[Cell]) -> set[ast.AST]:
    """Return the syntax tree nodes of all training that the notebook itself programs.

    Training is a function or loop with a gradient step, a class with a gradient step or a method
    `fit`, `train` or `learn`, and each function that any of these calls. A loop that chooses the
    best of several objects may be an evolutionary search. In it, only comparisons with a random
    number count as training: `random() < mutation_rate`.
    """
    nodes = [node for cell in cells for node in ast.walk(cell.tree)]
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    blocks = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While)
    found = set[ast.AST]()
    for node in nodes:
        if isinstance(node, blocks) and (takes_steps(node) or _has_training_method(node)):
            found |= _with_called(node, functions)
        elif isinstance(node, ast.For | ast.While):
            code = _with_called(node, functions)
            if not last_names_called(code).isdisjoint(_CHOOSES):
                found |= {part for part in code if _decides_by_chance(part)}
    return found


def _with_called(node: ast.AST, functions: Mapping[str, ast.FunctionDef]) -> set[ast.AST]:
    """Return the nodes of code, and of the functions that it calls directly or indirectly."""
    found, waiting = set[ast.AST](), [node]
    while waiting:
        new = {*ast.walk(waiting.pop())} - found
        found |= new
        called = {part.func.id for part in new if _is_plain_call(part)}  # type: ignore[attr-defined]
        waiting += [functions[name] for name in called & {*functions}]
    return found


def _decides_by_chance(node: ast.AST) -> bool:
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    return any(not last_names_called([side]).isdisjoint(_DRAWS) for side in sides)


def assigned_from_itself(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Yield the variables that code computes from their old values, such as weights or counters."""
    for node in nodes:
        match node:
            case ast.AugAssign(target=target):
                yield target
            case ast.Assign(targets=[target], value=value) if _occurrences(target, value):
                yield target


def _has_training_method(node: ast.AST) -> bool:
    return any(method.name in _TRAINING_METHODS for method in methods_of(node))


def _is_plain_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def operands_of(node: ast.AST) -> tuple[str, Sequence[ast.expr]]:
    """Return the operands of a node that decide how strong or how long a training is.

    Such operands are those of `*`, `/`, `**` and comparisons, the arguments of `range`, and the
    ends of slices.

    Returns:
        What the operands decide, and the operands. For `range` and slices, they decide how often
        something is repeated (`OWN_LOOP`). For operators and comparisons, they decide what the
        training computes (`OWN_TRAINING`). The list of operands is empty for other nodes.
    """
    match node:
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() | ast.Pow(), right=right):
            return OWN_TRAINING, [left, right]
        case ast.Compare(left=left, comparators=[right]):
            return OWN_TRAINING, [left, right]
        case ast.Slice(upper=ast.expr() as end):
            return OWN_LOOP, [end]
        case ast.Call(func=ast.Name(id="range"), args=arguments):
            return OWN_LOOP, arguments
    return OWN_TRAINING, []
