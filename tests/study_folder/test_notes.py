"""Test the notes about trials: what people may write, and that no change is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from studies import assert_says

from sweeper.errors import OutputError, StudyError
from sweeper.study_folder.notes import Notes
from sweeper.trials import TrialNote

CHANGES_FOREVER = """
import itertools, sys
from pathlib import Path
from sweeper.study_folder.notes import Notes
for n in itertools.count():
    Notes(Path(sys.argv[1])).change({"0001": {"note": f"{n} " * 500}})
"""


def test_changing_one_field_of_a_note_keeps_the_others_and_an_empty_note_is_removed(
    tmp_path: Path,
) -> None:
    notes = Notes(tmp_path / "notes.json")
    assert notes.read() == {}
    notes.change({"0003": {"note": " look again\n"}, "0012": {"starred": True}})
    notes.change({"0003": {"trial_name": "the\nwide  one"}})
    wide = TrialNote(trial_name="the wide one", note="look again")
    assert notes.read() == {"0003": wide, "0012": TrialNote(is_starred=True)}
    assert notes.change({"0012": {"starred": False}}) == {"0003": wide} == notes.read()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"../x": {"note": "a"}}, "'../x' is not a run id"),
        ({"0003": {"colour": "red"}}, "0003: 'colour' is unknown; expected trial_name"),
        ({"0003": {"starred": 1}}, "0003: starred"),
        ({"0003": {"note": None}}, "0003: note: expected a text, got None"),
        ({"0003": {"note": "\ud800"}}, "0003: "),
        ({"0003": {"note": "x" * 2001}}, "2,001 characters; expected 2,000 at most"),
        ({"0003": "x"}, "0003: "),
    ],
)
def test_an_invalid_change_of_notes_is_refused_and_changes_no_note(
    tmp_path: Path, changes: dict[str, dict[str, object]], said: str
) -> None:
    notes = Notes(tmp_path / "notes.json")
    before = notes.change({"0001": {"note": "keep"}})
    with pytest.raises(ValueError) as refused:
        notes.change({"0001": {"note": "lost"}, **changes})
    assert said in str(refused.value)
    assert notes.read() == before


def test_a_damaged_file_of_notes_is_read_as_empty_and_is_never_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "notes.json"
    for text in ('{"0001": ', '{"0001": {"note": 3}}', "[]"):
        file.write_text(text)
        assert Notes(file).read() == {}
        assert_says(caplog.messages[-1], "notes.json", "cannot be read", "correct or remove")
        with pytest.raises(StudyError, match="cannot be read"):
            Notes(file).change({"0001": {"note": "x"}})
        assert file.read_text() == text


def test_changing_notes_does_not_create_the_folder_of_a_removed_study_again(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        Notes(tmp_path / "gone" / "notes.json").change({"0001": {"note": "x"}})
    assert not (tmp_path / "gone").exists()


def test_changes_of_notes_by_several_threads_at_once_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "notes.json"

    def change(run_id: str) -> None:
        for part in ({"note": "read"}, {"trial_name": "mine"}, {"starred": True}):
            Notes(file).change({run_id: part, "0000": part})

    threads = [threading.Thread(target=change, args=(f"{n:04d}",)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    all_parts = TrialNote(trial_name="mine", note="read", is_starred=True)
    assert Notes(file).read() == {f"{n:04d}": all_parts for n in range(9)}


@pytest.mark.slow
def test_notes_are_complete_and_can_be_changed_after_a_process_that_wrote_them_was_killed(
    tmp_path: Path,
) -> None:
    file = tmp_path / "notes.json"
    for after_s in (0.0, 0.003, 0.01):
        writer = subprocess.Popen([sys.executable, "-c", CHANGES_FOREVER, str(file)])
        while not file.exists():
            time.sleep(0.01)
        time.sleep(after_s)
        writer.kill()
        writer.wait()
        assert len(set(json.loads(file.read_text())["0001"]["note"].split())) == 1
        Notes(file).change({"0002": {"starred": True}})
        assert Notes(file).read().keys() == {"0001", "0002"}
        file.unlink()
