"""Import papermill without the clients of storages that no sweep uses through it.

papermill imports boto3 and pyarrow where they are installed, as MLflow has them installed. That
takes 0.3 s of CPU, which each sweep would wait for before its first cell, and each worker of a
cluster before its first trial.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

#: The modules whose import takes long, with what papermill calls of them.
_CLIENTS = {
    "boto3.session": ("Session",),
    "pyarrow.fs": ("FileSelector", "HadoopFileSystem"),
}


def import_papermill() -> None:
    """Import papermill; its calls of the clients import them when they are made."""
    if "papermill.iorw" in sys.modules:
        return
    put = [module for module in _CLIENTS if _is_installed(module) and module not in sys.modules]
    for module in put:
        sys.modules[module] = _stand_in(module, _CLIENTS[module])
    try:
        importlib.import_module("papermill.iorw")
    finally:
        for module in put:
            del sys.modules[module]


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def _stand_in(module: str, names: tuple[str, ...]) -> ModuleType:
    stand_in = ModuleType(module)
    for name in names:
        setattr(stand_in, name, _call(module, name))
    return stand_in


def _call(module: str, name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **options)

    return call
