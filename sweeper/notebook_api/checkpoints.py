"""Save and load the whole state of a training, so that it continues with the same bits.

Runs in the kernel; the coordinator uses `checkpoint_files` too. torch and numpy are used only
where the notebook has imported them. A checkpoint is a pickle (torch's format where torch is
imported) and can run code when it is loaded: load only your own.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
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
from .generators import random_states, restore_random_states
from .sealed import SealedFile, is_intact

_FORMAT = 1
_NAME = re.compile(r"(\d{6,})\.ckpt")
_PART = ".part"
_UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError, RecursionError)
#: How often a checkpoint is written while its folder is removed again and again.
_TRIES = 3


def save_checkpoint(*, keep: int = 1, in_background: bool = False, **state: Any) -> Path:
    """Save the state of a training into the trial's folder, between two epochs.

    The file holds the arguments and the random states of `random`, numpy and torch (CPU, and CUDA
    where it is initialized). Older checkpoints are deleted only when the new one is on the disk,
    so the disk needs space for `keep` + 1 of them. In a notebook run by hand the folder is
    `./checkpoints/by-hand`; delete it to start again from the beginning.

    Args:
        keep: the number of newest checkpoints to keep, 1 or more.
        in_background: pack the state in memory and return, while a thread writes it. The next save,
            the next load and the end of the interpreter wait for that thread. If the write fails,
            the next save or load raises its error: save the last epoch without it.
        **state: of an object with a `state_dict()` (model, optimizer, scheduler, GradScaler, a
            `seeded_loader`) its state is stored; any other value is stored itself: numbers, text,
            lists, dicts, numpy arrays, tensors.

    Returns:
        The checkpoint's path; with `in_background` the file may not exist yet.

    Raises:
        ValueError: `keep` is less than 1.
        TypeError: a value cannot be stored; nothing was written.
        OSError: the disk is full or the folder read-only; the last checkpoint is still there.
    """
    if not isinstance(keep, int) or keep < 1:
        raise ValueError(f"save_checkpoint(keep=…): expected 1 or more, got {keep!r}")
    with _lock:
        _finish_background()
        content = content_of(state)
        folder = Path(os.path.abspath(trial().folder))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            number = 1 + sum(int(newest.stem) for newest in checkpoint_files(folder)[:1])
        except OSError as error:
            raise _not_written(folder, error) from error
        path = folder / f"{number:06d}.ckpt"
        if in_background:
            global _background
            copied = io.BytesIO()
            _dump(content, copied)
            writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sweeper-checkpoint")
            _background = writer.submit(write_file, copied.getbuffer(), path, keep=keep)
            writer.shutdown(wait=False)  # the thread ends with its work
        else:
            write_file(content, path, keep=keep)
    return path


def load_checkpoint(**state: Any) -> dict[str, Any] | None:
    """Restore the state of this trial's newest complete checkpoint, if there is one.

    The objects are restored in place, on the devices where they are, and the random states last of
    all, so that the training continues with the same bits::

        saved = sweeper.load_checkpoint(model=model, optimizer=optimizer, loader=loader)
        first = (saved or {"epoch": -1})["epoch"] + 1

    Call it when all objects are built, right before the first epoch. A file that is incomplete or
    changed is skipped with a warning.

    Args:
        **state: the objects with a `load_state_dict()`, under the names with which they were saved.

    Returns:
        The other saved values by name, tensors on the CPU. None where there is no checkpoint, as in
        a first attempt.

    Raises:
        ValueError: a name is not in the checkpoint, a state does not fit its object, or the file
            is of another format or cannot be unpickled.
        TypeError: an object has no `load_state_dict()`.
        OSError: a file cannot be read, or the last write in the background failed.
    """
    with _lock:
        _finish_background()
    found = _newest_complete(Path(trial().folder))
    if found is None:
        return None
    path, content = found
    values = restore(content, path, state)
    if forgotten := [name for name in content["states"] if name not in state]:
        warnings.warn(
            f"load_checkpoint: {path} also has the state of {', '.join(forgotten)}, which is not "
            "restored; to go on exactly, pass the same objects that were saved",
            stacklevel=2,
        )
    return values


def checkpoint_files(folder: Path) -> list[Path]:
    """List the finished checkpoints in a trial's folder, newest first; empty without the folder."""
    with suppress(FileNotFoundError):
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
        names.sort(key=lambda name: int(name.partition(".")[0]), reverse=True)
        return [Path(folder, name) for name in names]
    return []


# --- what is stored --------------------------------------------------------------------------


