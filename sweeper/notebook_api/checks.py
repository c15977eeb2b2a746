"""Checks that a notebook runs before a long training: `sweeper.checks`.

Each returns a `CheckResult`, which is true where the check has passed and displays itself with
figures and the remedy, and raises `CheckFailed` only with `raises=True`. None of them changes the
training that follows: random states, weights, gradients, modes and loaders are as before.
"""

from __future__ import annotations

import copy
import io
import math
import multiprocessing
import pickle
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from .checkpoints import content_of, has_state, read_file, restore, write_file
from .generators import random_states, restore_random_states, seed_generators

__all__ = [
    "CheckFailed",
    "CheckResult",
    "checkpoint_round_trip",
    "gradients_flow",
    "loader_is_seeded",
    "near_chance",
    "overfits_one_batch",
]

#: A finding lists five names at most.
_MOST_NAMES = 5


@dataclass(frozen=True)
class CheckResult:
    """What a check has found; true where it passed.

    Attributes:
        check: the name of the check.
        passed: whether what it looks for holds.
        finding: what it found, with figures, as one line.
        remedy: what to do about it; empty where it passed.
        figures: the numbers of the finding by name.
    """

    check: str
    passed: bool
    finding: str
    remedy: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{'✓' if self.passed else '✗'} {self.check}: {self.finding}{remedy}"


class CheckFailed(Exception):
    """Raised by a check with `raises=True` that did not pass.

    Attributes:
        result: what the check has found.
    """

    def __init__(self, result: CheckResult) -> None:
        super().__init__(repr(result))
        self.result = result


def near_chance(
    loss: Any, n_classes: int, *, tolerance: float = 0.25, raises: bool = False
) -> CheckResult:
    """Check that the loss of an untrained classifier is near ln(n_classes), that of guessing.

    Args:
        loss: the mean cross-entropy of a batch, a number or a tensor of one element.
        n_classes: among which the classifier chooses, 2 or more.
        tolerance: how far the loss may be from ln(n_classes), as a part of it.
        raises: raise where the check does not pass.

    Raises:
        ValueError: there are fewer than 2 classes.
        CheckFailed: with `raises`.
    """
    value = float(loss.detach() if hasattr(loss, "detach") else loss)
    if n_classes < 2:
        raise ValueError(f"near_chance(n_classes=…): expected 2 or more, got {n_classes!r}")
    chance = math.log(n_classes)
    passed = abs(value - chance) <= tolerance * chance
    if not math.isfinite(value):
        remedy = "look for a division by zero, the log of zero, and inputs that are not finite"
    elif value > chance:
        remedy = (
            "the untrained model is sure and wrong: normalise the inputs, begin with smaller "
            "weights in the last layer, take the mean of the losses and not their sum"
        )
    else:
        remedy = (
            "the model knows the labels already: is it trained, do the inputs contain the labels, "
            "is n_classes right?"
        )
    finding = f"loss {value:.4g}, by chance ln({n_classes}) = {chance:.4g}"
    figures = {"loss": value, "chance": chance}
    return _result("near_chance", passed, finding, remedy, figures, raises=raises)


def overfits_one_batch(
    model: Any,
    batch: Any,
    loss_fn: Callable[[Any, Any], Any],
    *,
    steps: int = 200,
    lr: float = 3e-3,
    target: float | None = None,
    raises: bool = False,
) -> CheckResult:
    """Check that a copy of the model learns a single batch by heart.

    A model that cannot do this has a defect in its layers, its loss or its labels. The copy is in
    training mode and is trained by Adam until its loss has reached the target; take a batch of 8 to
    64 samples. It needs memory for the model, its gradients and two times its weights.

    Args:
        model: a torch module; it is not changed.
        batch: whatever `loss_fn` takes.
        loss_fn: called as `loss_fn(model, batch)` with the copy; returns the loss, a tensor of one
            element: `lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])`.
        steps: how many updates are made at most.
        lr: Adam's learning rate.
        target: the loss to reach; default: a tenth of the first one. State it where the loss cannot
            come near 0, as with label smoothing.
        raises: raise where the check does not pass.

    Raises:
        ValueError: the model has no trainable parameter, or there is no target, and the first loss
            is not positive.
        CheckFailed: with `raises`.
    """
    import torch

    losses: list[float] = []
    with _undisturbed(model), torch.enable_grad():
        trained = copy.deepcopy(model).train()
        parameters = _trainable("overfits_one_batch", trained).values()
        optimizer = torch.optim.Adam(parameters, lr=lr)
        for done in range(steps + 1):
            loss = loss_fn(trained, batch)
            losses.append(loss.item())
            aim = losses[0] / 10 if target is None else target
            if target is None and aim <= 0:
                raise ValueError(
                    f"overfits_one_batch(target=…): the loss begins at {losses[0]:.4g}: "
                    "state the target that it has to reach"
                )
            if losses[-1] <= aim or not math.isfinite(losses[-1]) or done == steps:
                break
            optimizer.zero_grad()
            if loss.requires_grad:
                loss.backward()
            optimizer.step()
    finding = f"loss {losses[0]:.4g} → {losses[-1]:.4g} in {done} steps, target {aim:.4g}"
    remedy = (
        "does loss_fn compute the loss from the model that it gets, are the labels those of the "
        "inputs, and do gradients reach all layers (checks.gradients_flow)? If so, try another lr, "
        "more steps, or state a target"
    )
    if not math.isfinite(losses[-1]):
        remedy = "look for a division by zero, the log of zero, and an lr that is too large"
    figures = {"first": losses[0], "last": losses[-1], "steps": done, "target": aim}
    return _result("overfits_one_batch", losses[-1] <= aim, finding, remedy, figures, raises=raises)


