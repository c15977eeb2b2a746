"""Test the remote copy: its layout, interrupted copies, and restored studies."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import nbformat
import pytest
from commands import Command, project
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from opened_studies import asked
from s3_server import S3Server
from small_disks import small_disk
from studies import mlflow_client, mlflow_runs, note_in, small_settings, until

from sweeper.errors import OutputError, SyncError
from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.object_storage.store import Store, StoreError
from sweeper.study.files import study_id_in
from sweeper.study.study import Study
from sweeper.study_folder.notes import Notes
from sweeper.sync import RemoteCopy, restoring, selection
from sweeper.sync.manifest import Manifest, Owner
from sweeper.sync.objects import Objects, snapshot
from sweeper.testing import write_notebook
from sweeper.trials import StudyPaths, TrialOutcome, TrialState, run_id_of

pytestmark = pytest.mark.slow  # Each test creates a study's tables, and many wait for a thread.

URL = "memory://bucket/copies"


@pytest.fixture(autouse=True)
def one_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let restorations read one object at a time, because `memory://` needs this."""
    monkeypatch.setattr(restoring, "_AT_ONCE", 1)


class Machine:
    """A folder in which a study is swept without kernels."""

    def __init__(
        self,
        folder: Path,
        *,
        output: str = "out/d.{run_id}.ipynb",
        every_s: float = 0.1,
        has_store: bool = False,
    ) -> None:
        self.settings = small_settings("digits")
        self.paths = StudyPaths.parse(str(folder / output), study="digits")
        self.paths.folder.mkdir(parents=True, exist_ok=True)
        self.storage_url = f"sqlite:///{self.paths.storage}"
        self.copy = RemoteCopy(
            URL,
            every_s=every_s,
            paths=self.paths,
            storage=self.paths.storage,
            # Without a local store, MLflow's state is on a server, which is not copied.
            tracking=self.paths.tracking if has_store else None,
        )
        self.study: Study | None = None

    @contextmanager
    def opened(self) -> Iterator[bool]:
        with self.copy.opened(lambda: None) as is_brought_back:
            self.study = Study.open(self.storage_url, self.settings)
            self.study.note_facts(template=self.paths.template)
            yield is_brought_back

    def run(self, *, state: TrialState = TrialState.COMPLETED) -> str:
        """Run a trial without a kernel. Its notebook contains its params."""
        assert self.study is not None
        record = asked(self.study, self.settings, self.paths)
        write_notebook(record.notebook, f"x = {record.params['x']!r}")
        note_in(record.notebook, study_id=self.study.study_id, state=str(state))
        if state is not TrialState.RUNNING:
            value = record.params["x"]
            assert isinstance(value, float)
            self.study.tell(record.number, TrialOutcome(state=state, scores={"val": value}))
        return record.run_id

    def checkpoint(self, run_id: str, name: str, data: bytes = b"weights") -> Path:
        file = self.paths.checkpoints(run_id) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (time.time() - 60, time.time() - 60))
        return file

    def now(self) -> None:
        """Copy all changes now."""
        self.copy._copy(is_last=False)

    def end(self) -> float:
        """Make the last copy. Return its age in seconds."""
        return self.copy.end(left_s=10, on_wait=lambda: None)

    def trials(self) -> list[tuple[int, str, float]]:
        """Return number, state and score of each trial in the study's file."""
        study = Study.load(self.storage_url, "digits")
        return [(r.number, str(r.state), r.scores.get("val", -1.0)) for r in study.records()]


def swept(folder: Path) -> Machine:
    """Return a machine on which a sweep of one trial was copied and has ended."""
    machine = Machine(folder)
    with machine.opened():
        machine.run()
        machine.now()
    return machine


def manifest() -> Manifest:
    data = Store(URL).get("digits/manifest.json")
    assert data is not None
    return Manifest.read(data)


def names_in_copy() -> set[str]:
    return set(manifest().files) if Store(URL).get("digits/manifest.json") else set()


def objects() -> set[str]:
    return {name.removeprefix("digits/") for name in Store(URL).names("digits/objects")}


def hash_of(content: bytes) -> str:
    return hashlib.blake2b(content).hexdigest()


def is_whole() -> bool:
    """Return whether the manifest names only objects that exist and have the right content."""
    found = {name: Store(URL).get(f"digits/{name}") for name in manifest().objects}
    return all(name == f"objects/{hash_of(data or b'')}" for name, data in found.items())


def as_if_dead() -> None:
    """Make the lease of the copy expire."""
    store = Store(URL)
    owner = {**json.loads(store.get("digits/owner.json") or b""), "every_s": 1e-9}
    store.put("digits/owner.json", json.dumps(owner).encode())


def test_a_restored_study_keeps_the_address_of_the_mlflow_server_that_it_logs_to(
    tmp_path: Path,
) -> None:
    a, b = Machine(tmp_path / "a"), Machine(tmp_path / "b", has_store=True)
    with a.opened():
        assert a.study is not None
        a.study.note_facts(tracking_uri="http://server:5000")
        a.run()
        a.now()
    with b.opened() as is_brought_back:
        assert is_brought_back
        assert Study.load(b.storage_url, "digits").facts.tracking_uri == "http://server:5000"


# --- the layout ----------------------------------------------------------------------------------


def test_the_manifest_of_a_copy_lists_objects_that_are_named_by_their_content(
    tmp_path: Path,
) -> None:
    a = Machine(tmp_path)
    with a.opened():
        run_id = a.run()
        a.checkpoint(run_id, "epoch-1/model.pt")
        a.checkpoint(run_id, "epoch-2.part/model.pt")
        a.checkpoint(run_id, "optimizer.pt.part")
        a.now()
        assert set(manifest().files) == {
            "study.db",
            "notebooks/0000.ipynb",
            "checkpoints/0000/epoch-1/model.pt",
        }
        assert is_whole()
        assert objects() == manifest().objects
        assert manifest().generation == 1
        a.now()
        assert manifest().generation == 1, "a manifest was written although nothing has changed"
    assert Owner.read(Store(URL).get("digits/owner.json") or b"").has_ended


