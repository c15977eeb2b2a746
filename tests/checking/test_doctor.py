"""Test the description of a machine for bug reports."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest

from sweeper.checking.doctor import description
from sweeper.cli import main


def test_doctor_states_versions_kernels_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [line.partition(": ")[0] for line in lines] == [*found]
    assert found["Python"] == f"{platform.python_version()}, {sys.executable}"
    assert "optuna" in found["libraries"]
    assert "ipykernel" in found["kernel python3"]
    assert "GB are free" in found["memory"]


def test_doctor_says_of_a_broken_kernel_that_it_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "kernels" / "broken"
    kernel.mkdir(parents=True)
    argv = ["/nowhere/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "broken", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert dict(description())["kernel broken"] == "/nowhere/python does not answer as Python"
