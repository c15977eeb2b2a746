"""Learn from completed trials which source gives each score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..notebooks.metadata import TrialMetadata
from ..settings import Settings
from ..trials import ScoreRank


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedSources:
    """Learns which source, such as a report or a variable, gives each score.

    While later trials run, values from a source with a lower priority do not count as the score.

    Attributes:
        settings: Settings of the sweep.
        libraries: Names of the libraries whose logged values were used as reports.
        ranks: By score, the source with the highest priority that gave it in a completed trial.
        unjudged: Objectives whose points are useless for pruning, because a library logs the points
            but another source gives the final score. The values are the names of the libraries.
    """

    settings: Settings
    libraries: set[str] = field(default_factory=set)
    ranks: dict[str, ScoreRank] = field(default_factory=dict)
    unjudged: dict[str, str] = field(default_factory=dict)

    def known(self) -> Mapping[str, ScoreRank]:
        """Return the source of each score, for the scores whose source is known so far."""
        return {**dict.fromkeys(self.settings.scores, ScoreRank.NAMED), **self.ranks}

    def note_libraries(self, libraries: Iterable[str]) -> None:
        """Add libraries whose logged values were used as reports."""
        self.libraries.update(libraries)

    def learn(self, metadata: TrialMetadata) -> None:
        """Learn the sources of scores from a completed trial.

        Args:
            metadata: Metadata of the trial's executed notebook.
        """
        for name, rank in metadata.given_by.items():
            if rank < self.ranks.get(name, ScoreRank.LOGGED):
                self.ranks[name] = rank
        name = next(iter(self.settings.objective))
        has_points = name in metadata.series or name in metadata.printed
        is_unjudged = name in self.ranks and name in metadata.logged and not has_points
        if is_unjudged and self.settings.study.pruner.name != "none":
            self.unjudged[name] = metadata.logged[name].library

    @property
    def findings(self) -> list[str]:
        """Remarks for users about the sources of scores, one sentence each."""
        found = []
        if self.libraries:
            names = ", ".join(sorted(self.libraries))
            hint = "with `reports: explicit`, only calls of sweeper.report count"
            found.append(f"reports come from {names}; {hint}")
        for name, library in self.unjudged.items():
            found.append(
                f"pruning did not use what {library} logs as {name}, because another source gives "
                f"{name} at the end; report it while a trial runs: sweeper.report(step, {name}=…)"
            )
        return found
