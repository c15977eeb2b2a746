"""Checks of a model and its loss."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from .result import CheckResult, listed, settled
from .undisturbed import undisturbed


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
        TypeError: the loss is not one number.
        ValueError: there are fewer than 2 classes, or the tolerance is not positive.
        CheckFailed: with `raises`.
    """
    value = _number("near_chance(loss=…)", loss)
    if isinstance(n_classes, bool) or not isinstance(n_classes, int) or n_classes < 2:
        raise ValueError(f"near_chance(n_classes=…): expected 2 or more, got {n_classes!r}")
    if not tolerance > 0:
        raise ValueError(f"near_chance(tolerance=…): expected more than 0, got {tolerance!r}")
    chance = math.log(n_classes)
    passed = abs(value - chance) <= tolerance * chance
    remedy = ""
    if not math.isfinite(value):
        remedy = "look for a division by zero, the log of zero, and inputs that are not finite"
    elif not passed and value > chance:
        remedy = (
            "the untrained model is sure and wrong: normalise the inputs, begin with smaller "
            "weights in the last layer, take the mean of the losses and not their sum"
        )
    elif not passed:
        remedy = (
            "the model knows the labels already: is it trained, do the inputs contain the labels, "
            "is n_classes right?"
        )
    result = CheckResult(
        check="near_chance",
        passed=passed,
        finding=f"loss {value:.4g}, by chance ln({n_classes}) = {chance:.4g}",
        remedy=remedy,
        figures={"loss": value, "chance": chance},
    )
    return settled(result, raises=raises)


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
        TypeError: the model has no trainable parameter, cannot be copied, or the loss is not a
            tensor of one element.
        ValueError: there is no target, and the first loss is not positive.
        CheckFailed: with `raises`.
    """
    import torch

    with undisturbed(model), torch.enable_grad():
        trained = _copied(model).train()
        parameters = [p for p in trained.parameters() if p.requires_grad]
        if not parameters:
            raise TypeError("overfits_one_batch(model=…): it has no trainable parameter")
        optimizer = torch.optim.Adam(parameters, lr=lr)
        losses: list[float] = []
        remedy = ""
        while True:
            loss = _loss_of(loss_fn, trained, batch)
            losses.append(loss.item())
            aim = _aim(losses[0], target)
            if losses[-1] <= aim or not math.isfinite(losses[-1]) or len(losses) > steps:
                break
            optimizer.zero_grad()
            if loss.requires_grad:
                loss.backward()
            if all(parameter.grad is None for parameter in parameters):
                remedy = "compute the loss from the model that loss_fn gets, and do not detach it"
                break
            optimizer.step()
    passed = losses[-1] <= aim
    done = len(losses) - 1
    finding = f"loss {losses[0]:.4g} → {losses[-1]:.4g} in {done} steps, target {aim:.4g}"
    if remedy:
        finding = f"no gradient reaches the model from its loss of {losses[0]:.4g}"
    elif not math.isfinite(losses[-1]):
        remedy = "look for a division by zero, the log of zero, and an lr that is too large"
    elif not passed:
        remedy = (
            "are the labels those of the inputs, and do gradients reach all layers "
            "(checks.gradients_flow)? If so, try another lr, more steps, or state a target"
        )
    figures = {"first": losses[0], "last": losses[-1], "steps": done, "target": aim}
    result = CheckResult("overfits_one_batch", passed, finding, remedy, figures)
    return settled(result, raises=raises)


def gradients_flow(model: Any, loss: Any, *, raises: bool = False) -> CheckResult:
    """Check that each trainable parameter gets a finite gradient that is not zero from a loss.

    The gradients that the parameters have already stay as they are, and `loss.backward()` can be
    called afterwards.

    Args:
        model: a torch module.
        loss: a tensor of one element, computed from the model outside of `torch.no_grad`.
        raises: raise where the check does not pass.

    Raises:
        TypeError: the model has no trainable parameter, or the loss is not a tensor of one element.
        CheckFailed: with `raises`.
    """
    import torch

    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise TypeError("gradients_flow(model=…): it has no trainable parameter")
    _check_tensor("gradients_flow(loss=…)", loss)
    found: Sequence[Any] = (None,) * len(named)
    if loss.requires_grad:
        with undisturbed():
            found = torch.autograd.grad(
                loss, [p for _, p in named], retain_graph=True, allow_unused=True
            )
    wrong: dict[str, list[str]] = {"none": [], "zero": [], "not finite": []}
    for (name, _), gradient in zip(named, found):
        if (fault := _fault_of(gradient)) is not None:
            wrong[fault].append(name)
    n_wrong = sum(map(len, wrong.values()))
    remedies = {
        "none": "use them in the loss, and do not cut it off by detach(), item() or no_grad()",
        "zero": "look for units that are dead, and for layers behind them with weights of zero",
        "not finite": "look for a division by zero, the log of zero, and an overflow in float16",
    }
    if n_wrong:
        kinds = [f"{kind}: {listed(names)}" for kind, names in wrong.items() if names]
        finding = f"{n_wrong} of {len(named)} parameters lack a gradient ({'; '.join(kinds)})"
    else:
        finding = f"all {len(named)} parameters have a finite gradient that is not zero"
    result = CheckResult(
        check="gradients_flow",
        passed=not n_wrong,
        finding=finding,
        remedy="; ".join(remedies[kind] for kind, names in wrong.items() if names),
        figures={"parameters": len(named), **{kind: len(names) for kind, names in wrong.items()}},
    )
    return settled(result, raises=raises)


def _fault_of(gradient: Any) -> str | None:
    if gradient is None:
        return "none"
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    if not bool(values.isfinite().all()):
        return "not finite"
    return None if bool(values.any()) else "zero"


def _loss_of(loss_fn: Callable[[Any, Any], Any], model: Any, batch: Any) -> Any:
    try:
        loss = loss_fn(model, batch)
    except TypeError as error:
        raise TypeError(
            f"overfits_one_batch: loss_fn(model, batch) failed: {error}; it takes the model and "
            "the batch, as in lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])"
        ) from error
    _check_tensor("overfits_one_batch(loss_fn=…)", loss)
    return loss


def _aim(first: float, target: float | None) -> float:
    if target is None and first <= 0:
        raise ValueError(
            f"overfits_one_batch(target=…): the loss begins at {first:.4g}, which is not more than "
            "0: state the target that it has to reach"
        )
    return first / 10 if target is None else target


def _check_tensor(argument: str, loss: Any) -> None:
    import torch

    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        is_tensor = isinstance(loss, torch.Tensor)
        found = f"one of {loss.numel()}" if is_tensor else f"a {type(loss).__name__}"
        raise TypeError(f"{argument}: expected a tensor of one element, got {found}")


def _copied(model: Any) -> Any:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise TypeError(
            f"overfits_one_batch(model=…): this {type(model).__name__} cannot be copied: {error}"
        ) from error


def _number(argument: str, value: Any) -> float:
    try:
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError is torch's
        raise TypeError(f"{argument}: expected one number, got {type(value).__name__}") from None
