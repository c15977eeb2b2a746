"""From a parameters file to frozen `Settings`; every mistake becomes one message.

The file is YAML 1.2 (`1e-3` is a number, `on` is a word). A message names the file, the key, the
value and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from .complaints import nearest, problem, told
from .errors import SettingsError
from .quantities import parse_duration, parse_size
from .space import (
    AnyDimension,
    Record,
    SearchSpace,
    check_branches,
    check_name,
    check_plain,
    read_dimension,
)
from .trials import Params

SAMPLERS = ("auto", "tpe", "gp", "random", "grid", "qmc", "cmaes", "nsga2", "brute_force")
PRUNERS = (
    *("none", "median", "percentile", "hyperband"),
    *("asha", "patient", "threshold", "wilcoxon"),
)
_STUDY_NAME = re.compile(r"\w[\w .-]{0,99}")


class Named(Record):
    """One of Optuna's samplers or pruners, with options of its own."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


def _named(kind: str, known: Sequence[str]) -> BeforeValidator:
    """Reads `NAME`, or `{name: NAME, …options}`."""

    def read(value: Any) -> Any:
        if isinstance(value, Named):
            return value
        given = {"name": value} if isinstance(value, str) else value
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
            raise problem(f"expected a name or {{name: NAME, …options}}; got {value!r:.60}")
        if given["name"] not in known:
            raise problem(f"{kind} {given['name']!r} is not known; {nearest(given['name'], known)}")
        options = {key: option for key, option in given.items() if key != "name"}
        return {"name": given["name"], "options": options}

    return BeforeValidator(read)


class StudySettings(Record):
    """The study: its name, its seed, how many trials, who proposes them."""

    name: str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    trials: Annotated[int, Field(ge=1)] = 20
    sampler: Annotated[Named, _named("sampler", SAMPLERS)] = Named(name="auto")
    pruner: Annotated[Named, _named("pruner", PRUNERS)] = Named(name="none")
    stop_after_failures: Annotated[int, Field(ge=1)] | None = None

    @field_validator("name")
    @classmethod
    def _name_can_be_a_folder(cls, name: str | None) -> str | None:
        if name is not None:
            check_study_name(name)
        return name


def check_study_name(name: str) -> None:
    """Refuse what could not name a folder and an MLflow experiment on every machine."""
    if not _STUDY_NAME.fullmatch(name):
        raise problem(
            f"{name!r} cannot name a study; use letters, digits, '_', '-', '.' and spaces, "
            "beginning with a letter or digit"
        )


class Objective(Record):
    """A score that is optimised. `take` says which value of a series counts."""

    direction: Literal["maximize", "minimize"]
    take: Literal["last", "best", "mean"] = "last"


class ScoreSource(Record):
    """Where to find a score that the notebook does not report: a variable, or printed lines.

    `pattern` is a regular expression whose first group is the number; each match is one point of
    the score's series.
    """

    variable: str | None = None
    pattern: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.variable is None) == (self.pattern is None):
            raise problem("expected exactly one of {variable: NAME} and {pattern: 'REGEX'}")
        if self.variable is not None:
            check_name(self.variable)
        if self.pattern is not None:
            try:
                groups = re.compile(self.pattern).groups
            except re.error as error:
                raise problem(
                    f"pattern {self.pattern!r} is no regular expression: {error}"
                ) from error
            if groups < 1:
                raise problem(
                    f"pattern {self.pattern!r} has no group; put the number in parentheses, "
                    "as in 'val_loss=([0-9.eE+-]+)'"
                )
        return self


class Limits(Record):
    """What one trial may take."""

    trial: Annotated[float, BeforeValidator(parse_duration)] | None = None
    cell_output: Annotated[int, BeforeValidator(parse_size)] = 10_000_000


