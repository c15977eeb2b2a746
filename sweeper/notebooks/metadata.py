"""The metadata of an executed notebook: what its file states about the trial.

Only `TrialMetadata` reads and writes `metadata.sweeper`. This module reads files as plain JSON,
because nbformat's validation takes time.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)

from ..notebook_api.messages import PointSource, encode_float
from ..trials import (
    Disagreement,
    InputFile,
    Params,
    Proposal,
    SavedArtifact,
    ScoreRank,
    TrialState,
    Value,
)
from ..trials.records import TrialEnd

#: Key of the trial's metadata in an executed notebook. Code in other folders uses `TrialMetadata`.
METADATA = "sweeper"
#: Tag of the first cell in an executed notebook's file, which shows the trial's metadata to people.
STATE_TAG = "sweeper-state"


def _damaged_keys(error: ValidationError) -> set[object]:
    """Return the keys of the metadata whose values are invalid."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return {problem["loc"][0] for problem in problems if problem["loc"]}


def _stamp(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")


def _rank_of(stored: object) -> object:
    return ScoreRank.__members__.get(stored) if isinstance(stored, str) else stored


_Moment = Annotated[AwareDatetime | None, PlainSerializer(_stamp)]
_Input = Annotated[InputFile, PlainSerializer(InputFile.encode)]
_Rank = Annotated[ScoreRank, BeforeValidator(_rank_of), PlainSerializer(lambda rank: rank.name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadText:
    """A printed text that matches a score's pattern but is not a number.

    Attributes:
        step: Position of the match among all matches of the pattern, from 0.
        text: Text that was printed where a number was expected.
    """

    step: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSeries:
    """The points of one score from one source, in the order in which they were reported.

    Attributes:
        steps: Step of each point.
        values: Value of each point.
        library: Library that logged the points. Empty for other sources.
        unread: Last match of the score's pattern that is not a number. None if all are numbers.
        too_slow: Whether the search for the score's pattern took too long and was given up.

    Raises:
        ValueError: There are more steps than values, or more values than steps.
    """

    steps: tuple[int, ...]
    values: tuple[float, ...]
    library: str = ""
    unread: UnreadText | None = None
    too_slow: bool = False

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.values):
            raise ValueError(
                f"a series has one value for each step; got {len(self.steps)} steps and "
                f"{len(self.values)} values"
            )

    @property
    def points(self) -> list[tuple[int, float]]:
        """The points as pairs of step and value."""
        return list(zip(self.steps, self.values, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataUse:
    """The data that a trial has used.

    Attributes:
        version: Version of the data.
        source: URL from which machines fetch the data. It is stored under the key `from`.
        path: Path of the data, as written in the parameters file.
    """

    version: str
    source: Annotated[str, Field(alias="from")] = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedNumber:
    """A number that an observed run has computed.

    An observed run executes a notebook as it is, without params, to find its scores.

    Attributes:
        cell: Execution count of the cell that changed the number last.
        values: All values that the number has had, as `float.hex` writes them. The last one is the
            final value.
    """

    cell: int
    values: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMetadata(TrialEnd):
    """The metadata of an executed notebook: everything that it states about its trial.

    Fields without a default are always written. Other fields are written if they differ from their
    default.

    Attributes:
        study: Name of the study.
        study_id: Id of the study, which no other study has.
        run_id: Run id of the trial.
        state: State of the trial.
        params: Swept params.
        fixed: Params that are the same in all trials.
        originals: Plain values that the research notebook itself gives to params, by param.
        seed: Seed of the trial.
        random_seed: Seed with which the kernel's random generators began. None if the sweep did not
            seed them.
        attempt: Number of the attempt, from 1.
        code: Version of the study's fingerprint.
        scores: Final value of each score.
        series: Points (values at a step) that the notebook reported, by score.
        printed: Points that the notebook printed, by score.
        logged: Points that a library logged, with the name of the library, by score.
        finals: Final values that the notebook reported.
        variables: Values of the variables and expressions that may give scores.
        given_by: Source that gives each score, as the name of its `ScoreRank`.
        started_at: When the trial began, plus the time for which it was frozen.
        duration_s: Duration of the attempt in seconds.
        ended_at_s: Time at which the outcome was decided, in seconds since 1970.
        frozen_at: When the trial was frozen (paused, so that another trial can run). None for a
            trial that is not frozen.
        waits_for: What the trial waits for before it begins.
        pid: Process id of the kernel while the trial runs.
        reason: Why the trial did not complete, as a `Reason`.
        message: Why the trial did not complete, for people.
        exit_code: Exit code of the kernel, if it died.
        kernel: `warm` if the kernel was forked, `cold` if it was started like any Jupyter kernel.
        kernel_reason: Why the kernel was started and not forked.
        shared_cells: Number of cells tagged `shared` that ran once, before the kernel was forked.
        proof: Whether forked kernels were proven to give the same results, as a `Proof`.
        proven_by: Run id of the trial that was run again for the proof.
        gpu: `peak_bytes` and `busy_share` of the GPU that the trial used.
        host: Machine on which a trial on a cluster ran.
        environment: Name of the file in `OUT/STUDY/code/` that describes the trial's environment.
        snapshot: Name of the file in `OUT/STUDY/code/` that contains the trial's code.
        data: `version`, `from` and `path` of the data.
        inputs: Files of other studies, each with the fields of `InputFile`.
        artifacts: Artifacts that the trial saved, by name: `sha256` and `size_bytes`.
        proposal: Optuna's record of the trial when it began (`Proposal`). The command `rebuild`
            restores the record from it.
        values_at_end: Values that swept and fixed variables had after the last cell.
        disagreements: Sources that give another value of a score than the source that counts, each
            with the fields of `Disagreement`.
        is_infeasible: Whether no trial with these params fits into memory.
        notices: Names of `not_replicable` operations and of `overwritten_files`, by these keys.
            The results of such operations may differ when the trial runs again. The files are next
            to the notebook.
        numbers: Numbers that the cells of an observed run (see `NotedNumber`) left in variables, by
            expression.
        changes: Variables that each statement of an observed run has changed, by statement.
            `7:3` is the third statement of the cell with the execution count 7.
        observed: What an observed run depends on (notebook, settings), as keys of a fingerprint.
            Empty for a trial of a sweep.
    """

    study: str
    study_id: str
    run_id: str
    params: Params
    fixed: Params
    seed: int
    attempt: int
    code: str
    scores: Mapping[str, float]
    series: Mapping[str, StoredSeries]
    printed: Mapping[str, StoredSeries]
    logged: Mapping[str, StoredSeries]
    finals: Mapping[str, float]
    variables: Mapping[str, float]
    random_seed: int | None = None
    originals: Mapping[str, Value] = field(default_factory=dict)
    given_by: Mapping[str, _Rank] = field(default_factory=dict)
    started_at: _Moment = None
    frozen_at: _Moment = None
    waits_for: str = ""
    pid: int | None = None
    exit_code: int | None = None
    kernel: Literal["warm", "cold"] | None = None
    kernel_reason: str = ""
    shared_cells: int = 0
    proof: str = ""
    proven_by: str = ""
    environment: str = ""
    snapshot: str = ""
    data: DataUse | None = None
    inputs: Mapping[str, _Input] = field(default_factory=dict)
    artifacts: Mapping[str, SavedArtifact] = field(default_factory=dict)
    proposal: Proposal | None = None
    values_at_end: Mapping[str, Value] = field(default_factory=dict)
    disagreements: tuple[Disagreement, ...] = ()
    numbers: Mapping[str, NotedNumber] = field(default_factory=dict)
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    observed: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def decode(cls, stored: object) -> TrialMetadata | None:
        """Return the metadata from JSON data that `encode` has made. None if there are none.

        People may edit the file. A key with an invalid value counts as missing. If it describes the
        trial's end (a field of `TrialEnd`), the trial counts as running: its outcome is unknown.
        """
        if not isinstance(stored, Mapping) or not stored:
            return None
        blank = BLANK.encode()
        try:
            return _METADATA.validate_python({**blank, **stored})
        except ValidationError as error:
            damaged = _damaged_keys(error)
        if damaged & {part.name for part in fields(TrialEnd)}:
            damaged.add("state")
        sound = {key: value for key, value in stored.items() if key not in damaged}
        return _METADATA.validate_python({**blank, **sound})

    def points_by(self, source: PointSource) -> Mapping[str, StoredSeries]:
        """Return the stored series of a source, by score.

        Displayed points are not stored here, because the notebook's outputs contain them.
        """
        match source:
            case PointSource.REPORTED:
                return self.series
            case PointSource.PRINTED:
                return self.printed
            case PointSource.OBSERVED | PointSource.LOGGED:
                return self.logged
        return {}

    def ended(self, end: TrialEnd) -> TrialMetadata:
        """Return this metadata with the facts of the trial's end."""
        stated = {part.name: getattr(end, part.name) for part in fields(TrialEnd)}
        ended = replace(self, **stated)
        host = self.host or end.host  # On a worker of a cluster, only `end` knows the host.
        return replace(ended, host=host, duration_s=round(end.duration_s, 3))

    def encode(self) -> dict[str, Any]:
        """Return the metadata as JSON data. Infinity and NaN, which JSON lacks, become texts."""
        # Do not warn about a value of another type, such as an int for a float: write it as it is.
        dumped = _METADATA.dump_python(self, exclude_defaults=True, by_alias=True, warnings=False)
        encoded: dict[str, Any] = as_json(dumped)
        return encoded


_METADATA = TypeAdapter(TrialMetadata)

#: Metadata with empty values, for a trial about which nothing is known. `decode` also uses these
#: values for keys that a file lacks.
BLANK = TrialMetadata(
    study="",
    study_id="",
    run_id="",
    state=TrialState.RUNNING,
    params={},
    fixed={},
    seed=0,
    attempt=0,
    code="",
    scores={},
    series={},
    printed={},
    logged={},
    finals={},
    variables={},
)


def read_metadata(path: Path) -> TrialMetadata | None:
    """Read a trial's metadata from its executed notebook.

    Returns:
        None if the file is missing, is not a notebook, or contains no metadata of a trial.
    """
    return read_progress(path)[0]


def read_progress(path: Path) -> tuple[TrialMetadata | None, Sequence[str | None]]:
    """Read a trial's metadata, and papermill's status of each cell, from its executed notebook.

    Returns:
        None and an empty list if the file is missing or is not a notebook.
    """
    try:
        node = json.loads(path.read_text(encoding="utf-8"))
        cells = (cell["metadata"] for cell in node["cells"])
        statuses = [
            known.get("papermill", {}).get("status")
            for known in cells
            if STATE_TAG not in known.get("tags", ())
        ]
        return metadata_of(node), statuses
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, []


def metadata_of(node: Mapping[str, Any]) -> TrialMetadata | None:
    """Return the trial's metadata that a notebook contains. None if it contains none."""
    return TrialMetadata.decode(node["metadata"].get(METADATA))


def put_metadata(node: MutableMapping[str, Any], metadata: TrialMetadata) -> None:
    """Write the metadata of a trial into its notebook in memory."""
    node["metadata"][METADATA] = metadata.encode()


def as_json(value: Any) -> Any:
    """Convert a value for JSON. NaN and infinity become texts, in lists and mappings too."""
    if isinstance(value, float):
        return encode_float(value)
    if isinstance(value, Mapping):
        return {key: as_json(inner) for key, inner in value.items()}
    return [as_json(inner) for inner in value] if isinstance(value, list | tuple) else value
