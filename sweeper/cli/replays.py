"""The command `replay`: run trials again as they were, and print whether they repeat."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .codes import DIFFERENT, OK
from .console_output import ConsoleOutput

if TYPE_CHECKING:
    from ..control.replay import Verdict


def replay(options: argparse.Namespace) -> int:
    """Run trials again and compare; 0 where all numbers are the same bits."""
    from ..control import replay as replaying
    from ..control.lookup import clean_up_after_crash
    from ..control.replay_targets import targets_of

    console = ConsoleOutput(options)
    existing, targets = targets_of(
        options.targets,
        storage=options.storage,
        tracking_uri=options.tracking_uri,
        takes_all=options.all,
        sample=options.sample,
    )
    clean_up_after_crash(existing)

    def announce(verdict: Verdict) -> None:
        for line in verdict.lines():
            console.line(line)

    verdicts = replaying.replay(
        existing,
        targets,
        jobs=options.jobs or 1,
        here=options.here,
        on_verdict=announce,
    )
    if len(verdicts) > 1:
        console.line(f"{existing.study.name}: {_summary(verdicts)}")
    found = [verdict.to_json() for verdict in verdicts]
    console.json({"study": existing.study.name, "replays": found})
    is_same = all(verdict.state is replaying.ReplayState.EQUAL for verdict in verdicts)
    return OK if is_same else DIFFERENT


def _summary(verdicts: Sequence[Verdict]) -> str:
    counts = dict.fromkeys(("equal", "different", "failed"), 0)
    for verdict in verdicts:
        counts[verdict.state] += 1
    parts = [f"{count} {state}" for state, count in counts.items() if count]
    return f"{len(verdicts)} replays: {', '.join(parts)}"
