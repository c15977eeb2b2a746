"""URLs of databases and servers, whose passwords are given only to libraries.

The text of an `Address` has `***` in place of the password. So nothing that is written, printed or
logged contains the password.

SQLAlchemy decodes `%41` in the path of an SQLite URL, and ends the path at `?`. So only
`Address.of_file`, which escapes these characters, makes such a URL, and only `Address.file` reads
it.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from ..trials import display_path

#: Text in place of a password. A user may copy a URL with this text from the sweep's output into a
#: command. The password of this URL then counts as missing.
HIDDEN = "***"
#: Pattern of a secret in the query of a URL, as in `?password=hush`. The groups are `password=` and
#: `hush`.
_SECRET_PART = re.compile(
    r"(?<=[?&])([^=&]*(?:pass|pwd|secret|token|credential|api_?key|access_?key|odbc_connect)"
    r"[^=&]*=)([^&]*)",
    re.I,
)
#: Pattern of a host, perhaps with a port, that has no user or password before it.
_HOST = re.compile(r"[^:]*(:\d*)?|\[[^\]]*\](:\d*)?")
#: Pattern of the beginning of a local folder's URL. In the path that follows, no character is
#: escaped: `%41` is three characters.
LOCAL_SCHEME = re.compile(r"(file|local)://(?=/)")
#: In texts, a secret with fewer characters is replaced only inside of URLs, because it may also
#: occur in ordinary words (chosen, not measured).
_SECRET_CHARACTERS = 4
#: Pattern of a URL within a longer text, up to the `@` after its password or token. The group is
#: the part before the password or token.
_IN_TEXT = re.compile(r"(\w://[^\s/@:'\"]*:|(?<=http)s?://)[^\s/@]*@")


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of a database or a server.

    Attributes:
        stated: URL as the user stated it, with its password. Only this module reads it.
    """

    stated: str = field(repr=False)

    @classmethod
    def of(cls, url: str | Address) -> Address:
        """Return the address of a URL. An address is returned unchanged."""
        return url if isinstance(url, Address) else cls(url)

    @classmethod
    def of_tracking(cls, url: str | Address) -> Address:
        """Return the address of an MLflow store.

        If the URL's password is missing (`***`), it is taken from `MLFLOW_TRACKING_URI`, provided
        that this variable has the same URL.
        """
        return cls.of(url).completed_by(os.environ.get("MLFLOW_TRACKING_URI"))

    @classmethod
    def of_file(cls, file: Path) -> Address:
        """Return the address of an SQLite file.

        Only `%` and `?` are escaped, so that people can read the path. A URL with escapes names the
        driver, because for `sqlite:///` MLflow would also make a folder with the escaped path.
        """
        path = str(file)
        escaped = path.replace("%", "%25").replace("?", "%3F")
        return cls(f"{'sqlite' if escaped == path else 'sqlite+pysqlite'}:///{escaped}")

    def __str__(self) -> str:
        scheme, user, password, rest = self._parts()
        return _joined(scheme, _quoted(user), HIDDEN if password else "", _hidden(rest))

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    @property
    def full(self) -> str:
        """The URL for a library, with user and password.

        Special characters are escaped. A missing password (`***`) is left out. If a PostgreSQL URL
        names no driver, it gets the installed one.
        """
        scheme, user, password, rest = self._parts()
        if scheme in ("postgres", "postgresql") and importlib.util.find_spec("psycopg2") is None:
            scheme = "postgresql+psycopg"
        before, _, query = rest.partition("?")
        stated = [part for part in query.split("&") if part and not part.endswith(f"={HIDDEN}")]
        rest = f"{before}?{'&'.join(stated)}" if stated else before
        if password == HIDDEN:
            password = ""
            if self.is_http:
                # MLflow takes user and password from the environment only together, so leave out
                # the user, too.
                user = ""
        return _joined(scheme, _quoted(user), _quoted(password), rest)

    @property
    def bare(self) -> str:
        """The URL as a link for people: without user and password, with `***` for other secrets."""
        scheme, _, _, rest = self._parts()
        return _joined(scheme, "", "", _hidden(rest))

    @property
    def file(self) -> Path | None:
        """The file of an SQLite database. None for a database in memory and any other address."""
        scheme, _, _, rest = self._parts()
        if scheme.partition("+")[0] != "sqlite":
            return None
        path = unquote(rest.partition("?")[0].removeprefix("/"))
        return Path(path).absolute() if path and path != ":memory:" else None

    @property
    def is_http(self) -> bool:
        """Whether this is the URL of an HTTP server."""
        return self.stated.startswith(("http://", "https://"))

    @property
    def is_postgres(self) -> bool:
        """Whether this is the URL of a database on a PostgreSQL server."""
        return self._parts()[0].partition("+")[0] in ("postgres", "postgresql")

    @property
    def is_incomplete(self) -> bool:
        """Whether `***` replaces the password or another secret."""
        return HIDDEN in self._secrets()

    def completed_by(self, other: str | None) -> Address:
        """Return the address of `other` if it is this URL with the password that is missing here.

        In any other case, return this address.
        """
        whole = Address(other or "")
        is_same = str(whole).rstrip("/") == str(self).rstrip("/")
        return whole if is_same and self.is_incomplete else self

    def scrubbed(self, text: str) -> str:
        """Return a library's message with `***` in place of passwords.

        These are the secrets of this address, and the passwords in all URLs of the message.
        """
        for stated in self._secrets():
            for secret in (stated, _quoted(stated), unquote(stated)):
                if len(secret) >= _SECRET_CHARACTERS:
                    text = text.replace(secret, HIDDEN)
        return _IN_TEXT.sub(rf"\1{HIDDEN}@", text)

    def _secrets(self) -> list[str]:
        """Return the password, and secrets in the query."""
        _, _, password, rest = self._parts()
        return [secret for secret in (password, *_query_secrets(rest)) if secret]

    def _parts(self) -> tuple[str, str, str, str]:
        """Return the scheme, the user, the password, and the rest of the URL from the host on."""
        scheme, separator, rest = self.stated.partition("://")
        if not separator:
            return "", "", "", self.stated
        if scheme.partition("+")[0] == "sqlite":
            return scheme, "", "", rest
        end = len(re.split(r"[/?#]", rest, maxsplit=1)[0])
        at = rest.rfind("@", 0, end)
        if at < 0 and not _HOST.fullmatch(rest[:end]):
            # The password has a `/`, `?` or `#` that should have been escaped.
            at = rest.rfind("@")
        user, _, password = rest[: max(at, 0)].partition(":")
        if user and not password and scheme in ("http", "https"):
            user, password = "", user  # The URL has a token in place of user and password.
        return scheme, user, password, rest[at + 1 :]