def _read_gpus(value: Any) -> Any:
    indices = tuple(value) if isinstance(value, list | tuple) else ()
    if value in ("auto", "none"):
        return value
    if indices and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in indices):
        return indices
    raise problem(f"expected auto, none or a list of GPU numbers such as [0, 1]; got {value!r}")


def _read_cpus(value: Any) -> Any:
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise problem(f"expected auto or a whole number of 1 or more; got {value!r}")
    return value


def _read_gpu_memory(value: Any) -> Any:
    return None if value == "auto" else parse_size(value)


class Execution(Record):
    """How trials are run.

    `warm` kernels are forked with the notebook's libraries imported; with `prefix: auto` also with
    the leading cells run that cannot depend on a swept parameter.
    """

    kernels: Literal["warm", "cold"] = "warm"
    prefix: Literal["auto", "off"] = "auto"


class Cost(Record):
    """What the machine costs, in any currency; with a budget, the study ends when it is spent."""

    price_per_hour: Annotated[float, Field(gt=0)]
    budget: Annotated[float, Field(gt=0)] | None = None


class Resources(Record):
    """What trials share. `cpus_per_trial: auto` is one thread per kernel.

    The number of threads changes the last bits of a result, so it never depends on how many
    trials run at once.
    """

    gpus: Annotated[Literal["auto", "none"] | tuple[int, ...], BeforeValidator(_read_gpus)] = "auto"
    gpu_memory: Annotated[int | None, BeforeValidator(_read_gpu_memory)] = None
    cpus_per_trial: Annotated[Literal["auto"] | int, BeforeValidator(_read_cpus)] = "auto"

    @property
    def threads(self) -> int:
        """Threads that each kernel computes with."""
        return 1 if self.cpus_per_trial == "auto" else self.cpus_per_trial


def _read_objective(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: {"direction": v} if isinstance(v, str) else v for k, v in value.items()}
    raise problem(f"expected {{NAME: maximize}} or {{NAME: minimize}}; got {value!r}")


