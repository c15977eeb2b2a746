"""Test the page's scripts without a browser. Skip without node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sweeper.page.pages import ASSETS

NODE = shutil.which("node")
TSC = shutil.which("tsc")
OWN = sorted(path for path in ASSETS.glob("*.js") if path.name != "echarts.min.js")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node")


#: A program for node that answers each line of its input, a JSON text. The answer to an expression
#: about `numbers` and `scales` is its value. The answer to the path of a script is null if node can
#: parse the script, and otherwise an error.
ANSWERING = """
const vm = require('vm'), fs = require('fs');
for (const file of FILES) vm.runInThisContext(fs.readFileSync(file, 'utf8'));
const answers = {
  value: (expression) => vm.runInThisContext(expression),
  parse: (file) => { new vm.Script(fs.readFileSync(file, 'utf8')); return null; },
};
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  let answer;
  try {
    const [what, text] = JSON.parse(line);
    answer = { answer: answers[what](text) };
  } catch (error) {
    answer = { error: String(error) };
  }
  console.log(JSON.stringify(answer));
});
"""


@cache
def node() -> subprocess.Popen[str]:
    """Start node once, because each start takes 0.1 s."""
    files = json.dumps([str(ASSETS / name) for name in ("format.js", "scales.js")])
    program = ANSWERING.replace("FILES", files)
    pipe = subprocess.PIPE
    return subprocess.Popen([str(NODE), "-e", program], stdin=pipe, stdout=pipe, text=True)


@pytest.fixture(scope="module", autouse=True)
def _node_ends() -> Iterator[None]:
    yield
    if node.cache_info().currsize:
        node().communicate(timeout=60)
        node.cache_clear()


def ask_node(what: str, text: str) -> Any:
    """Send a request to the program `ANSWERING` in node. Return its answer, or fail with its error.

    Args:
        what: `value` to evaluate an expression, `parse` to check that a script can be parsed.
        text: The expression, or the path of the script.
    """
    process = node()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps([what, text]) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert "error" not in answer, answer["error"]
    return answer["answer"]


def answer(expression: str) -> Any:
    """Return the value of a JavaScript expression that uses the page's `numbers` and `scales`."""
    return ask_node("value", expression)


@needs_node
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-4, "1e-4"),
        (0.000241234, "2.41e-4"),
        (0.49712, "0.497"),
        (0.001, "0.001"),
        (65536, "65536"),
        (1e5, "1e5"),
        (1234.567, "1235"),
        (-3.14159, "-3.14"),
        (0, "0"),
        ("adam", "adam"),
    ],
)
def test_the_page_rounds_fractions_to_three_significant_digits_or_to_four_above_1000(
    value: object, text: str
) -> None:
    assert answer(f"numbers.text({json.dumps(value)})") == text


@needs_node
def test_a_mean_is_written_with_as_many_decimals_as_the_half_width_of_its_interval() -> None:
    assert answer("numbers.withInterval(0.49712, 0.03012)") == "0.497 ± 0.030"
    assert answer("numbers.withInterval(1234.5, 12.3)") == "1235 ± 12"
    assert answer("numbers.withInterval(2.41234e-4, 1.2345e-5)") == "2.41e-4 ± 1.2e-5"


@needs_node
def test_scores_in_a_column_have_equal_decimals_and_round_params_stay_as_written() -> None:
    scores = [0.98712, 0.98734, 0.9871, 0.9902]
    assert answer(f"{scores}.map(numbers.formatOf({scores}))") == [
        "0.98712",
        "0.98734",
        "0.98710",
        "0.99020",
    ]
    assert answer("[0.1, 0.25, 16].map(numbers.formatOf([0.1, 0.25, 16]))") == ["0.1", "0.25", "16"]
    assert answer("numbers.formatOf([1.234, 2.345, 3.456])(1e-7)") == "1e-7"


@needs_node
def test_the_numbers_of_a_logarithmic_column_have_the_same_significant_digits() -> None:
    rates = [0.04, 0.0312345, 0.00024, 2.4e-5, 0.5]
    assert answer(f"{rates}.map(numbers.formatOf({rates}, true))") == [
        "0.0400",
        "0.0312",
        "2.40e-4",
        "2.40e-5",
        "0.500",
    ]
    assert answer("[16, 1024].map(numbers.formatOf([16, 1024], true))") == ["16", "1024"]


@needs_node
def test_ticks_are_round_and_within_the_axis() -> None:
    assert answer("numbers.ticks(0.8123, 0.9312)") == [0.82, 0.84, 0.86, 0.88, 0.9, 0.92]
    assert answer("numbers.ticks(1, 4, 6, true)") == [1, 2, 3, 4]
    assert answer("numbers.logTicks(1e-5, 0.1)") == [1e-5, 1e-4, 1e-3, 0.01, 0.1]
    assert answer("numbers.tickTexts([0.5, 1e-4])") == ["0.5", "1e-4"]
    assert answer("numbers.tickTexts([-1234570, -1234571])") == ["-1234570", "-1234571"]
    assert answer("numbers.logTicks(0.012, 0.06)") == [0.02, 0.03, 0.04, 0.05, 0.06]


@needs_node
def test_an_axis_has_its_ticks_at_the_values_of_trials_if_these_are_few() -> None:
    trials = "[16, 32, 128, 32].map((v) => ({ v }))"
    column = "{ of: (t) => t.v, isLog: true }"
    labels = f"((s) => s.ticks.map(s.label))(scales.of({column}, {trials}))"
    assert answer(labels) == ["16", "32", "128"]


@needs_node
def test_an_outlier_does_not_stretch_an_axis() -> None:
    assert answer("numbers.ends([1, 2, 3, 4, 5, 6, 7, 8, 9, 1e8])") == [1, 9]


@needs_node
def test_the_sideways_spread_of_a_trials_point_depends_only_on_its_run_id() -> None:
    spread = answer("['0001', '0002', '0003', '0001'].map(scales.jitter)")
    assert spread[0] == spread[3]
    assert len(set(spread)) == 3
    assert all(-0.5 <= place <= 0.5 for place in spread)


@needs_node
def test_a_box_plot_has_quartiles_and_whiskers_that_end_before_outliers() -> None:
    box = answer("scales.box([1, 2, 3, 4, 5, 100])")
    assert (box["first"], box["middle"], box["third"], box["high"]) == (2.25, 3.5, 4.75, 5)


@needs_node
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_each_script_of_the_page_can_be_parsed(path: Path) -> None:
    assert ask_node("parse", str(path)) is None


@pytest.mark.slow
@pytest.mark.skipif(TSC is None, reason="needs tsc: npm install --global typescript")
def test_the_pages_scripts_use_only_names_and_types_that_exist() -> None:
    done = subprocess.run(
        [str(TSC), "-p", str(Path(__file__).parent)], capture_output=True, text=True
    )
    assert done.stdout == ""
