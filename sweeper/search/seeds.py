"""Derive seeds from a study's seed."""

from __future__ import annotations

import hashlib


def derived_seed(*parts: object) -> int:
    """Return a 31-bit seed, which is a hash of these parts."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 33
