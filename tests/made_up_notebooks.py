"""Notebooks that are made up at random, and the results of running them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from hypothesis import strategies as st

#: Of a cell: its source, or its source and tags.
Cell = str | tuple[str, ...]


def code(cell: Cell) -> dict[str, Any]:
    source, *tags = (cell,) if isinstance(cell, str) else cell
    return {"cell_type": "code", "source": source, "metadata": {"tags": tags}}


STATEMENTS = """
{n} = {k}
{n} = {v} + {v}
{n} = {v} * {k} - {v}
{n} += {v}
{n}, {n} = {v}, {v}
{n} = {p}
{n} = {n} if {v} > {k} else {v}
{l} = {l}
{l} = list({l}) + [{v}]
{l} = [{v}, {v}]
{l} = [i + {v} for i in {l}]
{l} = sorted({l}, key={f})
{l}.append({v})
{l}.extend([{v}, *{l}])
{l}[0] = {v}
{l} += [{k}]
{n} = len({l})
{n} = sum({l})
{n} = max(*{l}, {v}, {k})
if {v} > {k}:;    {n} = {v};else:;    {l}.append({k})
for {n} in range({k}):;    {l}.append({n} + {v})
for i in list({l}):;    {n} = {n} + i
i = 0;while i < {k}:;    i += 1;    {l}.append({v})
def {f}(u, w={v}):;    return u + w + {v}
def {f}(u):;    {l}.append(u);    return len({l})
def {f}(u):;    global {n};    {n} = u;    return {v}
def {f}(u):;    {n} = u;    return {n} + {v}
def {f}({p}):;    return {p} + {v}
def {f}(u):;    return {c}().get() + u
{f} = lambda u: u + {v}
{f} = lambda u, w={v}: u + w
{n} = {f}({v})
{n} = {f}({n})
{f} = {f}
calls['{n}'] = lambda: {v}
calls['{k}'] = {c}().get
{n} = sum(call() for call in calls.values())
{n} = len(f'{{v}}')
text = f'{{v}} and {{n}!r}'
text = '{v}'
text = '{p}_{k}'
{n} = len(text)
{n} = eval(text)
{n} = eval('{v} + {k}')
exec('{n} = {v}')
{n} = globals()['{v}']
{n} = dict({p}={k}).get('{v}', {k})
{n} = dict({p}={v}).popitem()[1]
{n} = [*vars({c})].count('{p}')
random.seed({k})
{n} = random.random()
{n} = random.randint(0, {k})
random.shuffle({l})
try:;    {n} = {v} // ({v} - {k});except ZeroDivisionError as error:;    {n} = {k}
try:;    {l}.append({l}[{v}]);finally:;    {n} = {v}
{n} = 12 // ({v} - {k})
class {c}:;    held = {v};    def get(self):;        return {v} + self.held
class {c}:;    {p} = {v};    def get(self):;        return {k}
{c}.held = {v}
{c}.{p} = {v}
{n} = {c}.{p}
{n} = {c}().get()
print(({n} := {v}))
{n} = [({n} := i) for i in {l}][0]
{n} = [{p} for {p} in range(3)][0]
if {v} > 3:;    del {n}
del {p}
{p} = {k}
later = (u + {v} for u in {l})
later = map({f}, {l})
{n} = next(later, {k})
{l} = [i for i, _ in zip(later, range(9))]
import math as {n};{n} = {n}.floor(2.5)
{n} = __import__('math').floor({v})
with nullcontext({v}) as {n}:;    {l}.append({n} + {v})
match {v}:;    case {k}:;        {n} = {v};    case _:;        {n} = -1
""".strip().split("\n")

SETUP = """
n0, n1, n2 = 1, 2, 3
l0, l1 = [1, 2], [3]
f0, f1 = (lambda u: u), (lambda u: u + n1)
calls, text, later = {}, "n0", iter(())
class c0:
    held = 1
    def get(self): return n2
