"""Options of a sampler or pruner in a parameters file: arguments of the class behind its name."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator

from ..errors import SettingsError
from ..settings.messages import nearest


def check_options(
    kind: type, options: Collection[str], *, reserved: Collection[str], where: str
) -> None:
    """Refuse an option that is no argument of a class.

    Args:
        kind: a class of Optuna's, or a subclass of ours, whose own arguments are options as well.
        reserved: arguments that a parameters file cannot set.
        where: the key and the name, with which the message begins.

    Raises:
        SettingsError: with the first wrong option and what would be right.
    """
    known = [name for name in _arguments(kind) if name not in reserved]
    for option in options:
        if option not in known:
            raise SettingsError(f"{where} has no option {option!r}; {nearest(option, known)}")


def _arguments(kind: type) -> Iterator[str]:
    """Names of the arguments of a class, and of its base classes where it passes `**options` on."""
    for base in inspect.getmro(kind):
        if "__init__" not in vars(base):
            continue
        _, *parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        yield from (p.name for p in parameters if p.kind not in variable)
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            return
