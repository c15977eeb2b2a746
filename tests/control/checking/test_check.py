"""The command `check`: a notebook that is sound holds, and each planted fault is found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweeper.cli import main
from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

PARAMETERS = "x = 0.5\nsize = 1\nepochs = 3\nseed = 0"
SOUND = """
import random, time
import sweeper
rng = random.Random(seed)
state = sweeper.load_checkpoint()
first, total = (0, 0.0) if state is None else (state["step"] + 1, state["total"])
draws = [rng.random() for _ in range(epochs)]
for step in range(first, epochs):
    total += draws[step] * x + size
    sweeper.report(step, val=total)
    sweeper.save_checkpoint(step=step, total=total)
    time.sleep(0.3)
"""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What the command has printed and returned."""

    code: int
    printed: str
    result: dict[str, Any]

    def finding(self, name: str) -> dict[str, Any]:
        return next(it for it in self.result["findings"] if it["name"] == name)

    @property
    def faults(self) -> list[str]:
        return [it["name"] for it in self.result["findings"] if it["holds"] is False]


def checked(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *cells: str,
    flags: tuple[str, ...] = (),
    more: str = "",
    parameters: str = PARAMETERS,
) -> Checked:
    notebook = write_notebook(folder / "a notebook.ipynb", *cells, parameters=parameters)
    file = folder / "study.yml"
    file.write_text(
        "objective: {val: maximize}\nspace: {x: {low: 0.0, high: 1.0}, size: [1, 2, 4]}\n" + more
    )
    output = f"{folder}/out/{{run_id}}.ipynb"
    words = ["check", "--json", "-i", str(notebook), "-p", str(file), "-o", output, *flags]
    code = main(words)
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    return Checked(code=code, printed=captured.err, result=json.loads(lines[-1]) if lines else {})


def test_a_sound_notebook_holds_in_every_respect_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = checked(
        tmp_path,
        capsys,
        SOUND,
        more="study: {trials: 10}\ncost: {price_per_hour: 3600}\n",
        flags=("-j", "2"),
    )
    assert found.faults == [], found.printed
    assert found.code == 0
    assert found.result["holds"] is True
    names = ["score", "repeats", "warm kernels", "seed", "params", "checkpoints", "memory"]
    assert {name: found.finding(name)["holds"] for name in names} == dict.fromkeys(names, True)
    assert "goes on from its checkpoint" in found.finding("checkpoints")["text"]
    forecast = found.result["forecast"]
    assert (forecast["trials"], forecast["at_once"]) == (10, 2)
    assert 4 < forecast["duration_s"] < 60  # five after one another, 0.9 s each at least
    assert forecast["cost"] == pytest.approx(forecast["duration_s"])
    assert f"all {len(found.result['findings'])} checks hold" in found.printed
    assert not (tmp_path / "out").exists()
    assert [it.name for it in tmp_path.iterdir()] == ["a notebook.ipynb", "study.yml"]


def test_smoke_values_make_the_runs_quick_and_one_runs_at_full_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = ("import time", "time.sleep(0.05 * epochs); val = x * epochs")
    more = "smoke: {epochs: 1}\nfixed: {epochs: 80}\nstudy: {trials: 5}\n"
    found = checked(tmp_path, capsys, *cells, more=more)
    assert "full length" in found.printed
    # Four seconds, of which a kernel that boots slowly takes nothing; 0.05 s in the quick runs.
    assert 1.5 < found.result["forecast"]["trial_s"] < 30
    assert found.finding("seed")["holds"] is False  # the seed is injected, and nothing uses it


@pytest.mark.parametrize(
    ("cell", "name", "words"),
    [
        ("acc = x", "runs", "never gave val"),
        ("import random; random.seed(seed); val = random.random()", "params", "is the same for 4"),
        (
            "val = float('nan') if size == 4 else x + seed",
            "runs",
            "the largest sizes (x=0.5, size=4)",
        ),
        ("val = x + seed + float(open('data.csv').read())", "runs", "data.csv"),
        ("val = float(input('learning rate? '))", "runs", "input"),
        (SOUND.replace('state["total"]', "0.0"), "checkpoints", "goes on to another score"),
    ],
)
def test_a_planted_fault_is_found_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str, name: str, words: str
) -> None:
    found = checked(tmp_path, capsys, cell)
    assert found.code == 1
    assert name in found.faults
    finding = found.finding(name)
    assert words in finding["text"]
    assert finding["remedy"]
    assert "✗" in found.printed


def test_a_notebook_that_does_not_repeat_is_told_to_seed_its_generators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = checked(tmp_path, capsys, "import random\nval = x + seed + random.random()")
    assert found.faults == ["repeats"]
    assert "seed" not in {it["name"] for it in found.result["findings"]}, "it shows nothing"
    assert found.finding("not judged")["remedy"]
    assert "sweeper.seed_everything(seed)" in found.finding("repeats")["remedy"]


def test_a_storage_that_cannot_be_reached_is_found_and_its_password_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--dry-run", "--storage", "postgresql+psycopg://me:secret@127.0.0.1:9/studies")
    found = checked(tmp_path, capsys, "val = x", flags=flags)
    assert (found.code, found.faults) == (1, ["storage"])
    assert "127.0.0.1:9" in found.finding("storage")["text"]
    assert "secret" not in found.printed


def test_a_server_that_is_off_is_found_before_any_kernel_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--dry-run", "--tracking-uri", "http://127.0.0.1:9")
    found = checked(tmp_path, capsys, "val = x", flags=flags)
    assert (found.code, found.faults) == (1, ["mlflow"])
    assert "127.0.0.1:9" in found.finding("mlflow")["text"]
    assert found.result["forecast"] is None
    assert "typical" not in found.printed


def test_a_remote_copy_that_cannot_be_reached_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "sync: sftp://nobody@127.0.0.1:9/copies\n"
    found = checked(tmp_path, capsys, "val = x", flags=("--dry-run",), more=more)
    if found.code == 2:  # fsspec needs a package for this scheme
        assert "sync" in found.printed
    else:
        assert found.faults == ["sync"]


@pytest.mark.parametrize(
    ("more", "parameters", "message"),
    [
        ("smoke: {epoch: 1}\n", PARAMETERS, "smoke: 'epoch' is not assigned"),
        ("", "x = 0.5", "'size' is not assigned in the parameters cell"),
    ],
)
def test_a_wrong_call_is_refused_with_one_message(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: str,
    parameters: str,
    message: str,
) -> None:
    found = checked(tmp_path, capsys, "val = x", more=more, parameters=parameters)
    assert found.code == 2
    assert message in found.printed
    assert len(found.printed.strip().splitlines()) == 1


def test_a_kernel_that_is_not_installed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = checked(tmp_path, capsys, "val = x", flags=("-k", "nowhere"))
    assert found.code == 2
    assert "the kernel 'nowhere' is not installed" in found.printed
