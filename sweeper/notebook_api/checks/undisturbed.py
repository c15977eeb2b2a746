"""Run code, and leave random states, gradients, buffers and modes as they were."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from ..generators import random_states, restore_random_states

#: How deep, and in how many objects, random generators are looked for.
_MOST_LEVELS, _MOST_ITEMS, _MOST_OBJECTS = 8, 50, 5000


@contextmanager
def undisturbed(*modules: Any) -> Iterator[None]:
    """Restore the global random states after the block, and what it changes in the modules.

    Args:
        modules: torch's; inside of the block they have no gradients. After it they have the
            gradients, buffers and modes from before. Weights are not looked at.
    """
    states = random_states()
    parts = [part for module in modules for part in module.modules()]
    modes = [part.training for part in parts]
    parameters = [p for module in modules for p in module.parameters()]
    gradients = [parameter.grad for parameter in parameters]
    buffers = [buffer for module in modules for buffer in module.buffers()]
    kept = [buffer.detach().clone() for buffer in buffers]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for part, mode in zip(parts, modes):
            part.training = mode
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient
        for buffer, before in zip(buffers, kept):
            _write_back(buffer, before)
        restore_random_states(states)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized() and "cuda" not in states:
            # CUDA began inside of the block, with this seed.
            torch.cuda.manual_seed_all(torch.initial_seed())


def _write_back(buffer: Any, before: Any) -> None:
    import torch

    # Where nothing has changed, nothing is written: a graph that the notebook has built would
    # take a buffer that was written to as modified.
    if not torch.equal(buffer, before):
        with torch.no_grad():
            buffer.copy_(before)


@contextmanager
def generators_kept(value: Any) -> Iterator[list[str]]:
    """Restore the random generators that an object holds, or a dataset in it, after the block.

    Yields:
        Where they are, such as `dataset.rng`.
    """
    found = list(_generators_in(value, "", {}))
    states = [_state_of(generator) for _, generator in found]
    try:
        yield [name for name, _ in found]
    finally:
        for (_, generator), state in zip(found, states):
            _set_state(generator, state)


def _generators_in(value: Any, name: str, seen: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen or len(seen) > _MOST_OBJECTS or name.count(".") > _MOST_LEVELS:
        return
    seen[id(value)] = value
    inner: Any = ()
    if isinstance(value, _generator_classes()):
        yield name, value
    elif isinstance(value, (list, tuple)):
        inner = [(f"{name}[{index}]", item) for index, item in enumerate(value[:_MOST_ITEMS])]
    elif isinstance(value, dict):
        inner = [(f"{name}.{key}", item) for key, item in islice(value.items(), _MOST_ITEMS)]
    elif not isinstance(value, (type, ModuleType, FunctionType, BuiltinFunctionType)):
        # A `seeded_loader` has the dataset of the notebook in one of its own.
        inner = [
            (name if attribute == "_dataset" else f"{name}.{attribute}", item)
            for attribute, item in getattr(value, "__dict__", {}).items()
        ]
    for inner_name, item in inner:
        yield from _generators_in(item, inner_name.lstrip("."), seen)


def _generator_classes() -> tuple[type, ...]:
    classes: list[type] = [random.Random]
    if numpy := sys.modules.get("numpy"):
        classes += [numpy.random.Generator, numpy.random.RandomState]
    if torch := sys.modules.get("torch"):
        classes += [torch.Generator]
    return tuple(classes)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    bits = getattr(generator, "bit_generator", None)  # of numpy's Generator
    return generator.get_state() if bits is None else bits.state


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)
