"""Kernels of other languages get parameters and the environment of a trial."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import nbformat
import pytest
from kernels_alone import install_kernel, kernel_pool, run_alone

from sweeper.kernels import Finished, inject, language_of
from sweeper.testing import write_notebook

#: A kernel for bash that keeps variables: each cell runs after all earlier cells.
KERNEL = """
import subprocess
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

class Bash(Kernel):
    implementation, implementation_version, banner = "bash", "1", ""
    language_info = {"name": "bash", "mimetype": "text/x-sh", "file_extension": ".sh"}
    before = ""

    def do_execute(self, code, silent, store_history=True, user_expressions=None, **options):
        script = "{ " + self.before + ":; } > /dev/null\\n" + code
        env = {**os.environ, "TRANSPORT": self.parent.transport}
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env)
        self.before += code + "\\n"
        if not silent:
            self.send_response(self.iopub_socket, "stream", {"name": "stdout", "text": done.stdout})
        count = self.execution_count
        return {"status": "ok", "execution_count": count, "payload": [], "user_expressions": {}}

import os
IPKernelApp.launch_instance(kernel_class=Bash)
"""


@pytest.mark.parametrize(
    ("language", "source"),
    [
        # IRkernel's kernelspec spells its language R in upper case.
        ("R", "# Parameters\nx = 1.5\n"),
        ("julia", "# Parameters\nx = 1.5\n"),
        ("bash", "# Parameters\nx=1.5\n"),
        ("scala", "// Parameters\nval x = 1.5\n"),
    ],
)
def test_parameters_are_assigned_in_the_kernels_language(
    language: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_kernel(tmp_path, monkeypatch, "other", ["kernel"], language=language)
    node = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("first", metadata={"tags": []})]
    )
    injected = inject(node, {"x": 1.5}, kernel_name="other", language=language_of("other"))
    assert injected.cells[0].source == source


def test_a_kernelspec_may_spell_its_language_python_in_upper_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_kernel(tmp_path, monkeypatch, "other", ["python"], language="Python 3")
    assert language_of("other") == "python"


@pytest.mark.kernel
@pytest.mark.parametrize(
    # Kernels in other languages may not support Unix sockets. A script may start any kernel, so it
    # gets TCP.
    ("starter", "transport"),
    [("interpreter", "ipc"), ("script", "tcp")],
)
def test_a_kernel_of_another_language_is_started_in_the_environment_of_its_trial(
    starter: str, transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    argv = [sys.executable, str(tmp_path / "kernel.py"), "-f", "{connection_file}"]
    if starter == "script":
        script = tmp_path / "start"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(argv[:2])} "$@"\n')
        script.chmod(0o755)
        argv[:2] = [str(script)]
    install_kernel(tmp_path, monkeypatch, "other", argv, language="bash")
    source = write_notebook(tmp_path / "nb.ipynb", "echo $x $MINE $TRANSPORT", parameters="x=1")
    with kernel_pool(tmp_path, imports=None, kernelspec="other") as pool:
        for number in range(2):
            node, result = run_alone(
                source,
                pool,
                own={"x": number},
                env={"MINE": f"of trial {number}"},
                prepares_next=number == 0,
            )
            assert result.ending == Finished()
            (output,) = node.cells[-1].outputs
            assert output.text == f"{number} of trial {number} {transport}\n"
