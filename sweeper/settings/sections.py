"""Define most sections of a parameters file, each as a frozen model."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from ..trials import DEFAULT_BEST, DEFAULT_SEEDS
from .addresses import LOCAL_SCHEME
from .base import Duration, PlainValue, SettingsModel, Size, check_name, expected
from .elsewhere import section_hint
from .messages import as_yaml, nearest, problem
from .patterns import compile_pattern
from .schema import choice_of

SAMPLERS = ("auto", "tpe", "gp", "random", "grid", "qmc", "cmaes", "nsga2", "brute_force")
PRUNERS = (
    "none",
    "auto",
    "median",
    "percentile",
    "hyperband",
    "asha",
    "patient",
    "threshold",
    "wilcoxon",
)
#: Pattern of a study's name. All characters beyond ASCII are allowed, because the regular
#: expressions of editors cannot describe which of them are letters.
_STUDY_NAME = r"^([A-Za-z0-9_]|[^\x00-\x7f])([A-Za-z0-9_ .-]|[^\x00-\x7f]){0,99}$"
_NAME_CHARACTERS = 100


class Algorithm(SettingsModel):
    """A sampler or a pruner: its name and its options."""

    name: str
    options: dict[str, PlainValue] = Field(default_factory=dict)

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}


def _read_algorithm(kind: str, known: Sequence[str]) -> BeforeValidator:
    """Return a validator that reads `NAME`, or `{name: NAME, …options}`.

    Args:
        kind: `sampler` or `pruner`, for messages.
        known: Allowed names.
    """

    def read(value: Any) -> Any:
        if isinstance(value, Algorithm):
            return value
        entry = {"name": value} if isinstance(value, str) else value
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise problem(f"expected a name or {{name: NAME, …options}}; got {as_yaml(value)}")
        name = entry["name"]
        if name not in known:
            raise problem(f"{kind} {name!r} is not known; {nearest(name, known)}")
        for key in entry:
            if not isinstance(key, str):
                raise problem(f"{name} has no option {as_yaml(key)}; use text as an option's name")
        options = {key: option for key, option in entry.items() if key != "name"}
        return {"name": name, "options": options}

    return BeforeValidator(read)


def checked_study_name(name: str) -> str:
    """Return a study's name after a check that it is valid for folders and MLflow on every machine.

    Raises:
        PydanticCustomError: The name is not valid.
    """
    if not re.fullmatch(_STUDY_NAME, name):
        raise problem(
            f"{name!r} cannot name a study; use letters, digits, '_', '-', '.' and spaces, at most "
            "100 characters, and begin with a letter, a digit or '_'"
        )
    return name


def study_name_of(stem: str) -> str:
    """Return the study's name for a parameters file: its stem without illegal characters.

    If nothing is left of the stem, return `study`.
    """
    if re.fullmatch(_STUDY_NAME, stem):
        return stem
    legal = "".join(re.findall(r"[A-Za-z0-9_ .-]|[^\x00-\x7f]", stem))
    return legal.strip(" .-")[:_NAME_CHARACTERS] or "study"


class StudySettings(SettingsModel):
    """The study: its name, its seed, its number of trials, its sampler and pruner."""

    name: (
        Annotated[
            str,
            Field(json_schema_extra={"pattern": _STUDY_NAME}),
            AfterValidator(checked_study_name),
        ]
        | None
    ) = None
    """The name of the study, its folder and its MLflow experiment. Default: the name of the
    parameters file, without illegal characters."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """The seed of the sampler, from which the seeds of the trials are also derived. The same seed
    proposes the same first trials."""
    trials: Annotated[int, Field(ge=1)] = 20
    """The total number of trials of the study, over all calls."""
    sampler: Annotated[
        Algorithm,
        _read_algorithm("sampler", SAMPLERS),
        WithJsonSchema(choice_of(SAMPLERS, default="auto")),
    ] = Algorithm(name="auto")
    """The algorithm that proposes the params of each trial. `auto` is the Gaussian process (`gp`)
    if torch is installed and the study has at most 250 trials, otherwise `tpe`. If `auto` is `gp`,
    `tpe` nevertheless proposes every second trial from trial `0025` on. Each sampler has options of
    its own, which the section Samplers of the reference lists. The seed is not one of them. With
    `gp`, trials cover the space evenly until 10 of them have a score, or as many as its option
    `n_startup_trials` says."""
    pruner: Annotated[
        Algorithm,
        _read_algorithm("pruner", PRUNERS),
        WithJsonSchema(choice_of(PRUNERS, default="none")),
    ] = Algorithm(name="none")
    """The algorithm that ends trials with bad scores early, in notebooks that report or print
    scores while they run. `auto` freezes (pauses) a trial that is unlikely to win, and ends a trial
    that will hardly win. The others are Optuna's. A pruner needs a single objective and
    `order: free`."""
    stop_after_failures: Annotated[int, Field(ge=1)] | None = None
    """The sweep ends after this number of failed trials in a row. Default: as long as no trial of
    the study has completed or was pruned, the sweep ends after 10 failures, or after 3 with the
    same error. If more than 3 trials run at once, as many failures with the same error are needed.
    Afterwards there is no limit."""
    order: Literal["free", "fixed"] = "free"
    """`fixed`: the same seed and `--jobs` give the same trials in the same order, no matter which
    trial ends first, even after a crash. Sometimes a trial has to wait for an earlier one. It
    needs `pruner: none`, and excludes `repeat`."""

    @classmethod
    def hint_at(cls, key: str, value: Any) -> str:
        """Return a hint for an unknown key, such as Optuna's `n_trials`: what to write instead."""
        return section_hint(key, value) or super().hint_at(key, value)

    @model_validator(mode="after")
    def _order_goes_with_the_pruner(self) -> Self:
        if self.order == "fixed" and self.pruner.name != "none":
            raise problem(
                f"study.order: fixed and study.pruner: {self.pruner.name} exclude each other, "
                "because pruning depends on how far the other trials are at that moment; "
                "set study.pruner to none, or study.order to free"
            )
        return self


