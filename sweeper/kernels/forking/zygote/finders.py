"""What a kernel imports in addition to its environment: this package, and modules of a snapshot.

Started kernels, and the workers that a notebook spawns, run this module as a text, so it imports
the standard library only.
"""

from __future__ import annotations

import io
import linecache
import os
import sys
from collections.abc import Callable, Mapping
from importlib import machinery
from importlib.util import decode_source, spec_from_file_location
from types import SimpleNamespace
from typing import Any

_NAME = "sweeper"
#: Modules in which IPython opens the scripts of `%run`, in its versions.
_RUNNERS = ("IPython.core.interactiveshell", "IPython.utils.py3compat")
#: Modules that start workers with an interpreter of their own.
_SPAWNERS = {
    "multiprocessing.spawn",
    "joblib.externals.loky.backend.spawn",
    "loky.backend.spawn",
}
#: Their function that describes the process to the worker, which reads the description before it
#: imports anything.
_DESCRIBE = "get_preparation_data"
#: Modules whose libraries `notebook_api.observing` knows.
_OBSERVED = {
    "fastai.learner",
    "keras.callbacks",
    "lightgbm",
    "lightning.pytorch.trainer.trainer",
    "mlflow",
    "pytorch_lightning.trainer.trainer",
    "torch.utils.tensorboard.writer",
    "transformers.trainer",
    "xgboost.callback",
}
#: The name of this module's source in a worker.
_TEXT = "_text"
#: The loaders of modules, as in every interpreter.
_LOADERS = (
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
    (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
)


def make_importable(folder: str) -> None:
    """Find the package in its folder where no other finder has found it."""

    def find_spec(name: str, *_: object) -> Any:
        if name != _NAME:
            return None
        file = os.path.join(folder, "__init__.py")
        return spec_from_file_location(name, file, submodule_search_locations=[folder])

    # Last of all: a copy that the environment or the notebook's folder has comes first.
    sys.meta_path.append(SimpleNamespace(find_spec=find_spec))


def install_snapshot_finder(text: str, snapshot: Mapping[str, str]) -> None:
    """Import the modules of a snapshot as they were, whatever lies at their places meanwhile.

    Each is found where it would be found on disk, and has that `__file__`. The same holds in the
    workers that `multiprocessing` and loky spawn, and for the scripts of `%run`.

    Args:
        text: The source of this module.
        snapshot: The sources by their absolute paths without links. Bytes that are not UTF-8 are
            lone surrogates.
    """
    if not snapshot:
        return
    sources = {path: source.encode("utf-8", "surrogateescape") for path, source in snapshot.items()}
    finder = _finder_of(sources)
    folders = _folders_of(sources)

    def hook(path: str) -> Any:
        if os.path.realpath(path or ".") not in folders:
            raise ImportError
        return finder(path, *_LOADERS)

    sys.path_hooks.insert(0, hook)
    for path in list(sys.path_importer_cache):
        if os.path.realpath(path or ".") in folders:
            del sys.path_importer_cache[path]
    _open_scripts_of_snapshot(sources)
    _install_in_workers(text, snapshot)


def _folders_of(sources: Mapping[str, bytes]) -> set[str]:
    """Return the folders in which modules of the snapshot are found."""
    folders = set()
    for path in sources:
        folder, name = os.path.split(path)
        folders.add(folder)
        if name == "__init__.py":
            folders.add(os.path.dirname(folder))
    return folders


class _Loader(machinery.SourceFileLoader):
    """Loads a module from its source in the snapshot."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def path_stats(self, path: Any) -> Any:
        """Raise an error: the compiled code next to the file is of what lies on disk."""
        raise OSError

    def get_data(self, path: Any) -> bytes:
        """Return the source of the snapshot, or another file next to it."""
        return self._source if path == self.path else super().get_data(path)

    def exec_module(self, module: Any) -> None:
        """Run the module; tracebacks and `inspect` read its source from then on."""
        _quote(self.path, self._source)
        super().exec_module(module)


def _finder_of(sources: dict[str, bytes]) -> Any:
    class Finder(machinery.FileFinder):
        """Finds in one folder what lies there, and the modules of the snapshot as they were."""

        def find_spec(self, fullname: str, target: Any = None) -> Any:
            """Find a module; an extension comes before a source, as always."""
            spec = super().find_spec(fullname, target)
            if spec is not None and isinstance(spec.loader, machinery.ExtensionFileLoader):
                return spec
            path = os.path.join(self.path, fullname.rpartition(".")[2])
            for file, folders in (
                (os.path.join(path, "__init__.py"), [path]),
                (f"{path}.py", None),
            ):
                source = sources.get(os.path.realpath(file))
                if source is not None:
                    loader = _Loader(fullname, file, source)
                    return spec_from_file_location(
                        fullname, file, loader=loader, submodule_search_locations=folders
                    )
            return spec

    return Finder


def _quote(file: str, source: bytes) -> None:
    """Keep the lines that tracebacks and `inspect` quote.

    The entry has no time, so `linecache` does not compare it with the file.
    """
    try:
        lines = decode_source(source).splitlines(True)
    except (SyntaxError, UnicodeDecodeError):  # the import raises it
        return
    linecache.cache[file] = (len(source), None, lines, file)


def _open_scripts_of_snapshot(sources: dict[str, bytes]) -> None:
    def open_script(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        source = None
        if mode == "rb" and isinstance(file, (str, os.PathLike)):
            source = sources.get(os.path.realpath(file))
        if source is None:
            return open(file, mode, *arguments, **options)
        _quote(str(os.fspath(file)), source)
        return io.BytesIO(source)

    for name in _RUNNERS:
        module = sys.modules.get(name)
        if module is not None:
            module.__dict__["open"] = open_script


class _Install:
    """Installs the finder in the worker that unpickles it, before the worker imports a module."""

    def __init__(self, text: str, snapshot: Mapping[str, str]) -> None:
        self._text = text
        self._snapshot = snapshot

    def __reduce__(self) -> Any:
        code = f"{self._text}\n\ninstall_snapshot_finder({_TEXT}, {self._snapshot!r})"
        return exec, (code, {"__name__": __name__, _TEXT: self._text})


def _install_in_workers(text: str, snapshot: Mapping[str, str]) -> None:
    def install_in_workers_of(module: Any) -> None:
        describe: Callable[..., dict[str, Any]] = getattr(module, _DESCRIBE)

        def with_snapshot(*arguments: Any, **options: Any) -> dict[str, Any]:
            return {**describe(*arguments, **options), "frozen": _Install(text, snapshot)}

        setattr(module, _DESCRIBE, with_snapshot)

    _after_import(_SPAWNERS, install_in_workers_of)


def observe_libraries() -> None:
    """Let libraries report by themselves once the notebook has imported them."""

    def observe(module: Any) -> None:
        from sweeper.notebook_api import observing

        observing.observe(module)

    _after_import(_OBSERVED, observe)


def _after_import(names: set[str], call: Callable[[Any], None]) -> None:
    """Call a function with each of these modules, now or when it has been imported."""
    for name in names & sys.modules.keys():
        call(sys.modules[name])
    # In a fork, hidden modules come back together with the package above them.
    for finder in sys.meta_path:
        hidden = getattr(finder, "hidden_modules", {})
        for name in names & hidden.keys():
            if "." in name:
                call(hidden[name])

    def run(module: Any, body: Callable[[], None]) -> None:
        body()
        call(module)

    def find_spec(name: str, *where: Any) -> Any:
        return find_and_watch(watcher, run, name, *where) if name in names else None

    watcher: Any = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, watcher)


def find_and_watch(
    watcher: Any, run: Callable[[Any, Callable[[], None]], None], name: str, *where: Any
) -> Any:
    """Find a module as the finders after `watcher` do, and let a function run its body.

    Args:
        run: Is called with the module and with a function that runs the module's body.
    """
    for finder in sys.meta_path[sys.meta_path.index(watcher) + 1 :]:
        find_spec = getattr(finder, "find_spec", None)
        spec: Any = find_spec and find_spec(name, *where)
        if spec is not None:
            if hasattr(spec.loader, "exec_module"):
                spec.loader = _Watched(spec.loader, run)
            return spec
    return None


class _Watched:
    """Loads a module whose body a function runs; leaves the module with its original loader."""

    def __init__(self, loader: Any, run: Callable[[Any, Callable[[], None]], None]) -> None:
        self._loader = loader
        self._run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        """Let the function run the body of the module."""
        module.__loader__ = self._loader
        module.__spec__.loader = self._loader
        self._run(module, lambda: self._loader.exec_module(module))
