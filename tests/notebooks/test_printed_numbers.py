"""Test that printed numbers are read as a person reads them, and that other text is no number."""

from __future__ import annotations

import pytest

from sweeper.notebook_api.messages import encode_float
from sweeper.notebooks.printed_numbers import read_number, read_numbers, without_codes
from sweeper.settings.patterns import compile_pattern, find_all

#: Text after `loss=`, and the number that a person reads there.
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
#: Texts from outputs of public notebooks of 30 repositories, and the number in each. The last
#: thirty were collected when all others were read correctly, as an independent check.
PUBLIC = {
    "1.3443e-05": 1.3443e-05,
    "0',": 0.0,
    "1,728,700,416": 1728700416.0,
    "8...": 8.0,
    "6.59s": 6.59,
    "$15.80": 15.8,
    "9512c20b": None,
    "65.93073010260979,": 65.93073010260979,
    "8.0582/-1.9775": None,
    "-0.8831551664489491]": -0.8831551664489491,
    "85,798,656": 85798656.0,
    "[0,": None,
    "0.8171": 0.8171,
    "645us": 645.0,
    "$336.22.": 336.22,
    "1.3752:": 1.3752,
    "(25%).": 25.0,
    "{2018-10-11T11:43:28.000+0200},": None,
    "0.7392/0.6906": None,
    "00:01:52": None,
    "1837(32)": 1837.0,
    "9.02E-03": 0.00902,
    "8.943558e-05,": 8.943558e-05,
    "+0.00,": 0.0,
    "2),": 2.0,
    "-0.0572,": -0.0572,
    "-1.7154e+05": -171540.0,
    "0']": 0.0,
    "-0.0810/0.0006": None,
    "75.33%": 75.33,
    "237\\nvalue": 237.0,
    "4,": 4.0,
    "$540,": 540.0,
    "15:58:41": None,
    "57}": 57.0,
    "0.0070,": 0.007,
    "[7.11012816e+01": None,
    "[0.06925339958244801]": 0.06925339958244801,
    "nan,": float("nan"),
    "95.4.": 95.4,
    "-27914.": -27914.0,
    "0.9598047137260437},": 0.9598047137260437,
    "0.0000e+00": 0.0,
    "0.95,\\nMAPE($y,\\\\hat{y}$)": 0.95,
    "$22,000.00": 22000.0,
    "1.4176...": 1.4176,
    "48,190,600": 48190600.0,
    "-5.2693": -5.2693,
    "[[429.45764867": None,
    "669,706.0": 669706.0,
    "94/130=0.72": None,
    "84.3%": 84.3,
    "nan": float("nan"),
    "79,510": 79510.0,
    "88.87%,": 88.87,
    "[10000],": 10000.0,
    "[1,": None,
    "5.5e-03": 0.0055,
    "2019)": 2019.0,
}
NO_NUMBERS = (
    "n/a None -- ? 1.2.3 192.168.1.1 3/10 12:30 2026-11-26 12h30m 0x1F 1e 1.2D+05 1+2j 0,31 "
    "1.234,56 1,23,456 [0.31, (3, 1.5e 1e5.3 1.2\u00d710\u207b\u2075 1.2*10^5 3B 1_2 sqrt(2) "
    "acc=1 <0.001 --0.5 5,120,0.3"
).split()


def numbers(pattern: str, text: str) -> list[float | None]:
    return [reading.value for reading in read_numbers(compile_pattern(pattern), text)]


@pytest.mark.parametrize("text", READ)
def test_a_number_is_read_as_a_person_reads_it(text: str) -> None:
    (value,) = numbers(r"loss=(\S+)", f"epoch 3, loss={text} acc=0.9")
    assert value is not None
    assert encode_float(value) == encode_float(READ[text])


@pytest.mark.parametrize("text", PUBLIC)
def test_numbers_of_public_notebooks_are_read_as_a_person_reads_them(text: str) -> None:
    (value,) = numbers(r"loss: (\S+)", f"epoch 3 loss: {text} - acc: 0.9")
    expected = PUBLIC[text]
    assert repr(value) == repr(expected)


