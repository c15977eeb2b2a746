"""The facts about a study: what it stores beside its trials.

They are one attribute of Optuna's study. A study in a file keeps them in `study.json` as well, from
which `rebuild` makes a lost database again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..errors import StudyError
from ..files import PRIVATE, replaced
from ..settings.sections import Cost
from ..trials import LearnedTrial, display_path

#: The name of Optuna's attribute; of use inside this folder only.
ATTRIBUTE = "sweeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFact:
    """A file of another study that this one uses.

    Attributes:
        stated: the input as the parameters file states it.
        file: the file, as `InputFile.encode` makes it.
    """

    stated: Mapping[str, Any]
    file: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFacts:
    """What a study stores about itself. Texts and mappings are empty until a sweep notes them.

    Attributes:
        id: An id that no other study has, not even one of the same name.
        objectives: Names of the scores, in Optuna's order.
        template: Absolute output template of the last sweep.
        tracking_uri: MLflow store, without its password.
        experiment_id: Id of the study's experiment in MLflow.
        notebook: Path of the research notebook.
        trials: How many trials the study is to have; None until the first sweep has its plan.
        settings: Settings of the last sweep, as `Settings.as_mapping` makes them.
        made_of: Fingerprint of the trials (`notebooks/fingerprint.py`).
        inputs: Files of other studies that the trials use, by the names of the inputs.
        spent_s: Wall-clock time of all sweeps, in seconds.
        mlflow_run_ids: Ids of the runs in MLflow, by run id.
        compare_url: URL of the view that compares the runs in MLflow; None where there is none.
        tracking_is_behind: Whether MLflow may still show trials as running that have ended.
        lag: How many trials run at once, with `study.order: fixed`; None with a free order.
        repeats: How proposals are repeated, as `plan_of_repeats` makes it; None where they are not.
        confirms: Which trials of another study this one confirms, as `trials.plan_of` makes it.
        learned: Trials of each earlier study in `learn_from`, the best first; None where there is
            no such study.
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
    mlflow_run_ids: Mapping[str, str] = field(default_factory=dict)
    compare_url: str | None = None
    tracking_is_behind: bool = False
    lag: int | None = None
    repeats: Mapping[str, Any] | None = None
    confirms: Mapping[str, Any] | None = None
    learned: Sequence[Sequence[LearnedTrial]] | None = None

    @classmethod
    def are_in(cls, attributes: Mapping[str, Any]) -> bool:
        """Return whether a study of Optuna's with these attributes was begun by a sweep."""
        return ATTRIBUTE in attributes

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> StudyFacts:
        """Return the facts among the attributes of a study of Optuna's.

        Raises:
            KeyError: No sweep has begun the study.
            ValueError: The attribute has another form; the text names the field.
        """
        return cls.decode(attributes[ATTRIBUTE])

    @classmethod
    def decode(cls, stored: object) -> StudyFacts:
        """Return the facts that `encode` has made JSON data of.

        Raises:
            ValueError: The data has another form; the text names the field.
        """
        return _FACTS.validate_python(stored)

    def encode(self) -> dict[str, Any]:
        """Return the facts as JSON data, without what no sweep has noted yet."""
        encoded: dict[str, Any] = _FACTS.dump_python(self, exclude_defaults=True)
        return encoded

    @classmethod
    def read(cls, file: Path) -> tuple[str, StudyFacts]:
        """Return the name of a study, and the facts that `write` has kept.

        Raises:
            StudyError: The file cannot be read, or the study had not begun a trial.
        """
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            facts = cls.decode(stored["facts"])
            if not facts.template or not facts.settings:
                raise ValueError("it has no settings or no output template")
            return str(stored["study"]), facts
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StudyError(
                f"{display_path(file)} cannot be read, so the study cannot be made again: {error!r}"
            ) from error

    def write(self, file: Path, *, study: str) -> None:
        """Keep the facts in a file, with the name of their study.

        Raises:
            OSError: The file cannot be written.
        """
        with replaced(file) as part:
            part.touch(mode=PRIVATE)  # as the database, whose content it has
            text = json.dumps({"study": study, "facts": self.encode()})
            part.write_text(text, encoding="utf-8")

    @property
    def kernel(self) -> str:
        """Name of the kernel of the trials."""
        return str(self.made_of["kernel"])

    @property
    def data_version(self) -> str | None:
        """Version of the data with which the study began; None where it has no data."""
        return self.made_of.get("data")

    @property
    def cost(self) -> float | None:
        """Price of all sweeps, in the currency of the parameters file; None where none is known."""
        price = self.settings.get("cost")
        return None if price is None else Cost.model_validate(price).price_of(self.spent_s)


_FACTS = TypeAdapter(StudyFacts)
