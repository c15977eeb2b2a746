"""URLs of databases and servers, whose credentials are for libraries only.

As text an `Address` has `***` where its password is; so has whatever is written, printed or logged
with it.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

#: Stands for what is not shown, and for what is missing in an address that was copied from a line
#: of ours.
HIDDEN = "***"
#: Parts of a query that are secret, by their names.
_SECRET_KEY = re.compile(
    r"pass|pwd|secret|token|credential|api_?key|access_?key|odbc_connect", re.I
)
#: What stands before a path when there is no password in it.
_HOST = re.compile(r"[^:]*(:\d*)?|\[[^\]]*\](:\d*)?")
#: Shorter ones stand in many a word by chance; they are found within URLs only.
_SECRET_CHARACTERS = 4
_IN_TEXT = re.compile(r"(\w://)([^\s/@:'\"]*):[^\s/@]*@")


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of a database or a server.

    Attributes:
        given: as it was given; nobody but this module looks at it.
    """

    given: str = field(repr=False)

    @classmethod
    def of(cls, url: str | Address) -> Address:
        """An address from its text."""
        return url if isinstance(url, Address) else cls(url)

    def __str__(self) -> str:
        scheme, user, password, rest = self._parts()
        return _joined(
            scheme, _quoted(user), password and HIDDEN, _query_changed(rest, lambda _: HIDDEN)
        )

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    @property
    def full(self) -> str:
        """The URL as a library needs it.

        Without a password where that is missing, with escapes for the characters that need one,
        and for PostgreSQL with the name of the driver that is installed, where none is given.
        """
        scheme, user, password, rest = self._parts()
        if scheme in ("postgres", "postgresql") and importlib.util.find_spec("psycopg2") is None:
            scheme = "postgresql+psycopg"
        rest = _query_changed(rest, lambda value: None if value == HIDDEN else value)
        if password != HIDDEN:
            return _joined(scheme, _quoted(user), _quoted(password), rest)
        # MLflow takes both from the environment, or none.
        return _joined(scheme, "" if self.is_http else _quoted(user), "", rest)

    @property
    def bare(self) -> str:
        """The URL without user, password and secret parts of the query: a link for people."""
        scheme, _, _, rest = self._parts()
        return _joined(scheme, "", "", _query_changed(rest, lambda _: HIDDEN))

    @property
    def is_http(self) -> bool:
        """Whether it is a server's that speaks HTTP."""
        return self.given.startswith(("http://", "https://"))

    @property
    def is_incomplete(self) -> bool:
        """Whether `***` stands where the password should."""
        return HIDDEN in self._secrets()

    def completed_by(self, other: str | None) -> Address:
        """The other address if it is this one with its password, else this one."""
        whole = Address(other or "")
        is_same = str(whole).rstrip("/") == str(self).rstrip("/")
        return whole if is_same and self.is_incomplete else self

    def scrubbed(self, text: str) -> str:
        """What a library says of the address, without the password."""
        for given in self._secrets():
            for secret in (given, _quoted(given), unquote(given)):
                if len(secret) >= _SECRET_CHARACTERS:
                    text = text.replace(secret, HIDDEN)
        return _IN_TEXT.sub(rf"\1\2:{HIDDEN}@", text)

    def _secrets(self) -> list[str]:
        """The password, and secret parts of the query."""
        _, _, password, rest = self._parts()
        found = [password]

        def note(value: str) -> str:
            found.append(value)
            return value

        _query_changed(rest, note)
        return [secret for secret in found if secret]

    def _parts(self) -> tuple[str, str, str, str]:
        """Scheme, user, password, and the rest from the host on."""
        scheme, separator, rest = self.given.partition("://")
        if not separator:
            return "", "", "", self.given
        if scheme.partition("+")[0] == "sqlite":
            return scheme, "", "", rest
        end = len(re.split(r"[/?#]", rest, maxsplit=1)[0])
        at = rest.rfind("@", 0, end)
        if at < 0 and not _HOST.fullmatch(rest[:end]):
            at = rest.rfind("@")  # a password with characters that should have been escaped
        user, _, password = rest[: max(at, 0)].partition(":")
        if user and not password and scheme in ("http", "https"):
            user, password = "", user  # it is a token
        return scheme, user, password, rest[at + 1 :]


def driver_missing(error: BaseException) -> str | None:
    """Which Python package an error of SQLAlchemy's misses, and how to get it; None for others."""
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


def _query_changed(rest: str, change: Callable[[str], str | None]) -> str:
    """The part of a URL from its host on, with each secret of its query changed.

    Args:
        change: from a secret to what stands for it; None to leave it out.
    """
    before, mark, query = rest.partition("?")
    pairs = []
    for pair in query.split("&"):
        key, equals, value = pair.partition("=")
        if not (equals and _SECRET_KEY.search(key)):
            pairs.append(pair)
        elif (changed := change(value)) is not None:
            pairs.append(f"{key}={changed}")
    return f"{before}{mark if pairs else ''}{'&'.join(pairs)}"