@pytest.mark.parametrize("text", [*NO_NUMBERS, "0m 7s", "1min 54s", "00h 12m 17s"])
def test_text_that_is_not_a_number_or_is_ambiguous_has_no_value(text: str) -> None:
    assert numbers(r"loss=(\S+)", f"epoch 3, loss={text} acc=0.9") == [None]


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        # The group matches only the beginning of a number. The whole number is read.
        (r"loss=([0-9.]+)", "loss=1.2e+05", 1.2e5),
        (r"loss=([0-9]+)", "loss=8,453", 8453.0),
        (r"loss=(\d)", "loss=0.31", 0.31),
        (r"loss=([0-9.]+)", "loss=0,31", None),
        (r"loss: ([0-9.]+)", "loss: 5.2k", 5200.0),
        # A sign belongs to the number if a wildcard matched it, and not if the pattern states it.
        (r"loss\D*([0-9.]+)", "loss: -0.31", -0.31),
        (r"loss.*?([0-9.]+)", "loss \u22120.31", -0.31),
        (r"val.*?([0-9.]+)", "val-0.31", 0.31),
        (r"loss=-?([0-9.]+)", "loss=-0.31", -0.31),
        (r"loss=-([0-9.]+)", "loss=-0.31", 0.31),
        (r"loss=[-]([0-9.]+)", "loss=-0.31", 0.31),
        (r"loss -\s*([0-9.]+)", "loss -0.31", 0.31),
        (r"epoch-([0-9]+)", "epoch-3", 3.0),
        # The group begins inside of a number, so only the rest of that number is read.
        (r"\d\.(\d+)", "0.25", 25.0),
        (r"e-(\d+)", "1e-05", 5.0),
        # Text that the pattern states after the group is not part of the number.
        (r"epoch (\d+)/", "epoch 3/10", 3.0),
        (r"Gen/Dis Loss: ([-0-9.]+)", "Gen/Dis Loss: 8.0582/-1.9775", 8.0582),
        (r"Time ([0-9.]+)", "Time 00:01:52", None),
        (r"Time (\d+):", "Time 00:01:52", 0.0),
        (r"Accuracy: (\d+)", "Accuracy: 9500/10000 (95%)", 9500.0),
        (r"^\d+,([0-9.]+)", "3,0.31,0.9", 0.31),
        (r"^\d+,(\d+),", "5,120,0.31", 120.0),
        (r"^(\d+),", "3,0.31,0.9", 3.0),
        (r"\((\d+),", "(128,256)", None),
        (r"([\d ]+) samples", "8 453 samples", 8453.0),
        (r"^(\d+)", "8 453", 8.0),
    ],
)
def test_the_group_of_a_pattern_decides_where_a_number_begins_and_it_is_read_to_its_end(
    pattern: str, text: str, value: float | None
) -> None:
    assert numbers(pattern, text) == [value]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"loss=([0-9.eE+-]+)", "val_loss=nan acc=0.1", ["nan"]),
        (r"loss=(\d+\.\d+)", "loss=NaN", ["nan"]),
        (r"loss: ([-\d.]+)", "loss: -inf", ["-inf"]),
        (r"loss\D*([\d.]+)", "loss: -Infinity, acc: 0.5", ["-inf"]),
        (r"loss=tensor\(([\d.]+)", "loss=tensor(nan, device='cuda:0')", ["nan"]),
        (r"([\d.]+)", "0.5 nan inf", ["0.5", "nan", "inf"]),
        (r"nan: (\d+)", "nan: 3", ["3.0"]),
        (r"\binf: ([\d.]+)", "inf: 3.5 ms", ["3.5"]),
        (r"loss=([\d.]+|nan)", "loss=nan loss=0.5", ["nan", "0.5"]),
        (r"loss=([\d.]+)", "loss=nano loss=info loss=n_inf", []),
        (r"loss.*?([\d.]+)", "nan-safe loss, nan-safe: 0.5", ["0.5"]),
    ],
)
def test_nan_and_infinity_are_read_even_if_a_pattern_matches_only_digits(
    pattern: str, text: str, expected: list[str]
) -> None:
    assert [*map(repr, numbers(pattern, text))] == expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"r2=([0-9.]+)", "r2=-0.31", [-0.31]),
        (r"r2=([0-9.]+)", "r2=-.5 r2=+0.5 r2=\u22121.2e-3", [-0.5, 0.5, -1.2e-3]),
        (r"loss=([\d.]+)", "loss=-inf", [float("-inf")]),
        (r"loss=tensor\(([\d.]+)", "loss=tensor(-0.31)", [-0.31]),
        (r"([\d.]+)", "0.5 -0.25 1e-3 --- 2026-11-26", [0.5, -0.25, 1e-3, 2026.0, 11.0, 26.0]),
        (r"([\d.]+)", "0.31+/-0.02", [0.31, 0.02]),
        (r"loss - ([\d.]+)", "loss - 0.5", [0.5]),
        (r"- loss: ([\d.]+)", "1s - loss: 0.5 - loss: -0.5", [0.5, -0.5]),
        (r"loss -> ([\d.]+)", "loss -> -0.5", [-0.5]),
        (r"loss ([\d.]+)", "loss - 0.5", []),
        (r"change \+([\d.]+)", "change +0.5 change -0.5", [0.5]),
        (r"change [+]([\d.]+)", "change +0.5 change -0.5", [0.5]),
        (r"r2=(\d\.\d{4}),", "r2=-0.3100,", [-0.31]),
        (r"(\d\.\d+)", "0.5 -0.25", [0.5, -0.25]),
        (r"r2.*?\b(\d+)", "r2: -3", [-3.0]),
        (r"r2=(?P<r2>\d|[\d.]+)", "r2=-0.31", [-0.31]),
        (r"- r2: ([\d.]+)", "loss: 0.5 - r2: -0.31", [-0.31]),
        (r"\[epoch \d+\] r2=([\d.]+)", "[epoch 3] r2=-0.31", [-0.31]),
        (r"(?<=[(])(?:r2=)([\d.]+)[)]", "(r2=-0.31)", [-0.31]),
        (r"r2=(?!-)([\d.]+)", "r2=-0.31", []),
        (r"(?<=r2=-)([\d.]+)", "r2=-0.31", [0.31]),
        (r"r2=([+-][\d.]+)", "r2=-0.31", [-0.31]),
        (r"^.{7} *([\d.]+)", "-0.5000  0.31", [0.31]),
        (r"([\d.]+)%", "80%-90%", [80.0, 90.0]),
    ],
)
def test_the_sign_of_a_number_is_read_even_if_a_pattern_matches_only_digits(
    pattern: str, text: str, expected: list[float]
) -> None:
    assert numbers(pattern, text) == expected


