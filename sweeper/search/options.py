"""Check the options of a sampler or pruner against the arguments of its class."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from inspect import Parameter
from types import NoneType
from typing import Any

from ..errors import SettingsError
from ..settings.messages import as_yaml, nearest

#: Types that an option in a parameters file can have, by their names in the annotations of Optuna's
#: classes.
_TYPES = {"bool": bool, "int": int, "float": float, "str": str, "dict": dict, "None": NoneType}
_IN_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: "a mapping",
}


def options_of(kind: type) -> dict[str, Parameter]:
    """Return the arguments of a sampler or pruner that a parameters file can set, by name.

    An argument is left out if one of its types is not in `_TYPES`, because a parameters file cannot
    state such a value, for example a function. If the class accepts `**options`, the arguments of
    its base class are options, too.

    Args:
        kind: Class of the sampler or pruner.
    """
    found: dict[str, Parameter] = {}
    for base in inspect.getmro(kind):
        if "__init__" not in vars(base):
            continue
        _, *parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        of_base = {parameter.name: parameter for parameter in parameters if _types(parameter)}
        found = of_base | found
        if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
            break
    return found


def check_options(
    kind: type, options: Mapping[str, Any], *, reserved: Collection[str], where: str
) -> None:
    """Check that options are arguments of a class, and that their values have the right types.

    Args:
        kind: Class of a sampler or pruner.
        options: Options in the parameters file.
        reserved: Arguments that a parameters file cannot set.
        where: File, key and name of the sampler or pruner, for the message, such as
            `my.yml: study.sampler: tpe`.

    Raises:
        SettingsError: The class has no such argument, or the value of an option does not have the
            type of the argument.
    """
    known = options_of(kind)
    for name in reserved:
        known.pop(name, None)
    for option, value in options.items():
        if option not in known:
            raise SettingsError(f"{where} has no option {option!r}; {nearest(option, known)}")
        types = _types(known[option])
        if not _has_type(value, types):
            wanted = " or ".join(_IN_WORDS[t] for t in types if t is not NoneType)
            raise SettingsError(f"{where}: {option}: expected {wanted}; got {as_yaml(value)}")


def _types(parameter: Parameter) -> tuple[type, ...]:
    """Return the types that an argument can have, from its annotation.

    Empty if a parameters file cannot state values of one of these types, because it is not in
    `_TYPES`. Empty also for `*args` and `**kwargs`.
    """
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        return ()
    types = []
    for annotation in inspect.formatannotation(parameter.annotation).strip("'").split("|"):
        name = annotation.partition("[")[0].strip()
        if name not in _TYPES:
            return ()
        types.append(_TYPES[name])
    return tuple(types)


def _has_type(value: object, types: tuple[type, ...]) -> bool:
    if isinstance(value, bool):  # In Python, True and False are integers, too.
        return bool in types
    return isinstance(value, types) or (isinstance(value, int) and float in types)
