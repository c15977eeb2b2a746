"""Kernels of other languages: parameters, the environment of a trial, and kernels booted ahead."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from kernels_alone import kernel_pool, run_alone
from studies import until

from sweeper.kernels import Ending, inject, language_of
from sweeper.kernels.trial_environment import environment_code
from sweeper.testing import write_notebook

#: A kernel for bash, in which variables last: each cell runs after all earlier ones.
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
open(f"booted {os.getpid()}", "w").close()
IPKernelApp.launch_instance(kernel_class=Bash)
"""


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, argv: list[str], language: str
) -> None:
    """Install a kernelspec `other`."""
    spec = folder / "jupyter" / "kernels" / "other"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "other", "language": language})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "jupyter"))


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("R", "# Parameters\nx = 1.5\n"),  # as the kernelspec of IRkernel spells it
        ("julia", "# Parameters\nx = 1.5\n"),
        ("bash", "# Parameters\nx=1.5\n"),
        ("scala", "// Parameters\nval x = 1.5\n"),
    ],
)
def test_parameters_are_assigned_in_the_kernels_language(
    language: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, argv=["kernel", "{connection_file}"], language=language)
    node = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("first", metadata={"tags": []})]
    )
    injected = inject(node, {"x": 1.5}, kernel_name="other", language=language_of("other"))
    assert injected.cells[0].source == source


VALUES = {
    "PLAIN": "0,1",
    "JSON": json.dumps({"a": ["it's", 'a "b"', "$HOME", "`id`", "é 🎲", "back\\slash", "%s"]}),
    "LINES": "a\n b\t",
    "EMPTY": "",
}


@pytest.mark.parametrize("language", ["bash", "python"])
def test_the_environment_of_a_trial_is_set_whatever_its_values(language: str) -> None:
    code = environment_code(language, VALUES)
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    show = shlex.join([sys.executable, "-c", program])
    scripts = {"bash": f"{code}\n{show}", "python": f"{code}\nimport os; os.system({show!r})"}
    interpreter = {"bash": "bash", "python": sys.executable}[language]
    done = subprocess.run(
        [interpreter, "-c", scripts[language]], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout).items() >= VALUES.items()


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("r", 'invisible(Sys.setenv("A" = "it\'s $1 \\"é\\"\\n", "B" = ""))'),
        ("julia", 'ENV["A"] = "it\'s \\$1 \\"é\\"\\n"; ENV["B"] = ""; nothing'),
    ],
)
def test_values_are_quoted_as_r_and_julia_read_them(language: str, code: str) -> None:
    assert environment_code(language, {"A": 'it\'s $1 "é"\n', "B": ""}) == code


@pytest.mark.kernel
@pytest.mark.parametrize(
    # A kernel of R or Rust may not find a Unix socket; a script may start any kernel.
    ("starter", "transport"),
    [("interpreter", "ipc"), ("script", "tcp")],
)
def test_a_kernel_of_another_language_boots_while_the_slots_last_trial_runs(
    starter: str, transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    argv = [sys.executable, str(tmp_path / "kernel.py"), "-f", "{connection_file}"]
    if starter == "script":
        script = tmp_path / "start"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(argv[:2])} "$@"\n')
        script.chmod(0o755)
        argv[:2] = [str(script)]
    install(tmp_path, monkeypatch, argv=argv, language="bash")
    source = write_notebook(
        tmp_path / "nb.ipynb", "echo $x $MINE $TRANSPORT", "sleep 0.2", parameters="x=1"
    )
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    with kernel_pool(cwd, imports=None, kernelspec="other") as pool:
        assert os.environ.get("MINE") is None
        for number in range(2):
            node, result = run_alone(
                source,
                pool,
                own={"x": number},
                env={"MINE": f"of trial {number}"},
                prepares_next=number == 0,
            )
            assert result.ending is Ending.FINISHED
            (output,) = node.cells[-2].outputs
            assert output.text == f"{number} of trial {number} {transport}\n"
            until(lambda: len(list(cwd.glob("booted *"))) >= 2, "no kernel was booted ahead")
        assert len(list(cwd.glob("booted *"))) == 2, "the second trial ran in the prepared kernel"
