"""All paths of a study: its executed notebooks, its folder, and the MLflow store beside it."""

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
#: Files and folders beside the studies' folders: no study can have one of these names.
_SHARED_NAMES = (_TRACKING_NAME, f"{_TRACKING_NAME}.lock", _ARTIFACTS_NAME)
#: File systems take names of 255 bytes; while a notebook is written it is `.NAME.12345678.part`,
#: and `confirm-` is added to the names of what confirms it.
_NAME_BYTES = 231
#: Stands for a placeholder where a template is taken apart: no path contains this character.
_MARK = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPaths:
    """All paths of one study; no other module joins them.

    Attributes:
        template: the absolute output template. A brace that belongs to a folder's name is doubled
            in it, as `str.format` wants it.
        study: the study's name.
        root: the template's folder before its first placeholder, with the embedded MLflow store,
            which all studies below it share. What belongs to one study lies in `root/<study>`.
    """

    template: str
    study: str
    root: Path

    @classmethod
    def parse(cls, template: str, *, study: str) -> StudyPaths:
        """Read an output template such as `./out/digits.{run_id}.ipynb`.

        A relative template is resolved against the working folder, `~` to the home folder; braces
        in their names are no placeholders.

        Raises:
            OutputError: it is a URL, `{run_id}` is missing, another placeholder is used, the name
                does not end in `.ipynb`, is longer than file systems take, or is no UTF-8.
        """
        right = "expected something like './out/digits.{run_id}.ipynb'"
        if "://" in template:
            raise OutputError(
                f"output template {template!r} is no path of this machine; {right}, and "
                "`sync: s3://…` in the parameters file for a copy elsewhere"
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
                f"the study's name {study!r} is taken by the MLflow store beside the outputs; "
                "choose another with --study"
            )
        if "run_id" not in names:
            raise OutputError(
                f"output template {template!r} has no {{run_id}}, so all trials would write the "
                f"same file; {right}"
            )
        if not template.endswith(".ipynb"):
            raise OutputError(f"output template {template!r} does not end in .ipynb; {right}")
        for name in Path(absolute.format(run_id="0000", study=study)).parts:
            if not is_utf8(name):
                raise OutputError(
                    f"the outputs' folder {name!r} has a name that is no UTF-8, which no notebook "
                    "can contain; choose another folder with -o"
                )
            if len(os.fsencode(name)) > _NAME_BYTES:
                raise OutputError(
                    f"output template: the name {name[:20]}…{name[-20:]} has more than "
                    f"{_NAME_BYTES} bytes; choose a shorter one with -o"
                )
        before, _, _ = absolute.format(run_id=_MARK, study=_MARK).partition(_MARK)
        root = Path(before + "x").parent  # the folder before the first placeholder
        return cls(template=absolute, study=study, root=root)

    def following(self, kind: str) -> StudyPaths:
        """The paths of a study that runs some of this one's trials again, beside this one's.

        Args:
            kind: `confirm` or `ablate`.
        """
        template = self.template
        if not self.has_study_in_names:
            template = _with_prefix(template, f"{kind}-")
        return replace(self, template=template, study=f"{self.study}-{kind}")

    def copied_below(self, folder: Path) -> StudyPaths:
        """The paths of copies of this study's files on another machine, all below one folder."""
        return StudyPaths(
            template=as_template(str(folder)) + self.template,
            study=self.study,
            root=folder / self.root.relative_to(self.root.anchor),
        )

    @property
    def has_study_in_names(self) -> bool:
        """Whether the template has `{study}`, so that two studies never share a notebook's path."""
        return any(name == "study" for _, name, _, _ in string.Formatter().parse(self.template))

    @property
    def options_of_another(self) -> str:
        """The options with which the same command begins another study beside this one.

        Without `{study}` in the template its trials would have the notebooks of this one's.
        """
        if self.has_study_in_names:
            return "--study NAME"
        template = _with_prefix(self.displayed_template, "{study}.")
        return f"--study NAME -o {shlex.quote(template)}"

    @property
    def displayed_template(self) -> str:
        """The template for people: relative when it lies below the working folder."""
        relative = os.path.relpath(self.template, as_template(str(Path.cwd())))
        return self.template if relative.startswith("..") else relative

    @property
    def folder(self) -> Path:
        """The folder of what belongs to this study alone."""
        return self.root / self.study

    @property
    def storage(self) -> Path:
        """The embedded Optuna storage."""
        return self.folder / "study.db"

    @property
    def facts(self) -> Path:
        """The facts about the study, from which with its notebooks it can be made again."""
        return facts_beside(self.storage)

    @property
    def tracking(self) -> Path:
        """The embedded MLflow store."""
        return self.root / _TRACKING_NAME

    @property
    def artifacts(self) -> Path:
        """The artifacts of the embedded MLflow store, of all studies."""
        return self.root / _ARTIFACTS_NAME

    @property
    def study_artifacts(self) -> Path:
        """The artifacts of this study in the embedded MLflow store."""
        return self.artifacts / self.study

    @property
    def copied(self) -> Path:
        """The file that names the folder's remote copy and how much of it is up to date."""
        return self.folder / "sync.json"

    @property
    def lock(self) -> Path:
        """The lock of the sweep that runs this study; the system releases it when that dies."""
        return self.folder / "sweep.lock"

    @property
    def owner(self) -> Path:
        """The file with host and process of the sweep that holds `lock`."""
        return self.folder / "sweep.json"

    @property
    def requests(self) -> Path:
        """The folder of requests from other processes to the sweep that holds `lock`."""
        return self.folder / "requests"

    @property
    def code(self) -> Path:
        """The folder of the snapshots of code and of the environments that trials had."""
        return self.folder / "code"

    def snapshot(self, name: str) -> Path:
        """The file of one snapshot of the notebook and its modules."""
        return _stored(self.code, f"{name}.json")

    def environment(self, name: str) -> Path:
        """The file of one environment in which trials ran."""
        return _stored(self.code, f"environment-{name}.json")

    @property
    def page(self) -> Path:
        """The comparison page."""
        return self.folder / "index.html"

    @property
    def page_files(self) -> Path:
        """The folder of everything that the comparison page consists of."""
        return self.folder / "page"

    @property
    def page_notebooks(self) -> Path:
        """The folder of the executed notebooks as the comparison page displays them."""
        return self.page_files / "notebooks"

    def notebook(self, run_id: str) -> Path:
        """The executed notebook of one trial."""
        return Path(self.template.format(run_id=run_id, study=self.study))

    def checkpoints(self, run_id: str) -> Path:
        """The folder for the checkpoints of one trial, the same for all its attempts."""
        return self.all_checkpoints / run_id

    @property
    def all_checkpoints(self) -> Path:
        """The folder with the checkpoints of all trials."""
        return self.folder / "checkpoints"

    def saved(self, run_id: str) -> Path:
        """The folder of what one trial has saved for other studies and people."""
        return self.all_saved / run_id

    @property
    def all_saved(self) -> Path:
        """The folder of what all trials have saved by `sweeper.save_artifact`."""
        return self.folder / "artifacts"

    def input(self, sha256: str, artifact: str) -> Path:
        """What a trial of another study has saved, as this study keeps it."""
        return _stored(self.inputs, f"{sha256[:16]}/{artifact}")

    @property
    def inputs(self) -> Path:
        """The folder of what this study uses of other studies."""
        return self.folder / "inputs"

    def written_run_ids(self) -> dict[str, Path]:
        """The run ids for which a file lies at the template's path."""
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
    """The file of the facts about the study in an embedded storage."""
    return storage.with_name("study.json")


