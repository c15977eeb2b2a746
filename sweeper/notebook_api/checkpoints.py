"""Save and load the whole state of a training, so that a resumed training gives the same bits.

These functions run in the kernel. To save, they use torch and numpy only if the notebook has
imported them. To load a checkpoint that was saved with torch or numpy, they import the library.

A checkpoint is a pickle in a ZIP file, in torch's format if torch is imported. The checksums of the
ZIP file reveal incomplete and changed files. Loading a pickle can run code, so load only your own
checkpoints.
"""

from __future__ import annotations

import errno
import os
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from .artifacts import PART
from .calls import trial
from .disks import insist, is_in_sweep
from .generators import random_states, restore_random_states

_NAME = re.compile(r"(\d{6,})\.ckpt")
_PICKLE = "content.pkl"
#: Whether the last checkpoint was left out because it could not be written. If so, the write of the
#: next checkpoint is not repeated for a minute, but tried only once.
_left_out = False
_UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError, RecursionError)


def save_checkpoint(*, keep: int = 1, **state: Any) -> Path:
    """Save the state of a training into the trial's folder, between two epochs.

    The file contains the arguments and the random states of `random`, numpy and torch (CPU, and
    CUDA if it is initialized). Older checkpoints are deleted when the new one is complete on the
    disk, so the disk needs space for `keep` + 1 checkpoints. In a notebook that is run by hand, the
    folder is `./checkpoints/by-hand`. Delete it to start from the beginning.

    In a trial, a write that fails is repeated for one minute. After that, this checkpoint is left
    out with a warning, and the training continues: a full disk fails no trial.

    Args:
        keep: Number of the newest checkpoints to keep, 1 or more.
        **state: Values to store. If an object has a `state_dict()` (model, optimizer, scheduler,
            GradScaler, `seeded_loader`), its state is stored. Other values are stored themselves:
            numbers, text, lists, dicts, numpy arrays, tensors.

    Returns:
        Path of the checkpoint. If it was left out, path of the newest earlier checkpoint. If there
        is none, a path that does not exist.

    Raises:
        ValueError: `keep` is less than 1.
        TypeError: A value cannot be stored. Nothing was written.
        OSError: The disk is full or the folder is read-only. Raised only in a notebook that is run
            by hand. The previous checkpoint still exists.
    """
    if not isinstance(keep, int) or keep < 1:
        raise ValueError(f"save_checkpoint(keep=…): expected 1 or more, got {keep!r}")
    content = content_of(state)
    folder = Path(os.path.abspath(trial().folder))
    write = partial(_saved, content, folder, keep)
    global _left_out
    try:
        path = insist(write, is_patient=not _left_out)
    except OSError as error:
        if not is_in_sweep():
            if isinstance(error.__cause__, FileNotFoundError):
                # Another process has removed the unfinished file or its folder, so write it again.
                return write()
            raise
        if not _left_out:
            warnings.warn(
                f"{error}; this checkpoint is left out, and the training continues", stacklevel=2
            )
        _left_out = True
        earlier = checkpoint_files(folder)
        return earlier[0] if earlier else folder / "000001.ckpt"
    _left_out = False
    return path


def _saved(content: Mapping[str, Any], folder: Path, keep: int) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = checkpoint_files(folder)
        number = int(earlier[0].stem) + 1 if earlier else 1
        path = folder / f"{number:06d}.ckpt"
        write_file(content, path)
        for old in earlier[keep - 1 :]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(
            error.errno or errno.EIO,
            f"save_checkpoint: cannot write into {folder}: {error.strerror or error}; "
            "the previous checkpoint is unchanged",
        ) from error
    return path


def load_checkpoint(**state: Any) -> dict[str, Any] | None:
    """Restore the state of this trial's newest complete checkpoint, if there is one.

    Objects are restored in place, on their devices, and random states last. So the training gives
    the same bits as without an interruption::

        saved = sweeper.load_checkpoint(model=model, optimizer=optimizer, loader=loader)
        first = (saved or {"epoch": -1})["epoch"] + 1

    Call it when all objects are built, right before the first epoch. A file whose checksums show
    that it is incomplete or was changed is skipped with a warning.

    Args:
        **state: Objects with a `load_state_dict()`, with the names under which they were saved.

    Returns:
        The other saved values by name, tensors on the CPU. None if there is no checkpoint, as in a
        first attempt.

    Raises:
        ValueError: An object has no `load_state_dict()`, a name is not that of a saved state, a
            state does not fit its object, or the file cannot be unpickled.
        OSError: A file cannot be read.
    """
    found = _newest_complete(Path(trial().folder))
    if found is None:
        for name, target in state.items():  # Find mistakes now, not when a killed trial resumes.
            if not _can_load(target):
                raise ValueError(
                    f"load_checkpoint({name}=…): expected an object with a load_state_dict(), such "
                    f"as a model or sweeper.seeded_loader(…); got a {type(target).__name__}; leave "
                    f"{name} out here: load_checkpoint returns the other saved values, such as "
                    "numbers and lists, in a dict"
                )
        return None
    path, content = found
    values = restore(content, path, state)
    if forgotten := [name for name in content["states"] if name not in state]:
        warnings.warn(
            f"load_checkpoint: {path} also has the state of {', '.join(forgotten)}, which is not "
            "restored; to resume exactly, pass the same objects that were saved",
            stacklevel=2,
        )
    return values


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the complete checkpoints in a trial's folder, newest first.

    The list is empty if the folder does not exist.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = [Path(folder, name) for name in names if is_checkpoint(name)]
    return sorted(found, key=lambda path: int(path.stem), reverse=True)


