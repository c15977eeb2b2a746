"""The random generators that a whole process shares: Python's, NumPy's and torch's."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

#: Words of 32 bits in a Mersenne Twister, which both Python and NumPy use.
_WORDS = 624
#: How many refills of a twister are tried before a state counts as seeded: 3 million numbers.
_MOST_REFILLS = 5000


def states() -> dict[str, Any]:
    """What `is_seeded_since` needs of each generator that exists in this process, by its name.

    Returns:
        the words of a twister with its position, and the seed of torch's generator.
    """
    found: dict[str, Any] = {"random": random.getstate()[1]}
    numpy_random, torch = _loaded("numpy.random"), _loaded("torch")
    if numpy_random is not None:
        state = numpy_random.get_state(legacy=False)
        if state["bit_generator"] == "MT19937":
            found["numpy"] = (*state["state"]["key"].tolist(), state["state"]["pos"])
    if torch is not None:
        found["torch"] = torch.default_generator.initial_seed()
    return found


def is_seeded_since(start: Any, end: Any) -> bool:
    """Whether a generator was seeded between two of its `states`, and did not only draw."""
    if isinstance(end, int):
        return bool(start != end)
    twister = random.Random()
    twister.setstate((3, start, None))
    for _ in range(_MOST_REFILLS):
        if twister.getstate()[1][:-1] == end[:-1]:
            return False
        twister.getrandbits(32 * _WORDS)
    return True


def kept() -> dict[str, Any]:
    """What `restore` needs to go on from here, by the generator's name."""
    now: dict[str, Any] = {"random": random.getstate()}
    numpy_random, torch = _loaded("numpy.random"), _loaded("torch")
    if numpy_random is not None:
        now["numpy"] = numpy_random.get_state(legacy=False)
    if torch is not None:
        now["torch"] = torch.default_generator.get_state()
    return now


def restore(states: Mapping[str, Any]) -> None:
    """Put generators into states that `kept` has returned."""
    if "random" in states:
        random.setstate(states["random"])
    if "numpy" in states:
        sys.modules["numpy.random"].set_state(states["numpy"])
    if "torch" in states:
        sys.modules["torch"].default_generator.set_state(states["torch"])


def snapshot() -> dict[str, Any]:
    """Plain values by the generator's name, which differ when a generator has moved."""
    now = kept()
    if "numpy" in now and "key" in now["numpy"]["state"]:
        state = now["numpy"]
        key, position = state["state"]["key"], state["state"]["pos"]
        now["numpy"] = (key.tobytes(), position, state["has_gauss"], state["gauss"])
    elif "numpy" in now:
        now["numpy"] = repr(now["numpy"])
    if "torch" in now:
        now["torch"] = now["torch"].numpy().tobytes()
    return now


def reseed() -> None:
    """Give each generator the state of a new process: forks would all draw the same numbers."""
    random.seed()
    numpy_random, torch = _loaded("numpy.random"), _loaded("torch")
    if numpy_random is not None:
        numpy_random.seed()
    if torch is not None:
        torch.default_generator.seed()


def _loaded(name: str) -> Any:
    """A module that has been imported to its end; None for any other."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if getattr(spec, "_initializing", False) else module