def run_id_of(number: int) -> str:
    """The run id of a trial number: four digits, more only when there are more."""
    return f"{number:04d}"


def is_utf8(name: str) -> bool:
    """Whether a path's bytes are UTF-8, so that notebooks, databases and URLs can contain it."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _with_prefix(template: str, prefix: str) -> str:
    """A template without `{study}`, with a prefix before each run id."""
    return "".join(
        as_template(literal) + ("" if name is None else f"{prefix}{{run_id}}")
        for literal, name, _, _ in string.Formatter().parse(template)
    )


def _absolute(template: str) -> str:
    """A template from the root on, with the braces of the folders before it doubled."""
    head, separator, rest = template.partition(os.sep)
    if head.startswith("~"):
        head = as_template(os.path.expanduser(head))
    return os.path.normpath(os.path.join(as_template(str(Path.cwd())), head + separator + rest))


def as_template(name: str) -> str:
    """A path as a part of an output template, in which its braces are doubled."""
    return name.replace("{", "{{").replace("}", "}}")


def attempt_path(notebook: Path, attempt: int) -> Path:
    """Where the executed notebook of an earlier attempt is kept."""
    return notebook.with_suffix(f".attempt{attempt}.ipynb")


def display_path(path: Path) -> str:
    """A path as people and scripts like it: relative when it lies below the working folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _stored(folder: Path, name: str) -> Path:
    """The path of a name that a notebook or another machine has given.

    Raises:
        StudyError: it leads out of the folder.
    """
    try:
        return below(folder, name)
    except ValueError as error:
        raise StudyError(str(error)) from error
