"""Settle which files the inputs of a study are: once, when the study begins.

A study that goes on uses the files with which it began, of which its folder keeps names of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...errors import OutputError, SettingsError, StudyError, SweepError
from ...settings import Settings
from ...settings.inputs import BestTrials, InputSource
from ...study.files import is_storage
from ...study.samplers import SamplerFactory
from ...study.study import Study
from ...study_folder.saved import is_intact, keep
from ...tracking import sqlite_file
from ...trials import InputFile, TrialRecord, display_path
from ..plan import SweepPlan
from .upstream import Upstream, find_upstream

#: The fact of a study with its inputs: `stated`, as the parameters file has it, and `files`.
INPUTS = "inputs"


def with_inputs(plan: SweepPlan) -> SweepPlan:
    """Settle the plan's inputs; nothing is written.

    A study that has begun keeps its files as long as the parameters file asks for the same.

    Raises:
        SettingsError: an input cannot be found, or is not as the other study's trial has saved it.
        StudyError: a storage cannot be opened, or a file with which the study began is gone.
    """
    settings = plan.settings
    if not settings.inputs:
        return plan
    earlier = stored_facts(plan).get(INPUTS, {})
    inputs: dict[str, Sequence[InputFile]] = {}
    facts: dict[str, Any] = {}
    for name, source in settings.inputs.items():
        stored, stated = earlier.get(name), source.model_dump(mode="json")
        if stored is not None and stored["stated"] == stated:
            inputs[name] = [_kept(name, data, plan) for data in stored["files"]]
        else:
            inputs[name] = _found(name, source, plan)
        facts[name] = {"stated": stated, "files": [file.encode() for file in inputs[name]]}
    taken = _with_run_ids(settings, inputs)
    parts = {
        f"inputs.{name}": {
            **source.model_dump(mode="json"),
            "sha256": [file.sha256 for file in inputs[name]],
        }
        for name, source in taken.inputs.items()
    }
    return replace(
        plan,
        workload=replace(plan.workload, settings=taken),
        samplers=SamplerFactory(taken),
        fingerprint={**plan.fingerprint, **parts},
        inputs=inputs,
        input_facts=facts,
    )


def keep_inputs(plan: SweepPlan) -> SweepPlan:
    """Give each file a name in the study's folder, by which its trials find it from now on.

    Raises:
        OutputError: the folder cannot be written.
    """
    kept = {
        name: [_named(name, file, plan) for file in files] for name, files in plan.inputs.items()
    }
    return replace(plan, inputs=kept)


def stored_facts(plan: SweepPlan) -> Mapping[str, Any]:
    """What the study has stored about itself; nothing where it is new."""
    file = sqlite_file(plan.storage_url.full)
    if file is not None and not is_storage(file):
        return {}
    studies = Study.all_in(plan.storage_url)
    return next((study.facts for study in studies if study.name == plan.paths.study), {})


def _named(name: str, file: InputFile, plan: SweepPlan) -> InputFile:
    place = plan.paths.input(file.sha256, file.artifact)
    if place != file.path:
        try:
            keep(file.path, place)
        except OSError as error:
            raise OutputError(
                f"inputs.{name}: {display_path(place)} cannot be written: {error.strerror or error}"
            ) from error
    return replace(file, path=place)


def _found(name: str, source: InputSource, plan: SweepPlan) -> list[InputFile]:
    """The files of an input, as the other study has them now.

    Raises:
        SettingsError: with the key of the parameters file.
    """
    key = f"{plan.settings.file or 'settings'}: inputs.{name}"
    with _at(f"{key}.study"):
        upstream = find_upstream(source.study, paths=plan.paths, storage_url=plan.storage_url)
    with _at(f"{key}.take"):
        records = _taken(source, upstream)
    with _at(f"{key}.artifact"):
        return [upstream.file(record, source.artifact) for record in records]


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Say of an error to which key of the parameters file it belongs."""
    try:
        yield
    except SweepError as error:
        raise SettingsError(f"{where}: {error}") from error


def _taken(source: InputSource, upstream: Upstream) -> list[TrialRecord]:
    """The trials whose files are taken.

    Raises:
        SettingsError: there are no such trials, or not as many.
    """
    if source.take == "best":
        return upstream.best(1)
    if isinstance(source.take, BestTrials):
        return upstream.best(source.take.best)
    run_ids = source.take if isinstance(source.take, tuple) else (source.take,)
    return [upstream.trial(run_id) for run_id in run_ids]


def _kept(name: str, stored: Mapping[str, Any], plan: SweepPlan) -> InputFile:
    """A file with which the study began, from its own folder.

    Raises:
        StudyError: it is not there as it was.
    """
    file = InputFile.decode(stored)
    own = replace(file, path=plan.paths.input(file.sha256, file.artifact))
    if not is_intact(own.path, stored):
        raise StudyError(
            f"inputs.{name}: {display_path(own.path)} is gone or was changed: the study "
            f"{plan.paths.study!r} began with it as {file}; put it back, or begin another study "
            "with --study NAME"
        )
    return own


def _with_run_ids(settings: Settings, inputs: Mapping[str, Sequence[InputFile]]) -> Settings:
    """The settings with the run ids of the trials in place of `best`."""
    taken: dict[str, InputSource] = {}
    for name, source in settings.inputs.items():
        run_ids = tuple(file.run_id for file in inputs[name])
        has_several = isinstance(source.take, tuple | BestTrials)
        take = run_ids if has_several else run_ids[0]
        taken[name] = source.model_copy(update={"take": take})
    return settings.model_copy(update={"inputs": taken})
