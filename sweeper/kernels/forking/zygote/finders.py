"""What a kernel imports beside its environment: this package, and modules of a snapshot.

Also run as a text in kernels that are started and in the workers that a notebook spawns, so it
imports the standard library only.
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
#: Modules that start workers with an interpreter of their own, and their function that describes
#: the process to the worker, which reads the description before it imports anything.
_SPAWNERS = {
    *("multiprocessing.spawn", "joblib.externals.loky.backend.spawn", "loky.backend.spawn"),
}
_DESCRIBE = "get_preparation_data"
#: Modules whose libraries `notebook_api.observing` knows.
_OBSERVED = {
    *("fastai.learner", "keras.callbacks", "lightgbm", "lightning.pytorch.trainer.trainer"),
    *("mlflow", "pytorch_lightning.trainer.trainer", "torch.utils.tensorboard.writer"),
    *("transformers.trainer", "xgboost.callback"),
}
#: The name of this module's source in a worker.
_TEXT = "_text"


def make_importable(folder: str) -> None:
    """Find the package in a folder where no other finder has found it.

    Args:
        folder: of the package.
    """

    def find_spec(name: str, *_: object) -> Any:
        if name != _NAME:
            return None
        file = os.path.join(folder, "__init__.py")
        return spec_from_file_location(name, file, submodule_search_locations=[folder])

    # Last of all: a copy that the environment or the notebook's folder has comes first.
    sys.meta_path.append(SimpleNamespace(find_spec=find_spec))


def install_snapshot_finder(text: str, snapshot: Mapping[str, str]) -> None:
    """Import the modules of a snapshot as they were, whatever lies at their places meanwhile.

    Each is found where it would be found on disk, and has that `__file__`. So do the workers that
    `multiprocessing` and loky spawn, and the scripts of `%run`.

    Args:
        text: the source of this module.
        snapshot: the sources by their absolute paths without links; bytes that are not UTF-8 stand
            as lone surrogates.
    """
    if not snapshot:
        return
    sources = {path: source.encode("utf-8", "surrogateescape") for path, source in snapshot.items()}
    finder = _finder_of(sources)
    folders = {os.path.dirname(path) for path in sources}
    folders |= {
        os.path.dirname(os.path.dirname(path))
        for path in sources
        if os.path.basename(path) == "__init__.py"
    }

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


#: As in every interpreter.
_LOADERS = (
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
    (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
)


class _Loader(machinery.SourceFileLoader):
    """Loads a module from its source in the snapshot."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def path_stats(self, path: Any) -> Any:
        """Raise an error: the compiled code beside the file is of what lies on disk."""
        raise OSError

    def get_data(self, path: Any) -> bytes:
        """The source of the snapshot, or whatever else lies beside it."""
        return self._source if path == self.path else super().get_data(path)

    def exec_module(self, module: Any) -> None:
        """Run the module; tracebacks and `inspect` read the same source from then on."""
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
            place = os.path.join(self.path, fullname.rpartition(".")[2])
            package = os.path.join(place, "__init__.py"), [place]
            for file, inside in (package, (place + ".py", None)):
                source = sources.get(os.path.realpath(file))
                if source is not None:
                    loader = _Loader(fullname, file, source)
                    return spec_from_file_location(
                        fullname, file, loader=loader, submodule_search_locations=inside
                    )
            return spec

    return Finder


def _quote(file: str, source: bytes) -> None:
    """Keep the lines that tracebacks and `inspect` quote; without a time they stay as they are."""
    try:
        lines = decode_source(source).splitlines(True)
    except (SyntaxError, UnicodeDecodeError):  # the import raises it
        return
    linecache.cache[file] = (len(source), None, lines, file)


def _open_scripts_of_snapshot(sources: dict[str, bytes]) -> None:
    def open_script(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode == "rb" and isinstance(file, (str, os.PathLike)):
            name = os.fspath(file)
            source = sources.get(os.path.realpath(name))
            if source is not None:
                _quote(str(name), source)
                return io.BytesIO(source)
        return open(file, mode, *arguments, **options)

    for name in _RUNNERS:
        module = sys.modules.get(name)
        if module is not None:
            module.__dict__["open"] = open_script


class _Install:
    """Unpickled in a worker, it installs the finder there, before any of them is imported."""

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
    """Have libraries report by themselves once the notebook has imported them."""

    def observe(module: Any) -> None:
        from sweeper.notebook_api import observing

        observing.observe(module)

    _after_import(_OBSERVED, observe)


def _after_import(names: set[str], call: Callable[[Any], None]) -> None:
    """Call a function with each of these modules, now or when it has been imported."""
    for name in names & sys.modules.keys():
        call(sys.modules[name])
    # In a fork these come back with the package above them.
    for place in sys.meta_path:
        hidden = getattr(place, "hidden_modules", {})
        for name in [it for it in names & hidden.keys() if "." in it]:
            call(hidden[name])

    def run(module: Any, body: Callable[[], None]) -> None:
        body()
        call(module)

    def find_spec(name: str, *where: Any) -> Any:
        return find_and_watch(finder, run, name, *where) if name in names else None

    finder: Any = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)


def find_and_watch(
    finder: Any, run: Callable[[Any, Callable[[], None]], None], name: str, *where: Any
) -> Any:
    """Find a module as the finders after one do, and have its body run by a function."""
    for other in sys.meta_path[sys.meta_path.index(finder) + 1 :]:
        find = getattr(other, "find_spec", None)
        spec: Any = find and find(name, *where)
        if spec is not None:
            if hasattr(spec.loader, "exec_module"):
                spec.loader = _Watched(spec.loader, run)
            return spec
    return None


class _Watched:
    """The loader of a module whose body a function runs; the module is left with its own loader."""

    def __init__(self, loader: Any, run: Callable[[Any, Callable[[], None]], None]) -> None:
        self._loader = loader
        self._run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        """Have the function run the body of the module."""
        module.__spec__.loader = module.__loader__ = self._loader
        self._run(module, lambda: self._loader.exec_module(module))