@contextmanager
def sending(content: bytes, then: Callable[[], object]) -> Iterator[None]:
    """Call a function whenever a file with this content is about to be sent."""
    put_file = Store.put_file

    def put(store: Store, name: str, file: Path) -> None:
        if content in file.read_bytes():
            then()
        put_file(store, name, file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "put_file", put)
        yield


def test_database_snapshots_of_a_killed_sweep_are_removed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    left = machine.paths.folder / ".sync"
    with machine.opened():
        left.mkdir()
        (left / "study.db").write_text("half of one")
        machine.run()
        machine.now()
        assert "study.db" in manifest().files
    assert not left.exists()


def test_a_checkpoint_that_is_being_written_is_copied_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files that `checkpoint` writes are older than 50 s.
    monkeypatch.setattr(selection, "_SETTLED_S", 50)
    a = Machine(tmp_path)
    with a.opened():
        a.run(state=TrialState.RUNNING)
        file = a.checkpoint("0000", "model.pt", b"one")
        a.now()
        before = manifest().files["checkpoints/0000/model.pt"]
        file.write_bytes(b"half")
        a.now()
        assert manifest().files["checkpoints/0000/model.pt"] == before
        a.copy._copy(is_last=True)
        assert manifest().files["checkpoints/0000/model.pt"].hash == hash_of(b"half")
        a.checkpoint(a.run(), "model.pt").touch()
        a.now()
        assert "checkpoints/0001/model.pt" in manifest().files, (
            "a checkpoint of an ended trial is not copied"
        )


def test_ended_trials_are_copied_before_checkpoints_of_running_ones(tmp_path: Path) -> None:
    a = Machine(tmp_path)
    with a.opened():
        a.run(state=TrialState.RUNNING)
        a.checkpoint("0000", "model.pt", b"first")
        a.now()
        a.checkpoint("0000", "model.pt", b"second")
        ended = a.run()
        seen: list[Manifest] = []
        with sending(b"second", lambda: seen.append(manifest())):
            a.now()
        assert seen[0].files["checkpoints/0000/model.pt"].hash == hash_of(b"first")
        assert f"notebooks/{ended}.ipynb" in seen[0].files
        assert manifest().files["checkpoints/0000/model.pt"].hash == hash_of(b"second")
        assert is_whole()


def test_after_a_call_of_hurry_the_next_remote_copy_is_made_before_its_interval_has_passed(
    tmp_path: Path,
) -> None:
    a = Machine(tmp_path, every_s=3600)
    with a.opened():
        a.run()
        a.copy.start()
        until(names_in_copy)
        run_id = a.run()
        a.copy.hurry()
        until(lambda: f"notebooks/{run_id}.ipynb" in names_in_copy())
        assert a.end() == 0


def numbers_in_copy() -> list[str]:
    return sorted(n.split("/")[2] for n in names_in_copy() if n.startswith("checkpoints/0000/"))


def test_a_remote_copy_states_a_trials_end_only_together_with_its_last_checkpoint(
    tmp_path: Path,
) -> None:
    a = Machine(tmp_path / "a")
    with a.opened():
        run_id = a.run(state=TrialState.RUNNING)
        a.now()
        note_in(a.paths.notebook(run_id), state="completed", scores={"val": 0.5}, attempt=1)
        os.utime(a.checkpoint(run_id, "model.pt"))  # just written, so it is not copied yet
        a.now()
    as_if_dead()
    b = Machine(tmp_path / "b")
    with b.opened():
        restored = nbformat.read(b.paths.notebook(run_id), as_version=4)
        assert restored.metadata["sweeper"]["state"] == "running"


