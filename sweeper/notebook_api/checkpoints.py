"""A training's whole state in one file: a new one is complete before the last one goes.

Runs in the kernel; `checkpoint_files` serves the coordinator as well. torch and numpy are used
where the notebook has imported them. A checkpoint is a pickle (torch's, where there is torch),
and so it is code as a notebook is: load only your own.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import random
import re
import sys
import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from .calls import trial
from .sealed import SealedFile, is_untouched

_FORMAT = 1
_NAME = re.compile(r"(\d{6,})\.ckpt")
_PART = ".part"


def save_checkpoint(*, keep: int = 1, in_background: bool = False, **state: Any) -> Path:
    """Save the state of a training into this trial's own folder, between two epochs.

    The file holds what is given and the random states of `random`, numpy and torch (CPU, and
    CUDA if it runs). It is written beside the last one, which goes only when the new one is on
    the disk: there is room needed for one more than `keep`. Run by hand, the folder is
    `./checkpoints/by-hand`; delete it to begin anew.

    Args:
        keep: how many of the newest stay, 1 or more.
        in_background: copy the state to the CPU's memory and return; a thread writes it, and ends
            before the interpreter does. The next save waits for it. If it fails, the next save or
            load raises its error; so save the last epoch without it.
        **state: what has a `state_dict()` (model, optimizer, scheduler, GradScaler, a
            `seeded_loader`) is stored as that; all else as it is: numbers, text, lists, dicts,
            numpy arrays, tensors.

    Returns:
        The checkpoint's path; in the background it may not be there yet.

    Raises:
        TypeError: something cannot be stored; nothing was written.
        OSError: the disk is full or the folder read-only; the last checkpoint is still there.
    """
    if not isinstance(keep, int) or keep < 1:
        raise ValueError(f"save_checkpoint(keep=…): expected 1 or more, got {keep!r}")
    with _lock:
        _finish_background()
        told = trial()
        content: dict[str, Any] = {
            "format": _FORMAT,
            "run_id": told.run_id,
            "attempt": told.attempt,
            "random": _random_states(),
            "states": {},
            "values": {},
        }
        for name, given in state.items():
            kind, value = ("states", given.state_dict()) if _has_state(given) else ("values", given)
            content[kind][name] = _taken(name, value, copy=in_background, plain=kind == "values")
        folder = Path(os.path.abspath(told.folder))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            number = 1 + sum(int(newest.stem) for newest in checkpoint_files(folder)[:1])
        except OSError as error:
            raise _not_written(folder, error) from error
        path = folder / f"{number:06d}.ckpt"
        if in_background:
            global _background
            writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sweeper-checkpoint")
            _background = writer.submit(_write, content, path, keep=keep)
            writer.shutdown(wait=False)  # the thread ends with its work
        else:
            _write(content, path, keep=keep)
    return path


def load_checkpoint(**state: Any) -> dict[str, Any] | None:
    """Go on from this trial's newest complete checkpoint, if there is one.

    The state of each given object is restored in place, on the device where the object lives, and
    last of all the random states, so that the training continues with the same bits::

        saved = sweeper.load_checkpoint(model=model, optimizer=optimizer, loader=loader)
        first = (saved or {"epoch": -1})["epoch"] + 1

    A file that is torn or changed is passed over with a warning. Call it when all objects are
    built, right before the first epoch.

    Args:
        **state: the objects with a `load_state_dict()`, under the names they were saved by.

    Returns:
        The other values that were saved, tensors on the CPU. None where there is no checkpoint:
        in the first attempt, and the first time by hand.

    Raises:
        ValueError: a name is not in the checkpoint, or a state does not fit its object.
        TypeError: an object has no `load_state_dict()`.
        OSError: a file cannot be read, or the last write in the background failed.
    """
    with _lock:
        _finish_background()
    found = _newest_complete(Path(trial().folder))
    if found is None:
        return None
    path, content = found
    states, values = content["states"], content["values"]
    for name, target in state.items():  # all of them, before any is touched
        _check_target(name, target, path, content)
    for name, target in state.items():
        try:
            target.load_state_dict(states[name] if name in states else values[name])
        except Exception as error:
            raise ValueError(
                f"load_checkpoint({name}=…): the state in {path} does not fit this "
                f"{type(target).__name__}: {error}"
            ) from error
    if forgotten := [name for name in states if name not in state]:
        warnings.warn(
            f"load_checkpoint: {path} also has the state of {', '.join(forgotten)}, which is not "
            "restored; to go on exactly, pass the same objects that were saved",
            stacklevel=2,
        )
    _restore_random_states(content["random"])
    return {name: value for name, value in values.items() if name not in state}


def checkpoint_files(folder: Path) -> list[Path]:
    """The finished checkpoints of one trial, newest first; none where there is no such folder."""
    with suppress(FileNotFoundError):
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
        names.sort(key=lambda name: int(name.partition(".")[0]), reverse=True)
        return [Path(folder, name) for name in names]
    return []


# --- what is stored --------------------------------------------------------------------------

_lock = threading.Lock()
_background: Future[None] | None = None


def _finish_background() -> None:
    """Wait for the write that runs, if one does, and raise what it raised."""
    global _background
    if _background is not None:
        _background.exception()  # an interrupt while waiting leaves it to the next call
        written, _background = _background, None
        written.result()


def _forget_background() -> None:
    """A forked child has no thread to wait for."""
    global _lock, _background
    _lock, _background = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_background)


def _has_state(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and not isinstance(value, type)


def _taken(name: str, value: Any, *, copy: bool, plain: bool = False) -> Any:
    """What was given, known to be storable; with `copy` a deep copy of it on the CPU."""
    file = io.BytesIO() if copy else _Nowhere()
    taker = _Taker(file, copy=copy, plain=plain)
    try:
        taker.dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise TypeError(
            f"save_checkpoint({name}=…): a {type(value).__name__} cannot be stored: {error}; "
            "expected an object with state_dict(), or numbers, text, lists, dicts, arrays, tensors"
        ) from error
    if isinstance(file, _Nowhere):
        return value
    file.seek(0)
    return _Giver(file, taker.tensors).load()


class _Taker(pickle.Pickler):
    """Pickles all but the bulk of a value, to see that it can be done, or to copy it."""

    def __init__(self, file: Any, *, copy: bool, plain: bool) -> None:
        # Without a copy the arrays need not be looked into: the callback drops their bytes.
        options: Any = {} if copy else {"buffer_callback": lambda _: None}
        super().__init__(file, protocol=5, **options)
        torch = sys.modules.get("torch")
        self._tensor: Any = () if torch is None else torch.Tensor
        self._copy, self._plain = copy, plain
        self.tensors: list[Any] = []

    def persistent_id(self, value: Any) -> int | None:
        if isinstance(value, self._tensor):
            self.tensors.append(value.detach().to("cpu", copy=True) if self._copy else None)
            return len(self.tensors) - 1
        if self._plain and _has_state(value):
            # Unpickled it would be another object, and the one in the notebook not restored.
            raise TypeError(f"the {type(value).__name__} in it needs a name of its own")
        return None


class _Giver(pickle.Unpickler):
    def __init__(self, file: IO[bytes], tensors: list[Any]) -> None:
        super().__init__(file)
        self.persistent_load = tensors.__getitem__  # type: ignore[method-assign]


class _Nowhere:
    def write(self, data: Any) -> None:
        pass


def _random_states() -> dict[str, Any]:
    states: dict[str, Any] = {"python": random.getstate()}
    if numpy := sys.modules.get("numpy"):
        states["numpy"] = numpy.random.get_state()
    if torch := sys.modules.get("torch"):
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def _restore_random_states(states: Mapping[str, Any]) -> None:
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy as np

        np.random.set_state(states["numpy"])
    if "torch" in states:
        import torch

        torch.set_rng_state(states["torch"])
        if "cuda" in states and torch.cuda.is_available():
            for device, state in zip(
                range(torch.cuda.device_count()), states["cuda"], strict=False
            ):
                torch.cuda.set_rng_state(state, device)


# --- the file --------------------------------------------------------------------------------


def _write(content: Mapping[str, Any], path: Path, *, keep: int) -> None:
    part = path.with_name(path.name + _PART)
    try:
        for abandoned in path.parent.glob(f"*.ckpt{_PART}"):  # by an attempt that was killed
            abandoned.unlink(missing_ok=True)
        with part.open("wb") as file:
            sealed = SealedFile(file)
            if torch := sys.modules.get("torch"):
                torch.save(content, sealed, pickle_protocol=5)
            else:
                pickle.dump(content, sealed, protocol=5)
            sealed.close()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
        for old in checkpoint_files(path.parent)[keep:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise _not_written(path.parent, error) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _not_written(folder: Path, error: OSError) -> OSError:
    return OSError(
        error.errno or errno.EIO,
        f"save_checkpoint: cannot write into {folder}: {error.strerror or error}; "
        "the checkpoint before this one is as it was",
    )


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot
            raise
    finally:
        os.close(descriptor)


def _newest_complete(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    files = checkpoint_files(folder)
    for n, path in enumerate(files, start=1):
        with path.open("rb") as file:
            if is_untouched(file):
                return path, _read(file, path)
        then = (
            f"using {files[n].name}" if n < len(files) else "there is no older one: beginning anew"
        )
        warnings.warn(f"load_checkpoint: {path} is torn or changed; {then}", stacklevel=3)
    return None


def _read(file: IO[bytes], path: Path) -> dict[str, Any]:
    is_from_torch = file.read(2) == b"PK"  # torch writes zip files
    file.seek(0)
    try:
        if is_from_torch:
            import torch

            content = torch.load(file, map_location="cpu", weights_only=False)
        else:
            content = pickle.load(file)
    except Exception as error:  # of any class, as classes that are stored may be gone by now
        raise ValueError(f"load_checkpoint: cannot read {path}: {error}") from error
    if content["format"] != _FORMAT:
        raise ValueError(
            f"load_checkpoint: {path} has format {content['format']}, and this version of sweeper "
            f"reads format {_FORMAT}: go on with the version that wrote it, or delete the file"
        )
    return dict(content)


def _check_target(name: str, target: Any, path: Path, content: Mapping[str, Any]) -> None:
    states, values = content["states"], content["values"]
    if name not in states and name not in values:
        raise ValueError(
            f"load_checkpoint({name}=…): not in {path}, which has: {', '.join([*states, *values])}"
        )
    is_target = callable(getattr(target, "load_state_dict", None))
    if is_target and (name in states or isinstance(values[name], Mapping)):
        return
    if name in states:
        raise TypeError(
            f"load_checkpoint({name}=…): expected the object whose state was saved, with a "
            f"load_state_dict(); got a {type(target).__name__}"
        )
    raise TypeError(
        f"load_checkpoint({name}=…): what was saved as {name!r} is no state but a "
        f"{type(values[name]).__name__}: leave it out, and take it from what is returned"
    )
