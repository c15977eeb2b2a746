"""Printed numbers are read as a person reads them, or are no numbers."""

from __future__ import annotations

import re

import pytest

from sweeper.notebook_api.messages import encode_float
from sweeper.settings.printed_numbers import read_number, without_codes

#: What stands in the text behind `loss=`, and the number that a person reads there.
READ = {
    "0.31": 0.31,
    "0.31.": 0.31,
    "0.31...": 0.31,
    "0.31,": 0.31,
    "+0.5": 0.5,
    "-0.5": -0.5,
    "\u22120.5": -0.5,
    ".5": 0.5,
    "-.5": -0.5,
    "5.": 5.0,
    "8,453": 8453.0,
    "1,234.5": 1234.5,
    "-1,234,567.25": -1234567.25,
    "1_000": 1000.0,
    "1\u202f234,": 1234.0,
    "1.2e+05": 1.2e5,
    "1.3E-4": 1.3e-4,
    "1e\u22125": 1e-5,
    "1.2e5.": 1.2e5,
    "93.4%": 93.4,
    "inf": float("inf"),
    "-inf": float("-inf"),
    "Infinity": float("inf"),
    "nan": float("nan"),
    "NaN,": float("nan"),
    "-nan(ind)": float("nan"),
    "tensor(0.31)": 0.31,
    "tensor(0.31, device='cuda:0')": 0.31,
    "tensor(-1.2e-3, grad_fn=<NllLossBackward0>)": -1.2e-3,
    "tensor([0.31])": 0.31,
    "np.float64(0.31)": 0.31,
    "Array(0.31, dtype=float32)": 0.31,
    "Decimal('0.31')": 0.31,
    "[0.31]": 0.31,
    "(0.31)": 0.31,
    '"0.31"': 0.31,
    "**0.31**": 0.31,
    "$8,453.20": 8453.2,
    "0.31s": 0.31,
    "12ms": 12.0,
    "1.5k": 1500.0,
    "2M,": 2e6,
    "0.31\u00b10.02": 0.31,
    "0.31+/-0.02": 0.31,
    "0.31|acc=0.9": 0.31,
}
NO_NUMBERS = (
    "n/a None -- ? 1.2.3 192.168.1.1 3/10 12:30 2026-11-26 12h30m 0x1F 1e 1.2D+05 1+2j 0,31 "
    "1.234,56 1,23,456 [0.31, (3, 1.5e 1e5.3 1.2\u00d710\u207b\u2075 1.2*10^5 3B 1_2 sqrt(2) "
    "acc=1 <0.001 --0.5 5,120,0.3"
).split()


def numbers(pattern: str, text: str) -> list[float | None]:
    found = [read_number(match) for match in re.finditer(pattern, text)]
    return [reading.value for reading in found if reading is not None]


@pytest.mark.parametrize("text", READ)
def test_a_number_is_read_as_a_person_reads_it(text: str) -> None:
    (value,) = numbers(r"loss=(\S+)", f"epoch 3, loss={text} acc=0.9")
    assert value is not None
    assert encode_float(value) == encode_float(READ[text])


@pytest.mark.parametrize("text", [*NO_NUMBERS, "0m 7s", "1min 54s", "00h 12m 17s"])
def test_what_is_no_number_or_can_be_read_in_two_ways_is_none(text: str) -> None:
    assert numbers(r"loss=(\S+)", f"epoch 3, loss={text} acc=0.9") == [None]


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        # The group takes less than the number that begins there.
        (r"loss=([0-9.]+)", "loss=1.2e+05", 1.2e5),
        (r"loss=([0-9]+)", "loss=8,453", 8453.0),
        (r"loss=(\d)", "loss=0.31", 0.31),
        (r"loss=([0-9.]+)", "loss=0,31", None),
        (r"loss: ([0-9.]+)", "loss: 5.2k", 5200.0),
        # Something that matches everything has taken the sign; a sign that is asked for is meant.
        (r"loss\D*([0-9.]+)", "loss: -0.31", -0.31),
        (r"loss.*?([0-9.]+)", "loss \u22120.31", -0.31),
        (r"val.*?([0-9.]+)", "val-0.31", 0.31),
        (r"loss=-?([0-9.]+)", "loss=-0.31", -0.31),
        (r"loss=-([0-9.]+)", "loss=-0.31", 0.31),
        (r"epoch-([0-9]+)", "epoch-3", 3.0),
        # The group begins inside of a number: it means that part.
        (r"\d\.(\d+)", "0.25", 25.0),
        (r"e-(\d+)", "1e-05", 5.0),
        # What stands behind the group belongs to the pattern.
        (r"epoch (\d+)/", "epoch 3/10", 3.0),
        (r"Accuracy: (\d+)", "Accuracy: 9500/10000 (95%)", 9500.0),
        (r"^\d+,([0-9.]+)", "3,0.31,0.9", 0.31),
        (r"^\d+,(\d+),", "5,120,0.31", 120.0),
        (r"^(\d+),", "3,0.31,0.9", 3.0),
        (r"\((\d+),", "(128,256)", None),
        (r"([\d ]+) samples", "8 453 samples", 8453.0),
        (r"^(\d+)", "8 453", 8.0),
    ],
)
def test_a_pattern_selects_a_place(pattern: str, text: str, value: float | None) -> None:
    assert numbers(pattern, text) == [value]


def test_a_group_without_a_part_in_the_match_has_no_reading() -> None:
    assert numbers(r"loss=([0-9.]+)?", "loss=") == []


def test_codes_of_a_terminal_are_not_seen() -> None:
    assert without_codes("\x1b[1mloss\x1b[0m: \x08\x08\x1b[38;5;2m0.31\x1b[0m") == "loss: 0.31"


def test_reading_a_long_line_takes_time_in_proportion_to_its_length() -> None:
    for text in ("1" * 20_000, "1,234" * 4_000, "1 " * 10_001, "tensor(" * 3_000, "-" * 20_000):
        assert len(numbers(r"(\S)", text)) > 10_000
    assert numbers(r"(.+)", " " * 100_000) == [None]