def test_a_pattern_whose_optional_group_matches_nothing_gives_no_number() -> None:
    assert numbers(r"loss=([0-9.]+)?", "loss=") == []


def test_escape_codes_of_terminals_are_removed_from_printed_text() -> None:
    assert without_codes("\x1b[1mloss\x1b[0m: \x08\x08\x1b[38;5;2m0.31\x1b[0m") == "loss: 0.31"


def test_the_time_to_read_a_line_is_proportional_to_its_length() -> None:
    for text in ("1" * 20_000, "1,234" * 4_000, "1 " * 10_001, "tensor(" * 3_000, "-" * 20_000):
        matches = find_all(compile_pattern(r"(\S)"), text)
        assert len([read_number(match, text) for match in matches]) > 10_000
    assert numbers(r"(.+)", " " * 100_000) == [None]


@pytest.mark.parametrize(
    "pattern", [r"a(\d+", r"\p{L}(\d+)", r"(?:loss){e<=1}=(\d+)", "([[:digit:]]+)"]
)
def test_a_pattern_that_the_libraries_re_and_regex_understand_differently_is_refused(
    pattern: str,
) -> None:
    with pytest.raises(ValueError):
        compile_pattern(pattern)
    assert compile_pattern(r"\{e\}: {loss} x{2,3} (\d+)").groups == 1
