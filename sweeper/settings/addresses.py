"""URLs of databases and servers, whose passwords reach libraries only.

The text of an `Address` has `***` in place of the password, so that nothing that is written,
printed or logged with it contains the password.

`Address.of_file` is the only place that makes the URL of an SQLite file, and `Address.file` the
only one that reads it. SQLAlchemy decodes `%41` in a path and ends the path at `?`.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

#: The text in place of a password, also in a URL that a user has copied from our output.
HIDDEN = "***"
#: A secret part of a query: its name, and its value.
_SECRET_PART = re.compile(
    r"(?<=[?&])([^=&]*(?:pass|pwd|secret|token|credential|api_?key|access_?key|odbc_connect)"
    r"[^=&]*=)([^&]*)",
    re.I,
)
#: Host and port without a password before them.
_HOST = re.compile(r"[^:]*(:\d*)?|\[[^\]]*\](:\d*)?")
#: How the URL of a folder of this machine begins; the path follows as it is, without escapes.
LOCAL_SCHEME = re.compile(r"(file|local)://(?=/)")
#: Secrets with fewer characters are replaced in URLs only, as they also occur in ordinary words.
_SECRET_CHARACTERS = 4
_IN_TEXT = re.compile(r"(\w://[^\s/@:'\"]*:|(?<=http)s?://)[^\s/@]*@")


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of a database or a server.

    Attributes:
        stated: the URL as the user stated it, with its password; only this module reads it.
    """

    stated: str = field(repr=False)

    @classmethod
    def of(cls, url: str | Address) -> Address:
        """Make an address from a URL; an address is returned as it is."""
        return url if isinstance(url, Address) else cls(url)

    @classmethod
    def of_file(cls, file: Path) -> Address:
        """Make the URL of an SQLite file.

        Only `%` and `?` are escaped, so that people can read the path. Such a URL names the driver,
        because for `sqlite:///` MLflow also makes the folder that the escaped path would be.
        """
        path = str(file)
        escaped = path.replace("%", "%25").replace("?", "%3F")
        return cls(f"{'sqlite' if escaped == path else 'sqlite+pysqlite'}:///{escaped}")

    def __str__(self) -> str:
        scheme, user, password, rest = self._parts()
        return _joined(scheme, _quoted(user), password and HIDDEN, _hidden(rest))

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    @property
    def full(self) -> str:
        """The URL for a library, with user and password.

        Special characters are escaped, and a password that is missing (`***`) is left out. For
        PostgreSQL without a driver in the URL it has the driver that is installed.
        """
        scheme, user, password, rest = self._parts()
        if scheme in ("postgres", "postgresql") and importlib.util.find_spec("psycopg2") is None:
            scheme = "postgresql+psycopg"
        if HIDDEN in _query_secrets(rest):
            before, _, query = rest.partition("?")
            query = re.sub(rf"(?<![^&])[^&]*={re.escape(HIDDEN)}(&|$)", "", query).rstrip("&")
            rest = f"{before}?{query}" if query else before
        if password != HIDDEN:
            return _joined(scheme, _quoted(user), _quoted(password), rest)
        # MLflow takes user and password from the environment only together.
        return _joined(scheme, "" if self.is_http else _quoted(user), "", rest)

    @property
    def bare(self) -> str:
        """The URL as a link for people: without user and password, with `***` for other secrets."""
        scheme, _, _, rest = self._parts()
        return _joined(scheme, "", "", _hidden(rest))

    @property
    def file(self) -> Path | None:
        """The file of an SQLite database; None for any other address."""
        scheme, _, _, rest = self._parts()
        if scheme.partition("+")[0] != "sqlite":
            return None
        path = unquote(rest.partition("?")[0].removeprefix("/"))
        return Path(path).absolute() if path and path != ":memory:" else None

    @property
    def is_http(self) -> bool:
        """Whether it is the URL of an HTTP server."""
        return self.stated.startswith(("http://", "https://"))

    @property
    def is_postgres(self) -> bool:
        """Whether it is the URL of a database on a PostgreSQL server."""
        return self._parts()[0].partition("+")[0] in ("postgres", "postgresql")

    @property
    def is_incomplete(self) -> bool:
        """Whether `***` is in place of the password or another secret."""
        return HIDDEN in self._secrets()

    def completed_by(self, other: str | None) -> Address:
        """Return the other address if it is this one with the password, else this one."""
        whole = Address(other or "")
        is_same = str(whole).rstrip("/") == str(self).rstrip("/")
        return whole if is_same and self.is_incomplete else self

    def scrubbed(self, text: str) -> str:
        """Replace the address's secrets, and passwords in other URLs, in a library's message."""
        for stated in self._secrets():
            for secret in (stated, _quoted(stated), unquote(stated)):
                if len(secret) >= _SECRET_CHARACTERS:
                    text = text.replace(secret, HIDDEN)
        return _IN_TEXT.sub(rf"\1{HIDDEN}@", text)

    def _secrets(self) -> list[str]:
        """The password, and secret parts of the query."""
        _, _, password, rest = self._parts()
        return [secret for secret in (password, *_query_secrets(rest)) if secret]

    def _parts(self) -> tuple[str, str, str, str]:
        """Split the URL into scheme, user, password, and the rest from the host on."""
        scheme, separator, rest = self.stated.partition("://")
        if not separator:
            return "", "", "", self.stated
        if scheme.partition("+")[0] == "sqlite":
            return scheme, "", "", rest
        end = len(re.split(r"[/?#]", rest, maxsplit=1)[0])
        at = rest.rfind("@", 0, end)
        if at < 0 and not _HOST.fullmatch(rest[:end]):
            at = rest.rfind("@")  # the password has characters that should be escaped
        user, _, password = rest[: max(at, 0)].partition(":")
        if user and not password and scheme in ("http", "https"):
            user, password = "", user  # a token in place of user and password
        return scheme, user, password, rest[at + 1 :]


def driver_missing(error: BaseException) -> str | None:
    """Say which database driver an error of SQLAlchemy misses and how to install it, else None."""
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
    credentials = user + (password if is_token else password and f":{password}")
    return f"{scheme}://{credentials}{credentials and '@'}{rest}"


def _quoted(text: str) -> str:
    return quote(unquote(text), safe="")


def _hidden(rest: str) -> str:
    """A URL from its host on, without secrets in its query."""
    before, mark, query = rest.partition("?")
    return before + _SECRET_PART.sub(rf"\1{HIDDEN}", mark + query)


def _query_secrets(rest: str) -> list[str]:
    """The secrets in the query of a URL that begins with its host."""
    _, mark, query = rest.partition("?")
    return [value for _, value in _SECRET_PART.findall(mark + query)]
