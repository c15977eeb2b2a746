"""Test how a kernel records which objects each statement has changed."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.utils.capture import capture_output
from shells import new_shell

from sweeper.kernels.forking.zygote.in_kernel import WatchedChanges

FITTED = """\
import numpy as np
class Model:
    def fit(self, X): self.w = X.mean()
    def predict(self, X): return X * self.w
X = np.arange(6.0)
"""
TRAINED = """\
import torch
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
other = torch.nn.Linear(2, 1)
"""


def changes(*cells: str) -> tuple[dict[str, list[str]], list[str], list[Any]]:
    """Run cells. Return the names that each statement changed, the prints and the results."""
    shell = new_shell()
    shell.displayhook.write_format_data = lambda *_: None
    watched = WatchedChanges(shell)
    shell.events.register("post_run_cell", watched.note)
    printed, results = [], []
    for source in cells:
        with capture_output() as captured:
            result = shell.run_cell(source, store_history=True)
        result.raise_error()
        printed.append(captured.stdout)
        results.append(result.result)
    return watched.changes, printed, results


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("m = Model()", ["m"]),
        ("m = Model()\nm.fit(X)", ["m"]),
        ("m = Model()\nm.fit(X)\nm.predict(X)", []),
        ("X[2] = 7.0", ["X"]),
        ("d = {'a': 1}\nd['b'] = 2", ["d"]),
        ("d = {'a': 1}\nd['b'] = d.pop('a')", ["d"]),
        ("d = []\nfor i in range(3): d.append(i)", ["d", "i"]),
        ("Model.rate = 0.5", ["Model"]),
        ("d = {'m': Model()}\nm = d['m']\nm.fit(X)", ["d", "m"]),
    ],
)
def test_for_each_statement_the_names_of_the_objects_that_it_changes_are_recorded(
    statement: str, changed: list[str]
) -> None:
    found, *_ = changes(FITTED, statement)
    assert sorted([*found.values()][-1]) == changed


@pytest.mark.slow  # because torch is imported
@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("loss = net(torch.ones(1, 2)).sum()", ["loss"]),
        ("net(torch.ones(1, 2)).sum().backward()", ["net", "optimizer"]),
        ("net(torch.ones(1, 2)).sum().backward()\noptimizer.step()", ["net", "optimizer"]),
        ("torch.optim.Adam(net.parameters())", []),
    ],
)
def test_a_backward_pass_or_optimizer_step_changes_its_model_and_optimizer_and_no_other_model(
    code: str, changed: list[str]
) -> None:
    found, *_ = changes(TRAINED, code)
    assert sorted([*found.values()][-1]) == changed


def test_recording_which_objects_change_alters_no_result_no_print_and_no_future_import() -> None:
    future = "from __future__ import annotations\ndef f(x: Unknown): return x\nf(2)"
    found, printed, results = changes(future, "print(f(3)); f(4)", "%timeit -n 1 -r 1 f(5)")
    assert results == [2, 4, None]
    assert printed[1].startswith("3\n") and "per loop" in printed[2]
    assert found["1:2"] == ["f"] and found["3:1"] == []


def test_changes_are_stored_by_the_number_of_the_statement_even_after_shell_commands() -> None:
    found, *_ = changes("\n\na = 1\n!true \\\n  -x\nb = 2")
    assert found == {"1:1": ["a"], "1:2": [], "1:3": ["b"]}


def test_changes_made_by_a_cell_magic_belong_to_its_cell_and_not_to_the_next_one() -> None:
    found, *_ = changes("%%capture\na = 1\nb = 2", "c = 3")
    assert found == {"1:1": ["a", "b"], "2:1": ["c"]}
