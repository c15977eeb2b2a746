"""Answer the comparison page when it reads or changes the notes about trials.

A page of another website can make a browser send requests to this machine. So the header `Host` of
each request must name this server. In a request that changes notes, so must the header `Origin`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from ..errors import OutputError, StudyError, first_line
from ..page import write_notes
from ..study_folder.notes import Notes
from ..trials import StudyPaths

#: A request with more bytes is refused (chosen, not measured: the notes on thousands of trials are
#: shorter).
_MOST_BYTES = 10_000_000


class RefusedError(Exception):
    """A request that is not carried out.

    Attributes:
        status: HTTP status of the response.
    """

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def answer_about_notes(
    environ: Mapping[str, Any], paths: StudyPaths, *, host: str
) -> tuple[HTTPStatus, Any]:
    """Answer a request to read or change the notes that people have written about trials.

    Args:
        environ: The request, as WSGI defines it. GET returns the notes. The body of a POST is a
            JSON object with the changes, as `Notes.change` takes them.
        paths: Paths of the study.
        host: Host and port of this server.

    Returns:
        The status, and what is sent as JSON: all notes by run id, or an object with the `error`.
    """
    notes = Notes(paths.notes)
    try:
        if environ.get("HTTP_HOST") != host:
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                f"notes can be changed only at http://{host}/, and not at "
                f"{environ.get('HTTP_HOST')!r}; open the address that `ui` has printed",
            )
        if environ["REQUEST_METHOD"] == "GET":
            kept = notes.read()
        else:
            kept = notes.change(_changes_in(environ, host))
            write_notes(paths.notes, paths.page_files)
    except RefusedError as error:
        return error.status, {"error": str(error)}
    except ValueError as error:
        return HTTPStatus.BAD_REQUEST, {"error": first_line(error)}
    except (StudyError, OutputError, OSError) as error:
        return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": first_line(error)}
    return HTTPStatus.OK, {run_id: note.to_json() for run_id, note in kept.items()}


def _changes_in(environ: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Return the changes that a request asks for.

    Raises:
        RefusedError: The request is not a POST from a page of this server, its length is missing or
            too large, or its body is not a JSON object with an object for each trial.
    """
    if environ["REQUEST_METHOD"] != "POST":
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "notes are read by GET, changed by POST")
    if environ.get("HTTP_ORIGIN") != f"http://{host}":
        raise RefusedError(HTTPStatus.FORBIDDEN, f"the request is from no page of http://{host}/")
    length = environ.get("CONTENT_LENGTH") or ""
    if not (length.isascii() and length.isdigit()):
        raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request does not state its length")
    if int(length) > _MOST_BYTES:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the request has {int(length):,} bytes; at most {_MOST_BYTES:,} are read",
        )
    try:
        changes = json.loads(environ["wsgi.input"].read(int(length)))
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, f"the request is not JSON: {first_line(error)}"
        ) from error
    if isinstance(changes, dict) and all(isinstance(parts, dict) for parts in changes.values()):
        return changes
    raise RefusedError(
        HTTPStatus.BAD_REQUEST, 'expected {"RUN_ID": {"note": "…"}}, with an object for a trial'
    )