def gradients_flow(model: Any, loss: Any, *, raises: bool = False) -> CheckResult:
    """Check that each trainable parameter gets a finite gradient that is not zero from a loss.

    The gradients that the parameters have already stay as they are, and `loss.backward()` can be
    called afterwards.

    Args:
        model: a torch module.
        loss: a tensor of one element, computed from the model outside of `torch.no_grad`.
        raises: raise where the check does not pass.

    Raises:
        ValueError: the model has no trainable parameter.
        CheckFailed: with `raises`.
    """
    import torch

    trainable = _trainable("gradients_flow", model)
    found: Sequence[Any] = (None,) * len(trainable)
    if loss.requires_grad:
        with _undisturbed():
            found = torch.autograd.grad(
                loss, list(trainable.values()), retain_graph=True, allow_unused=True
            )
    remedies = {
        "none": "use them in the loss, and do not cut it off by detach(), item() or no_grad()",
        "zero": "look for units that are dead, and for layers behind them with weights of zero",
        "not finite": "look for a division by zero, the log of zero, and an overflow in float16",
    }
    wrong: dict[str, list[str]] = {fault: [] for fault in remedies}
    for name, gradient in zip(trainable, found):
        if gradient is None:
            wrong["none"].append(name)
        elif not gradient.to_dense().isfinite().all():
            wrong["not finite"].append(name)
        elif not gradient.to_dense().any():
            wrong["zero"].append(name)
    n_wrong = sum(map(len, wrong.values()))
    finding = f"all {len(trainable)} parameters have a finite gradient that is not zero"
    if n_wrong:
        faults = "; ".join(f"{fault}: {_listed(names)}" for fault, names in wrong.items() if names)
        finding = f"{n_wrong} of {len(trainable)} parameters lack a gradient ({faults})"
    remedy = "; ".join(remedies[fault] for fault, names in wrong.items() if names)
    figures = {"parameters": len(trainable)} | {name: len(wrong[name]) for name in wrong}
    return _result("gradients_flow", not n_wrong, finding, remedy, figures, raises=raises)


def loader_is_seeded(
    loader: Any,
    *,
    batches: int | None = 10,
    num_workers: int | None = None,
    raises: bool = False,
) -> CheckResult:
    """Check that a loader gives the same batches whatever the global seeds and its workers are.

    The first batches of the loader's next epoch are read twice: with its own number of workers,
    and with another one and other states of the global random generators. The loader is then at
    the epoch at which it was, and its workers go on.

    Args:
        loader: a torch DataLoader, such as a `seeded_loader`.
        batches: how many of them to read; None for a whole epoch.
        num_workers: for the second time; default: 0, or 2 where the loader has none. The number
            that it has compares the seeds only, which is all that an IterableDataset promises, and
            a dataset that cannot be used in workers, such as one on a GPU.
        raises: raise where the check does not pass.

    Raises:
        TypeError: this is not a DataLoader.
        ValueError: there are no batches to read.
        CheckFailed: with `raises`.
    """
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(loader, DataLoader):
        kind = type(loader).__name__
        raise TypeError(f"loader_is_seeded(loader=…): expected a DataLoader, got a {kind}")
    if batches is not None and batches < 1:
        raise ValueError(f"loader_is_seeded(batches=…): expected 1 or more, got {batches!r}")
    own = loader.num_workers
    other = num_workers if num_workers is not None else (0 if own else 2)
    with _undisturbed(), _loaders_kept(loader) as kept:
        first = _read(loader, batches, num_workers=own, seed=1)
        for name, restore_it in kept:
            if not name.startswith("dataset."):
                restore_it()
        second = _read(loader, batches, num_workers=other, seed=2)
    if not first:
        raise ValueError("loader_is_seeded(loader=…): it has no batches")
    differ = _differing(first, second, "batch")
    others = "with other global seeds" + (
        f" and {other} in place of {own} workers" * (own != other)
    )
    finding = f"{len(first)} batches are the same bits {others}"
    if differ:
        finding = f"batches differ {others}: {_listed(differ)}"
    remedy = "use sweeper.seeded_loader, which seeds the global generators for each sample"
    if isinstance(loader.dataset, IterableDataset) and own != other:
        remedy += (
            "; an IterableDataset repeats for the same number of workers only: pass "
            f"num_workers={own} to this check"
        )
    elif unseeded := [name for name, _ in kept if name.startswith("dataset.")]:
        remedy += f", and draw from these instead of {_listed(unseeded)}"
    figures = {"batches": len(first), "differing": len(differ)}
    return _result("loader_is_seeded", not differ, finding, remedy, figures, raises=raises)


