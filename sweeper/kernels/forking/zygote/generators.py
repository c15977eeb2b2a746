"""The random generators that a whole process shares: Python's, NumPy's and torch's."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Mapping
from typing import Any

#: Words of 32 bits in a Mersenne Twister, which both Python and NumPy use.
_WORDS = 624
#: How many refills of a twister are tried before a state counts as seeded: 3 million numbers.
_MOST_REFILLS = 5000


def states(unfinished: Collection[str] = ()) -> dict[str, Any]:
    """The state of each generator that exists in this process, by its name.

    Args:
        unfinished: modules that are just being imported, and have no generator yet.
    """
    now: dict[str, Any] = {"random": random.getstate()}
    numpy_random, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    if numpy_random is not None and "numpy.random" not in unfinished:
        now["numpy"] = numpy_random.get_state(legacy=False)
    if torch is not None and "torch" not in unfinished:
        now["torch"] = torch.default_generator.get_state()
    return now


def plain(states: Mapping[str, Any]) -> dict[str, Any]:
    """Values that are equal where states are."""
    values = dict(states)
    if "numpy" in values:
        inner = values["numpy"]["state"]
        key = bytes(inner.get("key", b""))
        values["numpy"] = repr({**values["numpy"], "state": {**inner, "key": key}})
    if "torch" in values:
        values["torch"] = values["torch"].numpy().tobytes()
    return values


def seeded_since(start: Mapping[str, Any]) -> dict[str, Any]:
    """The states of the generators that were seeded since `start`, and did not only draw."""
    return {
        name: state
        for name, state in states().items()
        if name in start and _is_seeded(start[name], state)
    }


def _is_seeded(start: Any, end: Any) -> bool:
    first, last = _words_of(start), _words_of(end)
    if first is None or last is None:
        return bool(_seed_of(start) != _seed_of(end))
    twister = random.Random()
    twister.setstate((3, first, None))
    for _ in range(_MOST_REFILLS):
        if twister.getstate()[1][:-1] == last[:-1]:
            return False
        twister.getrandbits(32 * _WORDS)
    return True


def _words_of(state: Any) -> tuple[int, ...] | None:
    """The words of a twister with its position; None for another generator."""
    if isinstance(state, tuple):
        words: tuple[int, ...] = state[1]
        return words
    if isinstance(state, dict) and state["bit_generator"] == "MT19937":
        return (*state["state"]["key"].tolist(), state["state"]["pos"])
    return None


def _seed_of(state: Any) -> Any:
    """The seed of a generator of torch; None for one that NumPy was given in place of its own."""
    if isinstance(state, dict):
        return None
    generator = sys.modules["torch"].Generator()
    generator.set_state(state)
    return generator.initial_seed()


def restore(states: Mapping[str, Any]) -> None:
    """Put generators into states that `states` has returned."""
    if "random" in states:
        random.setstate(states["random"])
    if "numpy" in states:
        sys.modules["numpy.random"].set_state(states["numpy"])
    if "torch" in states:
        sys.modules["torch"].default_generator.set_state(states["torch"])


def reseed() -> None:
    """Give each generator the state of a new process: forks would all draw the same numbers."""
    random.seed()
    numpy_random, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    if numpy_random is not None:
        numpy_random.seed()
    if torch is not None:
        torch.default_generator.seed()
