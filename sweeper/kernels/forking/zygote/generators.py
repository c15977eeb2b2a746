"""Save and restore the random generators of a process: Python's, NumPy's and torch's."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Collection, Mapping
from typing import Any


def states(unfinished: Collection[str] = ()) -> dict[str, Any]:
    """Return the states of the global random generators of Python, NumPy and torch.

    The keys are `random`, `numpy` and `torch`. A library that is not imported is missing.

    Args:
        unfinished: Modules that are being imported at this moment. Their generators may not exist.
    """
    now: dict[str, Any] = {"random": random.getstate()}
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and "numpy.random" not in unfinished:
        now["numpy"] = numpy_random.get_state(legacy=False)
    torch = sys.modules.get("torch")
    if torch is not None and "torch" not in unfinished:
        now["torch"] = torch.default_generator.get_state()
    return now


def plain(states: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of generators with arrays replaced by bytes, so that `==` compares them."""
    values = dict(states)
    if "numpy" in values:
        values["numpy"] = pickle.dumps(values["numpy"])
    if "torch" in values:
        values["torch"] = values["torch"].numpy().tobytes()
    return values


def changed_since(start: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of the generators that were imported, seeded or used since a moment.

    Args:
        start: States at that moment, as `states` has returned them.
    """
    now = states()
    before = plain(start)
    after = plain(now)
    return {name: now[name] for name in now if before.get(name) != after[name]}


def restore(states: Mapping[str, Any]) -> None:
    """Set generators to states that `states` has returned."""
    if "random" in states:
        random.setstate(states["random"])
    if "numpy" in states:
        sys.modules["numpy.random"].set_state(states["numpy"])
    if "torch" in states:
        sys.modules["torch"].default_generator.set_state(states["torch"])