def checkpoint_round_trip(
    *, step: Callable[..., Any] | None = None, raises: bool = False, **state: Any
) -> CheckResult:
    """Check that what `save_checkpoint` stores comes back, and the training then goes on alike.

    The state is written to a temporary file and loaded into copies of the objects that were changed
    before. All of it must be the same bits then. With `step` one more step of the training is run
    with copies that were never saved, and with those that were loaded: a difference means that the
    step depends on something that is not in the checkpoint. The objects themselves stay as they
    are. Their copies and the file need four times their size, without datasets.

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
    loaders = [value for value in state.values() if hasattr(value, "dataset")]
    with (
        _undisturbed(*modules),
        _loaders_kept(*loaders),
        tempfile.TemporaryDirectory() as folder,
    ):
        path = Path(folder, "000001.ckpt")
        write_file(content_of(state), path)
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            content = read_file(file, path)
        places, finding, remedy = _compare_round_trip(state, content, path, step)
    if places:
        finding += f": {_listed(places)}"
    else:
        finding = f"{_listed(list(state))} come back bit for bit ({size_bytes / 1e6:.3g} MB)"
        finding += ", and one more step gives the same bits" if step is not None else ""
    figures = {"bytes": size_bytes, "differing": len(places)}
    return _result("checkpoint_round_trip", not places, finding, remedy, figures, raises=raises)


def _compare_round_trip(
    state: Mapping[str, Any],
    content: Mapping[str, Any],
    path: Path,
    step: Callable[..., Any] | None,
) -> tuple[list[str], str, str]:
    """The places that differ, what that means, and the remedy."""

    def load(objects: Mapping[str, Any]) -> dict[str, Any]:
        targets = {name: value for name, value in objects.items() if has_state(value)}
        return {**objects, **restore(content, path, targets)}

    def after_step(objects: dict[str, Any]) -> dict[str, Any]:
        restore_random_states(content["random"])
        returned = None if step is None else step(**objects)
        return {**_states(objects), "what step returns": returned}

    before = copy.deepcopy(_states(state))
    expected = after_step(_copied(state))
    changed = _copied(state)
    after_step(changed)
    for value in changed.values():
        _change(value)
    loaded = load(changed)
    if places := _differing(before, _states(loaded)):
        remedy = "have load_state_dict restore all that state_dict returns"
        return places, "differ after loading", remedy
    places = _differing(expected, after_step(loaded))
    if touched := _differing(before, _states(state)):
        load(state)
        remedy = "have step use its arguments only, not the notebook's variables of these names"
        return touched, "step has changed the objects themselves", remedy
    if places and _differing(expected, after_step(_copied(state))):
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


def _result(
    check: str,
    passed: bool,
    finding: str,
    remedy: str,
    figures: Mapping[str, Any],
    *,
    raises: bool,
) -> CheckResult:
    result = CheckResult(check, passed, finding, "" if passed else remedy, figures)
    if raises and not passed:
        raise CheckFailed(result)
    return result


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _trainable(check: str, model: Any) -> dict[str, Any]:
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not found:
        raise ValueError(f"{check}(model=…): it has no trainable parameter")
    return found


def _is_module(value: Any) -> bool:
    return callable(getattr(value, "named_parameters", None)) and has_state(value)


# --- reading a loader, running a step --------------------------------------------------------


def _read(loader: Any, batches: int | None, *, num_workers: int, seed: int) -> list[Any]:
    # A loader cannot be given another number of workers, but a copy can be made with one.
    view = copy.copy(loader)
    view.__dict__.update(
        num_workers=num_workers,
        prefetch_factor=(loader.prefetch_factor or 2) if num_workers else None,
        timeout=loader.timeout if num_workers else 0,
        persistent_workers=False,
        pin_memory=False,
        _iterator=None,
    )
    if num_workers and not loader.num_workers:
        # Classes of a notebook exist in forked processes only.
        methods = multiprocessing.get_all_start_methods()
        view.multiprocessing_context = "fork" if "fork" in methods else None
    seed_generators("check", seed)
    return list(islice(view, batches))


@contextmanager
def _loaders_kept(*loaders: Any) -> Iterator[list[tuple[str, Callable[[], None]]]]:
    """Put loaders back to their epoch after the block, and the generators that they hold.

    Yields:
        What puts back the epoch and each generator, an attribute of a loader, its sampler or its
        dataset, by its name.
    """
    restores: list[tuple[str, Callable[[], None]]] = []
    for loader in loaders:
        if has_state(loader):
            restores.append(("epoch", partial(loader.load_state_dict, loader.state_dict())))
        dataset = getattr(loader.dataset, "_dataset", loader.dataset)  # in a `seeded_loader`'s own
        for part, name in (loader, "loader"), (loader.sampler, "sampler"), (dataset, "dataset"):
            for attribute, value in getattr(part, "__dict__", {}).items():
                if restore_it := _restore_of(value):
                    restores.append((f"{name}.{attribute}", restore_it))
    try:
        yield restores
    finally:
        for _, restore_it in restores:
            restore_it()


def _restore_of(value: Any) -> Callable[[], None] | None:
    """A function that puts a random generator back into its present state; None for others."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if isinstance(value, random.Random):
        return partial(value.setstate, value.getstate())
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return partial(setattr, bits, "state", bits.state)
    legacy = numpy is not None and isinstance(value, numpy.random.RandomState)
    if legacy or (torch is not None and isinstance(value, torch.Generator)):
        return partial(value.set_state, value.get_state())
    return None


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """Copies that refer to each other as the objects do; they share datasets and workers."""
    memo: dict[int, Any] = {}
    for value in state.values():
        for name in ("dataset", "_iterator"):
            if (part := getattr(value, name, None)) is not None:
                memo[id(part)] = part
    return copy.deepcopy(dict(state), memo)


