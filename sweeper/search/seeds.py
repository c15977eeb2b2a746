"""Seeds that follow from a study's own one."""

from __future__ import annotations

import hashlib


def derived_seed(*parts: object) -> int:
    """A 31-bit seed that is a hash of these parts."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 33
