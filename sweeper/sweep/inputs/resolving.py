"""Decide, when a study begins, which files of other studies and which data its trials use.

A resumed study uses the same files, because its folder keeps links or copies of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...errors import OutputError, SettingsError, StudyError, SweepError
from ...settings.inputs import InputSource
from ...study.facts import InputFact
from ...study.files import is_storage
from ...study.study import Study
from ...study_folder.saved import is_intact, keep
from ...trials import InputFile, display_path
from ..planning.plan import SweepPlan
from .upstream import find_upstream


def with_inputs(plan: SweepPlan) -> SweepPlan:
    """Return the plan with its input files and the version of its data. Fetch and write nothing.

    A study that has begun keeps its files as long as the parameters file asks for the same files.
    The study also keeps the version of its data, unless the parameters file names another one.

    Raises:
        SettingsError: An input cannot be found, or it has changed since its trial saved it.
        SettingsError: A package for the scheme of the data's URL is missing.
        StudyError: A storage cannot be opened, or a file with which the study began is gone.
        DataError: The data has no such version, or no version at all.
    """
    settings, data = plan.settings, plan.workload.data
    if not settings.inputs and data is None:
        return plan
    study = stored_study(plan)
    # A study in which no trial has begun uses the newest files and data, as a new study does.
    begun_with = study.facts if study is not None and study.records() else None
    earlier = {} if begun_with is None else begun_with.inputs
    inputs: dict[str, InputFile] = {}
    facts: dict[str, InputFact] = {}
    parts: dict[str, Any] = {}
    for name, source in settings.inputs.items():
        stored, stated = earlier.get(name), source.model_dump(mode="json")
        if stored is not None and stored.stated == stated:
            file = _kept(name, stored.file, plan)
        else:
            file = _found(name, source, plan)
        inputs[name] = file
        facts[name] = InputFact(stated=stated, file=file.encode())
        parts[f"inputs.{name}"] = {**stated, "take": file.run_id, "sha256": file.sha256}
    if data is not None:
        data.settle(begun_with=None if begun_with is None else begun_with.data_version)
        parts["data"] = data.version
    return replace(
        plan, fingerprint={**plan.fingerprint, **parts}, inputs=inputs, input_facts=facts
    )


def keep_inputs(plan: SweepPlan) -> SweepPlan:
    """Link or copy each input file into the study's folder, where its trials will find it.

    Returns:
        The plan with the new paths of the files.

    Raises:
        OutputError: The folder cannot be written.
    """
    kept = {name: _named(name, file, plan) for name, file in plan.inputs.items()}
    return replace(plan, inputs=kept)


def stored_study(plan: SweepPlan) -> Study | None:
    """Return the study of a plan, for reading. Return None if the study is new."""
    file = plan.storage_url.file
    if file is not None and not is_storage(file):
        return None
    studies = Study.all_in(plan.storage_url)
    return next((study for study in studies if study.name == plan.paths.study), None)


def _named(name: str, file: InputFile, plan: SweepPlan) -> InputFile:
    """Link or copy an input file into the study's folder, and return it with its new path."""
    place = plan.paths.input(file.sha256, file.artifact)
    if place != file.path:
        try:
            keep(file.path, place)
        except OSError as error:
            raise OutputError(
                f"inputs.{name}: {display_path(place)} cannot be written: {error.strerror or error}"
            ) from error
    return replace(file, path=place)


def _found(name: str, source: InputSource, plan: SweepPlan) -> InputFile:
    """Return the file of an input as it is now in the study whose trial has saved it.

    Args:
        name: Name of the input.
        source: Entry of the section `inputs`.
        plan: Plan of this sweep.

    Raises:
        SettingsError: The file cannot be found. The message begins with the key of the entry.
    """
    key = f"{plan.settings.file or 'settings'}: inputs.{name}"
    with _at(f"{key}.study"):
        upstream = find_upstream(source.study, paths=plan.paths, storage_url=plan.storage_url)
    with _at(f"{key}.take"):
        record = upstream.only_best() if source.take == "best" else upstream.trial(source.take)
    with _at(f"{key}.artifact"):
        return upstream.file(record, source.artifact)


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Turn each `SweepError` of the block into a `SettingsError` that says where its cause is.

    Args:
        where: Parameters file and key, with which the message then begins.
    """
    try:
        yield
    except SweepError as error:
        raise SettingsError(f"{where}: {error}") from error


def _kept(name: str, stored: Mapping[str, Any], plan: SweepPlan) -> InputFile:
    """Return an input file with which the study began, from the study's own folder.

    Args:
        name: Name of the input.
        stored: The file in the form in which the study has stored it.
        plan: Plan of this sweep.

    Raises:
        StudyError: The file is gone or has changed.
    """
    file = InputFile.decode(stored)
    own = replace(file, path=plan.paths.input(file.sha256, file.artifact))
    if not is_intact(own.path, file.sha256):
        raise StudyError(
            f"inputs.{name}: {display_path(own.path)}, with which the study {plan.paths.study!r} "
            f"began as {file}, was removed or changed; put it back, or begin another study with "
            f"{plan.paths.options_of_another}"
        )
    return own
