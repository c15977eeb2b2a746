"""Make the package `sweeper` and the modules of a snapshot importable in a kernel.

A snapshot has the notebook's local modules as they were when the sweep began.

Fresh kernels, and the worker processes that a notebook spawns, run the source of this module. So
it imports only the standard library.
"""

from __future__ import annotations

import io
import json
import linecache
import os
import random
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import machinery
from importlib.util import decode_source, spec_from_file_location
from types import SimpleNamespace
from typing import Any

_NAME = "sweeper"
#: Modules of IPython in which `%run` opens scripts, depending on IPython's version.
_RUNNERS = ("IPython.core.interactiveshell", "IPython.utils.py3compat")
#: Module of IPython's extension that reloads modules whose files have changed.
_RELOADER = "IPython.extensions.autoreload"
#: Modules that start worker processes with a new interpreter.
_SPAWNERS = {
    "multiprocessing.spawn",
    "joblib.externals.loky.backend.spawn",
    "loky.backend.spawn",
}
#: Name of a function in the modules of `_SPAWNERS`. It returns data about the parent process, which
#: a worker unpickles before it imports anything.
_DESCRIBE = "get_preparation_data"
#: Modules of the libraries whose logged metrics `notebook_api.observing` can read.
_OBSERVED = {
    "fastai.learner",
    "keras.callbacks",
    "keras.src.callbacks",
    "lightgbm",
    "lightning.pytorch.trainer.trainer",
    "mlflow",
    "pytorch_lightning.trainer.trainer",
    "tf_keras.src.callbacks",
    "torch.utils.tensorboard.writer",
    "transformers.trainer",
    "xgboost.callback",
}
#: Functions that seed the random generators of libraries, by the module that has them.
_SEED: Mapping[str, Callable[[Any, int], object]] = {
    "numpy.random": lambda module, seed: module.seed(seed),
    "torch": lambda module, seed: module.manual_seed(seed),
    "tensorflow": lambda module, seed: module.random.set_seed(seed),
}
#: Name of the variable that holds this module's source in a worker.
_TEXT = "_text"
#: Function that is called in place of a module's body, with the module and with a function that
#: runs the body.
_RunBody = Callable[[Any, Callable[[], None]], None]
#: Python's standard loaders of modules, each with the suffixes of its files.
_LOADERS = (
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
    (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
)


def install(text: str, folder: str, snapshot: Mapping[str, str]) -> None:
    """Make the package `sweeper` and the modules of a snapshot importable.

    They also become importable in workers that `multiprocessing` and loky spawn.

    Args:
        text: Source of this module.
        folder: Folder of the package.
        snapshot: Sources of the notebook's local modules when the sweep began, by absolute path
            without symbolic links. Lone surrogates stand for bytes that are not UTF-8.
    """
    _make_importable(folder)
    if snapshot:
        _install_snapshot_finder(snapshot)
    _install_in_workers(text, folder, snapshot)


def _make_importable(folder: str) -> None:
    """Make the package `sweeper` importable from its folder, if it is not found elsewhere."""

    def find_spec(name: str, *_: object) -> Any:
        if name != _NAME:
            return None
        file = os.path.join(folder, "__init__.py")
        return spec_from_file_location(name, file, submodule_search_locations=[folder])

    # Append the finder, so that a copy of the package in the environment or in the notebook's
    # folder is found first.
    sys.meta_path.append(SimpleNamespace(find_spec=find_spec))


def _install_snapshot_finder(snapshot: Mapping[str, str]) -> None:
    """Let imports load the modules of a snapshot as they were, even if their files have changed.

    Each module is found under the path of its file on disk, and has this path as `__file__`. `%run`
    reads scripts from the snapshot, too.
    """
    sources = {path: source.encode("utf-8", "surrogateescape") for path, source in snapshot.items()}
    folders = _folders_of(sources)

    def hook(path: str) -> Any:
        if os.path.realpath(path or ".") not in folders:
            raise ImportError
        return _Finder(path, sources)

    sys.path_hooks.insert(0, hook)
    for path in list(sys.path_importer_cache):
        if os.path.realpath(path or ".") in folders:
            del sys.path_importer_cache[path]
    _open_scripts_of_snapshot(sources)
    _run_notebooks_of_snapshot(sources)
    _after_import({_RELOADER}, lambda module: _keep_from_reloading(module.ModuleReloader, sources))


def _folders_of(sources: Mapping[str, bytes]) -> set[str]:
    """Return the folders that must be on Python's search path to import the sweep's snapshot.

    Args:
        sources: Contents of the local modules as the sweep found them at its start, by path.
    """
    folders = set()
    for path in sources:
        folder, name = os.path.split(path)
        folders.add(folder)
        if name == "__init__.py":
            folders.add(os.path.dirname(folder))
    return folders


class _Loader(machinery.SourceFileLoader):
    """Loads a module from its source in the snapshot, not from its file on disk."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def path_stats(self, path: Any) -> Any:
        """Raise `OSError`, so that importlib ignores the bytecode next to the file.

        The bytecode was compiled from the file on disk, which may differ from the snapshot.
        """
        raise OSError

    def get_data(self, path: Any) -> bytes:
        """Return the source from the snapshot. Read other files from the disk."""
        return self._source if path == self.path else super().get_data(path)

    def exec_module(self, module: Any) -> None:
        """Store the module's source for tracebacks and `inspect`, and run the module."""
        _quote(self.path, self._source)
        super().exec_module(module)


class _Finder(machinery.FileFinder):
    """Finds the modules in one folder. Modules of the snapshot are loaded from the snapshot."""

    def __init__(self, path: str, sources: Mapping[str, bytes]) -> None:
        super().__init__(path, *_LOADERS)
        self._sources = sources

    def find_spec(self, fullname: str, target: Any = None) -> Any:
        """Find a module. As in Python, an extension module comes before a source file."""
        spec = super().find_spec(fullname, target)
        if spec is not None and isinstance(spec.loader, machinery.ExtensionFileLoader):
            return spec
        path = os.path.join(self.path, fullname.rpartition(".")[2])
        package = os.path.join(path, "__init__.py")
        frozen = self._frozen(fullname, package, [path]) or self._frozen(fullname, f"{path}.py")
        return frozen or spec

    def _frozen(self, name: str, file: str, folders: Any = None) -> Any:
        """Return the spec of a module of the snapshot. None if the file is not in the snapshot."""
        source = self._sources.get(os.path.realpath(file))
        if source is None:
            return None
        loader = _Loader(name, file, source)
        return spec_from_file_location(
            name, file, loader=loader, submodule_search_locations=folders
        )


def _quote(file: str, source: bytes) -> None:
    """Store the source lines that tracebacks and `inspect` show.

    The entry in `linecache` has no modification time, so `linecache` does not compare it with the
    file.
    """
    try:
        lines = decode_source(source).splitlines(True)
    except (SyntaxError, UnicodeDecodeError):  # The import will raise this error, too.
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


def _run_notebooks_of_snapshot(sources: dict[str, bytes]) -> None:
    """Let `%run` run notebooks and `.ipy` scripts from the snapshot, not from their files on disk.

    IPython does not read these files with the `open` that `_open_scripts_of_snapshot` replaces.
    """
    module: Any = sys.modules.get(_RUNNERS[0])
    if module is None:
        return
    run = module.InteractiveShell.safe_execfile_ipy

    def run_frozen(
        shell: Any, fname: Any, shell_futures: bool = False, raise_exceptions: bool = False
    ) -> None:
        path = os.path.realpath(os.path.expanduser(fname))
        if path not in sources:
            run(shell, fname, shell_futures, raise_exceptions)
            return
        folder = os.path.dirname(path)
        sys.path.insert(0, folder)
        try:
            for cell in _cells_of(path, sources[path].decode("utf-8", "replace")):
                result = shell.run_cell(cell, silent=True, shell_futures=shell_futures)
                if raise_exceptions:
                    result.raise_error()
                elif not result.success:
                    break
        finally:
            if folder in sys.path:
                sys.path.remove(folder)

    module.InteractiveShell.safe_execfile_ipy = run_frozen


def _cells_of(path: str, text: str) -> list[str]:
    """Return the code cells of a notebook. For a script, return its whole text as one cell."""
    if not path.lower().endswith(".ipynb"):
        return [text]
    cells = json.loads(text)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _keep_from_reloading(reloader: Any, sources: Mapping[str, bytes]) -> None:
    """Let IPython's `autoreload` ignore the modules of the snapshot.

    `autoreload` would read their files on disk, and replace the functions of imported modules.

    Args:
        reloader: IPython's class `ModuleReloader`, which is changed in place.
        sources: Sources of the modules, by absolute path without symbolic links.
    """
    look_up = reloader.filename_and_mtime

    def filename_and_mtime(self: Any, module: Any) -> Any:
        file, modified_s = look_up(self, module)
        if file is not None and os.path.realpath(file) in sources:
            return None, None
        return file, modified_s

    reloader.filename_and_mtime = filename_and_mtime


class _Install:
    """Object that calls `install` when it is unpickled, which a worker does before any import."""

    def __init__(self, text: str, folder: str, snapshot: Mapping[str, str]) -> None:
        self._text = text
        self._call = f"install({_TEXT}, {folder!r}, {dict(snapshot)!r})"

    def __reduce__(self) -> Any:
        code = f"{self._text}\n\n{self._call}"
        return exec, (code, {"__name__": __name__, _TEXT: self._text})


def _install_in_workers(text: str, folder: str, snapshot: Mapping[str, str]) -> None:
    def install_in_workers_of(module: Any) -> None:
        describe: Callable[..., dict[str, Any]] = getattr(module, _DESCRIBE)

        def with_snapshot(*arguments: Any, **options: Any) -> dict[str, Any]:
            return {**describe(*arguments, **options), "sweeper": _Install(text, folder, snapshot)}

        setattr(module, _DESCRIBE, with_snapshot)

    _after_import(_SPAWNERS, install_in_workers_of)


def seed_generators(seed: int, without: Collection[str] = ()) -> None:
    """Seed the generators of `random` and of libraries, as if the notebook's first line did it.

    So a notebook that sets no seed itself draws the same numbers whenever it runs with this seed.
    Libraries that are not imported yet are seeded when they are imported. TensorFlow's seed is also
    Keras' seed.

    Args:
        seed: Seed, an integer of 31 bits.
        without: Libraries that are not seeded. In each trial, their generators continue from where
            the cells tagged `shared` have left them.
    """

    def seed_library(module: Any) -> None:
        try:
            _SEED[module.__name__](module, seed)
        except Exception as error:  # noqa: BLE001  The notebook's import must not fail by this.
            warnings.warn(f"{module.__name__} cannot be seeded: {error}", stacklevel=2)

    random.seed(seed)
    _after_import({name for name in _SEED if name.partition(".")[0] not in without}, seed_library)


def observe_libraries() -> None:
    """Report metrics that libraries such as Keras log, as if the notebook reported them.

    A library is observed from the moment when the notebook imports it.
    """

    def observe(module: Any) -> None:
        try:
            from sweeper.notebook_api import observing

            observing.observe(module)
        except Exception as error:  # noqa: BLE001  The notebook's import must not fail by this.
            warnings.warn(
                f"the sweep does not get the metrics that {module.__name__} logs: {error}",
                stacklevel=2,
            )

    _after_import(_OBSERVED, observe)


def _after_import(names: set[str], call: Callable[[Any], None]) -> None:
    """Call a function with each of these modules: now, or as soon as the module is imported."""
    for name in names & sys.modules.keys():
        call(sys.modules[name])
    # In a fork, a hidden submodule (see `imports.py`) is restored together with its parent package,
    # without an import of its own. So call the function with the submodule now.
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


def find_and_watch(watcher: Any, run: _RunBody, name: str, *where: Any) -> Any:
    """Find a module as the finders after `watcher` do, and let `run` execute the module's body.

    Args:
        watcher: Finder in `sys.meta_path` that calls this function.
        run: Function that is called in place of the module's body.
        name: Name of the module.
        *where: Further arguments of `find_spec`.
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
    """Loader that lets a function run a module's body.

    In the module, `__loader__` is the original loader.
    """

    def __init__(self, loader: Any, run: _RunBody) -> None:
        self._loader = loader
        self._run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        """Call the function that runs the body of the module."""
        module.__loader__ = self._loader
        module.__spec__.loader = self._loader
        self._run(module, lambda: self._loader.exec_module(module))
