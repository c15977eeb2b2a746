"""What all trials of a sweep have in common, wherever they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..kernels import SharedCells, inject
from ..notebooks.research import ResearchNotebook
from ..settings import Settings
from ..study_folder.snapshots import CodeSnapshot
from ..trials import StudyPaths

# A study without `data` needs no object storage, nor its package's import.
if TYPE_CHECKING:
    from ..sync.archive import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What all trials of a sweep have in common; it can be pickled, as their specs can.

    Attributes:
        kernel_name: of the kernelspec that runs the notebook.
        cwd: the working folder of the kernels: that of the research notebook, so that its relative
            paths and imports lead where they do when it is run by hand.
        paths: of the study; its folder marks the processes of its trials.
        snapshot: the modules that kernels import in place of what lies on disk meanwhile; None
            where they import what lies there.
        code_folder: the folder of the snapshot on this machine, without links; None for that of
            the machine where the snapshot was made.
        host: the machine where the trials run, for people; empty on that of the sweep.
        data: that the trials read; None where the parameters file states none.
        tracking: the address of MLflow with its password, for what a notebook logs there itself;
            None where such calls go where the notebook says.
        is_watched: whether kernels note the numbers that the notebook computes.
        replaces_seeds: whether a trial's seed replaces those that the notebook gives libraries,
            as in runs of the same params on several seeds.
    """

    notebook: ResearchNotebook
    settings: Settings
    kernel_name: str
    cwd: Path
    paths: StudyPaths
    snapshot: CodeSnapshot | None = None
    code_folder: Path | None = None
    host: str = ""
    data: Dataset | None = None
    tracking: str | None = None
    is_watched: bool = False
    replaces_seeds: bool = False

    @property
    def frozen(self) -> dict[str, str]:
        """The sources that kernels import in place of what lies on disk, by their paths here."""
        if self.snapshot is None:
            return {}
        return self.snapshot.frozen_in(str(self.code_folder or self.snapshot.folder))

    @property
    def own_names(self) -> frozenset[str]:
        """The names that each trial gets its own value of."""
        known = {name for name in ("seed", "run_id") if self.notebook.takes(name)}
        names = {*self.settings.search_space, *self.settings.inputs, *known}
        return frozenset(names - self.settings.fixed.keys())

    @property
    def shared_cells(self) -> SharedCells | None:
        """The cells that run once, before kernels are forked; None where none is tagged."""
        if self.notebook.language != "python":
            return None
        node = self.notebook.fresh_copy(self.kernel_name)
        kernel_name = self.kernel_name
        fixed = self.settings.fixed
        return SharedCells.of(inject(node, fixed, kernel_name=kernel_name, language="python"))