def _change(value: Any) -> None:
    """Change the state of a copied module or optimizer, so that loading has work to do."""
    if _is_module(value):
        import torch

        with torch.no_grad():
            for tensor in [*value.parameters(), *value.buffers()]:
                tensor.copy_(~tensor if tensor.dtype == torch.bool else tensor + 1)
    elif has_state(value) and isinstance(getattr(value, "param_groups", None), list):
        value.state.clear()
        for group in value.param_groups:
            group |= {name: x + 1 for name, x in group.items() if isinstance(x, float)}


# --- nothing is changed ----------------------------------------------------------------------


@contextmanager
def _undisturbed(*modules: Any) -> Iterator[None]:
    """Restore the global random states, and the gradients, buffers and modes of torch's modules.

    Inside of the block the modules have no gradients.
    """
    states = random_states()
    modes = [(part, part.training) for module in modules for part in module.modules()]
    gradients = [(p, p.grad) for module in modules for p in module.parameters()]
    buffers = [(b, b.detach().clone()) for module in modules for b in module.buffers()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for buffer, before in buffers:
            # A graph that the notebook has built would take a buffer that was written to, even
            # with the same values, as modified.
            if not buffer.equal(before):
                buffer.detach().copy_(before)
        restore_random_states(states)


# --- comparing bits --------------------------------------------------------------------------


def _states(state: Mapping[str, Any]) -> dict[str, Any]:
    return {k: value.state_dict() if has_state(value) else value for k, value in state.items()}


def _differing(left: Any, right: Any, place: str = "") -> list[str]:
    """The places, such as `model.layer.weight` and `batch[0]`, at which two values differ."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        both = {**left, **right}
        pairs = [(f"{place}.{key}".lstrip("."), left.get(key), right.get(key)) for key in both]
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        found = enumerate(zip_longest(left, right))
        pairs = [(f"{place}[{index}]", one, other) for index, (one, other) in found]
    else:
        return [] if _bits(left) == _bits(right) else [place]
    return [inner for name, one, other in pairs for inner in _differing(one, other, name)]


def _bits(value: Any) -> Any:
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except Exception:  # noqa: BLE001  pickling runs foreign code
        return type(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Pickles equal objects to equal bytes: torch would store the addresses of tensors."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=4)
        self.fast = True  # without references to what is shared inside of the value

    def persistent_id(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return None
        if value.is_quantized or value.layout is not torch.strided:
            value = value.dequantize() if value.is_quantized else value.to_dense()
        flat = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        return str(value.dtype), tuple(value.shape), flat.tobytes()
