"""What a notebook's code says of the processes that its trials start."""

from __future__ import annotations

import pytest

from sweeper.execution.workload import loader_workers


@pytest.mark.parametrize(
    ("code", "workers"),
    [
        ("loader = DataLoader(data, batch_size=64, num_workers=4)", 4),
        ("seeded_loader(data, num_workers = 2)", 2),
        ("TrainingArguments(dataloader_num_workers=4)", 4),
        ("num_workers = 2", 2),
        ('options = {"num_workers": 2}', 2),
        ("DataLoader(data, num_workers=os.cpu_count())", 1),
        ("DataLoader(data, num_workers=n)", 1),
        ("DataLoader(a, num_workers=2)\nDataLoader(b, num_workers=3)", 3),
        ("DataLoader(data, num_workers=0)", 0),
        ("num_workers =  0", 0),
        ("# DataLoader(data, num_workers=4)", 0),
        ("DataLoader(data)", 0),
    ],
)
def test_the_workers_of_loaders_are_known_from_the_code(code: str, workers: int) -> None:
    assert loader_workers(["x = 1", code], {}) == workers


def test_a_stated_value_replaces_that_of_the_code() -> None:
    code = ["num_workers = 2", "DataLoader(data, num_workers=num_workers)"]
    assert loader_workers(code, {}) == 2
    assert loader_workers(code, {"num_workers": 8}) == 8
    assert loader_workers(code, {"num_workers": 0}) == 0
    assert loader_workers(["DataLoader(data, num_workers=n)"], {"n": 3}) == 3
