"""Define the facts that a study stores in addition to its trials, such as its settings.

The facts are one user attribute of Optuna's study. A study in a SQLite file also keeps its facts in
`study.json`, from which `rebuild` can restore a lost database.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..errors import StudyError
from ..files import PRIVATE, replaced
from ..settings import Settings
from ..settings.sections import Cost
from ..trials import Importance, LearnedTrial, RepeatPlan, RerunPlan, display_path

#: Name of Optuna's user attribute that has the `StudyFacts`. Only modules of this folder use this
#: name.
ATTRIBUTE = "sweeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFact:
    """A file of another study that this study uses.

    Attributes:
        stated: Entry that asks for the file, from the section `inputs` of the parameters file, as
            JSON data.
        file: The file, in the form of `InputFile.encode`.
    """

    stated: Mapping[str, Any]
    file: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFacts:
    """What a study stores about itself. Fields are empty until a sweep has set them.

    Attributes:
        id: Id of the study. No other study has it, not even one with the same name.
        objectives: Names of the scores, in Optuna's order.
        template: Absolute output template of the last sweep, such as `/out/{run_id}.ipynb`.
        tracking_uri: MLflow tracking URI, without its password.
        experiment_id: Id of the study's experiment in MLflow.
        notebook: Path of the research notebook.
        trials: Number of trials that the study is to have. None until the first sweep begins.
        settings: Settings of the last sweep, in the form of `Settings.as_mapping`.
        made_of: Fingerprint of the trials' code, parameters and kernel
            (`notebooks/fingerprint.py`).
        inputs: Files of other studies that the trials use, by input name.
        spent_s: Wall-clock time of all sweeps, in seconds.
        replaced_trials: Number of trials of earlier studies that were removed and replaced by this
            study. All these trials had failed.
        mlflow_run_ids: MLflow's id of each trial's run, by the trial's run id.
        compare_url: URL of MLflow's comparison of the runs. None if there is none.
        tracking_is_behind: Whether MLflow may still show ended trials as running.
        lag: Number of trials that run at once with `study.order: fixed`. None if no sweep had this
            setting.
        repeats: Seeds or folds on which each proposal runs. None if proposals run once.
        confirms: Params and seeds that the study runs, and the id of the search from which the
            params come. None if the study itself is a search.
        learned: Trials of each study in `learn_from`, the best first. None if no sweep had this
            setting.
        importances: Importance of each param, by objective, then by param. None until they were
            computed, at the end of a sweep or by `export`.
        noise: Standard deviation of each score between runs of the same params. A score is missing
            if its deviation was not measured together with the importances.
        importances_of: Number of completed trials from which the importances were computed.
    """

    id: str
    objectives: Sequence[str]
    template: str = ""
    tracking_uri: str = ""
    experiment_id: str = ""
    notebook: str = ""
    trials: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    made_of: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, InputFact] = field(default_factory=dict)
    spent_s: float = 0.0
    replaced_trials: int = 0
    mlflow_run_ids: Mapping[str, str] = field(default_factory=dict)
    compare_url: str | None = None
    tracking_is_behind: bool = False
    lag: int | None = None
    repeats: RepeatPlan | None = None
    confirms: RerunPlan | None = None
    learned: Sequence[Sequence[LearnedTrial]] | None = None
    importances: Mapping[str, Mapping[str, Importance]] | None = None
    noise: Mapping[str, float] = field(default_factory=dict)
    importances_of: int = 0

    @classmethod
    def are_in(cls, attributes: Mapping[str, Any]) -> bool:
        """Return whether a sweep has begun the study with these user attributes of Optuna."""
        return ATTRIBUTE in attributes

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> StudyFacts:
        """Return the facts from the user attributes of Optuna's study.

        Raises:
            KeyError: No sweep has begun the study.
            ValueError: The attribute has an unknown form. The message names the field.
        """
        return cls.decode(attributes[ATTRIBUTE])

    @classmethod
    def decode(cls, stored: object) -> StudyFacts:
        """Decode the output of `encode`.

        Raises:
            ValueError: The data has an unknown form. The message names the field.
        """
        return _FACTS.validate_python(stored)

    def encode(self) -> dict[str, Any]:
        """Encode as JSON data, without fields that still have their defaults."""
        encoded: dict[str, Any] = _FACTS.dump_python(self, exclude_defaults=True)
        return encoded

    @classmethod
    def read(cls, file: Path) -> tuple[str, StudyFacts]:
        """Return the name and the facts of a study from a file that `write` has written.

        Raises:
            StudyError: The file cannot be read, or has no settings or output template.
        """
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            facts = cls.decode(stored["facts"])
            if not facts.template or not facts.settings:
                raise ValueError("the facts have no settings or no output template")
            return str(stored["study"]), facts
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StudyError(
                f"{display_path(file)} cannot be read, so the study cannot be rebuilt: {error!r}"
            ) from error

    @classmethod
    def kept_in(cls, file: Path | None, *, study: str) -> StudyFacts | None:
        """Return the facts that a removed study has left in a file.

        None if there is no such file, if it cannot be read, or if it belongs to another study.

        Args:
            file: File of the facts. None for no file.
            study: Name of the removed study.
        """
        with suppress(StudyError):
            name, facts = cls.read(file or Path())
            return facts if name == study else None
        return None

    def write(self, file: Path, *, study: str) -> None:
        """Write the facts to a file, with the name of the study.

        Raises:
            OSError: The file cannot be written.
        """
        with replaced(file) as part:
            # The file is as private as the database, because it has the same content.
            part.touch(mode=PRIVATE)
            text = json.dumps({"study": study, "facts": self.encode()})
            part.write_text(text, encoding="utf-8")

    @property
    def kernel(self) -> str:
        """Name of the Jupyter kernel of the trials, or the absolute path of their interpreter."""
        kernel = str(self.made_of["kernel"])
        if os.sep not in kernel:
            return kernel
        folder = Path(self.notebook).parent
        return os.path.abspath(folder / os.path.expanduser(kernel))

    @property
    def data_version(self) -> str | None:
        """Version of the data with which the study began. None if it has no data."""
        return self.made_of.get("data")

    def has_learned_from(self, settings: Settings) -> bool:
        """Return whether `learned` has the trials of exactly the studies in `learn_from`.

        Args:
            settings: Settings of a sweep, which may have `learn_from`.
        """
        # Compare the lists in the form in which a study stores them, which is without passwords.
        before = () if self.learned is None else self.settings.get("learn_from", ())
        return list(before) == list(settings.as_mapping.get("learn_from", ()))

    @property
    def cost(self) -> float | None:
        """Cost of all sweeps, in the currency of the parameters file. None if no price is known."""
        price = self.settings.get("cost")
        if price is None:
            return None
        return Cost(price_per_hour=price["price_per_hour"]).price_of(self.spent_s)


_FACTS = TypeAdapter(StudyFacts)
