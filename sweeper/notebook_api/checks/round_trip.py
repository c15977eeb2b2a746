"""Check that a training goes on with the same bits after its checkpoint is loaded."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..checkpoints import content_of, has_state, read_file, restore, write_file
from ..generators import restore_random_states
from .bits import differing, digests
from .result import CheckResult, listed, settled
from .undisturbed import generators_kept, undisturbed


def checkpoint_round_trip(
    *, step: Callable[..., Any] | None = None, raises: bool = False, **state: Any
) -> CheckResult:
    """Check that what `save_checkpoint` stores comes back, and the training then goes on alike.

    The state is written to a temporary file and loaded into copies of the objects that were changed
    before. All of it must be the same bits then. With `step` one more step of the training is run
    with copies that were never saved, and with those that were loaded: a difference means that the
    step depends on something that is not in the checkpoint. The objects themselves stay as they
    are. Their copies and the file need three times their size, without datasets.

    Args:
        step: one step of the training as `step(**state)`, which changes only its arguments; what it
            returns is compared as well, such as the loss.
        raises: raise where the check does not pass.
        **state: the objects and values as they are passed to `save_checkpoint`.

    Raises:
        TypeError: a value cannot be stored or copied.
        ValueError: there is nothing to save.
        OSError: the temporary file cannot be written.
        CheckFailed: with `raises`.
    """
    if not state:
        raise ValueError("checkpoint_round_trip(…): expected objects, as in model=model")
    modules = [value for value in state.values() if _is_module(value)]
    with undisturbed(*modules), generators_kept(state), tempfile.TemporaryDirectory() as folder:
        trip = _RoundTrip(state, Path(folder, "000001.ckpt"))
        places, finding, remedy = trip.run(step)
    what = listed(list(state))
    if not places:
        also = ", and one more step gives the same bits" if step is not None else ""
        finding = f"{what} come back bit for bit ({trip.size_bytes / 1e6:.3g} MB){also}"
    else:
        finding = f"{finding}: {listed(places)}"
    figures = {"bytes": trip.size_bytes, "differing": len(places)}
    result = CheckResult("checkpoint_round_trip", not places, finding, remedy, figures)
    return settled(result, raises=raises)


class _RoundTrip:
    """Saves objects, loads them into changed copies, and compares.

    Attributes:
        size_bytes: of the file.
    """

    def __init__(self, state: Mapping[str, Any], path: Path) -> None:
        self._state = state
        self._loaded = _copied(state)
        self._unsaved = _copied(state)
        write_file(content_of(state), path)
        self.size_bytes = path.stat().st_size
        with path.open("rb") as file:
            self._content = read_file(file, path)
        self._path = path

    def run(self, step: Callable[..., Any] | None) -> tuple[list[str], str, str]:
        """Run the check; the places that differ, what that means, and the remedy."""
        before = _digests_of(self._state)
        if places := differing(before, _digests_of(self._in_file())):
            return places, "the file differs from what was saved", "store plain values and tensors"
        expected = None if step is None else self._after(step, self._unsaved)
        if step is not None:
            _run(step, self._loaded)
        for value in self._loaded.values():
            _change(value)
        self._load()
        if places := differing(before, _digests_of(self._loaded)):
            remedy = "have load_state_dict restore all that state_dict returns"
            return places, "differ after loading", remedy
        if step is None:
            return [], "", ""
        places = differing(expected or {}, self._after(step, self._loaded))
        if changed := differing(before, _digests_of(self._state)):
            self._put_back()
            remedy = "have step use its arguments only, not the notebook's variables of these names"
            return changed, "step has changed the objects themselves", remedy
        if not places:
            return [], "", ""
        repeated = self._after(step, _copied(self._state))
        if differing(expected or {}, repeated):
            remedy = (
                "pass all that it changes, such as the loader, and seed what it draws; for a GPU "
                "see seed_everything(seed, strict=True)"
            )
            return places, "the step does not repeat even without a checkpoint", remedy
        remedy = (
            "the step depends on something that is not in the checkpoint: pass all that it "
            "changes, such as the scheduler, the loader, averaged weights"
        )
        return places, "differ after one more step", remedy

    def _after(self, step: Callable[..., Any], state: Mapping[str, Any]) -> dict[str, str]:
        """The digests of what a step returns and leaves, with the random states of the file."""
        restore_random_states(self._content["random"])
        returned = digests(_run(step, state), "what step returns")
        return {**_digests_of(state), **returned}

    def _in_file(self) -> dict[str, Any]:
        return {**self._content["states"], **self._content["values"]}

    def _load(self) -> None:
        targets = {name: value for name, value in self._loaded.items() if has_state(value)}
        self._loaded = {**self._loaded, **restore(self._content, self._path, targets)}

    def _put_back(self) -> None:
        """Restore objects that a step has changed behind the back of its arguments."""
        targets = {name: value for name, value in self._state.items() if has_state(value)}
        restore(self._content, self._path, targets)


def _run(step: Callable[..., Any], state: Mapping[str, Any]) -> Any:
    with warnings.catch_warnings():
        # A copied optimizer does not have the counter that its scheduler had put into it.
        for text in ("Seems like `optimizer.step", "Detected call of `lr_scheduler.step"):
            warnings.filterwarnings("ignore", message=text)
        return step(**state)


def _digests_of(state: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in state.items():
        found |= digests(value.state_dict() if has_state(value) else value, name)
    return found


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """Copies that refer to each other as the objects do; they share datasets and workers."""
    memo: dict[int, Any] = {}
    for value in state.values():
        for part in (getattr(value, "dataset", None), getattr(value, "_iterator", None)):
            if part is not None:
                inner = getattr(part, "_dataset", part)  # that of a `seeded_loader`
                memo |= {id(part): part, id(inner): inner}
    try:
        return copy.deepcopy(dict(state), memo)
    except Exception as error:
        raise TypeError(
            f"checkpoint_round_trip(…): one of {listed(list(state))} cannot be copied: {error}"
        ) from error


def _change(value: Any) -> None:
    """Change the state of a copy, so that loading has something to restore."""
    if _is_module(value):
        import torch

        with torch.no_grad():
            for tensor in [*value.parameters(), *value.buffers()]:
                tensor.copy_(~tensor if tensor.dtype == torch.bool else tensor + 1)
        return
    if not has_state(value):
        return
    if isinstance(getattr(value, "param_groups", None), list):  # an optimizer
        value.state.clear()
        for group in value.param_groups:
            group |= {name: x + 1 for name, x in group.items() if isinstance(x, float)}
    for name, inner in value.state_dict().items():
        is_number = isinstance(inner, (int, float)) and not isinstance(inner, bool)
        if is_number and getattr(value, str(name), None) == inner:
            with suppress(AttributeError):  # a property
                setattr(value, str(name), inner + 1)


def _is_module(value: Any) -> bool:
    return callable(getattr(value, "named_parameters", None)) and has_state(value)
