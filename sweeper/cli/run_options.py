"""Read the options of a sweep from argparse's namespace into typed fields."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..notebooks.research import ResearchNotebook
    from ..settings import Settings
    from ..sweep import Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a sweep. The command `check` has only some of these options.

    Each field has the name of its option in `cli/options.py`. If an option was not given, its field
    has the option's default, which is mostly None.

    Attributes:
        set: Values of `--set`, each as `NAME=VALUE`.
        timeout: Wall-clock limit of the sweep in seconds. The run of the notebook before a proposed
            sweep counts, too.
        proposes: Whether a sweep was started with the notebook as the first word, without `-i`.
            Then a parameters file is drafted if there is none.
        yes: Whether to start a proposed sweep without asking, if it is clear which score is meant.
        score: Score of a proposed sweep, as `NAME`, `NAME:min` or `NAME:max`.
        dry_run: Whether to print only what is known without running the notebook.
        began_s: Time of the call, on the monotonic clock. `timeout` counts from it.
    """

    input: str
    output: str
    parameters: str
    jobs: str | None
    trials: int | None
    study: str | None
    storage: str | None
    tracking_uri: str | None
    set: Sequence[str]
    confirm: int | None
    seeds: int | None
    kernel: str | None
    cold: bool
    cluster: str | None = None
    timeout: float | None = None
    events: str | None = None
    allow_changes: bool = False
    proposes: bool = False
    yes: bool = False
    score: str | None = None
    dry_run: bool = False
    began_s: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> RunOptions:
        """Return the options of a sweep from a parsed command line."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in vars(arguments).items() if name in names})

    def settings(self) -> Settings:
        """Load the parameters file, and override it with the options."""
        from ..settings import Settings

        return Settings.load(self.parameters).with_overrides(
            study=self.study,
            trials=self.trials,
            cold=self.cold,
            cluster=self.cluster,
            **self.values(),
        )

    def values(self) -> dict[str, Any]:
        """Return `--set`, `--confirm` and `--seeds` as arguments of `Settings.with_overrides`."""
        from ..settings.flags import read_value

        fixed = dict(read_value(text) for text in self.set)
        return {"fixed": fixed, "confirm": self.confirm, "seeds": self.seeds}

    def sweep(self, settings: Settings, notebook: str | ResearchNotebook, **others: Any) -> Sweep:
        """Build the sweep of a notebook, but do not run it.

        Args:
            settings: Settings of the sweep.
            notebook: The notebook or its path.
            **others: Further arguments of `Sweep.from_settings`.
        """
        from ..sweep import Sweep

        return Sweep.from_settings(
            settings,
            notebook=notebook,
            output=self.output,
            jobs=self.jobs,
            storage=self.storage,
            tracking_uri=self.tracking_uri,
            kernel=self.kernel,
            timeout_s=self.timeout,
            began_s=self.began_s,
            **others,
        )
