"""Checks that a notebook runs before a long training: `sweeper.checks`.

Each check returns a `CheckResult`, which is true if the check has passed. Its text shows the
figures and the remedy. `found = …; assert found, found` ends the trial if the check has not passed.
No check changes the training that follows: random states, weights and loaders stay as they are.
"""

from __future__ import annotations

import copy
import hashlib
import io
import math
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from .checkpoints import content_of, has_state, read_file, restore, write_file
from .generators import random_states_kept, seed_generators

__all__ = [
    "CheckResult",
    "checkpoint_round_trip",
    "gradients_flow",
    "loader_is_seeded",
    "near_chance",
    "overfits_one_batch",
]

#: A finding lists at most this many names (chosen, not measured).
_MOST_NAMES = 5
#: `loader_is_seeded` compares this many batches of a loader (chosen, not measured).
_BATCHES = 10


@dataclass(frozen=True)
class CheckResult:
    """Result of a check. `bool(result)` is true if the check has passed.

    Attributes:
        check: Name of the check.
        passed: Whether the check has passed.
        finding: What the check has found, with figures, in one line.
        remedy: What to do if the check has not passed.
    """

    check: str
    passed: bool
    finding: str
    remedy: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        shown = f"{self.check}: {self.finding}"
        return f"✓ {shown}" if self.passed else f"✗ {shown}; {self.remedy}"


def near_chance(loss: Any, n_classes: int, *, tolerance: float = 0.25) -> CheckResult:
    """Check that the loss of an untrained classifier is near ln(n_classes), the loss of guessing.

    Args:
        loss: Mean cross-entropy of a batch, a number or a tensor with one element.
        n_classes: Number of classes, 2 or more.
        tolerance: Largest relative difference of the loss from ln(n_classes).

    Raises:
        ValueError: There are fewer than 2 classes.
    """
    if n_classes < 2:
        raise ValueError(f"near_chance(n_classes=…): expected 2 or more, got {n_classes!r}")
    value = float(loss.detach() if hasattr(loss, "detach") else loss)
    chance = math.log(n_classes)
    finding = f"loss {value:.4g}, by chance ln({n_classes}) = {chance:.4g}"
    remedy = (
        "check that the model is untrained, no input contains its label, and n_classes is right"
    )
    if not value <= chance:
        remedy = (
            "normalise the inputs, begin with smaller weights in the last layer, use the mean of "
            "the losses and not their sum"
        )
    return CheckResult("near_chance", abs(value - chance) <= tolerance * chance, finding, remedy)


