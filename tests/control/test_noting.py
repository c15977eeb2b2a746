"""Test what the server of the page answers to requests that read or change notes about trials."""

from __future__ import annotations

import io
import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from studies import assert_says

from sweeper.control.noting import answer_about_notes
from sweeper.study_folder.notes import Notes
from sweeper.trials import StudyPaths

HOST = "127.0.0.1:8800"
CHANGE = {"0003": {"note": "look again"}}


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    """Make the folders of a study, and return its paths."""
    found = StudyPaths.parse(str(tmp_path / "{run_id}.ipynb"), study="digits")
    found.page_files.mkdir(parents=True)
    return found


def asked(paths: StudyPaths, body: object = CHANGE, **changed: Any) -> tuple[HTTPStatus, Any]:
    """Return the server's answer to a POST of the page. `changed` replaces parts of the request."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    environ = {
        "REQUEST_METHOD": "POST",
        "HTTP_HOST": HOST,
        "HTTP_ORIGIN": f"http://{HOST}",
        "CONTENT_LENGTH": str(len(text)),
        "wsgi.input": io.BytesIO(text),
        **changed,
    }
    return answer_about_notes(environ, paths, host=HOST)


def test_a_note_that_is_changed_on_the_page_is_stored_in_the_study_and_the_pages_files(
    paths: StudyPaths,
) -> None:
    status, reply = asked(paths)
    assert status == HTTPStatus.OK
    assert reply == {"0003": {"trial_name": "", "note": "look again", "starred": False}}
    assert Notes(paths.notes).read()["0003"].note == "look again"
    script = (paths.page_files / "notes.js").read_text().strip()
    assert json.loads(script.removeprefix("sweeper.notes(").removesuffix(");")) == reply
    assert asked(paths, REQUEST_METHOD="GET") == (HTTPStatus.OK, reply)


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"HTTP_HOST": "localhost:8800"}, 403, f"http://{HOST}/"),
        ({"HTTP_HOST": "evil.example:8800"}, 403, "evil.example"),
        ({"HTTP_ORIGIN": "https://evil.example"}, 403, f"http://{HOST}/"),
        ({"HTTP_ORIGIN": "null"}, 403, f"http://{HOST}/"),
        ({"HTTP_ORIGIN": None}, 403, f"http://{HOST}/"),
        ({"REQUEST_METHOD": "PUT"}, 405, "POST"),
        ({"CONTENT_LENGTH": ""}, 411, "length"),
        ({"CONTENT_LENGTH": "-1"}, 411, "length"),
        ({"CONTENT_LENGTH": "10000001"}, 413, "10,000,001 bytes"),
        ({"body": b'{"0003": '}, 400, "not JSON"),
        ({"body": b"\xff"}, 400, "not JSON"),
        ({"body": []}, 400, "RUN_ID"),
        ({"body": {"0003": "a note"}}, 400, "RUN_ID"),
        ({"body": {"0003": {"note": 3}}}, 400, "note: expected a text, got 3"),
        ({"body": {"../x": {"note": ""}}}, 400, "not a run id"),
    ],
)
def test_a_request_that_is_invalid_or_from_another_website_changes_no_note_and_gets_the_reason(
    paths: StudyPaths, changed: dict[str, Any], status: int, said: str
) -> None:
    got, reply = asked(paths, **changed)
    assert got == status
    assert_says(reply["error"], said)
    assert not paths.notes.exists()


def test_a_change_of_notes_does_not_replace_a_damaged_file_of_notes(paths: StudyPaths) -> None:
    paths.notes.write_text("{")
    status, reply = asked(paths)
    assert status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert_says(reply["error"], "notes.json", "correct or remove")
    assert paths.notes.read_text() == "{"
