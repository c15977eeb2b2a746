"""Define what all trials of a sweep have in common, wherever they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..kernels import SharedCells, inject
from ..notebooks.research import ResearchNotebook
from ..search.seeds import trial_seed
from ..settings import Settings
from ..study_folder.snapshots import CodeSnapshot
from ..trials import StudyPaths

# `Dataset` is imported for types only, because a study without `data` needs no package for an
# object storage.
if TYPE_CHECKING:
    from ..data.archive import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What all trials of a sweep have in common. It can be pickled, to be sent to a worker.

    Attributes:
        notebook: Research notebook of the sweep.
        settings: Settings of the sweep.
        kernel_name: Name of the Jupyter kernel that runs the notebook.
        cwd: Working folder of the kernels. It is the folder of the research notebook, so that
            relative paths and imports work as when it is run by hand.
        paths: Paths of the study.
        snapshot: Modules that kernels import instead of the files on disk. None if they import the
            files on disk.
        code_folder: Folder of the notebook where the trials run, without symbolic links. None if it
            is `snapshot.folder`. It differs on a worker, or if the project was moved.
        host: Name of the machine where the trials run. Empty if it is the sweep's machine.
        data: Data that the trials read. None if the parameters file names none.
        tracking: MLflow tracking URI with its password, for MLflow calls in the notebook itself.
            None if these calls go where the notebook says.
        observed: Fingerprint of an observed run, which states what the run depends on. An observed
            run is made only to draft a parameters file. Its kernel records the numbers that the
            notebook computes. None for the trials of a study.
        random_seed: Seed with which the random generators of all trials begin. None if they begin
            with each trial's own seed.
        replaces_seeds: Whether a trial's seed replaces the seeds that the notebook sets in
            libraries, as when trials are repeated with several seeds.
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
    observed: Mapping[str, Any] | None = None
    random_seed: int | None = None
    replaces_seeds: bool = False

    @property
    def snapshot_name(self) -> str:
        """Name of the snapshot, as executed notebooks state it. Empty if there is none."""
        return "" if self.snapshot is None else self.snapshot.name

    @property
    def frozen(self) -> dict[str, str]:
        """Sources of the modules that kernels import instead of the files on disk, by path.

        The paths are those on the machine where the trials run.
        """
        if self.snapshot is None:
            return {}
        return self.snapshot.frozen_in(str(self.code_folder or self.snapshot.folder))

    @property
    def code(self) -> str:
        """All code that the trials run: of the notebook, and of local modules in the snapshot."""
        cells = [cell.source for cell in self.notebook.fresh_copy(self.kernel_name).cells]
        return "\n".join([*cells, *self.frozen.values()])

    @property
    def own_names(self) -> frozenset[str]:
        """Names of params that differ between trials: swept params, inputs, `seed` and `run_id`.

        Names in `fixed` are left out. So are `seed` and `run_id` if the notebook has no variable of
        this name that a trial can set.
        """
        known = {name for name in ("seed", "run_id") if self.notebook.takes(name)}
        names = {*self.settings.search_space, *self.settings.inputs, *known}
        return frozenset(names - self.settings.fixed.keys())

    @property
    def seed_of_shared_cells(self) -> int:
        """Seed of the random generators from which cells tagged `shared` draw."""
        first = trial_seed(self.settings.study.seed, 0)
        return first if self.random_seed is None else self.random_seed

    @property
    def shared_cells(self) -> SharedCells | None:
        """Cells tagged `shared`, which run once before kernels are forked. None without a tag."""
        if self.notebook.language != "python":
            return None
        node = self.notebook.fresh_copy(self.kernel_name)
        kernel_name = self.kernel_name
        fixed = self.settings.fixed
        return SharedCells.of(inject(node, fixed, kernel_name=kernel_name, language="python"))
