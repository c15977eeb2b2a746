"""Find and mask secrets in a parameters file, which must not be published.

Values of parameters are written to executed notebooks, MLflow, the comparison page and the remote
copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .addresses import HIDDEN, Address
from .messages import problem

_SECRET = frozenset({"token", "secret", "password", "passwd", "key", "apikey"})
#: Words before `token` that name a special token of a tokenizer, as in `pad_token`. A special token
#: is not a secret.
_SPECIAL = frozenset("pad eos bos unk mask sep cls special".split())
#: Pattern of one word in names such as `api_key`, `apiKey`, `HF_TOKEN` and `--auth-token`.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Pattern of `NAME=VALUE`, as in a shell.
_ASSIGNED = re.compile(r"(?<![\w-])([\w-]+)=('[^']*'|\"[^\"]*\"|[^\s'\"]+)")


def masked(value: Any, name: str = "") -> Any:
    """Return a plain value with `***` in place of secrets.

    These are secrets: a text whose name has a word such as `token`, `secret`, `password` or `key`;
    within a text, the value after `NAME=` if NAME has such a word; the password in a URL.

    Args:
        value: Plain value.
        name: Name of the value. Empty if its name does not matter.
    """
    if isinstance(value, Mapping):
        return {key: masked(part, str(key)) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [masked(part, name) for part in value]
    if not isinstance(value, str) or not value:
        return value
    if _is_secret(name):
        return HIDDEN
    url = Address("" if re.search(r"\s", value) else value)
    return _ASSIGNED.sub(_masked_assignment, url.scrubbed(value))


def _masked_assignment(found: re.Match[str]) -> str:
    name = found[1]
    return f"{name}={HIDDEN}" if _is_secret(name) else found[0]


def refuse_secret(value: Any, name: str, *, where: str = "") -> None:
    """Check that the value of a parameter contains no secret.

    Args:
        value: Plain value.
        name: Name of the parameter. Empty if its name does not matter.
        where: Keys before the name, for the message.

    Raises:
        PydanticCustomError: The value, or a part of it, is a secret.
    """
    if repr(masked(value, name)) != repr(value):
        # Compare texts and not values, because the value NaN differs from itself.
        # `space` is no remedy for a text that looks like a secret by its value alone, because
        # `space` refuses such a text, too.
        is_by_value = isinstance(value, str) and masked(value) != value
        other = "write it in the notebook" if is_by_value else "list it in space as the only choice"
        raise problem(
            f"{where}{name}{name and ': '}looks like a secret by its name or URL, and executed "
            "notebooks, MLflow, the page and copies would show it; let the notebook read it from "
            "the environment, as in os.environ['API_KEY'], which trials inherit; if it is not a "
            f"secret, {other}"
        )


def _is_secret(name: str) -> bool:
    words = {word.lower() for word in _WORD.findall(name)}
    return not _SECRET.isdisjoint(words) and _SPECIAL.isdisjoint(words)