def content_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Gather what a checkpoint holds, as `save_checkpoint` describes it.

    Args:
        state: the objects and values to store, by name.

    Raises:
        TypeError: a value has an object with a state in it.
    """
    info = trial()
    content: dict[str, Any] = {
        "format": _FORMAT,
        "run_id": info.run_id,
        "attempt": info.attempt,
        "random": random_states(),
        "states": {},
        "values": {},
    }
    for name, value in state.items():
        if has_state(value):
            content["states"][name] = value.state_dict()
        else:
            _check_plain(name, value)
            content["values"][name] = value
    return content


def restore(content: Mapping[str, Any], path: Path, state: Mapping[str, Any]) -> dict[str, Any]:
    """Restore objects, and the random states last, from the content of the file `path`.

    Returns:
        The stored values without a state, by name.

    Raises:
        ValueError, TypeError: as `load_checkpoint`.
    """
    states, values = content["states"], content["values"]
    for name, target in state.items():  # all of them before any object is changed
        _check_target(name, target, path, content)
    for name, target in state.items():
        try:
            target.load_state_dict(states[name] if name in states else values[name])
        except Exception as error:
            raise ValueError(
                f"load_checkpoint({name}=…): the state in {path} does not fit this "
                f"{type(target).__name__}: {error}"
            ) from error
    restore_random_states(content["random"])
    return {name: value for name, value in values.items() if name not in state}


_lock = threading.Lock()
_background: Future[None] | None = None


def _finish_background() -> None:
    """Wait for the running background write, if there is one, and raise its error."""
    global _background
    if _background is not None:
        _background.exception()  # an interrupt here leaves the write to the next call
        written, _background = _background, None
        written.result()


def _forget_background() -> None:
    """Start without a background write in a forked child, which does not have the thread."""
    global _lock, _background
    _lock, _background = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_background)


def has_state(value: Any) -> bool:
    """Whether a checkpoint stores the state of an object, and not the object itself."""
    return callable(getattr(value, "state_dict", None)) and not isinstance(value, type)


def _check_plain(name: str, value: Any) -> None:
    """Refuse a container of objects with a state: loading would make new ones, restoring none."""
    if has_state(value):
        reason = f"the {type(value).__name__} in it needs a name of its own"
        raise _not_storable(name, value, reason)
    if isinstance(value, (Mapping, list, tuple)):
        for part in value.values() if isinstance(value, Mapping) else value:
            _check_plain(name, part)


def _dump(content: Mapping[str, Any], file: Any) -> None:
    """Pickle what a checkpoint holds, in torch's format where torch is imported.

    Raises:
        TypeError: a value cannot be pickled.
    """
    try:
        if torch := sys.modules.get("torch"):
            torch.save(content, file, pickle_protocol=5)
        else:
            pickle.dump(content, file, protocol=5)
    except _UNPICKLABLE as error:
        for name, value in {**content["states"], **content["values"]}.items():
            try:
                pickle.dumps(value)
            except _UNPICKLABLE as reason:
                raise _not_storable(name, value, reason) from reason
        raise error


def _not_storable(name: str, value: Any, reason: object) -> TypeError:
    return TypeError(
        f"save_checkpoint({name}=…): a {type(value).__name__} cannot be stored: {reason}; "
        "expected an object with state_dict(), or numbers, text, lists, dicts, arrays, tensors"
    )


# --- the file --------------------------------------------------------------------------------


def write_file(content: Mapping[str, Any] | memoryview, path: Path, *, keep: int = 1) -> None:
    """Write a checkpoint, packed already or not; make its folder again where it is removed.

    Raises:
        TypeError: a value cannot be pickled; nothing is left of the file.
        OSError: the disk is full or the folder read-only.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_once(content, path, keep=keep)
            return
        except OSError as error:
            if not tries_left or not isinstance(error, FileNotFoundError):
                raise _not_written(path.parent, error) from error


def _write_once(content: Mapping[str, Any] | memoryview, path: Path, *, keep: int) -> None:
    part = path.with_name(path.name + _PART)
    try:
        for abandoned in path.parent.glob(f"*.ckpt{_PART}"):  # left by an attempt that was killed
            abandoned.unlink(missing_ok=True)
        with part.open("wb") as file:
            sealed = SealedFile(file)
            if isinstance(content, memoryview):
                sealed.write(content)
            else:
                _dump(content, sealed)
            sealed.close()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
        for old in checkpoint_files(path.parent)[keep:]:
            old.unlink(missing_ok=True)
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
    """Write a folder to the disk, so that a rename in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
        ):  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def _newest_complete(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    files = checkpoint_files(folder)
    for n, path in enumerate(files, start=1):
        with path.open("rb") as file:
            if is_intact(file):
                return path, read_file(file, path)
        then = (
            f"using {files[n].name}" if n < len(files) else "there is no older one: starting again"
        )
        warnings.warn(f"load_checkpoint: {path} is incomplete or changed; {then}", stacklevel=3)
    return None


def read_file(file: IO[bytes], path: Path) -> dict[str, Any]:
    """Read a checkpoint from its open file; `path` is for messages.

    Raises:
        ValueError: the file is of another format or cannot be unpickled.
    """
    is_from_torch = file.read(2) == b"PK"  # torch writes zip files
    file.seek(0)
    try:
        if is_from_torch:
            import torch

            content = torch.load(file, map_location="cpu", weights_only=False)
        else:
            content = pickle.load(file)
    except Exception as error:  # of any type: unpickling runs foreign code
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
