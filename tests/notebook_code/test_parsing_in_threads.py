"""Test parsing on several threads at once, which CPython before 3.11.8 and 3.12.2 cannot do."""

from __future__ import annotations

import ast
import gc
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sweeper
from sweeper.notebook_code.cell_code import parse

#: Deeply nested code, so that another thread often runs while the syntax tree is made.
CELL = "\n".join(f"x{n} = [{'(' * 20}{n}{',)' * 20}, f(a={{'k': {n}}})]" for n in range(30))


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Let threads switch as often as possible, even while a syntax tree is made."""
    interval_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    gc.callbacks.append(_give_way)
    yield
    gc.callbacks.remove(_give_way)
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval_s)


def _give_way(_phase: str, _facts: object) -> None:
    time.sleep(0)


@pytest.mark.slow  # the test computes for a second
def test_cells_are_parsed_without_errors_while_other_threads_parse_code(
    hurried_threads: None,
) -> None:
    def parse_cells(_: int) -> int:
        return sum(len(parse(CELL).body) for _ in range(10))

    def parse_as_libraries_do(_: int) -> int:
        failed = 0
        for _ in range(10):
            try:
                ast.parse("f(x)")
            except SystemError:
                failed += 1
        return failed

    with ThreadPoolExecutor(8) as threads:
        libraries = threads.map(parse_as_libraries_do, range(3))
        counts = list(threads.map(parse_cells, range(6)))
        list(libraries)
    assert counts == [300] * 6


def test_only_the_module_cell_code_of_the_package_calls_ast_parse() -> None:
    folder = Path(sweeper.__file__).parent
    makers = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if "ast.parse(" in path.read_text("utf-8")
    }
    assert makers == {"notebook_code/cell_code.py"}
