"""Test URLs with passwords: libraries get the passwords, and no text contains them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.settings.addresses import Address, driver_missing, study_words

ADDRESSES = [
    ("sqlite:////folder/study.db", "sqlite:////folder/study.db"),
    ("sqlite:////me@home:8/x@y/study.db", "sqlite:////me@home:8/x@y/study.db"),
    ("http://host:5000/base", "http://host:5000/base"),
    ("databricks", "databricks"),
    ("./mlruns", "./mlruns"),
    ("http://me:hush@host:5000/base", "http://me:***@host:5000/base"),
    ("https://hush@host", "https://***@host"),
    ("postgresql://me:hush@host:5432/db", "postgresql://me:***@host:5432/db"),
    ("postgresql://me@host/db", "postgresql://me@host/db"),
    ("postgresql://me:hu@sh@host/db", "postgresql://me:***@host/db"),
    ("postgresql://me:hu/sh@host/db", "postgresql://me:***@host/db"),
    ("postgresql://me:hu?s#h@host/db", "postgresql://me:***@host/db"),
    ("mysql://:hush@host/db", "mysql://:***@host/db"),
    (
        "postgresql://host/db?user=me&password=hush&sslmode=require",
        "postgresql://host/db?user=me&password=***&sslmode=require",
    ),
    ("mssql:///?odbc_connect=UID%3Dme%3BPWD%3Dhush", "mssql:///?odbc_connect=***"),
]


@pytest.mark.parametrize(("url", "text"), ADDRESSES)
def test_the_text_of_an_address_has_no_password(url: str, text: str) -> None:
    address = Address.of(url)
    assert str(address) == f"{address}" == text
    assert "hush" not in repr(address)
    assert "hush" not in address.bare
    assert str(Address.of(text)) == text
    assert Address.of(text).is_incomplete == ("***" in text)


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("http://me:hush@host/base", "http://me:hush@host/base"),
        ("http://me:hu%40sh@host", "http://me:hu%40sh@host"),
        ("http://me:hu@sh@host", "http://me:hu%40sh@host"),
        ("mysql://me:hu/s#h@host/db", "mysql://me:hu%2Fs%23h@host/db"),
        ("http://me:***@host/base", "http://host/base"),
        ("mysql://me:***@host/db?a=1", "mysql://me@host/db?a=1"),
        ("mysql://host/db?user=me&password=***", "mysql://host/db?user=me"),
        ("mysql://host/db?password=***", "mysql://host/db"),
    ],
)
def test_a_library_gets_an_address_with_the_password_and_never_with_its_mask(
    url: str, full: str
) -> None:
    assert Address.of(url).full == full


def test_postgresql_is_reached_by_the_driver_that_is_installed() -> None:
    for scheme in ("postgres", "postgresql"):
        full = Address.of(f"{scheme}://me:hush@host/db").full
        assert full == "postgresql+psycopg://me:hush@host/db"


def test_a_missing_password_is_taken_only_from_an_address_with_the_same_user_and_host() -> None:
    stored = Address.of(str(Address.of("http://me:hush@host:5000")))
    assert stored.completed_by("http://me:hush@host:5000/").full == "http://me:hush@host:5000/"
    for other in (None, "", "http://me:hush@other:5000", "http://you:hush@host:5000"):
        assert stored.completed_by(other) is stored
    whole = Address.of("http://me:old@host")
    assert whole.completed_by("http://me:new@host") is whole


@pytest.mark.parametrize(
    "message",
    [
        "cannot reach http://me:hu%40sh@host/api",
        "could not translate host name 'hu@sh'",
        "tried postgresql://you:x@else/where",
    ],
)
def test_passwords_are_removed_from_messages_of_libraries(message: str) -> None:
    scrubbed = Address.of("http://me:hu@sh@host").scrubbed(message)
    assert "***" in scrubbed
    assert "hu@sh" not in scrubbed
    assert "hu%40sh" not in scrubbed
    assert ":x@" not in scrubbed


def test_the_message_about_a_missing_database_driver_names_the_package_to_install() -> None:
    def missing(module: str) -> str | None:
        try:
            try:
                __import__(module)
            except ImportError as error:
                raise RuntimeError("cannot load a dialect") from error
        except RuntimeError as error:
            return driver_missing(error)
        return "it is installed"

    assert missing("psycopg2") == (
        "the database driver psycopg2 is not installed: pip install 'notebook-hpo[postgres]'"
    )
    assert missing("pg8001") == ("the database driver pg8001 is not installed: pip install pg8001")
    assert driver_missing(ValueError("else")) is None


#: Paths of any names that a file system accepts, even if their bytes are not UTF-8.
paths = st.lists(
    st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1)
    | st.binary(min_size=1)
    .filter(lambda name: not {0, ord("/")} & set(name))
    .map(lambda name: name.decode(errors="surrogateescape")),
    min_size=1,
).map(lambda names: Path("/", *names))


@given(file=paths)
def test_the_url_of_a_file_can_be_converted_back_to_the_file(file: Path) -> None:
    address = Address.of_file(file)
    assert address.file == file
    assert Address.of(address.full).file == file
    assert Address.of(str(address)).file == file, "studies store this text"
    assert not address.is_incomplete


def test_the_url_of_a_file_has_no_escapes_if_none_are_needed() -> None:
    for path in ("/home/josé/run (2)/study.db", "/2026-11-26T13:10/a&b=#'@{c}/study.db"):
        assert str(Address.of_file(Path(path))) == f"sqlite:///{path}"


def test_a_file_path_that_contains_words_such_as_password_is_kept_unchanged() -> None:
    file = Path("/a?token=b&password=***/study.db")
    assert Address.of(str(Address.of_file(file))).file == file


@pytest.mark.parametrize(
    ("storage", "study", "words"),
    [
        ("sqlite:////w/my book/study.db", "my book", ["/w/my book"]),
        ("sqlite:////w/my book/study.db", "my book-confirm", ["/w/my book-confirm"]),
        ("sqlite:////w/all.db", "s", ["s", "--storage", "sqlite:////w/all.db"]),
        ("sqlite:////w/study.db", "s", ["s", "--storage", "sqlite:////w/study.db"]),
        ("postgresql://me:x@h/db", "s", ["s", "--storage", "postgresql://me:***@h/db"]),
    ],
)
def test_a_proposed_command_names_a_study_by_its_folder_or_by_its_name_and_storage(
    storage: str, study: str, words: list[str]
) -> None:
    assert study_words(study, Address.of(storage)) == words
