"""Define all paths of a study: its executed notebooks, its folder, and the MLflow store."""

from __future__ import annotations

import os
import re
import shlex
import string
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import OutputError, StudyError
from ..files import below

_TRACKING_NAME = "mlflow.db"
_ARTIFACTS_NAME = "mlflow-artifacts"
#: Names of files and folders that are stored next to the studies' folders. No study can have one of
#: these names.
_SHARED_NAMES = (_TRACKING_NAME, f"{_TRACKING_NAME}.lock", _ARTIFACTS_NAME)
#: Largest number of bytes in the name of a file or folder. File systems allow 255. 24 bytes are
#: left for longer names: a notebook that is being written is `.NAME.12345678.part`, and the study
#: that confirms another one adds `confirm-`.
_NAME_BYTES = 231
#: Replaces a placeholder while a template is split. No path can contain this character.
_MARK = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPaths:
    """All paths of one study. No other module joins paths of a study.

    Attributes:
        template: Absolute output template. A brace in a folder's name is doubled, as `str.format`
            requires.
        study: Name of the study.
        root: Folder of the template before its first placeholder. All studies in it share one
            MLflow store. The files of one study are in `root/<study>`.
    """

    template: str
    study: str
    root: Path

    @classmethod
    def parse(cls, template: str, *, study: str) -> StudyPaths:
        """Read an output template such as `./out/digits.{run_id}.ipynb`.

        A relative template is resolved against the working folder, and `~` is the home folder.
        Braces in the names of these two folders are not placeholders.

        Args:
            template: The template as the user wrote it.
            study: Name of the study.

        Raises:
            OutputError: The template is a URL, lacks `{run_id}`, has another placeholder, does not
                end in `.ipynb`, is too long for file systems, or is not UTF-8.
        """
        right = "expected something like './out/digits.{run_id}.ipynb'"
        if "://" in template:
            raise OutputError(
                f"output template {template!r} is not a path of this machine; {right}; "
                "for a copy elsewhere, give `sync: s3://…` in the parameters file"
            )
        absolute = _absolute(template)
        try:
            pieces = list(string.Formatter().parse(absolute))
        except ValueError as error:
            raise OutputError(f"output template {template!r}: {error}; {right}") from error
        names = [name for _, name, _, _ in pieces if name is not None]
        for _, name, spec, conversion in pieces:
            if name is not None and (name not in ("run_id", "study") or spec or conversion):
                details = (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
                wrong = "{" + name + details + "}"
                raise OutputError(
                    f"output template {template!r}: {wrong} is not known; only {{run_id}} and "
                    f"{{study}} can be used; {right}"
                )
        if study in _SHARED_NAMES:
            raise OutputError(
                f"the study's name {study!r} is reserved for the MLflow store next to the outputs; "
                "choose another name with --study"
            )
        if "run_id" not in names:
            raise OutputError(
                f"output template {template!r} has no {{run_id}}, so all trials would write the "
                f"same file; {right}"
            )
        if not template.endswith(".ipynb"):
            raise OutputError(f"output template {template!r} does not end in .ipynb; {right}")
        if len(os.fsencode(study)) > _NAME_BYTES:
            raise OutputError(
                f"the study's name {study[:20]}…{study[-20:]} has more than {_NAME_BYTES} bytes; "
                "choose a shorter one with --study"
            )
        for name in Path(absolute.format(run_id="0000", study=study)).parts:
            if not is_utf8(name):
                raise OutputError(
                    f"the outputs' folder {name!r} has a name that is not UTF-8, so no notebook "
                    "can contain its path; choose another folder with -o"
                )
            if len(os.fsencode(name)) > _NAME_BYTES:
                raise OutputError(
                    f"output template: the name {name[:20]}…{name[-20:]} has more than "
                    f"{_NAME_BYTES} bytes; choose a shorter one with -o"
                )
        before, _, _ = absolute.format(run_id=_MARK, study=_MARK).partition(_MARK)
        # `before` may end in a slash. With a letter after it, `parent` is the folder before the
        # placeholder in any case.
        root = Path(before + "x").parent
        return cls(template=absolute, study=study, root=root)

    def following(self, kind: str) -> StudyPaths:
        """Return the paths of a study that runs some trials of this study again.

        Args:
            kind: Kind of the other study: `confirm` or `ablate`.
        """
        template = self.template
        if not self.has_study_in_names:
            template = _with_prefix(template, f"{kind}-")
        return replace(self, template=template, study=f"{self.study}-{kind}")

    def copied_below(self, folder: Path) -> StudyPaths:
        """Return the paths that copies of this study's files have below a folder. Copy nothing.

        A worker on another machine has its copies below such a folder.
        """
        return StudyPaths(
            template=as_template(str(folder)) + self.template,
            study=self.study,
            root=folder / self.root.relative_to(self.root.anchor),
        )

    def moved_to(self, root: Path) -> StudyPaths:
        """Return the paths of this study after its outputs were moved to `root`. Move nothing."""
        root = root.absolute()
        below = self.template[len(as_template(str(self.root))) :]
        return replace(self, template=as_template(str(root)) + below, root=root)

    @property
    def has_study_in_names(self) -> bool:
        """Whether the template contains `{study}`, so that each study has its own notebooks."""
        return any(name == "study" for _, name, _, _ in string.Formatter().parse(self.template))

    @property
    def options_of_another(self) -> str:
        """Command-line options with which the same command begins another study next to this one.

        If the template lacks `{study}`, the options add it. Otherwise the trials of the other study
        would overwrite the notebooks of this study.
        """
        if self.has_study_in_names:
            return "--study NAME"
        template = _with_prefix(self.displayed_template, "{study}.")
        return f"--study NAME -o {shlex.quote(template)}"

    @property
    def displayed_template(self) -> str:
        """The template for people: relative if it is below the working folder."""
        relative = os.path.relpath(self.template, as_template(str(Path.cwd())))
        return self.template if relative.startswith("..") else relative

    @property
    def folder(self) -> Path:
        """Folder with the files that belong only to this study."""
        return self.root / self.study

    @property
    def storage(self) -> Path:
        """SQLite file of the default Optuna storage."""
        return self.folder / "study.db"

    @property
    def facts(self) -> Path:
        """File with the facts about the study, such as its settings and its notebook.

        This file and the executed notebooks suffice to rebuild a lost storage.
        """
        return facts_beside(self.storage)

    @property
    def tracking(self) -> Path:
        """SQLite file of the default MLflow store."""
        return self.root / _TRACKING_NAME

    @property
    def artifacts(self) -> Path:
        """Folder with the artifacts of all studies in the default MLflow store."""
        return self.root / _ARTIFACTS_NAME

    @property
    def study_artifacts(self) -> Path:
        """Folder with this study's artifacts in the default MLflow store."""
        return self.artifacts / self.study

    @property
    def copied(self) -> Path:
        """File with the id and version number of the remote copy that belongs to this folder."""
        return self.folder / "sync.json"

    @property
    def lock(self) -> Path:
        """Lock file of the sweep that runs this study. The system releases it if the sweep dies."""
        return self.folder / "sweep.lock"

    @property
    def owner(self) -> Path:
        """File with the host name and process id of the sweep that holds `lock`."""
        return self.folder / "sweep.json"

    @property
    def notes(self) -> Path:
        """File with people's notes about trials: names, remarks and stars."""
        return self.folder / "notes.json"

    @property
    def requests(self) -> Path:
        """Folder with requests of other processes to the sweep that holds `lock`.

        They ask it to stop a trial, to stop all trials, or to start no more trials.
        """
        return self.folder / "requests"

    @property
    def code(self) -> Path:
        """Folder with the snapshots of the trials' code and descriptions of their environments."""
        return self.folder / "code"

    def snapshot(self, name: str) -> Path:
        """Return the file of a snapshot of the notebook and its modules.

        Args:
            name: Name of the snapshot (`CodeSnapshot.name`).
        """
        return _stored(self.code, f"{name}.json")

    def environment(self, name: str) -> Path:
        """Return the file that describes an environment in which trials ran.

        Args:
            name: Name of the environment, from `environment` in a trial's `metadata.sweeper`.
        """
        return _stored(self.code, f"environment-{name}.json")

    @property
    def page(self) -> Path:
        """HTML file of the comparison page."""
        return self.folder / "index.html"

    @property
    def page_files(self) -> Path:
        """Folder with the files that the comparison page loads."""
        return self.folder / "page"

    @property
    def page_notebooks(self) -> Path:
        """Folder with the executed notebooks as HTML, which the comparison page shows."""
        return self.page_files / "notebooks"

    def notebook(self, run_id: str) -> Path:
        """Return the executed notebook of a trial."""
        return Path(self.template.format(run_id=run_id, study=self.study))

    def checkpoints(self, run_id: str) -> Path:
        """Return the folder for the checkpoints of a trial. All its attempts use it."""
        return self.all_checkpoints / run_id

    @property
    def all_checkpoints(self) -> Path:
        """Folder with the checkpoints of all trials."""
        return self.folder / "checkpoints"

    def saved(self, run_id: str) -> Path:
        """Return the folder for the artifacts that a trial saves with `sweeper.save_artifact`."""
        return self.all_saved / run_id

    @property
    def all_saved(self) -> Path:
        """Folder with the artifacts that all trials have saved with `sweeper.save_artifact`."""
        return self.folder / "artifacts"

    def input(self, sha256: str, artifact: str) -> Path:
        """Return the path of this study's copy of an artifact that another study has saved.

        Args:
            sha256: Hash of the artifact.
            artifact: Name of the artifact.
        """
        return _stored(self.inputs, f"{sha256[:16]}/{artifact}")

    @property
    def inputs(self) -> Path:
        """Folder with this study's copies of artifacts that other studies have saved."""
        return self.folder / "inputs"

    def written_run_ids(self) -> dict[str, Path]:
        """Return the paths of the executed notebooks that exist, by run id."""
        head, _, tail = self.template.format(run_id=_MARK, study=self.study).partition(_MARK)
        before, after = os.path.basename(head), tail.partition(os.sep)[0].split(_MARK)
        folder = Path(os.path.dirname(head + "x"))
        pattern = re.compile(
            re.escape(before) + r"(\d{4,})" + r"\1".join(re.escape(part) for part in after)
        )
        if not folder.is_dir():
            return {}
        matches = (pattern.fullmatch(entry) for entry in os.listdir(folder))
        found = {match[1]: self.notebook(match[1]) for match in matches if match}
        return {run_id: path for run_id, path in sorted(found.items()) if path.exists()}


def facts_beside(storage: Path) -> Path:
    """Return the file with the facts about a study, which is next to its SQLite storage."""
    return storage.with_name("study.json")


def run_id_of(number: int) -> str:
    """Return the run id of a trial: its number with at least four digits, such as `0007`."""
    return f"{number:04d}"


def is_utf8(name: str) -> bool:
    """Return whether a path is valid UTF-8, as notebooks, databases and URLs require."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _with_prefix(template: str, prefix: str) -> str:
    """Return a template, which has no `{study}`, with a prefix before each `{run_id}`."""
    return "".join(
        as_template(literal) + ("" if name is None else f"{prefix}{{run_id}}")
        for literal, name, _, _ in string.Formatter().parse(template)
    )


def _absolute(template: str) -> str:
    """Make a template absolute. Braces in the names of the folders that are added are doubled."""
    head, separator, rest = template.partition(os.sep)
    if head.startswith("~"):
        head = as_template(os.path.expanduser(head))
    path = head + separator + rest
    if not Path(path).is_absolute():
        path = os.path.join(as_template(str(Path.cwd())), path)
    return os.path.normpath(path)


def as_template(name: str) -> str:
    """Return a path as part of an output template, in which its braces are doubled."""
    return name.replace("{", "{{").replace("}", "}}")


def attempt_path(notebook: Path, attempt: int) -> Path:
    """Return the path to which the next attempt moves the executed notebook of an attempt.

    Args:
        notebook: Path of the executed notebook of the trial.
        attempt: Number of the attempt whose notebook is moved.
    """
    return notebook.with_suffix(f".attempt{attempt}.ipynb")


def display_path(path: Path) -> str:
    """Return a path for people and scripts: relative if it is below the working folder."""
    try:
        relative = os.path.relpath(path)
    except FileNotFoundError:  # The working folder was removed.
        return str(path)
    return str(path) if relative.startswith("..") else relative


def _stored(folder: Path, name: str) -> Path:
    """Return the path of a file below a folder, from a name that must not lead out of the folder.

    The name comes from a notebook or from another machine.

    Raises:
        StudyError: The path is outside the folder.
    """
    try:
        return below(folder, name)
    except ValueError as error:
        raise StudyError(str(error)) from error