class Objective(SettingsModel):
    """One score that is optimised."""

    direction: Literal["maximize", "minimize"]
    """Whether a greater or a smaller score is better."""
    take: Literal["last", "best", "mean"] = "last"
    """Which value of a reported series counts as the score: the last, the best or the mean."""


class ScoreSource(SettingsModel):
    """The source of a score that the notebook does not report: exactly one of these keys."""

    variable: str | None = None
    """The top-level variable of the notebook that has the score after the last cell."""
    pattern: str | None = None
    """A regular expression whose first group begins at the number, as in 'val_loss=([0-9.eE+-]+)'.
    Each match in the printed lines is one point of the score's series. The number is read as a
    person reads it: `8,453.` is 8453, `1.2e+05` is 120000, `93.4%` is 93.4."""
    expression: str | None = None
    """A Python expression that is evaluated after the last cell, as in
    'clf.score(X_test, y_test)'."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        stated = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(stated) != 1:
            raise problem(f"expected exactly one of the keys {', '.join(type(self).model_fields)}")
        if self.variable is not None:
            check_name(self.variable)
        if self.expression is not None:
            try:
                compile(self.expression, "<expression>", "eval")
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                raise problem(f"{self.expression!r} is not a valid Python expression") from error
        if self.pattern is not None:
            try:
                groups = compile_pattern(self.pattern).groups
            except ValueError as error:
                raise problem(
                    f"pattern {self.pattern!r} is not a regular expression: {error}"
                ) from error
            if groups < 1:
                raise problem(
                    f"pattern {self.pattern!r} has no group; put the number in parentheses, "
                    "as in 'val_loss=([0-9.eE+-]+)'"
                )
        return self


class Limits(SettingsModel):
    """Limits of one trial: time and output."""

    trial: Duration | None = None
    """The time limit of a trial. The sweep ends a trial that takes longer, and it counts as failed.
    Default: no limit."""
    cell_output: Size = 10_000_000
    """The size of one cell's output that is kept. The rest is cut off."""
    grace: Duration = 25.0
    """The time within which a stopped or pruned trial ends. If the trial calls `should_stop`, or if
    its `report` has raised an exception, it has a part of this time to save its state: 12 s of
    25 s, or 47 s of 60 s. Then the sweep interrupts the notebook. After SIGTERM, which is sent when
    a machine is taken away, the whole sweep ends within this time."""


class CheckpointPolicy(SettingsModel):
    """Which checkpoints of ended trials are kept. Failed and stopped trials keep all of theirs."""

    completed: Literal["keep", "best", "remove"] = "keep"
    """Checkpoints of completed trials. `best` keeps only those of the best trial. With `repeat` or
    `confirm`, it also keeps those of all trials whose means may still be the best."""
    pruned: Literal["keep", "remove"] = "remove"
    """Checkpoints of pruned trials."""


class Confirm(SettingsModel):
    """Runs the best trials again on fresh seeds after the search.

    The means of these runs decide which trial is the best.
    """

    best: Annotated[int, Field(ge=1)] = DEFAULT_BEST
    """The number of best trials that are run again."""
    seeds: Annotated[int, Field(ge=2)] = DEFAULT_SEEDS
    """The number of fresh seeds for each trial. A confidence interval needs at least two."""