def is_checkpoint(name: str) -> bool:
    """Return whether a file has the name of a checkpoint.

    A file with such a name never changes: checkpoints are written under another name, then renamed.
    """
    return _NAME.fullmatch(name) is not None


# --- content of a checkpoint -----------------------------------------------------------------


def content_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Collect what a checkpoint stores, but write nothing.

    These are the states of objects, the other values, and the states of the random generators.

    Args:
        state: Objects and values to store, by name.

    Raises:
        TypeError: A list, tuple or mapping contains an object with a `state_dict()`.
    """
    content: dict[str, Any] = {"random": random_states(), "states": {}, "values": {}}
    for name, value in state.items():
        if has_state(value):
            content["states"][name] = value.state_dict()
        else:
            _check_plain(name, value)
            content["values"][name] = value
    return content


def restore(content: Mapping[str, Any], path: Path, state: Mapping[str, Any]) -> dict[str, Any]:
    """Restore objects, and then the random states, from the content of a checkpoint.

    Args:
        content: Content of the checkpoint.
        path: Path of the checkpoint, for messages.
        state: Objects to restore, by name.

    Returns:
        The stored values that are not states of objects, by name.

    Raises:
        ValueError: A name is not that of a saved state, or a state does not fit its object.
    """
    states = content["states"]
    for name, target in state.items():  # Check all objects before any of them is changed.
        if name not in states or not _can_load(target):
            raise ValueError(
                f"load_checkpoint({name}=…): expected the name of a saved state "
                f"({', '.join(states)} in {path}) and an object with a load_state_dict(); got "
                f"{name} and a {type(target).__name__}"
            )
    for name, target in state.items():
        try:
            target.load_state_dict(states[name])
        except Exception as error:
            raise ValueError(
                f"load_checkpoint({name}=…): the state in {path} does not fit this "
                f"{type(target).__name__}: {error}"
            ) from error
    restore_random_states(content["random"])
    return dict(content["values"])


def has_state(value: Any) -> bool:
    """Return whether a value is an object with a `state_dict()`.

    A checkpoint stores the state of such an object, and any other value as it is.
    """
    return callable(getattr(value, "state_dict", None)) and not isinstance(value, type)


def _can_load(value: Any) -> bool:
    return callable(getattr(value, "load_state_dict", None))


def _check_plain(name: str, value: Any) -> None:
    """Check that a value contains no object with a `state_dict()`.

    `load_checkpoint` could not restore an object in a list, tuple or mapping.

    Raises:
        TypeError: The value contains such an object.
    """
    if has_state(value):
        reason = f"pass the {type(value).__name__} in it under its own name"
        raise _not_storable(name, value, reason)
    if isinstance(value, (Mapping, list, tuple)):
        for part in value.values() if isinstance(value, Mapping) else value:
            _check_plain(name, part)


def _dump(content: Mapping[str, Any], file: IO[bytes]) -> None:
    """Pickle the content of a checkpoint, in torch's format if torch is imported.

    Raises:
        TypeError: A value cannot be pickled.
        OSError: The file cannot be written.
    """
    try:
        if torch := sys.modules.get("torch"):
            torch.save(content, file, pickle_protocol=5)
            return
        with (
            zipfile.ZipFile(file, "w") as zipped,
            zipped.open(_PICKLE, "w", force_zip64=True) as pickled,
        ):
            pickle.dump(content, pickled, protocol=5)
    except _UNPICKLABLE as error:
        for name, value in {**content["states"], **content["values"]}.items():
            try:
                pickle.dumps(value)
            except _UNPICKLABLE as reason:
                raise _not_storable(name, value, reason) from reason
        raise error
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch's own error hides a full disk.
            raise error.__context__ from error
        raise


def _not_storable(name: str, value: Any, reason: object) -> TypeError:
    return TypeError(
        f"save_checkpoint({name}=…): a {type(value).__name__} cannot be stored: {reason}; "
        "expected an object with state_dict(), or numbers, text, lists, dicts, arrays, tensors"
    )


# --- file of a checkpoint --------------------------------------------------------------------


def write_file(content: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint under another name, and rename it when it is complete on the disk.

    Raises:
        TypeError: A value cannot be pickled. No file is left.
        OSError: The disk is full or the folder is read-only.
    """
    part = path.with_name(path.name + PART)
    try:
        for abandoned in path.parent.glob(f"*.ckpt{PART}"):  # An earlier write was killed.
            abandoned.unlink(missing_ok=True)
        with part.open("wb") as file:
            _dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _newest_complete(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    for path in checkpoint_files(folder):
        if _is_intact(path):
            return path, read_file(path)
        warnings.warn(f"load_checkpoint: {path} is incomplete or changed: skipped", stacklevel=3)
    return None


def _is_intact(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as zipped:
            return zipped.testzip() is None
    except OSError:
        raise
    except Exception:  # noqa: BLE001  A damaged file may cause any error.
        return False


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint.

    Raises:
        ValueError: The file cannot be unpickled.
    """
    try:
        with zipfile.ZipFile(path) as zipped:
            if _PICKLE in zipped.namelist():
                return dict(pickle.loads(zipped.read(_PICKLE)))
        import torch

        return dict(torch.load(path, map_location="cpu", weights_only=False))
    except Exception as error:  # Unpickling runs foreign code, which may raise anything.
        raise ValueError(f"load_checkpoint: cannot read {path}: {error}") from error
