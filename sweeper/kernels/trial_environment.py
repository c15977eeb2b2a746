"""Code that sets environment variables in a kernel that was started before its trial was known."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping


def _python(env: Mapping[str, str]) -> str:
    # An expression leaves nothing among the notebook's variables.
    return f"__import__('os').environ.update({dict(env)!r})\n"


def _bash(env: Mapping[str, str]) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items())


def _r(env: Mapping[str, str]) -> str:
    pairs = (f"{_quoted(name)} = {_quoted(value)}" for name, value in env.items())
    return f"invisible(Sys.setenv({', '.join(pairs)}))"


def _julia(env: Mapping[str, str]) -> str:
    pairs = ((_quoted(name), _quoted(value).replace("$", "\\$")) for name, value in env.items())
    return "; ".join([*(f"ENV[{name}] = {value}" for name, value in pairs), "nothing"])


def _quoted(text: str) -> str:
    # Not escaped beyond ASCII: R does not read halves of a surrogate pair.
    return json.dumps(text, ensure_ascii=False)


_CODE: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "python": _python,
    "bash": _bash,
    "r": _r,
    "julia": _julia,
}


def can_set_environment(language: str) -> bool:
    """Whether there is code for a language, in any case."""
    return language.lower() in _CODE


def environment_code(language: str, env: Mapping[str, str]) -> str:
    """Code that sets the variables and puts nothing out."""
    return _CODE[language.lower()](env)