def study_words(study: str, storage: str | Address) -> list[str]:
    """Return the words that name a study on a command line: its folder, or name and storage.

    The folder is enough if the storage is the file `study.db` in this folder.

    Args:
        study: Name of the study, or of the study `NAME-confirm` that runs its best trials again.
        storage: URL of the study's storage.
    """
    file = Address.of(storage).file
    names = (study, study.removesuffix("-confirm"))
    if file is not None and file.name == "study.db" and file.parent.name in names:
        return [display_path(file.parent.with_name(study))]
    return [study, "--storage", str(storage)]


def driver_missing(error: BaseException) -> str | None:
    """Return a message if SQLAlchemy failed because a database driver is not installed.

    Returns:
        The driver and the command that installs it. None if no driver is missing.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            name = cause.name.partition(".")[0]
            remedy = _DRIVERS.get(name, f"pip install {name}")
            return f"the database driver {name} is not installed: {remedy}"
        cause = cause.__cause__ or cause.__context__
    return None


_POSTGRES = "pip install 'notebook-hpo[postgres]'"
_DRIVERS = {
    "psycopg": _POSTGRES,
    "psycopg2": _POSTGRES,
    "MySQLdb": "pip install mysqlclient",
}


def _joined(scheme: str, user: str, password: str, rest: str) -> str:
    if not scheme:
        return rest
    is_token = not user and scheme in ("http", "https")
    if password and not is_token:
        password = f":{password}"
    return f"{scheme}://{user}{password}@{rest}" if user or password else f"{scheme}://{rest}"


def _quoted(text: str) -> str:
    return quote(unquote(text), safe="")


def _hidden(rest: str) -> str:
    """Return a URL that begins with its host, with `***` in place of secrets in its query."""
    before, mark, query = rest.partition("?")
    return before + _SECRET_PART.sub(rf"\1{HIDDEN}", mark + query)


def _query_secrets(rest: str) -> list[str]:
    """Return the secrets in the query of a URL that begins with its host."""
    _, mark, query = rest.partition("?")
    return [value for _, value in _SECRET_PART.findall(mark + query)]
