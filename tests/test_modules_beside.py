"""Test the package's top modules: atomic writes, texts of errors, and kills of processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from studies import until

from sweeper import files
from sweeper.errors import SweepError, first_line, root_cause, shortened
from sweeper.files import (
    beside,
    is_private_folder,
    private_folder,
    remove_abandoned,
    write_atomically,
)
from sweeper.guard import MARK_VARIABLE, kill_marked, kill_session, marked_processes


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_atomically(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half \ud800")
    assert path.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_a_killed_process_has_not_finished_are_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "out" / "study"
    unfinished = [
        beside(path)
        for path in (
            study.parent / "nb.0000.ipynb",
            study / "page" / "notebooks" / "0000.js",
            study / "checkpoints" / "0000" / "000001.ckpt",
        )
    ]
    others = [study.parent / ".mine.part", study.parent / "elsewhere" / unfinished[0].name]
    for file in (*unfinished, *others):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    remove_abandoned(study)
    assert all(file.exists() for file in unfinished), (
        "files that a process may still write were removed"
    )
    monkeypatch.setattr(files, "ABANDONED_S", -1.0)
    remove_abandoned(study)
    assert not any(file.exists() for file in unfinished)
    assert all(file.exists() for file in others)


def test_a_failed_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder", "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_many_threads_can_write_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    texts = [f"{number}" * 50_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_atomically(path, text), texts * 10))
    assert path.read_text().strip() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_ends_with_one_newline(tmp_path: Path) -> None:
    for text in ("a", "a\n"):
        write_atomically(tmp_path / "x", text)
        assert (tmp_path / "x").read_bytes() == b"a\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "MemoryError"),
        (ValueError("  \n "), "ValueError"),
        (ValueError("\nfirst\nsecond"), "first"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_an_error_without_a_message_is_described_by_its_class(error: Exception, line: str) -> None:
    assert first_line(error) == line


def test_the_middle_of_a_very_long_error_message_is_left_out() -> None:
    text = shortened(f"first{'x' * 5_000_000}last")
    assert len(text) < 2100
    assert text.startswith("firstx")
    assert text.endswith("xlast")
    assert " … 4,998,009 characters … " in text
    assert shortened("short") == "short"


def test_the_root_cause_of_an_error_without_a_message_is_the_name_of_its_class() -> None:
    try:
        try:
            raise MemoryError
        except MemoryError as error:
            raise SweepError("in general words") from error
    except SweepError as error:
        assert root_cause(error) == "MemoryError"


def test_a_process_whose_name_is_not_valid_utf8_does_not_prevent_the_kill_of_a_session(
    tmp_path: Path,
) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    # The system cuts a process's name after 15 bytes, here within a letter.
    program = tmp_path / "тренировка"
    shutil.copy(sleep, program)
    with (
        subprocess.Popen([program, "60"], start_new_session=True) as other,
        subprocess.Popen([sleep, "60"], start_new_session=True) as leader,
    ):
        until(lambda: b"\xd0)" in Path(f"/proc/{other.pid}/stat").read_bytes())
        kill_session(leader.pid)
        assert leader.wait(timeout=10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there are no files of shared memory")
def test_shared_memory_of_a_killed_process_is_removed_by_the_process_that_tracks_it() -> None:
    shares = (
        "from multiprocessing.shared_memory import SharedMemory; import time; "
        "print(SharedMemory(create=True, size=1000).name, flush=True); time.sleep(60)"
    )
    mark = f"{os.getpid()}-tracked-"
    with subprocess.Popen(
        [sys.executable, "-c", shares],
        env={**os.environ, MARK_VARIABLE: f"{mark}1;"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        file = Path("/dev/shm", process.stdout.readline().strip())
        assert file.is_file()
        kill_marked(mark)
        assert process.wait() == -signal.SIGKILL
    assert not file.exists()
    assert not marked_processes(mark)


def test_no_process_is_killed_on_a_system_without_proc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def listdir(path: str) -> list[str]:
        raise FileNotFoundError(2, "No such file or directory", path)  # macOS has no /proc

    def kill(pid: int, number: int) -> None:
        raise AssertionError(f"process {pid} would have been killed")

    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(os, "kill", kill)
    kill_marked("token-")
    kill_session(1)


@pytest.mark.parametrize("planted", ["link", "open", "file"])
def test_if_another_user_has_taken_a_private_folders_name_each_call_uses_the_same_other_name(
    tmp_path: Path, planted: str
) -> None:
    folder, target = tmp_path / "c", tmp_path / "target"
    target.mkdir(mode=0o700)
    (tmp_path / "c.0").symlink_to(target)
    if planted == "link":
        folder.symlink_to(target)
    elif planted == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.touch()
    made = private_folder(folder)
    assert made.name.startswith("c.")
    assert is_private_folder(made)
    assert private_folder(folder) == made
    assert not target.stat().st_mode & 0o077 and list(target.iterdir()) == []
