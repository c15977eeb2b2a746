"""What all trials of a sweep have in common, wherever they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..kernels import CellsToShare, cells_to_share
from ..notebooks import ResearchNotebook
from ..settings import Settings
from ..trials import StudyPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What all trials of a sweep have in common; it can be pickled, as their specs can.

    Attributes:
        kernel_name: of the kernelspec that runs the notebook.
        cwd: the working folder of the kernels: that of the research notebook, so that its relative
            paths and imports lead where they do when it is run by hand.
        paths: of the study; its folder marks the processes of its trials.
    """

    notebook: ResearchNotebook
    settings: Settings
    kernel_name: str
    cwd: Path
    paths: StudyPaths

    def cells_to_share(self) -> CellsToShare | None:
        """The leading cells that no swept name reaches; None where none may be shared."""
        if self.settings.execution.prefix == "off" or self.notebook.language != "python":
            return None
        fixed = self.settings.fixed
        injected = {name for name in ("seed", "run_id") if self.notebook.assigns(name)}
        swept = {*self.settings.search_space, *injected} - set(fixed)
        return cells_to_share(
            self.notebook.fresh_copy(self.kernel_name),
            fixed=fixed,
            swept=sorted(swept),
            kernel_name=self.kernel_name,
        )
