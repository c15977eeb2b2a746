"""Repeat the effects of imports that a notebook would miss in a forked kernel.

Some modules draw random numbers from a global generator when they are imported, or print. For
example, `rich.style` and every module that imports scikit-learn draw. In a kernel that is forked
after such an import, the effect would come before the notebook sets its seed instead of after.

So these modules, and all modules that import them, are removed from `sys.modules`. When the
notebook imports one of them, the body of each module with an effect runs again, in a module object
that is thrown away. Then the modules that were imported before the fork are put back.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .finders import find_and_watch


class ImportWatch:
    """Records which modules import each other, and which modules have an effect at import.

    A module has an effect if its import draws random numbers or prints: a notebook would notice it.

    Args:
        effects: Function that returns values by name, such as the states of random generators. Each
            effect changes at least one value. The function is called with the names of the modules
            that are being imported.

    Attributes:
        acting: Modules whose import has an effect, in the order in which their bodies began to run.
        threads: Module whose import started a thread, by the system's id of the thread.
    """

    def __init__(self, effects: Callable[[list[str]], Mapping[str, Any]]) -> None:
        self._effects = effects
        self._known = set(sys.modules)
        self._imported_by: dict[str, set[str]] = {}
        self._running: list[str] = []
        self._last: Mapping[str, Any] = {}
        #: Whether the import of a module drew random numbers or printed, by the module's name, in
        #: the order in which the bodies of the modules began to run.
        self._acts: dict[str, bool] = {}
        self._tasks: set[int] = set()
        self.threads: dict[int, str] = {}

    def __enter__(self) -> ImportWatch:
        self._last = self._effects([])
        self._tasks = _threads()
        self._original = builtins.__import__
        builtins.__import__ = self._import
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._original
        sys.meta_path.remove(self)

    @property
    def acting(self) -> list[str]:
        """Modules whose import draws random numbers or prints, in the order of their imports."""
        return [name for name, acts in self._acts.items() if acts]

    def importers_of(self, names: Iterable[str]) -> set[str]:
        """Return these modules, and all modules that import them directly or indirectly.

        Modules that were imported before the watch began are left out.
        """
        return _reached(names, self._imported_by) - self._known

    def hide(self, names: Iterable[str]) -> None:
        """Remove modules from `sys.modules` until they are imported again."""
        modules = {name: sys.modules[name] for name in names if name in sys.modules}
        if not modules:
            return
        needs: dict[str, set[str]] = {name: set() for name in modules}
        for name in modules:
            for importer in self._imported_by.get(name, ()):
                if importer in needs:
                    needs[importer].add(name)
        sys.meta_path.insert(0, _Hidden(modules, needs, self.acting))

    def find_spec(self, name: str, *where: Any) -> Any:
        """Find a module as the other finders do, and let `_run` execute its body."""
        return find_and_watch(self, self._run, name, *where)

    def _run(self, module: ModuleType, body: Callable[[], None]) -> None:
        """Run a module's body. Record whether it draws random numbers, prints or starts threads.

        If the body imports another module, the other module's effects are recorded only for that
        module.
        """
        assert module.__spec__ is not None
        name = module.__spec__.name
        self._see(name)
        self._running.append(name)
        self._acts.setdefault(name, False)
        try:
            body()
        finally:
            self._see()
            self._running.pop()

    def _see(self, *beginning: str) -> None:
        """Record effects and new threads since the last call, for the module whose body is running.

        Args:
            *beginning: Name of the module whose body is about to run, if there is one.
        """
        now = self._effects([*self._running, *beginning])
        tasks = _threads()
        if self._running:
            body = self._running[-1]
            if any(now[name] != value for name, value in self._last.items()):
                self._acts[body] = True
            self.threads.update(dict.fromkeys(tasks - self._tasks, body))
        self._last = now
        self._tasks = tasks

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> ModuleType:
        module: ModuleType = self._original(name, globals, locals, fromlist, level)
        if not self._running:
            return module
        importer = str((globals or {}).get("__name__", ""))
        if importer not in self._running:
            # The import is in a function of `importer`. The module whose body is running has called
            # this function, so that module counts as the importer.
            importer = self._running[-1]
        if not fromlist and not level:
            self._note(importer, name)
            return module
        self._note(importer, module.__name__)
        for part in fromlist or ():
            self._note(importer, f"{module.__name__}.{part}")
        return module

    def _note(self, importer: str, name: str) -> None:
        if name not in sys.modules:
            return
        self._imported_by.setdefault(name, set()).add(importer)
        while "." in name:  # The import of a module also imports its parent packages.
            package = name.rpartition(".")[0]
            self._imported_by.setdefault(package, set()).add(name)
            name = package


class _Hidden:
    """Finds modules that were removed from `sys.modules`, and restores them with their effects.

    Args:
        modules: Hidden modules by name.
        needs: By the name of each hidden module, the names of the hidden modules that it imports.
        acting: Modules whose import draws random numbers or prints. Their bodies run again, in this
            order.
    """

    def __init__(
        self,
        modules: dict[str, ModuleType],
        needs: Mapping[str, set[str]],
        acting: Iterable[str],
    ) -> None:
        self.hidden_modules = modules
        self._specs = {name: module.__spec__ for name, module in modules.items()}
        self._needs = needs
        self._acting = dict.fromkeys(acting, True)
        for name in modules:
            del sys.modules[name]

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Find a hidden module; see `importlib.abc.MetaPathFinder`."""
        if name not in self.hidden_modules:
            return None
        original = self._specs[name]
        assert original is not None
        spec = ModuleSpec(name, self, origin=original.origin)  # type: ignore[arg-type]
        spec.submodule_search_locations = original.submodule_search_locations
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that was imported before."""
        return self.hidden_modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Repeat the effects of a module's import, and restore the module.

        The same is done for all hidden modules that it imports directly or indirectly.
        """
        assert module.__spec__ is not None
        name = module.__spec__.name
        module.__spec__ = self._specs[name]
        needed = _reached([name], self._needs)
        for acting in list(self._acting):
            # The body of each module with an effect runs again only once. Another module or thread
            # may have run this module's body since the list was made.
            if acting in needed and self._acting.pop(acting, False):
                self._run_again(acting)
        for other in needed:
            hidden = self.hidden_modules.pop(other, None)
            if hidden is not None:
                sys.modules[other] = hidden
        if not self.hidden_modules and self in sys.meta_path:
            sys.meta_path.remove(self)

    def _run_again(self, name: str) -> None:
        spec = self._specs[name]
        before = self.hidden_modules.get(name, sys.modules.get(name))
        assert spec is not None and spec.loader is not None and before is not None
        again = importlib.util.module_from_spec(spec)
        sys.modules[name] = again
        try:
            spec.loader.exec_module(again)
        finally:
            sys.modules[name] = before


def _reached(names: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    """Return some nodes of a directed graph, and all nodes that can be reached from them.

    Args:
        names: Names of the nodes.
        edges: By the name of a node, the names of the nodes to which its edges lead.
    """
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges.get(name, ())
    return found


def _threads() -> set[int]:
    return {int(entry) for entry in os.listdir("/proc/self/task")}