def write(file: Path, content: bytes) -> None:
    """Write a checkpoint in the way `save_checkpoint` does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    with zipfile.ZipFile(part, "w") as archive:
        archive.writestr("content", content)
    part.replace(file)


def test_numbered_checkpoints_are_copied_even_if_they_are_new_or_being_replaced(
    tmp_path: Path,
) -> None:
    a = Machine(tmp_path)
    with a.opened():
        a.run(state=TrialState.RUNNING)
        folder = a.paths.checkpoints("0000")
        write(folder / "000001.ckpt", b"weights 1")
        a.now()
        assert numbers_in_copy() == ["000001.ckpt"]
        write(folder / "000002.ckpt", b"weights 2")
        (folder / "000001.ckpt").unlink()
        seen: list[str] = []

        def replace() -> None:
            seen.extend(numbers_in_copy())
            write(folder / "000003.ckpt", b"weights 3")
            (folder / "000002.ckpt").unlink()

        with sending(b"weights 2", replace):
            a.now()
        assert seen == ["000001.ckpt"], "the copy had no checkpoint while the next one was sent"
        assert numbers_in_copy() == ["000002.ckpt"]
        assert is_whole()
        a.now()
        assert numbers_in_copy() == ["000003.ckpt"]
        assert is_whole()


def test_a_checkpoint_that_is_removed_while_the_folder_is_read_is_still_listed(
    tmp_path: Path,
) -> None:
    a = Machine(tmp_path)
    with a.opened():
        a.run(state=TrialState.RUNNING)
        folder = a.paths.checkpoints("0000")
        write(folder / "000001.ckpt", b"weights 1")
        write(folder / "000001.json", b"1")
        files = a.copy._contents.files(None)
        found = [name for name, _ in (next(files), next(files))]
        write(folder / "000002.json", b"2")
        (folder / "000001.json").unlink()
        found += [name for name, _ in files]
        assert found[-1] == "checkpoints/0000/000001.json"


def test_links_out_of_the_study_and_circular_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "secret.txt").write_text("not for the bucket")
    a = Machine(tmp_path)
    with a.opened():
        a.run()
        a.checkpoint("0000", "epoch-9.pt", b"weights")
        folder = a.paths.checkpoints("0000")
        (folder / "last.pt").symlink_to("epoch-9.pt")
        (folder / "out.txt").symlink_to(tmp_path / "data" / "secret.txt")
        (folder / "up.txt").symlink_to("../../../../data/secret.txt")
        (folder / "data").symlink_to(tmp_path / "data")
        (folder / "again").symlink_to(".")
        (folder / "gone.pt").symlink_to("nowhere")
        os.mkfifo(folder / "pipe")
        a.now()
        assert numbers_in_copy() == ["epoch-9.pt", "last.pt"]
    b = Machine(tmp_path / "elsewhere")
    with b.opened():
        assert (b.paths.checkpoints("0000") / "last.pt").read_bytes() == b"weights"


def test_a_process_that_lost_its_lease_removes_no_objects_of_its_successor(tmp_path: Path) -> None:
    a = Machine(tmp_path)
    with a.opened():
        a.run()
        a.now()
        a.run()
        send = Store.put

        def put(store: Store, name: str, data: bytes) -> None:
            send(store, name, data)
            # As if the machine was suspended here while another one took the lease.
            if name.endswith("manifest.json"):
                owner = json.loads(store.get("owner.json") or b"")
                other = {**owner, "token": "another", "host": "elsewhere"}
                send(store, "owner.json", json.dumps(other).encode())

        Store(URL).put("digits/objects/next", b"for a manifest to come")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "put", put)
            with pytest.raises(SyncError, match=r"taken over by process .* on elsewhere"):
                a.now()
        assert "objects/next" in objects()


def test_an_object_is_removed_when_two_manifests_in_a_row_do_not_name_it(
    tmp_path: Path,
) -> None:
    a = Machine(tmp_path)
    with a.opened():
        a.run()
        Store(URL).put("digits/objects/orphan", b"of a sweep that was killed")
        seen: list[str] = []
        for content in (b"one", b"two", b"three"):
            a.checkpoint("0000", "model.pt", content)
            os.utime(a.paths.checkpoints("0000") / "model.pt", (1, len(seen)))
            a.now()
            seen.append(manifest().files["checkpoints/0000/model.pt"].object)
        assert "objects/orphan" not in objects()
        assert seen[0] not in objects()
        assert {seen[1], seen[2]} <= objects()
        assert is_whole()


def refused(_: Store, name: str) -> None:
    raise StoreError(f"{name}: access denied", is_refusal=True)


def test_a_file_that_grows_while_it_is_sent_is_sent_later_even_if_objects_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "remove", refused)
    file, sender = tmp_path / "log.txt", Objects(Store(URL), folder=tmp_path / ".sync")
    file.write_bytes(b"line 1")
    with sending(b"line 1", lambda: file.write_bytes(b"line 1, line 2")):
        assert sender.of_file("log.txt", file) is None
    entry = sender.of_file("log.txt", file)
    assert entry is not None and entry.hash == hash_of(b"line 1, line 2")


def test_without_the_right_to_remove_objects_checkpoints_of_running_trials_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a = Machine(tmp_path)
    monkeypatch.setattr(Store, "remove", refused)
    with a.opened(), caplog.at_level("INFO", logger="sweeper"):
        run_id = a.run(state=TrialState.RUNNING)
        for number in range(4):
            content = f"epoch {number}".encode()
            os.utime(a.checkpoint(run_id, "model.pt", content), (1, number))
            a.now()
            entry = manifest().files[f"checkpoints/{run_id}/model.pt"]
            assert entry.hash == hash_of(content)
    assert {r.levelname for r in caplog.records if "access denied" in r.getMessage()} == {"INFO"}


def test_a_notebook_whose_changes_one_remote_copy_leaves_out_is_sent_with_the_next_copy(
    tmp_path: Path,
) -> None:
    a = Machine(tmp_path / "a")
    with a.opened():
        assert a.study is not None
        run_id = a.run(state=TrialState.RUNNING)
        a.now()
        # The notebook states the end before the database does, so the copy keeps the earlier
        # notebook.
        note_in(a.paths.notebook(run_id), state="completed", scores={"val": 0.5}, attempt=1)
        a.run(state=TrialState.RUNNING)
        a.now()
        a.study.tell(0, TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5}))
        a.now()
        assert is_whole()
    with (b := Machine(tmp_path / "b")).opened():
        assert (read_metadata(b.paths.notebook(run_id)) or BLANK).state == "completed"


def test_objects_that_have_vanished_from_the_store_are_sent_again(tmp_path: Path) -> None:
    a = Machine(tmp_path)
    with a.opened():
        run_id = a.run()
        a.checkpoint(run_id, "model.pt")
        a.now()
        for name in objects():
            Store(URL).remove(f"digits/{name}")
        a.run()
        a.now()
        assert is_whole()
        assert f"checkpoints/{run_id}/model.pt" in manifest().files


def test_a_copy_stays_whole_if_an_object_was_removed_but_the_stores_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Machine(tmp_path)
    remove = Store.remove

    def removed_and_failed(self: Store, name: str) -> None:
        remove(self, name)
        raise StoreError("no answer")

    with a.opened():
        run_id = a.run()
        contents = (b"one", b"two", b"three", b"one", b"one")
        for number, content in enumerate(contents):
            os.utime(a.checkpoint(run_id, "model.pt", content), (1, number))
            with monkeypatch.context() as patch, suppress(StoreError):
                patch.setattr(Store, "remove", removed_and_failed)
                a.now()
            assert is_whole()


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_restoration_leaves_out_only_files_whose_object_is_missing_or_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    a = Machine(tmp_path / "a")
    with a.opened():
        run_id = a.run()
        a.checkpoint(run_id, "model.pt", b"weights")
        a.checkpoint(run_id, "other.pt", b"other weights")
        a.now()
    lost = f"checkpoints/{run_id}/model.pt"
    name = f"digits/{manifest().files[lost].object}"
    if damage == "missing":
        Store(URL).remove(name)
    else:
        Store(URL).put(name, b"torn")
    with (b := Machine(tmp_path / "b")).opened() as is_brought_back:
        assert is_brought_back
    assert b.trials() == a.trials()
    assert [file.name for file in b.paths.checkpoints(run_id).iterdir()] == ["other.pt"]
    assert lost in caplog.text


@pytest.mark.parametrize("stray", [".attempt1-Copy1", ".attempt1.replay"])
def test_a_copy_of_a_notebook_that_a_user_has_made_does_not_prevent_a_restoration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, stray: str
) -> None:
    a = Machine(tmp_path / "a")
    with a.opened():
        notebook = a.paths.notebook(a.run())
        for attempt in (".attempt1", stray):
            shutil.copy(notebook, notebook.with_suffix(f"{attempt}.ipynb"))
        a.now()
    known = {"notebooks/0000.ipynb", "notebooks/0000.attempt1.ipynb"}
    assert {name for name in names_in_copy() if name.startswith("notebooks/")} == known
    with (b := Machine(tmp_path / "b")).opened() as is_brought_back:
        assert is_brought_back
    assert {file.name for file in b.paths.root.rglob("*.ipynb")} == {
        "d.0000.ipynb",
        "d.0000.attempt1.ipynb",
    }


@given(data=st.data())
@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_manifest_names_only_objects_that_exist(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """At each call to the store, a trial may begin, end or write a file, or the call may fail."""
    MemoryFileSystem.store.clear()
    a = Machine(tmp_path_factory.mktemp("a"))
    open_trials: list[str] = []
    events = ["nothing", "nothing", "begin", "end", "write", "fail", "fail after"]
    is_quiet = True
    written = 0

    def happen(event: str) -> None:
        nonlocal written
        assert a.study is not None
        if event == "begin" and len(open_trials) < 3:
            open_trials.append(a.run(state=TrialState.RUNNING))
        elif event == "end" and open_trials:
            run_id = open_trials.pop(0)
            note_in(a.paths.notebook(run_id), state="completed", scores={"val": 0.5}, attempt=1)
            outcome = TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5})
            a.study.tell(int(run_id), outcome)
        elif event == "write" and open_trials:
            written += 1
            os.utime(a.checkpoint(open_trials[-1], f"{written % 2}.pt", b"%d" % (written % 3)))

    def disturbed(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal is_quiet
            if is_quiet or threading.current_thread() is not threading.main_thread():
                return call(*arguments, **options)
            event = data.draw(st.sampled_from(events))
            is_quiet = True  # do not disturb the calls that the event itself makes
            happen(event)
            is_quiet = False
            if event == "fail":
                raise StoreError("the line is cut")
            result = call(*arguments, **options)
            if event == "fail after":
                raise StoreError("no answer")
            return result

        return called

    with pytest.MonkeyPatch.context() as patch, a.opened():
        for name in ("put", "put_file", "remove", "names"):
            patch.setattr(Store, name, disturbed(getattr(Store, name)))
        patch.setattr("sweeper.sync.objects.snapshot", disturbed(snapshot))
        happen("begin")
        for _ in range(data.draw(st.integers(2, 5))):
            happen(data.draw(st.sampled_from(events)))
            is_quiet = False
            with suppress(StoreError):
                a.now()
            is_quiet = True
            if Store(URL).get("digits/manifest.json") is not None:
                assert is_whole()
        a.now()
        assert is_whole()
    with (b := Machine(tmp_path_factory.mktemp("b"))).opened() as is_brought_back:
        assert is_brought_back
    assert b.trials() == a.trials()


# --- interrupted copies --------------------------------------------------------------------------


def test_after_any_interrupted_write_the_remote_copy_is_either_the_old_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 10**9

    def failing(write: Callable[[Store, str, Any], None]) -> Callable[[Store, str, Any], None]:
        def written(self: Store, name: str, content: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreError("the line is cut")
            write(self, name, content)

        return written

    a = Machine(tmp_path / "a")
    with a.opened():
        a.run()
        a.now()
        before = manifest()
        monkeypatch.setattr(Store, "put", failing(Store.put))
        monkeypatch.setattr(Store, "put_file", failing(Store.put_file))
        for number in range(3):
            run_id = a.run() if number < 2 else "0000"
            a.checkpoint(run_id, "model.pt", f"{number}".encode())
            for n_writes in range(20):
                left = n_writes
                try:
                    a.now()
                except StoreError:
                    assert manifest() == before
                    assert is_whole()
                else:
                    break
            assert n_writes > 0
            assert manifest().generation == before.generation + 1
            before = manifest()
            assert is_whole()
        left = 10**9


def test_a_copy_made_while_trials_end_has_the_files_of_all_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Machine(tmp_path / "a")

    def trial() -> None:
        run_id = a.run()
        a.checkpoint(run_id, "model.pt", run_id.encode())

    def busy(database: Path, target: Path) -> None:
        trial()
        snapshot(database, target)
        trial()

    monkeypatch.setattr("sweeper.sync.objects.snapshot", busy)
    with a.opened():
        a.now()
    with (b := Machine(tmp_path / "b")).opened() as is_brought_back:
        assert is_brought_back
    assert [number for number, _, _ in b.trials()] == [0]
    assert b.paths.notebook("0000").exists()
    assert not b.paths.notebook("0001").exists()
    assert (b.paths.checkpoints("0000") / "model.pt").read_bytes() == b"0000"
    assert not b.paths.checkpoints("0001").exists()


def test_a_lost_connection_to_the_store_is_reported_once_and_the_copy_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put, is_away = Store.put, threading.Event()

    def failing(self: Store, name: str, data: bytes) -> None:
        if is_away.is_set():
            raise StoreError("memory://bucket/copies: the line is cut")
        put(self, name, data)

    monkeypatch.setattr(Store, "put", failing)
    a = Machine(tmp_path, every_s=0.05)
    with a.opened():
        a.run()
        a.copy.start()
        until(lambda: a.copy._before is not None)
        is_away.set()
        a.run()
        until(lambda: a.copy._has_failed)
        is_away.clear()
        until(lambda: "notebooks/0001.ipynb" in manifest().files)
        until(lambda: not a.copy._has_failed)
        assert a.end() == 0
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "the line is cut; trials continue" in messages[0]
    assert "is up to date again" in messages[1]


# --- restored studies ----------------------------------------------------------------------------


def test_a_restored_study_continues_in_a_folder_with_another_name(tmp_path: Path) -> None:
    a = Machine(tmp_path / "a")
    with a.opened():
        a.run()
        a.run(state=TrialState.RUNNING)
        a.checkpoint("0001", "deep/model.pt")
        earlier = a.paths.notebook("0001").with_suffix(".attempt1.ipynb")
        shutil.copy(a.paths.notebook("0001"), earlier)
        saved, used = a.paths.saved("0000") / "model.pt", a.paths.input("abc", "encoder.pt")
        code, of_later = a.paths.snapshot("0123456789ab"), a.paths.saved("0009") / "model.pt"
        for file in (saved, used, code, of_later):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(file.name)
        notes = Notes(a.paths.notes).change({"0001": {"note": "look again"}})
        a.now()
        assert "saved/0009/model.pt" not in names_in_copy()
    trials, study_id = a.trials(), study_id_in(a.paths.storage, "digits")
    shutil.rmtree(tmp_path / "a")
    b = Machine(tmp_path, output="b/{study}-{run_id}.ipynb")
    with b.opened() as is_brought_back:
        assert is_brought_back
        assert b.trials() == trials
        study = Study.load(b.storage_url, "digits")
        assert [r.notebook for r in study.records()] == [
            tmp_path / "b" / "digits-0000.ipynb",
            tmp_path / "b" / "digits-0001.ipynb",
        ]
        assert all(r.notebook.exists() for r in study.records())
        assert (tmp_path / "b" / "digits-0001.attempt1.ipynb").exists()
        assert study.study_id == study_id
        assert study.facts.template == b.paths.template
        assert Notes(b.paths.notes).read() == notes
        assert (b.paths.saved("0000") / "model.pt").read_text() == "model.pt"
        assert b.paths.input("abc", "encoder.pt").read_text() == "encoder.pt"
        assert [file.name for file in b.paths.code.iterdir()] == [code.name]
        restored = b.paths.checkpoints("0001") / "deep" / "model.pt"
        assert restored.read_bytes() == b"weights"
        assert restored.stat().st_mtime < time.time() - 30
        assert b.run() == "0001", "the interrupted trial does not run first"
        assert b.run() == "0002"
        b.now()
        assert manifest().copy_id == b.copy._mark.copy_id != a.copy._mark.copy_id
    assert not list((tmp_path / "b").rglob("*.part"))


def test_a_restoration_repeats_failed_downloads_and_does_not_download_existing_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept(tmp_path / "a")
    monkeypatch.setattr("sweeper.object_storage.store._PAUSE_S", 0.0)
    read, fetched, failures = Store.get_file, list[str](), [StoreError("slow down")]

    def counted(store: Store, name: str, file: Path) -> bool:
        fetched.append(name)
        if failures:
            raise failures.pop()
        return read(store, name, file)

    monkeypatch.setattr(Store, "get_file", counted)
    machine = Machine(tmp_path / "b")
    with machine.opened() as is_brought_back:
        assert is_brought_back
    assert not failures
    assert len(fetched) == len({*fetched}) + 1, "not exactly one download was repeated"
    machine.end()
    shutil.copytree(tmp_path / "b" / "out", tmp_path / "c" / "out")
    shutil.rmtree(tmp_path / "c" / "out" / "digits")
    fetched.clear()
    with Machine(tmp_path / "c").opened():
        pass
    assert len(fetched) < len(objects()), "existing notebooks were downloaded again"


def test_a_sweep_resumes_after_a_kill_in_the_same_folder_without_a_wait_for_the_lease(
    tmp_path: Path,
) -> None:
    a = Machine(tmp_path, every_s=60)
    with a.opened():
        a.run()
        a.now()
        again = Machine(tmp_path)
        with again.opened() as is_brought_back:
            assert not is_brought_back
            again.run()
            again.now()
            assert manifest().copy_id == a.copy._mark.copy_id
            assert manifest().generation == 2


def test_a_folder_that_is_older_than_its_remote_copy_is_refused_and_does_not_overwrite_the_copy(
    tmp_path: Path,
) -> None:
    a, b = Machine(tmp_path / "a"), Machine(tmp_path / "b")
    with a.opened():
        a.run()
        a.now()
        shutil.copytree(tmp_path / "a", tmp_path / "backup")
        a.run()
        a.now()
    with pytest.raises(SyncError, match="another machine or folder has continued it; move"):
        Machine(tmp_path / "backup").copy._open(lambda: None, lambda: False)
    with b.opened():
        b.run()
        b.now()
    was = manifest()
    with pytest.raises(SyncError, match="another machine or folder has continued it; move"):
        Machine(tmp_path / "a").copy._open(lambda: None, lambda: False)
    with pytest.raises(SyncError, match="a copy of another study of this name"):
        other = Machine(tmp_path / "c")
        Study.open(other.storage_url, other.settings)
        other.copy._open(lambda: None, lambda: False)
    assert manifest() == was
    shutil.rmtree(tmp_path / "a")
    with (again := Machine(tmp_path / "a")).opened() as is_brought_back:
        assert is_brought_back
        assert again.trials() == b.trials()


def test_a_restored_study_resumes_after_a_kill_before_its_first_remote_copy_is_complete(
    tmp_path: Path,
) -> None:
    a = swept(tmp_path / "a")
    with Machine(tmp_path / "b").opened() as is_brought_back:
        assert is_brought_back
    for is_marked in (False, True):  # killed before its first copy, or during it
        b = Machine(tmp_path / "b")
        with b.opened() as is_brought_back:
            assert not is_brought_back
            b.run()
            if is_marked:
                with pytest.MonkeyPatch.context() as patch, pytest.raises(StoreError):
                    patch.setattr(b.copy._store, "put", Mock(side_effect=StoreError("away")))
                    b.now()
    assert manifest().copy_id == a.copy._mark.copy_id
    with (again := Machine(tmp_path / "b")).opened():
        assert len(again.trials()) == 3
        again.now()
        assert manifest().copy_id == again.copy._mark.copy_id != a.copy._mark.copy_id
    with pytest.raises(SyncError, match="another machine or folder has continued it"):
        Machine(tmp_path / "a").copy._open(lambda: None, lambda: False)


def test_a_study_that_began_anew_and_was_killed_before_its_first_copy_resumes(
    tmp_path: Path,
) -> None:
    swept(tmp_path)
    for _ in range(2):
        machine = Machine(tmp_path)

        def begins_anew(_: Study, copy: RemoteCopy = machine.copy) -> bool:
            copy.begin_anew()
            return True

        with machine.copy.opened(lambda: None):
            Study.open(machine.storage_url, machine.settings, begins_anew=begins_anew).close()
    machine = Machine(tmp_path)
    with machine.opened():
        machine.run()
        machine.now()
    assert manifest().study_id == study_id_in(machine.paths.storage, "digits")


def test_a_study_that_would_begin_anew_on_a_full_disk_is_refused_in_one_message(
    tmp_path: Path,
) -> None:
    swept(tmp_path)
    copy = Machine(tmp_path).copy
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with copy.opened(lambda: None), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeper.sync.copying.write_atomically", full)
        with pytest.raises(OutputError, match=r"cannot be written.*No space left.*make room"):
            copy.begin_anew()


def test_a_restoration_replaces_the_incomplete_database_of_a_sweep_killed_at_its_start(
    tmp_path: Path,
) -> None:
    a = swept(tmp_path / "a")
    b = Machine(tmp_path / "b")
    with closing(sqlite3.connect(b.paths.storage)) as half, half:
        half.execute("PRAGMA journal_mode=WAL")
        half.execute("CREATE TABLE studies (study_id INTEGER)")
        for ending in ("", "-wal"):
            file = Path(f"{b.paths.storage}{ending}")
            shutil.copy(file, tmp_path / file.name)
    for file in tmp_path.glob("study.db*"):
        shutil.copy(file, b.paths.folder / file.name)
    with b.opened() as is_brought_back:
        assert is_brought_back
    assert b.trials() == a.trials()


def test_a_remote_copy_that_cannot_be_restored_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    swept(tmp_path / "a")
    with small_disk(tmp_path / "small", "64k") as small:
        message = r"restored from memory://.* No space left on device; make room or choose"
        with pytest.raises(OutputError, match=message), Machine(small / "b").opened():
            pass
    b = Machine(tmp_path / "b")
    mine = write_notebook(b.paths.notebook("0000"), "mine")
    before = mine.read_bytes()
    with pytest.raises(OutputError, match=r"d\.0000\.ipynb is in the way"), b.opened():
        pass
    assert mine.read_bytes() == before
    mine.unlink()
    Store(URL).put(f"digits/{manifest().files['study.db'].object}", b"torn")
    as_if_dead()
    with pytest.raises(SyncError, match="missing or damaged"), Machine(tmp_path / "b").opened():
        pass
    assert not b.paths.storage.exists()
    assert not list(b.paths.root.rglob("*.part"))


def test_a_file_name_in_a_manifest_that_belongs_to_no_study_is_refused(
    tmp_path: Path,
) -> None:
    contents = Machine(tmp_path).copy._contents
    for name in (
        "checkpoints/../../../etc/passwd",
        "checkpoints//etc/passwd",
        "checkpoints///etc/passwd",
        "code///home/me/.ssh/authorized_keys",
        "checkpoints/a//b",
        "checkpoints/./a",
        "checkpoints/a\0b",
        "notebooks/\N{ARABIC-INDIC DIGIT THREE}.ipynb",
        "notebooks/0000.ipynb/../../x",
        "notebooks/passwd",
        "notebooks/0000.attempt1/../../x.ipynb",
        "artifacts/..",
        "artifacts",
        "code/../sweep.json",
        "sweep.json",
    ):
        with pytest.raises(ValueError, match="belongs to no study"):
            contents.place(name)


@pytest.mark.parametrize(
    "change",
    [
        None,
        "DELETE FROM studies",
        "UPDATE study_user_attributes SET value_json = '[1]'",
        "UPDATE study_user_attributes SET value_json = '{'",
        "UPDATE trial_user_attributes SET value_json = 'null'",
        "UPDATE study_user_attributes SET value_json = x'00ff'",
    ],
)
def test_a_copy_of_a_damaged_study_is_refused_and_nothing_is_restored(
    tmp_path: Path, change: str | None
) -> None:
    swept(tmp_path / "a")
    store = Store(URL)
    stored = manifest()
    file = tmp_path / "study.db"
    file.write_bytes(store.get(f"digits/{stored.files['study.db'].object}") or b"")
    if change is None:
        file.write_bytes(b"no database" * 500)
    else:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(change)
    entry = replace(stored.files["study.db"], hash=hash_of(file.read_bytes()))
    store.put_file(f"digits/{entry.object}", file)
    changed = replace(stored, files={**stored.files, "study.db": entry})
    store.put("digits/manifest.json", changed.text.encode())
    with pytest.raises(SyncError, match="missing or damaged"), Machine(tmp_path / "b").opened():
        pass
    assert not (tmp_path / "b" / "out" / "digits" / "study.db").exists()


HOSTILE_NAMES = st.one_of(
    st.sampled_from(["study.db", "mlflow.db", "notebooks/0000.ipynb", "checkpoints/0000/a"]),
    st.builds(
        "/".join,
        st.lists(
            st.sampled_from(
                ["", ".", "..", "code", "checkpoints", "saved", "notebooks", "0000.ipynb", "a\0"]
            ),
            max_size=6,
        ),
    ),
    st.text(max_size=12),
)
HOSTILE_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["../../x", "file:///etc/passwd", "\x1b[2J", "/", "{run_id}", "a" * 5000]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def test_a_manipulated_copy_is_refused_in_one_line_or_stays_in_the_studys_folders(
    tmp_path: Path,
) -> None:
    a = Machine(tmp_path / "a")
    with a.opened():
        a.checkpoint(a.run(), "model.pt")
        a.now()
    sound = dict(MemoryFileSystem.store)
    elsewhere = tmp_path / "b"

    @given(data=st.data())
    @hypothesis_settings(max_examples=200, deadline=None)
    def try_it(data: st.DataObject) -> None:
        MemoryFileSystem.store.clear()
        MemoryFileSystem.store.update(sound)
        shutil.rmtree(elsewhere, ignore_errors=True)
        elsewhere.mkdir()
        (elsewhere / "mine").write_text("mine")
        for name, change in (("manifest.json", hostile_manifest), ("owner.json", hostile_owner)):
            stored = json.loads(Store(URL).get(f"digits/{name}") or b"")
            change(stored, data)
            Store(URL).put(f"digits/{name}", json.dumps(stored).encode())
        try:
            with Machine(elsewhere).copy.opened(lambda: None):
                pass
        except (SyncError, OutputError) as error:
            assert str(error).isprintable(), repr(str(error))
        assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
        assert {path.name for path in elsewhere.iterdir()} == {"mine", "out"}
        assert (elsewhere / "mine").read_text() == "mine"

    try_it()


def hostile_manifest(stored: dict[str, Any], data: st.DataObject) -> None:
    """Change a manifest as an attacker with access to the store could."""
    for key in data.draw(st.lists(st.sampled_from(sorted(stored)), max_size=2)):
        stored[key] = data.draw(HOSTILE_VALUES)
    if not isinstance(files := stored["files"], dict):
        return
    entries = [entry for entry in files.values() if isinstance(entry, dict)]
    for name in data.draw(st.lists(HOSTILE_NAMES, max_size=3)):
        files[name] = dict(data.draw(st.sampled_from(entries))) if entries else {}
        if data.draw(st.booleans()):
            key = data.draw(st.sampled_from(["hash", "mtime_s", "x"]))
            files[name][key] = data.draw(HOSTILE_VALUES)


def hostile_owner(stored: dict[str, Any], data: st.DataObject) -> None:
    """Change one value in the lease of a copy."""
    stored[data.draw(st.sampled_from(sorted(stored)))] = data.draw(HOSTILE_VALUES)


@pytest.mark.parametrize("is_here", [False, True])
def test_no_sweep_begins_while_the_store_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_here: bool
) -> None:
    def away(self: Store, name: str) -> bytes | None:
        raise StoreError("the line is cut")

    a = Machine(tmp_path / "a")
    if is_here:
        Study.open(a.storage_url, a.settings)
    monkeypatch.setattr(Store, "get", away)
    with pytest.raises(SyncError, match="the line is cut; the copy may have trials"), a.opened():
        pass


def test_with_databases_on_servers_only_files_are_copied_and_restored_to_the_same_output_path(
    tmp_path: Path,
) -> None:
    def machine(folder: str) -> RemoteCopy:
        paths = StudyPaths.parse(str(tmp_path / folder / "d.{run_id}.ipynb"), study="digits")
        paths.folder.mkdir(parents=True, exist_ok=True)
        return RemoteCopy(
            URL,
            every_s=1,
            paths=paths,
            storage=None,
            tracking=None,
        )

    with (a := machine("a")).opened(lambda: None):
        write_notebook(tmp_path / "a" / "d.0000.ipynb", "x")
        a._copy(is_last=True)
        assert set(manifest().files) == {"notebooks/0000.ipynb"}
    shutil.rmtree(tmp_path / "a")
    with (
        pytest.raises(SyncError, match="on a server; repeat -o "),
        machine("b").opened(lambda: None),
    ):
        pass
    with machine("a").opened(lambda: None) as is_brought_back:
        assert is_brought_back
    assert (tmp_path / "a" / "d.0000.ipynb").exists()
    with (
        pytest.raises(SyncError, match="another kind of --storage"),
        Machine(tmp_path / "c").opened(),
    ):
        pass


# --- a real S3 API on loopback -------------------------------------------------------------------


CELL = """
import pathlib, time, sweeper
trial = sweeper.trial()
while trial.number >= 3 and pathlib.Path('hold').exists():
    time.sleep(0.1)
