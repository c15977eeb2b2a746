"""Derive seeds from a study's seed."""

from __future__ import annotations

import hashlib


def trial_seed(study_seed: int, number: int) -> int:
    """Return the seed of a trial that has no param `seed`.

    It is derived anew for a trial that was killed before it began, so it depends on nothing else.
    """
    return derived_seed(study_seed, "trial", number)


def derived_seed(*parts: object) -> int:
    """Return a 31-bit seed: a hash of a study's seed, the seed's purpose and further parts."""
    text = "/".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 33
