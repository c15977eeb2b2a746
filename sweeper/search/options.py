"""Check the options of a sampler or pruner against the arguments of its class."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator

from ..errors import SettingsError
from ..settings.messages import nearest


def check_options(
    kind: type, options: Collection[str], *, reserved: Collection[str], where: str
) -> None:
    """Refuse an option that is not an argument of a class.

    Args:
        kind: Class of Optuna, or a subclass of one. The arguments of the subclass are options, too.
        options: Names of the options in the parameters file.
        reserved: Arguments that a parameters file cannot set.
        where: Key and name of the sampler or pruner, for the message.

    Raises:
        SettingsError: There is no such option. The message names the most similar option.
    """
    known = [name for name in _arguments(kind) if name not in reserved]
    for option in options:
        if option not in known:
            raise SettingsError(f"{where} has no option {option!r}; {nearest(option, known)}")


def _arguments(kind: type) -> Iterator[str]:
    """Yield the names of a class's arguments.

    If the class passes `**options` on, yield also the arguments of its base classes.
    """
    for base in inspect.getmro(kind):
        if "__init__" not in vars(base):
            continue
        _, *parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        yield from (p.name for p in parameters if p.kind not in variable)
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            return