trial.checkpoint_dir.mkdir(parents=True, exist_ok=True)
for i in range(8):
    sweeper.report(i, val=x * i)
    time.sleep(0.2)
(trial.checkpoint_dir / 'model.pt').write_text(str(x))
"""


class Subprocess:
    """A sweep in a separate process and folder."""

    def __init__(
        self, folder: Path, name: str, *, trials: int, url: str, grace_s: float = 25
    ) -> None:
        study = f"study: {{name: {name}, trials: {trials}, sampler: random}}\n"
        copied = f"sync: {{url: '{url}', every: 1s}}\nlimits: {{grace: {grace_s}}}"
        self.words = project(CELL, settings=study + copied, folder=folder)
        self.folder, self.name = folder, name
        self.stderr = ""

    def start(self) -> Command:
        return Command(*self.words, "-j", "2", "--json", cwd=self.folder)

    def scores(self) -> dict[str, dict[str, float]]:
        """Return the scores of completed trials, from their notebooks because this is fast."""
        found = [read_metadata(path) or BLANK for path in (self.folder / "out").glob("*.ipynb")]
        return {it.run_id: dict(it.scores) for it in found if it.state is TrialState.COMPLETED}

    def run(self) -> tuple[int, dict[str, Any]]:
        return self.result(self.start())

    def result(self, process: Command, limit_s: float = 120) -> tuple[int, dict[str, Any]]:
        stdout, self.stderr = process.communicate(timeout=limit_s)
        assert "hush" not in stdout + self.stderr
        last = stdout.splitlines()[-1] if stdout else "{}"
        return process.wait(), json.loads(last)


def remote(name: str) -> Manifest | None:
    try:
        data = Store("s3://sweeps/x").get(f"{name}/manifest.json")
    except StoreError:
        return None
    return None if data is None else Manifest.read(data)


@pytest.mark.kernel
def test_an_empty_machine_completes_the_sweep_of_a_machine_that_was_killed(
    tmp_path: Path, s3: str
) -> None:
    name, trials = "killed", 8
    options: dict[str, Any] = {"trials": trials, "url": "s3://sweeps/x"}
    a = Subprocess(tmp_path / "a", name, **options)
    b = Subprocess(tmp_path / "elsewhere" / "b", name, **options)
    sweeping = a.start()
    until(lambda: len(a.scores()) >= 4 and "artifacts" in str(remote(name)))
    generation = getattr(remote(name), "generation", 0)
    until(lambda: getattr(remote(name), "generation", 0) > generation)
    sweeping.kill()
    sweeping.communicate()
    assert sum(it.startswith("notebooks/") for it in getattr(remote(name), "files", ())) >= 3
    code, _ = b.run()
    if code == 2:  # the sweep is refused while the dead process's lease has not expired
        assert f"process {sweeping.pid} on {socket.gethostname()} sweeps this study" in b.stderr
        assert len(b.stderr.splitlines()) == 2  # the first line says that the sweep is prepared
        assert not (b.folder / "out").exists()
        time.sleep(3.5)
        code, _ = b.run()
    assert code == 0, b.stderr
    done = a.scores()
    a.folder.rename(tmp_path / "gone")
    code, result = b.run()  # this call only restores the study, which is complete
    assert code == 0, b.stderr
    assert result["counts"] == {"completed": trials, "pruned": 0, "failed": 0, "stopped": 0}
    assert result["sync_lag_s"] == 0
    assert [t["run_id"] for t in result["trials"]] == [run_id_of(n) for n in range(trials)]
    # Only trials that ran when the study was last copied have a second attempt: at most 4.
    assert sum(trial["attempt"] > 1 for trial in result["trials"]) <= 4
    for trial in result["trials"]:
        assert trial["scores"] == done.get(trial["run_id"], trial["scores"])
        assert (read_metadata(b.folder / trial["notebook"]) or BLANK).state == "completed"
        model = b.folder / "out" / name / "checkpoints" / trial["run_id"] / "model.pt"
        assert model.read_text() == str(trial["params"]["x"])
    for database in ("mlflow.db", f"{name}/study.db"):
        assert (b.folder / "out" / database).stat().st_mode & 0o077 == 0, (
            "other users could lock the database"
        )
    uri = result["tracking_uri"]
    client, runs = mlflow_client(uri), mlflow_runs(uri, name)
    assert sorted(r.info.run_name for r in runs) == [t["run_id"] for t in result["trials"]]
    assert {r.info.status for r in runs} == {"FINISHED"}
    for run in runs:
        assert len(client.list_artifacts(run.info.run_id)) == 2
        assert run.info.artifact_uri.startswith(b.folder.as_uri())


@pytest.mark.kernel
def test_a_sweep_on_a_preempted_machine_ends_in_time_though_the_store_hangs(
    tmp_path: Path, s3: str, s3_server: S3Server
) -> None:
    a = Subprocess(tmp_path, "preempted", trials=5, url=f"{s3}/x", grace_s=6)
    hold = a.folder / "hold"  # trials from the fourth on do not end while this file exists
    hold.touch()
    sweeping = a.start()
    until(lambda: len(a.scores()) >= 2 and remote("preempted") is not None)
    s3_server.program.send_signal(signal.SIGSTOP)
    try:
        sweeping.terminate()
        # Without a time limit, the last copy would wait a minute for the store.
        code, result = a.result(sweeping, limit_s=6 + 30)
    finally:
        s3_server.program.send_signal(signal.SIGCONT)
    assert code == 143
    assert result["sync_lag_s"] > 0
    assert result["counts"]["stopped"] >= 1
    hold.unlink()
    code, result = a.run()
    assert code == 0, a.stderr
    assert result["counts"]["completed"] == 5
    assert result["sync_lag_s"] == 0