def overfits_one_batch(
    model: Any,
    batch: Any,
    loss_fn: Callable[[Any, Any], Any],
    *,
    steps: int = 200,
    lr: float = 3e-3,
    target: float | None = None,
) -> CheckResult:
    """Check that a copy of the model can fit a single batch.

    A model that cannot do this has a bug in its layers, its loss or its labels. The copy is in
    training mode, and Adam trains it until its loss has reached the target. Use a batch of 8 to 64
    samples. In addition to the model, the check needs memory for the copy, for its gradients, and
    for the state of Adam, which is twice as large as the trainable weights.

    Args:
        model: torch module. It is not changed.
        batch: Batch in the form that `loss_fn` accepts.
        loss_fn: Function that is called as `loss_fn(model, batch)` with the copy. It returns the
            loss as a tensor with one element, as this function does:
            `lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])`.
        steps: Largest number of updates.
        lr: Learning rate of Adam.
        target: Loss to reach. Default: a tenth of the first loss. State the target if the loss
            cannot come near 0, as with label smoothing.

    Raises:
        ValueError: The model has no trainable parameter, or there is no target and the first loss
            is not positive.
    """
    import torch

    losses: list[float] = []
    with random_states_kept(), torch.enable_grad():
        trained = copy.deepcopy(model).train()
        parameters = [p for p in trained.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(parameters, lr=lr)
        for done in range(steps + 1):
            loss = loss_fn(trained, batch)
            losses.append(loss.item())
            aim = losses[0] / 10 if target is None else target
            if target is None and aim <= 0:
                raise ValueError(
                    f"overfits_one_batch: the loss begins at {losses[0]:.4g}, and cannot reach the "
                    "default target, a tenth of it; state the loss to reach, as in target=-10"
                )
            can_learn = math.isfinite(losses[-1]) and loss.requires_grad
            if losses[-1] <= aim or not can_learn or done == steps:
                break
            # The usual call `backward` would also change the gradients of modules outside of the
            # copy, if the loss depends on them.
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            for parameter, gradient in zip(parameters, gradients):
                parameter.grad = gradient
            optimizer.step()
    finding = f"loss {losses[0]:.4g} → {losses[-1]:.4g} in {done} steps, target {aim:.4g}"
    remedy = (
        "check that loss_fn computes the loss from the model that it gets, the labels belong to "
        "the inputs, gradients reach all layers (checks.gradients_flow), and the loss is finite; "
        "then try another lr, more steps, or state a target"
    )
    return CheckResult("overfits_one_batch", losses[-1] <= aim, finding, remedy)


def gradients_flow(model: Any, loss: Any) -> CheckResult:
    """Check that each trainable parameter gets a finite, non-zero gradient from a loss.

    Existing gradients are not changed, and `loss.backward()` may follow.

    Args:
        model: torch module.
        loss: Tensor with one element, computed from the model outside of `torch.no_grad`.
    """
    import torch

    trainable = {
        name: weights for name, weights in model.named_parameters() if weights.requires_grad
    }
    found: Sequence[Any] = [None] * len(trainable)
    if loss.requires_grad:
        found = torch.autograd.grad(
            loss, [*trainable.values()], retain_graph=True, allow_unused=True
        )
    wrong = []
    for name, gradient in zip(trainable, found):
        if gradient is None or not gradient.any():
            wrong.append(f"{name} ({'none' if gradient is None else 'zero'})")
        elif not gradient.isfinite().all():
            wrong.append(f"{name} (not finite)")
    finding = f"{len(wrong)} of {len(trainable)} parameters lack a proper gradient"
    remedy = (
        "none: use them in the loss, without detach(), item() or no_grad(); zero: look for dead "
        "units and weights of zero; not finite: look for x / 0, log(0), an overflow in float16"
    )
    finding += f": {_listed(wrong)}" if wrong else ""
    return CheckResult("gradients_flow", not wrong, finding, remedy)


def loader_is_seeded(loader: Any) -> CheckResult:
    """Check that a loader gives the same batches whatever the global seeds are.

    The first ten batches of the loader's next epoch are read twice, with different states of the
    global random generators. After that, a loader that `seeded_loader` has made is at the same
    epoch as before.

    Args:
        loader: torch DataLoader, preferably made by `seeded_loader`.
    """
    epoch = loader.state_dict() if has_state(loader) else None
    read = []
    for seed in (1, 2):
        with random_states_kept():
            seed_generators("check", seed)
            read.append(_digests(list(islice(loader, _BATCHES)), "batch"))
        if epoch is not None:
            loader.load_state_dict(epoch)
    differ = _differing(*read)
    finding = f"batches differ with other global seeds: {_listed(differ) or 'none'}"
    remedy = "use sweeper.seeded_loader, and draw from the global generators, which it seeds"
    return CheckResult("loader_is_seeded", not differ, finding, remedy)


def checkpoint_round_trip(*, step: Callable[..., Any], **state: Any) -> CheckResult:
    """Check that `save_checkpoint` stores everything on which the next training step depends.

    The state is written to a temporary file, and one training step is run. Then the file is loaded.
    The whole state must be as before, bit for bit, and a second step must have the same results as
    the first step. At the end, the file is loaded once more, so that everything is as before the
    check, except gradients and state that the checkpoint lacks.

    Args:
        step: Function that runs one training step, called as `step(**state)`. Its return value,
            such as the loss, is compared too.
        **state: Objects and values as they are passed to `save_checkpoint`.

    Raises:
        TypeError: A value cannot be stored.
        ValueError: There is nothing to save.
        OSError: The temporary file cannot be written.
    """
    if not state:
        raise ValueError("checkpoint_round_trip(…): expected objects, as in model=model")
    targets = {name: value for name, value in state.items() if has_state(value)}

    def load() -> dict[str, Any]:
        return {**state, **restore(read_file(path), path, targets)}

    def after_step(objects: Mapping[str, Any]) -> dict[str, bytes]:
        returned = step(**objects)
        return _digests({**_states(objects), "what step returns": returned})

    with random_states_kept(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "000001.ckpt")
        write_file(content_of(state), path)
        size_mb = path.stat().st_size / 1e6
        before = _digests(_states(state))
        try:
            first = after_step(load())
            objects = load()
            loaded = _digests(_states(objects))
            again = after_step(objects)
        finally:
            load()
    finding = (
        f"{_listed(list(state))} are restored, and a step repeats bit for bit ({size_mb:.3g} MB)"
    )
    remedy = ""
    if places := _differing(before, loaded):
        finding = f"differ after loading: {_listed(places)}"
        remedy = "let load_state_dict restore all that state_dict returns"
    elif places := _differing(first, again):
        finding = f"differ after one more step: {_listed(places)}"
        remedy = (
            "pass all objects that the step changes, such as the scheduler, the loader, averaged "
            "weights, and seed its random numbers; for a GPU see seed_everything(seed, strict=True)"
        )
    return CheckResult("checkpoint_round_trip", not places, finding, remedy)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _states(state: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(state)
    for name, value in state.items():
        if has_state(value):
            found[name] = value.state_dict()
    return found


def _differing(left: Mapping[str, bytes], right: Mapping[str, bytes]) -> list[str]:
    """Return the names of the parts of two values that differ, or that only one value has.

    Args:
        left: Digests of the parts of one value, by name; see `_digests`.
        right: Digests of the parts of the other value.
    """
    return [place for place in {**left, **right} if left.get(place) != right.get(place)]


def _digests(value: Any, place: str = "") -> dict[str, bytes]:
    """Return a digest of the bits of each part of a value, by the name of the part.

    Args:
        value: Value whose mappings, lists and tuples are split into their parts.
        place: Name of the value, with which the names of its parts begin. If it is `model`, a part
            has a name such as `model.weight`.
    """
    found: dict[str, bytes] = {}
    if isinstance(value, Mapping):
        for key, part in value.items():
            found.update(_digests(part, f"{place}.{key}".lstrip(".")))
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            found.update(_digests(part, f"{place}[{index}]"))
    else:
        file = io.BytesIO()
        _Pickler(file).dump(value)
        found[place] = hashlib.blake2b(file.getbuffer()).digest()
    return found


class _Pickler(pickle.Pickler):
    """Pickles equal objects to equal bytes. torch's own pickles contain addresses of tensors."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=4)
        self.fast = True  # Do not refer to an earlier part, so that equal values have equal bytes.

    def persistent_id(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return None
        flat = value.detach().to_dense().cpu().contiguous().flatten()
        return str(value.dtype), tuple(value.shape), flat.view(torch.uint8).numpy().tobytes()
