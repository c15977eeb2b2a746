"""Derive seeds from a study's seed."""

from __future__ import annotations

import hashlib


def trial_seed(study_seed: int, number: int) -> int:
    """Return the seed of a trial that has no param `seed`.

    The seed depends only on these two numbers. So a trial that was killed before it began gets the
    same seed when it begins again.
    """
    return derived_seed(study_seed, "trial", number)


def derived_seed(*parts: object) -> int:
    """Return a 31-bit seed, which is a hash of the parts.

    Args:
        parts: Seed of the study, purpose of the new seed, such as `"trial"`, and perhaps more.
    """
    text = "/".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 33