class Repeat(SettingsModel):
    """Runs each proposal of the sampler in several trials. Its score is their mean score."""

    seeds: Annotated[int, Field(ge=2)] | None = None
    """The number of seeds on which each proposal runs. The seeds are the same for all proposals."""
    fold: Annotated[int, Field(ge=2)] | None = None
    """The number of folds on which each proposal runs. The notebook has to assign `fold`, which
    gets the values 0, 1 and so on."""

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if (self.seeds is None) == (self.fold is None):
            raise problem(
                "expected exactly one of the keys seeds and fold, as in {seeds: 3} or {fold: 5}"
            )
        return self

    @property
    def by_fold(self) -> bool:
        """Whether the runs of a proposal differ in their fold, and not in their seed."""
        return self.fold is not None

    @property
    def runs(self) -> int:
        """Largest number of trials that run one proposal."""
        return self.seeds or self.fold or 0


class Cost(SettingsModel):
    """The price of the machine, in any currency. With a budget, the study ends when it is spent."""

    price_per_hour: Annotated[float, Field(gt=0)]
    """The price of one hour of the whole machine."""
    budget: Annotated[float, Field(gt=0)] | None = None
    """The study ends when all its sweeps together have cost this much. Default: no limit."""

    def price_of(self, duration_s: float) -> float:
        """Return the price of the machine for a duration in seconds."""
        return self.price_per_hour * duration_s / 3600


class Notify(SettingsModel):
    """Notifications about the end of a sweep, and about problems that need attention."""

    url: Annotated[str, Field(json_schema_extra={"pattern": r"^https?://[^\s/]+"})]
    """An ntfy topic such as https://ntfy.sh/mine, or a webhook. A URL that contains `ntfy` gets a
    text. Any other URL gets JSON with `event`, `study`, `text`, `best` and `page`. The URL is not
    stored in the study."""
    on: Annotated[
        tuple[Literal["end", "failure", "budget", "preemption"], ...],
        Field(strict=False, min_length=1),
    ] = ("end", "failure", "budget", "preemption")
    """The events that send a notification: the `end` of the sweep; the first `failure` of a trial,
    or the failure of the sweep; the end because the `budget` is spent; the end by `preemption`,
    when the machine is taken away. Default: all."""

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, url: str) -> str:
        if not re.match(r"https?://[^\s/]+", url):
            raise problem("expected an address such as https://ntfy.sh/mine")
        return url


#: Pattern of a URL for fsspec, without chains such as `a::b://…`. A local path may have any
#: character.
_URL = re.compile(rf"{LOCAL_SCHEME.pattern}.+|[A-Za-z][A-Za-z0-9+.-]*://[^\s]+")


def _folder_url(url: str) -> str:
    """Return the URL of a folder without `/` at its end.

    Raises:
        PydanticCustomError: The URL is not valid, or contains secrets, which messages would repeat.
    """
    if LOCAL_SCHEME.match(url) and _URL.fullmatch(url):
        is_root = not LOCAL_SCHEME.sub("", url).strip("/")
        return url if is_root else url.rstrip("/")
    place = re.sub(r"://.*@", "://…@", url.partition("?")[0])
    if not _URL.fullmatch(url):
        raise problem(
            f"{place!r} is not a URL; expected something like s3://bucket/prefix or "
            "file:///mnt/backup"
        )
    try:
        parts = urllib.parse.urlsplit(url)
        has_secret = parts.password is not None or bool(parts.query or parts.fragment)
    except ValueError as error:
        raise problem(f"{place!r} is not a URL: {error}") from error
    if has_secret:
        raise problem(
            f"{place!r} was given with credentials or options; set them in the environment instead "
            "(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and so on)"
        )
    bare = url.rstrip("/")
    return bare if _URL.fullmatch(bare) else url


_FolderUrl = Annotated[
    str, Field(json_schema_extra={"pattern": rf"^({_URL.pattern})$"}), AfterValidator(_folder_url)
]


class Sync(SettingsModel):
    """The remote copy of the study. A new machine restores the study from it."""

    url: _FolderUrl
    """A folder in an object storage, such as s3://bucket/prefix, or any other URL for fsspec except
    smb:// and webhdfs://. Credentials are read from the environment."""
    every: Duration = 15.0
    """The time between two copies of changed files."""


class Data(SettingsModel):
    """The data of the trials. Each machine fetches it once, before its first trial."""

    path: Annotated[str, Field(min_length=1)]
    """The folder of the data on each machine. A relative path begins in the notebook's folder."""
    source: Annotated[_FolderUrl, Field(alias="from")]
    """The URL to which `data push` sends the data, and from which other machines fetch it, in the
    form of the URL of `sync`."""
    version: Annotated[
        Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None,
        expected('the 16 digits that `data push` has printed, in quotes: "5ac57d74e1b20f33"'),
    ] = None
    """The version to use. Default: the version with which the study began. For a new study, this is
    the version that was pushed last."""
