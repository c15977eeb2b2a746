"""Read a parameters file into frozen `Settings`.

The file is YAML 1.2 (`1e-3` is a number, `on` is text). The message about a mistake names the file,
the key, the value and a valid value.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ..errors import SettingsError
from ..trials import FOLD, Params, is_number
from .base import ChoiceValue, PlainValue, SettingsModel, check_param_name
from .elsewhere import objective_here, section_hint
from .inputs import InputSource
from .machines import Cluster, Resources
from .messages import as_yaml, problem, validation_message
from .schema import IDENTIFIERS, AsWritten
from .secrets import masked, refuse_secret
from .sections import (
    CheckpointPolicy,
    Confirm,
    Cost,
    Data,
    Limits,
    Notify,
    Objective,
    Repeat,
    ScoreSource,
    StudySettings,
    Sync,
    study_name_of,
)
from .space import (
    AnyDimension,
    ChoiceDimension,
    DimensionEntry,
    RangeDimension,
    SearchSpace,
    check_branches,
)
from .units import size
from .yaml_reader import BadYaml, read_yaml, write_yaml


def _read_objective(value: Any) -> Any:
    if isinstance(value, Mapping):
        is_elsewhere = value.get("name") not in (None, "maximize", "minimize")
        if is_elsewhere and not {"goal", "mode", "direction"}.isdisjoint(value):
            raise problem(f"use the score's name as the key; write {objective_here(value)}")
        if "" in value:
            raise problem("a score needs a name; got ''")
        objectives = dict(value)
        for name, entry in value.items():
            if isinstance(entry, str):
                objectives[name] = {"direction": entry}
        return objectives
    raise problem(f"expected {{NAME: maximize}} or {{NAME: minimize}}; got {as_yaml(value)}")


_Direction = Literal["maximize", "minimize"]
_ObjectivesAsWritten = Annotated[dict[str, _Direction | Objective], Field(min_length=1)]


def _url_alone(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


#: Pairs of sections. No name may be in both sections of a pair.
_EXCLUSIVE = (("space", "fixed"), ("inputs", "space"), ("inputs", "fixed"), ("inputs", "smoke"))
#: A parameters file has at most the first number of bytes, and each of its sections at most the
#: second number of entries (chosen). Reading a file of this size takes five seconds. Comparing this
#: number of names with the notebook takes one second.
_MOST_BYTES, _MOST_ENTRIES = 1_000_000, 1_000


class Settings(SettingsModel):
    """The checked content of a parameters file."""

    model_config = ConfigDict(json_schema_extra={"description": "Parameters of a sweep."})

    _set: frozenset[str] = PrivateAttr(default=frozenset())
    _file: Path | None = PrivateAttr(default=None)
    study: StudySettings = StudySettings()
    """The study: its name, its seed, its number of trials, its sampler and pruner."""
    objective: Annotated[
        dict[str, Objective],
        Field(min_length=1),
        BeforeValidator(_read_objective, json_schema_input_type=_ObjectivesAsWritten),
    ]
    """The scores to optimise, one or several: {val_acc: maximize}, or
    {val_acc: {direction: maximize, take: best}}."""
    scores: dict[str, ScoreSource] = Field(default_factory=dict)
    """The sources of scores that the notebook does not report: for each name, one source."""
    space: Annotated[
        dict[str, DimensionEntry],
        Field(json_schema_extra={**IDENTIFIERS, "minProperties": 1}),
    ]
    """The search space: names to which the notebook assigns a plain value, each with a range or
    choices."""
    fixed: Annotated[dict[str, PlainValue], Field(json_schema_extra={**IDENTIFIERS})] = Field(
        default_factory=dict
    )
    """Names of the notebook, each with a value that it has in all trials instead of the notebook's
    value."""
    inputs: Annotated[
        dict[str, InputSource],
        Field(json_schema_extra={**IDENTIFIERS}),
    ] = Field(default_factory=dict)
    """Names of the notebook that get the path of an artifact which a trial of another study has
    saved."""
    start: Annotated[tuple[dict[str, ChoiceValue], ...], Field(strict=False)] = ()
    """Trials to run first, each a mapping from swept names to values. The sampler chooses values
    for names that are missing. If the `when` of a stated name requires a value of a missing name,
    the missing name gets this value."""
    learn_from: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Earlier studies of the same parameters, by name, folder or storage: [out/earlier]. Their best
    params run first. Their scores guide the sampler until ten trials of this study have completed.
    This needs a single objective."""
    smoke: Annotated[dict[str, PlainValue], Field(json_schema_extra={**IDENTIFIERS})] = Field(
        default_factory=dict
    )
    """Values with which the notebook runs quickly. `check` uses them, a sweep does not."""
    confirm: Confirm | None = None
    """Run the best trials again on fresh seeds after the search, in addition to `study.trials`. The
    means over these seeds decide which trial is the best."""
    repeat: Repeat | None = None
    """Run each combination of params several times, each time on another seed or fold, as long as
    it can still be the best. The means of these runs decide."""
    checkpoints: CheckpointPolicy = CheckpointPolicy()
    """Which checkpoints of ended trials are kept. Failed and stopped trials keep all of theirs."""
    limits: Limits = Limits()
    """Limits of one trial: time and output."""
    resources: Resources = Resources()
    """What trials use of the machine: GPUs and processor cores."""
    kernels: Literal["auto", "fork", "cold"] = "auto"
    """How kernels are made. `auto`: they are forked from a process that has imported the notebook's
    libraries. Their results count once a trial has had the same results in a started and in a
    forked kernel. `fork`: kernels are forked without this comparison. `cold`: each kernel is
    started as a new process, and no trial is run twice."""
    reports: Literal["auto", "explicit"] = "auto"
    """What counts as a report. `auto`: calls of sweeper.report, and what MLflow, Keras, Lightning,
    Transformers, XGBoost, LightGBM, fastai and TensorBoard log in a notebook. `explicit`: only
    calls of sweeper.report."""
    cost: Cost | None = None
    """The price of the machine, in any currency, and what may be spent."""

    notify: Annotated[
        Notify | None,
        BeforeValidator(_url_alone, json_schema_input_type=str | Notify | None),
    ] = None
    """The address that is notified when the sweep has ended or needs attention."""
    sync: Annotated[
        Sync | None,
        BeforeValidator(_url_alone, json_schema_input_type=str | Sync | None),
    ] = None
    """The folder to which the study is copied while it is swept. The same command on a new machine
    restores the study from there."""
    data: Data | None = None
    """The data of the trials. Each machine fetches it once and keeps it."""
    cluster: Annotated[
        Cluster | None,
        BeforeValidator(_url_alone, json_schema_input_type=str | Cluster | None),
    ] = None
    """The Dask cluster that runs the trials: one that exists, or a class that starts one."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for key in ("space", "fixed", "smoke", "inputs"):
            for name in getattr(self, key):
                check_param_name(name, where=f"{key}.")
        for key in ("fixed", "smoke"):
            for name, value in getattr(self, key).items():
                refuse_secret(value, name, where=f"{key}.")
        for key, other in _EXCLUSIVE:
            for name in getattr(self, key):
                if name in getattr(self, other):
                    raise problem(f"{name!r} is in both {key} and {other}; keep one of them")
        check_branches(self.space, self.fixed)
        if not self.space:
            raise problem("space is empty, so there is nothing to sweep; give one name a range")
        if self.learn_from and len(self.objective) > 1:
            raise problem(
                f"learn_from needs a single objective, and there are {len(self.objective)}; "
                "keep one under objective, or leave learn_from out"
            )
        if self.confirm is not None and (why := self.why_not_confirmed()):
            raise problem(f"confirm: {why}")
        if self.repeat is not None and (why := self._why_not_repeated(self.repeat)):
            raise problem(f"repeat: {why}")
        for index, params in enumerate(self.start):
            try:
                SearchSpace(self.space).check_params(params)
            except PydanticCustomError as error:
                raise problem(f"start[{index}]: {error}") from error
        return self

    @classmethod
    def hint_at(cls, key: str, value: Any) -> str:
        """Return a hint for an unknown key, such as Optuna's `n_trials`: what to write instead."""
        return section_hint(key, value) or super().hint_at(key, value)

    @property
    def as_mapping(self) -> dict[str, Any]:
        """The settings as plain data, from which `from_mapping` makes the same settings.

        The data can be published. Secrets in `cluster` and `learn_from` are replaced by `***`.
        `notify` is left out, because anybody could send notifications with its URL.
        """
        data = self._plain
        data.pop("notify", None)
        for key in ("cluster", "learn_from"):
            if key in data:
                data[key] = masked(data[key])
        data["study"] = {**data.get("study", {}), "name": self.name}
        return data

    def to_yaml(self) -> str:
        """Return the text of a parameters file with these settings, as flags have changed them.

        The text has no secrets.
        """
        return write_yaml(self.as_mapping)

    @property
    def _plain(self) -> dict[str, Any]:
        return self.model_dump(exclude_defaults=True, by_alias=True)

    @property
    def file(self) -> Path | None:
        """The file that was read. None for settings that were made in code."""
        return self._file

    @property
    def name(self) -> str:
        """Name of the study: `study.name`, or a name made from the stem of the parameters file."""
        if self.study.name is not None:
            return self.study.name
        return study_name_of(self.file.stem if self.file is not None else "study")

    @property
    def flags_of_study(self) -> list[str]:
        """The flags `--study` and `--set` of this study, as words of a command line."""
        words = [] if self.study.name is None else ["--study", self.study.name]
        for name in sorted(self._set):
            words += ["--set", _assignment(name, self.fixed[name])]
        return words

    @property
    def sources(self) -> dict[str, str]:
        """Where each name in `space`, `fixed`, `inputs` and `smoke` is stated, for messages.

        A value is the file with the key of the section, such as `my.yml: space`, or a flag `--set`.
        """
        file = self.file or "settings"
        sources = dict.fromkeys(self.smoke, f"{file}: smoke")
        sources |= dict.fromkeys(self.space, f"{file}: space")
        sources |= dict.fromkeys(self.inputs, f"{file}: inputs")
        if self.repeat is not None and self.repeat.by_fold:
            sources[FOLD] = f"{file}: repeat"
        for name, value in self.fixed.items():
            sources[name] = _set_flag(name, value) if name in self._set else f"{file}: fixed"
        return sources

    @property
    def search_space(self) -> SearchSpace:
        """The space that is swept: without fixed names, and without params that `when` excludes.

        Such a param never exists, because its `when` contradicts a fixed value. With
        `repeat: {fold: 5}` the space also contains the fold, which no sampler chooses.
        """
        folds: dict[str, AnyDimension] = {}
        if self.repeat is not None and self.repeat.by_fold:
            folds[FOLD] = ChoiceDimension(choices=tuple(range(self.repeat.runs)))
        return SearchSpace({**self.proposed_space, **folds})

    @property
    def proposed_space(self) -> SearchSpace:
        """The search space without the fold: the names whose values samplers choose."""
        return SearchSpace(self.space).without(self.fixed)

    def check_params(self, params: Params) -> None:
        """Check that a trial of this study can have these params. Some params may be missing.

        Raises:
            SettingsError: A param is not in the search space, has a value that the search space
                does not allow, or does not exist with the other params.
        """
        try:
            self.search_space.check_params(params)
        except PydanticCustomError as error:
            raise SettingsError(str(error)) from error

    def check_again(self, params: Params) -> None:
        """Check that the params of a trial of this study can run again on another seed.

        Raises:
            SettingsError: The parameters file no longer allows a value, or a name was added to the
                search space after the trial ran. The trial has no value for this name.
        """
        self.check_params(params)
        if missing := self.search_space.missing(params):
            raise SettingsError(
                f"it ran before {', '.join(missing)} was swept, so no value for a new run is known"
            )

    def can_run_again(self, params: Params) -> bool:
        """Return whether the params of a trial of this study can run again on another seed."""
        try:
            self.check_again(params)
        except SettingsError:
            return False
        return True

    @property
    def start_params(self) -> list[dict[str, Any]]:
        """The params of the first trials: the entries of `start` that fit the search space.

        Names that are fixed, or that cannot exist with the fixed values, are left out. If a param
        exists only with certain values of another param (`when`), the other param is added with
        such a value.
        """
        space = self.search_space
        found = []
        for params in self.start:
            swept = {name: value for name, value in params.items() if name in space}
            if swept:
                found.append(space.completed(swept))
        return found

    @classmethod
    def load(cls, path: str | Path) -> Settings:
        """Read a parameters file.

        Raises:
            SettingsError: The file is missing, is not YAML, or has mistakes.
        """
        file = Path(path)
        try:
            with file.open("rb") as opened:
                raw = opened.read(_MOST_BYTES + 1)
            text = raw.decode(json.detect_encoding(raw))
        except FileNotFoundError as error:
            raise SettingsError(f"{file}: there is no such parameters file") from error
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{file}: cannot be read: {error}") from error
        if len(raw) > _MOST_BYTES:
            raise SettingsError(
                f"{file}: longer than {size(_MOST_BYTES)}, the limit of a parameters file; let the "
                "notebook read large values from another file"
            )
        try:
            data = read_yaml(text)
        except BadYaml as error:
            where = f", line {error.line}, column {error.column}" if error.line else ""
            raise SettingsError(f"{file}{where}: {error}") from error
        if not isinstance(data, Mapping):
            raise SettingsError(
                f"{file}: expected a mapping with the keys objective and space; got {as_yaml(data)}"
            )
        if "nbformat" in data:
            raise SettingsError(f"{file}: is a notebook; expected a parameters file (YAML)")
        return cls.from_mapping(data, file=file)

    @classmethod
    def from_mapping(
        cls, data: Mapping[str, Any], *, file: Path | None = None, flags: str = ""
    ) -> Settings:
        """Return settings from plain data that has the structure of a parameters file.

        Args:
            data: Content of a parameters file, as YAML or JSON gives it.
            file: File from which the data was read, for messages.
            flags: Flags that have changed the data. If they are given, messages name them and not
                the file.

        Raises:
            SettingsError: The data has mistakes.
        """
        where = flags or str(file or "settings")
        for key, entries in data.items():
            if isinstance(entries, Mapping | list | tuple) and len(entries) > _MOST_ENTRIES:
                raise SettingsError(
                    f"{where}: {key}: {len(entries):,} entries; expected {_MOST_ENTRIES:,} at most"
                )
        try:
            settings = cls.model_validate(data)
            settings._file = file
        except ValidationError as error:
            raise SettingsError(validation_message(error, where=where, data=data)) from error
        return settings

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of a parameters file, for editors.

        The schema checks types and keys. Only `load` checks relations such as low < high.
        """
        described = cls.model_json_schema(schema_generator=AsWritten)
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Parameters of a notebook sweep",
            **described,
        }

    def with_overrides(
        self,
        *,
        study: str | None = None,
        trials: int | None = None,
        fixed: Params | None = None,
        cold: bool = False,
        cluster: str | None = None,
        confirm: int | None = None,
        seeds: int | None = None,
    ) -> Settings:
        """Return these settings, changed by the flags of one command. None stands for no flag.

        A fixed name leaves the search space.

        Args:
            study: Name of the study.
            trials: Number of trials of the study.
            fixed: Values of `--set`, by name. These names are not swept.
            cold: Whether all kernels are started, and none is forked.
            cluster: Address of a Dask scheduler, or `local:N`.
            confirm: Number of best trials that are run again on fresh seeds.
            seeds: Number of fresh seeds.

        Raises:
            SettingsError: A flag is wrong.
        """
        fixed = dict(fixed or {})
        for name, value in fixed.items():
            self._check_override(name, value)
        if seeds is not None and confirm is None and self.confirm is None:
            raise SettingsError(
                f"--seeds {seeds}: also state with --confirm how many of the best trials are run "
                f"again on these seeds, as in --confirm 3 --seeds {seeds}"
            )
        data = self._plain
        data["study"] = {**data.get("study", {}), **_given(name=study, trials=trials)}
        data.update(_given(kernels="cold" if cold else None))
        if cluster is not None:
            # Keep only the keys `wait` and `insecure`. The others describe the cluster that the
            # file names, which the flag replaces.
            before = data.get("cluster", {})
            data["cluster"] = {"url": cluster}
            for key in ("wait", "insecure"):
                if key in before:
                    data["cluster"][key] = before[key]
        if confirm is not None or seeds is not None:
            before = {} if self.confirm is None else self.confirm.model_dump()
            data["confirm"] = {**before, **_given(best=confirm, seeds=seeds)}
        data["space"] = _without(fixed, data["space"])
        data["inputs"] = _without(fixed, data.get("inputs", {}))
        data["start"] = _start_without(fixed, data.get("start", []))
        data["fixed"] = {**data.get("fixed", {}), **fixed}
        given = _given(study=study, trials=trials, cluster=cluster, confirm=confirm, seeds=seeds)
        flags = [f"--{name} {shlex.quote(str(value))}" for name, value in given.items()]
        flags += [_set_flag(name, value) for name, value in fixed.items()]
        changed = Settings.from_mapping(data, file=self.file, flags=" ".join(flags))
        changed._set = self._set.union(fixed)
        return changed

    def _check_override(self, name: str, value: Any) -> None:
        """Check that a value of `--set` is a number if the search space has a range for its name.

        The number may be outside of the range.
        """
        dimension = self.space.get(name)
        if isinstance(dimension, RangeDimension) and not is_number(value):
            raise SettingsError(
                f"{_set_flag(name, value)}: not a number; expected {dimension.hint}, or a number "
                "outside of this range"
            )

    def why_not_confirmed(self) -> str | None:
        """Return why the study's best trials cannot be run again on fresh seeds.

        Returns:
            None if they can.
        """
        if len(self.objective) > 1:
            return (
                f"needs a single objective, and there are {len(self.objective)} "
                f"({', '.join(self.objective)}); keep one under objective (the notebook may still "
                "report the others), or leave it out"
            )
        for key in ("space", "fixed", "smoke"):
            if "seed" in getattr(self, key):
                # Params of earlier trials keep their `seed`, so those trials cannot be confirmed.
                anew = " (if the study has trials, begin another one)" if key == "space" else ""
                return (
                    f"runs the best trials again on fresh seeds, but {key} sets 'seed'; each trial "
                    f"gets its own seed, so remove it from {key}{anew}, or leave confirm out"
                )
        return None

    def _why_not_repeated(self, repeat: Repeat) -> str | None:
        if len(self.objective) > 1:
            return f"needs a single objective, and there are {len(self.objective)}"
        if self.confirm is not None and repeat.by_fold:
            return "confirm runs trials on fresh seeds, but {fold: …} gives each run a fold instead"
        if self.study.order == "fixed":
            return "needs study.order: free, because the next runs depend on ended trials"
        if self.study.trials < repeat.runs:
            return f"needs study.trials: {repeat.runs} or more; got {self.study.trials}"
        name = FOLD if repeat.by_fold else "seed"
        names = {**self.space, **self.fixed, **self.inputs, **self.smoke}
        return f"sets {name!r}; remove it from the other sections" if name in names else None


def _given(**values: Any) -> dict[str, Any]:
    """Return the arguments that are not None, by name."""
    return {name: value for name, value in values.items() if value is not None}


def _start_without(
    fixed: Mapping[str, Any], start: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the entries of `start` without fixed names.

    An entry that has thereby become equal to an earlier one is left out.
    """
    found: list[dict[str, Any]] = []
    for params in start:
        kept = _without(fixed, params)
        if len(kept) == len(params) or kept not in found:
            found.append(kept)
    return found


def _without(names: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _set_flag(name: str, value: Any) -> str:
    return f"--set {_assignment(name, value)}"


def _assignment(name: str, value: Any) -> str:
    """Return `NAME=VALUE` as a user would write it after `--set`. A secret becomes `***`."""
    value = masked(value, name)
    return f"{name}={value if isinstance(value, str) else as_yaml(value)}"
