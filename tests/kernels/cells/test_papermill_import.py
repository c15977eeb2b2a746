"""papermill without the clients of storages, until a call needs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = "print([name for name in ('boto3', 'pyarrow') if name in sys.modules])\n"


def run(code: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True
    )
    return ended.stdout.splitlines()


def test_a_sweep_imports_papermill_without_the_clients_of_storages() -> None:
    assert run(f"import sweeper.sweep, papermill\n{LOADED}") == ["[]"]


def test_who_imports_a_client_afterwards_gets_the_whole_module() -> None:
    pytest.importorskip("boto3")
    pytest.importorskip("pyarrow")
    code = (
        "import sweeper.sweep, boto3.session, pyarrow.fs\n"
        "print(boto3.session.__spec__.name, isinstance(boto3.session.Session, type))\n"
        "print(pyarrow.fs.__spec__.name, pyarrow.fs.LocalFileSystem.__name__)"
    )
    assert run(code) == ["boto3.session True", "pyarrow.fs LocalFileSystem"]


def test_papermills_calls_reach_the_client_of_hadoop() -> None:
    pytest.importorskip("pyarrow")
    code = (
        "import sweeper.sweep, papermill.iorw\nprint(papermill.iorw.FileSelector('a/b').base_dir)"
    )
    assert run(code) == ["a/b"]


@pytest.mark.slow
def test_papermill_reads_and_writes_in_s3_in_the_process_of_a_sweep(s3: str) -> None:
    pytest.importorskip("boto3")
    code = (
        "import sweeper.sweep, papermill.iorw\n"
        f"papermill.iorw.papermill_io.write('text', '{s3}/nb.ipynb')\n"
        f"print(papermill.iorw.papermill_io.read('{s3}/nb.ipynb'))\n"
    )
    assert run(code)[-1] == "text"
