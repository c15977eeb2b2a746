"""The random generators that a whole process shares: Python's, NumPy's and torch's.

Started kernels run this file's text as it stands, so it imports the standard library only.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

#: Words of 32 bits in a Mersenne Twister, which both Python and NumPy use.
_WORDS = 624
#: How many refills of a twister are tried before a state counts as seeded: 3 million numbers.
_MOST_REFILLS = 5000


def states() -> dict[str, dict[str, Any]]:
    """The state of each generator that exists in this process, as JSON.

    Returns:
        by name, a `digest` to compare, whether it `has_moved` since it was seeded last, and what
        `is_seeded_since` needs: the `words` of a twister, or torch's own `seed`.
    """
    _, words, gauss = random.getstate()
    found = {"random": _twister(words[:-1], words[-1], gauss)}
    numpy_random, torch = _loaded("numpy.random"), _loaded("torch")
    if numpy_random is not None:
        state = numpy_random.get_state(legacy=False)
        if state["bit_generator"] == "MT19937":
            gauss = state["gauss"] if state["has_gauss"] else None
            found["numpy"] = _twister(state["state"]["key"].tolist(), state["state"]["pos"], gauss)
        else:
            found["numpy"] = {"digest": _digest(repr(state)), "has_moved": True}
    if torch is not None:
        generator = torch.default_generator
        seed, now = generator.initial_seed(), generator.get_state()
        fresh = torch.Generator().manual_seed(seed).get_state()
        found["torch"] = {
            "digest": _digest(now.numpy().tobytes()),
            "has_moved": not bool(torch.equal(now, fresh)),
            "seed": str(seed),
        }
        if torch.cuda.is_initialized():
            on_gpus = b"".join(state.numpy().tobytes() for state in torch.cuda.get_rng_state_all())
            # Each process begins with the same seed there, so equal states are the rule.
            found["cuda"] = {"digest": _digest(on_gpus), "has_moved": True}
    return found


def is_seeded_since(start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> bool:
    """Whether a generator was seeded between two of its states, and did not only draw."""
    if start is None:
        return True
    if "words" not in start or "words" not in end:
        return start.get("seed") != end.get("seed")
    twister = random.Random()
    twister.setstate((3, (*start["words"], start["position"]), None))
    wanted = tuple(end["words"])
    for _ in range(_MOST_REFILLS):
        words = twister.getstate()[1]
        if words[:-1] == wanted:
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


def _twister(words: Sequence[int], position: int, gauss: float | None) -> dict[str, Any]:
    return {
        "digest": _digest(repr((tuple(words), position, gauss))),
        "has_moved": position != _WORDS or gauss is not None,
        "words": list(words),
        "position": position,
    }


def _digest(data: str | bytes) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return hashlib.blake2b(raw, digest_size=16).hexdigest()
