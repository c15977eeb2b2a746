"""What has changed between the environments of two runs, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The most packages that are named.
_MOST_NAMES = 5
#: What can change a result, with its name for people.
_FACTS = {
    "cpu": "the processor",
    "gpus": "the GPU",
    "gpu_driver": "the driver of the GPU",
    "platform": "the system",
}


def environment_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List what differs between two environments; what one of them does not know is left out.

    Args:
        before: as `environment_of` returns it.
        now: likewise.
    """
    found = [
        f"{words} was {_text(before[name])}, and is {_text(now[name])}"
        for name, words in _FACTS.items()
        if name in before and name in now and before[name] != now[name]
    ]
    old, new = before.get("python"), now.get("python")
    if old is None or new is None:
        return found
    if old["version"] != new["version"]:
        found.append(f"Python was {old['version']}, and is {new['version']}")
    packages = _changed_packages(old["packages"], new["packages"])
    if packages:
        more = len(packages) - _MOST_NAMES
        listed = ", ".join(packages[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        found.append(f"packages differ: {listed}")
    return found


def _changed_packages(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {before.get(name, 'missing')} (now {now.get(name, 'missing')})"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def _text(fact: Any) -> str:
    return ", ".join(fact) if isinstance(fact, list) else str(fact)