def _read_space(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise problem(f"expected a mapping from names to ranges or choices; got {value!r}")
    return value


class Settings(Record):
    """Everything that a parameters file can say, checked.

    Attributes:
        file: the file these were read from; None when they were made in code.
    """

    _data: Mapping[str, Any] = PrivateAttr(default_factory=dict)
    file: Path | None = None
    study: StudySettings = StudySettings()
    objective: Annotated[
        dict[str, Objective], BeforeValidator(_read_objective), Field(min_length=1)
    ]
    scores: dict[str, ScoreSource] = Field(default_factory=dict)
    space: Annotated[
        dict[str, Annotated[AnyDimension, BeforeValidator(read_dimension)]],
        BeforeValidator(_read_space),
    ]
    fixed: dict[str, Annotated[Any, BeforeValidator(check_plain)]] = Field(default_factory=dict)
    start: tuple[dict[str, Any], ...] = ()
    limits: Limits = Limits()
    resources: Resources = Resources()
    execution: Execution = Execution()
    cost: Cost | None = None

    @model_validator(mode="before")
    @classmethod
    def _lists_become_tuples(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and isinstance(data.get("start"), list):
            return {**data, "start": tuple(data["start"])}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for key, names in (("space", self.space), ("fixed", self.fixed)):
            for name in names:
                check_name(name, where=f"{key}.")
        check_branches(self.space, self.fixed)
        twice = [name for name in self.space if name in self.fixed]
        if twice:
            raise problem(f"{twice[0]!r} stands in both space and fixed; keep one of them")
        if not self.space:
            raise problem("space is empty; give at least one parameter a range or choices")
        for index, params in enumerate(self.start):
            try:
                SearchSpace(self.space).check_params(params)
            except PydanticCustomError as error:
                raise problem(f"start[{index}]: {error}") from error
        return self

    @property
    def as_told(self) -> dict[str, Any]:
        """Plain data that `from_mapping` makes these settings of."""
        return {**self._data, "study": {**self._data.get("study", {}), "name": self.name}}

    @property
    def name(self) -> str:
        """The study's name: `study.name`, else the stem of the parameters file."""
        if self.study.name is not None:
            return self.study.name
        return self.file.stem if self.file is not None else "study"

    @property
    def search_space(self) -> SearchSpace:
        """What is swept: the space without the fixed names and the branches they close."""
        return SearchSpace(self.space).without(self.fixed)

    def check_params(self, params: Params) -> None:
        """Refuse params that no trial of this study could have; some may be missing.

        Raises:
            SettingsError: the first that is wrong, its value, and what would be right.
        """
        try:
            self.search_space.check_params(params)
        except PydanticCustomError as error:
            raise SettingsError(str(error)) from error

    @property
    def start_params(self) -> list[dict[str, Any]]:
        """The params to try first; names of branches that `fixed` has closed are left out."""
        space = self.search_space
        kept = ({k: v for k, v in params.items() if k in space} for params in self.start)
        return [params for params in kept if params]

    @classmethod
    def load(cls, path: str | Path) -> Settings:
        """Read a parameters file.

        Raises:
            SettingsError: the file is missing, is no YAML, or says something wrong.
        """
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise SettingsError(f"{file}: there is no such parameters file") from error
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{file}: cannot be read: {error}") from error
        try:
            data = YAML(typ="safe", pure=True).load(text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            raise SettingsError(f"{file}{where}: not valid YAML: {error.problem}") from error
        except (YAMLError, ValueError) as error:
            raise SettingsError(f"{file}: not valid YAML: {error}") from error
        if not isinstance(data, Mapping):
            raise SettingsError(
                f"{file}: expected a mapping with the keys objective and space; got {data!r:.60}"
            )
        if "file" in data:
            raise SettingsError(f"{file}: unknown key 'file'; {nearest('file', _KEYS)}")
        return cls.from_mapping(data, file=file)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], *, file: Path | None = None) -> Settings:
        """The same from plain data, as a parameters file would hold it.

        Raises:
            SettingsError: something in it is wrong.
        """
        try:
            settings = cls.model_validate({**data, "file": file})
            settings._data = dict(data)
            check_study_name(settings.name)
        except ValidationError as error:
            raise SettingsError(told(error, file=file, data=data)) from error
        except PydanticCustomError as error:  # the name came from the file's own name
            raise SettingsError(f"{file}: study.name: {error}") from error
        return settings

    def with_overrides(
        self,
        *,
        study: str | None = None,
        trials: int | None = None,
        fixed: Params | None = None,
        cold: bool = False,
    ) -> Settings:
        """These settings with what one call says differently; a fixed name leaves the space.

        Raises:
            SettingsError: the overrides do not fit.
        """
        fixed = dict(fixed or {})
        for name, value in fixed.items():
            if not name.isidentifier():
                known = [*self.space, *self.fixed]
                raise SettingsError(
                    f"--set {name}: not a Python identifier; {nearest(name, known)}"
                )
            dimension = self.space.get(name)
            if dimension is None or dimension.type == "choice":
                continue  # a value that is not among the choices is a legitimate wish
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SettingsError(
                    f"--set {name}={value}: not a number; expected {dimension.hint}, or any other"
                )
        data = dict(self._data)
        given = {"name": study, "trials": trials}
        changed = {key: value for key, value in given.items() if value is not None}
        data["study"] = {**data.get("study", {}), **changed}
        if cold:
            data["execution"] = {**data.get("execution", {}), "kernels": "cold"}
        data["space"] = {k: v for k, v in data["space"].items() if k not in fixed}
        data["fixed"] = {**data.get("fixed", {}), **fixed}
        data["start"] = [
            {k: v for k, v in params.items() if k not in fixed} for params in data.get("start", [])
        ]
        return Settings.from_mapping(data, file=self.file)


_KEYS = [key for key in Settings.model_fields if key != "file"]