for i in range(3): setattr(c0, f'p{i}', i)
"""

NAMES = {
    "n": ["n0", "n1", "n2"],
    "p": ["p0", "p1", "p2"],
    "l": ["l0", "l1"],
    "f": ["f0", "f1"],
    "c": ["c0"],
    "k": ["0", "1", "2", "3", "4"],
}
DEFAULTS = "p0 = 1\np1 = 2\np2 = 3\n"


@dataclass(frozen=True)
class Notebook:
    cells: Sequence[str]
    parameters: str
    place: int
    swept: Sequence[str]
    fixed: Sequence[str]

    def injected(self, values: Mapping[str, int]) -> list[tuple[str, ...]]:
        """The cells as papermill injects parameters into them."""
        injected = "".join(f"{name} = {value}\n" for name, value in values.items())
        before, after = self.cells[: self.place], self.cells[self.place :]
        tagged = [(self.parameters, "parameters"), (injected, "injected-parameters")]
        return [(SETUP,), *((c,) for c in before), *tagged, *((c,) for c in after)]


#: Statements that keep an expression, and those that use it later, are drawn more often.
KEEPING = [s for s in STATEMENTS if re.match(r"def|class|\{f\} = lambda|calls|text =|later", s)]
USING = [s for s in STATEMENTS if re.search(r"= \{f\}\(|call\(\)|next\(|\.get\(\)|\(text\)", s)]


def statement(chance: random.Random, templates: Sequence[str], *, parameters: float) -> str:
    """One of some templates; each variable that it reads may be a parameter instead."""
    text = chance.choice(templates)
    while "{v}" in text:
        text = text.replace("{v}", "{p}" if chance.random() < parameters else "{n}", 1)
    for slot, names in NAMES.items():
        while f"{{{slot}}}" in text:
            text = text.replace(f"{{{slot}}}", chance.choice(names), 1)
    return text.replace(";", "\n")


def made_up(seed: bytes, length: int) -> Notebook:
    chance = random.Random(seed)
    # Few kinds of statements in one notebook: with all of them, few leading cells could be shared.
    templates = [
        *chance.sample(STATEMENTS, 12),
        *chance.sample(KEEPING, 2),
        *chance.sample(USING, 3),
    ]
    parameters = chance.choice([0.03, 0.1, 0.3])
    extra = [
        statement(chance, KEEPING, parameters=0.6) for _ in range(chance.choice([0, 0, 0, 1, 2]))
    ]
    roles = [chance.choice(["swept", "swept", "fixed", ""]) for _ in NAMES["p"]]
    return Notebook(
        cells=[
            "\n".join(
                statement(chance, templates, parameters=parameters)
                for _ in range(chance.randint(1, 3))
            )
            for _ in range(length)
        ],
        parameters=DEFAULTS + "\n".join(extra),
        place=chance.choice([0, 0, chance.randint(0, length)]),
        swept=[name for name, role in zip(NAMES["p"], roles, strict=True) if role == "swept"],
        fixed=[name for name, role in zip(NAMES["p"], roles, strict=True) if role == "fixed"],
    )


NOTEBOOK = st.builds(made_up, st.binary(min_size=8, max_size=8), st.integers(4, 14))


@cache
def compiled(source: str) -> CodeType:
    return compile(source, "cell", "exec", dont_inherit=True)


class Run:
    """Cells that ran in a namespace of their own, up to the first that raises."""

    def __init__(self) -> None:
        self.printed: list[Any] = []
        self.raised: tuple[int, type] | None = None
        self.names: dict[str, Any] = {
            "__name__": "__main__",
            "random": random.Random(0),
            "print": self.printed.append,
            "nullcontext": nullcontext,
        }
        self._ran = 0

    def go_on(self, cells: Sequence[tuple[str, ...]]) -> None:
        for source, *_ in cells:
            if self.raised is None:
                try:
                    exec(compiled(source), self.names)
                except Exception as error:  # noqa: BLE001
                    self.raised = self._ran, type(error)
            self._ran += 1

    def left(self) -> list[Any]:
        """All visible results; functions are called for theirs."""
        names = self.names
        seen = [(name, plain(names[name])) for name in sorted({*names} - {"__builtins__"})]
        same = [names.get("l0") is names.get("l1"), names.get("f0") is names.get("f1")]
        return [
            self.raised,
            seen,
            same,
            self.printed,
            plain(names.get("l0")),
            plain(names.get("l1")),
        ]


def plain(value: Any) -> Any:
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, list | dict):
        items = value if isinstance(value, list) else value.items()
        return [plain(item) for item in items]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, random.Random):
        return value.random()
    try:
        if isinstance(value, Iterator):
            return [plain(item) for item, _ in zip(value, range(9), strict=False)]
        if isinstance(value, type):
            return [value().get(), {k: plain(v) for k, v in vars(value).items() if k[0] != "_"}]
        return value() if value.__code__.co_argcount == 0 else value(2)
    except Exception as error:  # noqa: BLE001
        return type(error)
