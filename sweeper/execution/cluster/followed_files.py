"""The files of trials at a worker, sent home while they run and when they have ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ...notebook_api.checkpoints import checkpoint_files
from ...trials import StudyPaths, TrialSpec, attempt_path
from .messages import FromHost, Remove
from .mirror import Mirror, files_below, parts_of, remove

#: How often the executed notebook of a running trial is sent, and how much longer for each byte:
#: one of 10 MB every 12 s.
_NOTEBOOK_S, _S_PER_BYTE = 2.0, 1e-6
#: How often checkpoints are looked for. A file that is no checkpoint of ours may be half written
#: until it has not changed for this long.
_CHECKPOINTS_S, _SETTLED_S = 3.0, 2.0
#: For so long after its end a trial's kernel may still write a checkpoint in the background.
_LATE_S = 15.0


@dataclass(slots=True, kw_only=True)
class _Trial:
    """What is known of the files of one trial.

    Attributes:
        home: its spec with the paths of home.
        there: with those of the worker.
        sent: when each file that home has was changed last, by its path at home.
        sending: held while its files are sent, so that they come in their order.
    """

    home: TrialSpec
    there: TrialSpec
    sent: dict[Path, int] = field(default_factory=dict)
    sending: threading.Lock = field(default_factory=threading.Lock)
    notebook_due_s: float = 0.0
    checkpoints_due_s: float = 0.0
    ended_s: float | None = None


class FollowedFiles:
    """Sends home what changes of the files of trials. Safe to use from several threads.

    Args:
        send: sends a message home.
        paths: of the study at home.
    """

    def __init__(
        self, mirror: Mirror, send: Callable[[FromHost], None], *, paths: StudyPaths
    ) -> None:
        self._mirror = mirror
        self._send = send
        self._paths = paths
        self._lock = threading.Lock()
        self._trials: dict[int, _Trial] = {}
        self._environments: set[str] = set()

    def begin(self, spec: TrialSpec) -> TrialSpec:
        """Follow the files of a trial, which are here as they are at home.

        Args:
            spec: with the paths of home.

        Returns:
            the spec with the paths of this worker.
        """
        trial = _Trial(home=spec, there=self._mirror.spec(spec))
        for home, file in [*_notebooks(trial), *self._checkpoints(trial)]:
            trial.sent[home] = _changed_ns(file)
        with self._lock:
            self._trials[spec.number] = trial
        return trial.there

    def end(self, number: int, *, environment: str) -> None:
        """Send all that is new of a trial that has ended.

        Args:
            environment: the name of the record of where it ran; empty where there is none.
        """
        with self._lock:
            trial = self._trials[number]
            is_new = environment not in ("", *self._environments)
            self._environments.add(environment)
        with trial.sending:
            self._send_notebooks(trial)
            self._send_checkpoints(trial, is_over=True)
            trial.ended_s = time.monotonic()
        if is_new:
            home = self._paths.environment(environment)
            for part in parts_of(self._mirror.copy(home), home):
                self._send(part)

    def look(self, *, is_last: bool = False) -> None:
        """Send what is new of all trials, as often as each kind of file is due.

        Args:
            is_last: whether no trial runs any more, so that all of their files are due.
        """
        with self._lock:
            trials = list(self._trials.items())
        for number, trial in trials:
            with trial.sending:
                now_s = time.monotonic()
                if trial.ended_s is None and now_s >= trial.notebook_due_s:
                    size = self._send_notebooks(trial)
                    trial.notebook_due_s = time.monotonic() + _NOTEBOOK_S + size * _S_PER_BYTE
                if is_last or now_s >= trial.checkpoints_due_s:
                    self._send_checkpoints(trial, is_over=trial.ended_s is not None)
                    trial.checkpoints_due_s = time.monotonic() + _CHECKPOINTS_S
            if trial.ended_s is not None and now_s - trial.ended_s > _LATE_S:
                self._forget(number, trial)

    def remove(self, path: Path) -> None:
        """Remove what is gone at home, or is about to come from there once more."""
        with self._lock:
            for number, trial in list(self._trials.items()):
                if trial.ended_s is not None and path in (
                    trial.home.notebook,
                    *_folders(trial.home),
                ):
                    del self._trials[number]  # nothing of it is wanted any more
        remove(self._mirror.copy(path))

    def _checkpoints(self, trial: _Trial) -> list[tuple[Path, Path]]:
        """The files of a trial's folders, each with its path at home; none where both use one."""
        if self._mirror.shares_checkpoints:
            return []
        folders = zip(_folders(trial.home), _folders(trial.there), strict=True)
        return [
            (home / file.relative_to(there), file)
            for home, there in folders
            for file in files_below(there)
        ]

    def _send_notebooks(self, trial: _Trial) -> int:
        """Send the executed notebook, and that of the attempt before; the number of bytes."""
        return sum(self._send_new(trial, home, file) for home, file in _notebooks(trial))

    def _send_checkpoints(self, trial: _Trial, *, is_over: bool) -> None:
        found = self._checkpoints(trial)
        ours = set(checkpoint_files(trial.there.checkpoint_dir))
        for home, file in found:
            age_s = time.time() - _changed_ns(file) / 1e9
            if file in ours or is_over or age_s > _SETTLED_S:
                self._send_new(trial, home, file)
        # Only now: a new checkpoint is at home before the older one goes.
        kept, folders = {home for home, _ in found}, _folders(trial.home)
        for home in list(trial.sent):
            if home not in kept and any(home.is_relative_to(folder) for folder in folders):
                del trial.sent[home]
                self._send(Remove(path=home))

    def _send_new(self, trial: _Trial, home: Path, file: Path) -> int:
        changed_ns = _changed_ns(file)
        if not changed_ns or trial.sent.get(home) == changed_ns:
            return 0
        trial.sent[home] = changed_ns
        size = 0
        for part in parts_of(file, home):
            size += len(part.data)
            self._send(part)
        return size

    def _forget(self, number: int, trial: _Trial) -> None:
        """Remove what is at home by now, unless the trial has begun again."""
        with self._lock:
            if self._trials.get(number) is not trial:
                return
            del self._trials[number]
            for _, file in _notebooks(trial):
                remove(file)
            if not self._mirror.shares_checkpoints:
                for folder in _folders(trial.there):
                    remove(folder)


def _folders(spec: TrialSpec) -> tuple[Path, Path]:
    """The folders of a trial: of its checkpoints, and of what it saves."""
    return spec.checkpoint_dir, spec.artifact_dir


def _notebooks(trial: _Trial) -> list[tuple[Path, Path]]:
    """The executed notebook, each with its path at home; first that of the attempt before.

    The newer file takes the place of home's only copy of the older one.
    """
    found = [(trial.home.notebook, trial.there.notebook)]
    if (earlier := trial.home.attempt - 1) > 0:
        home = attempt_path(trial.home.notebook, earlier)
        found.insert(0, (home, attempt_path(trial.there.notebook, earlier)))
    return found


def _changed_ns(file: Path) -> int:
    """When a file has changed last; 0 for one that is not there."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
