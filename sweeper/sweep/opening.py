"""Open a study and its MLflow store for one sweep, and lock the study until the sweep ends."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from ..errors import OutputError
from ..notebooks.metadata import read_metadata
from ..search.repeats import plan_of_repeats
from ..study.endings import unknown_end
from ..study.moves import move_of
from ..study.study import Study
from ..study_folder.ownership import held_elsewhere, held_folder
from ..study_folder.requests import Requests
from ..study_folder.snapshots import keep_snapshot
from ..sync.moving import follow
from ..tracking import Store, Tracker, check_reachable, view_of
from ..trials import display_path
from .inputs.learning import to_learn
from .inputs.resolving import keep_inputs, with_inputs
from .planning.plan import SweepPlan
from .resume_checks import changes_since, check_resumed, is_worth_nothing, refuse_lost_database

_log = logging.getLogger(__name__)


@contextmanager
def opened(
    plan: SweepPlan,
    *,
    on_request: Callable[[str], None],
    on_restore: Callable[[], None],
    on_data: Callable[[str], None],
    is_stopped: Callable[[], bool],
) -> Iterator[tuple[SweepPlan, Study, Tracker]]:
    """Yield the plan with its inputs, the open study and its open tracker.

    This process alone uses the study's folder and storage until the block ends. If a check refuses
    the sweep, a folder that was made for a new study is removed again.

    Args:
        plan: Plan of the sweep.
        on_request: Called with each request of another process, such as a stop, from another
            thread.
        on_restore: Called before the study is restored from its remote copy.
        on_data: Called with each line of progress while data is verified or fetched.
        is_stopped: Returns whether the sweep was stopped. Then no more data is fetched, and the
            sweep waits neither for the lock of the remote copy nor for MLflow.

    Raises:
        SweepError: The outputs, the study or MLflow cannot be used.
    """
    with ExitStack() as stack:
        with _naming_unusable_files():
            folder = stack.enter_context(held_folder(plan.paths))
            stack.enter_context(held_elsewhere(plan.paths, plan.storage_url.file))
            # From now on, other processes see that a sweep runs and may send requests.
            stack.callback(Requests(plan.paths, on_request).close)
            is_restored = False

            def restores() -> None:
                folder.is_needed = True  # Keep the files of a broken download for the next call.
                on_restore()

            if plan.remote is not None:
                is_restored = stack.enter_context(
                    plan.remote.opened(restores, is_stopped=is_stopped)
                )
            if plan.confirming is None:  # A confirming study has the inputs and data of its search.
                plan = with_inputs(plan)
            paths = plan.paths
            is_embedded = plan.storage_url.file == paths.storage
            if is_embedded and not is_restored:
                if (move := move_of(paths.facts)) is not None:
                    follow(move)
                refuse_lost_database(paths)
            kept_facts = paths.facts if is_embedded else None
            begins_anew = partial(_begins_anew, plan)
            study = stack.enter_context(
                closing(
                    Study.open(
                        plan.storage_url,
                        plan.settings,
                        kept_facts=kept_facts,
                        begins_anew=begins_anew,
                        check_held=folder.check,
                    )
                )
            )
            if plan.confirming is not None:
                has_changed = bool(changes_since(study, plan.fingerprint))
                n_trials = study.n_confirming(plan.confirming, has_changed=has_changed)
                plan = plan.with_trials(n_trials)
            elif study.facts.replaced_trials and not study.facts.made_of:
                plan = with_inputs(plan)  # The study begins anew, so use the newest files and data.
            folder.is_needed = is_restored
            check_resumed(plan, study, is_restored=is_restored)
            if not study.records():
                paths.notes.unlink(missing_ok=True)  # An earlier study in this folder left them.
            learned = to_learn(plan, study)
            _note_places(plan, study)
            data = plan.workload.data
            if data is not None and plan.settings.cluster is None:
                # On a cluster, the workers fetch the data themselves.
                data.bring(on_data, is_stopped)
            plan = keep_inputs(plan)
            tracker = stack.enter_context(_opened_tracker(plan, study, is_stopped))
            # Change the study only now that no check can refuse the call any more: a call that is
            # refused must leave the study as it was.
            if plan.confirming is not None:
                study.confirm(plan.confirming, has_changed=has_changed)
            study.queue_first(plan.settings, learned)
            _note_call(plan, study, tracker)
            folder.is_needed = True
            if plan.workload.snapshot is not None:
                keep_snapshot(plan.paths, plan.workload.snapshot)
            if plan.remote is not None:
                plan.remote.start()
        yield plan, study, tracker


@contextmanager
def _naming_unusable_files() -> Iterator[None]:
    """Convert an error about a file or folder in the block to one that names it.

    Raises:
        OutputError: A file or folder cannot be read, written or removed.
    """
    try:
        yield
    except OSError as error:
        if not isinstance(error.filename, str | os.PathLike):
            raise
        raise OutputError(
            f"{display_path(Path(error.filename))}: cannot be used: {error.strerror}; "
            "this call has begun no trial"
        ) from error


def _begins_anew(plan: SweepPlan, study: Study) -> bool:
    """Return whether a new study replaces the stored one. If so, remove the files of the old one.

    A new study replaces a study in which no trial has begun, so that all present settings apply. It
    also replaces a study whose trials have all failed, if the notebook or the settings have changed
    since (see `is_worth_nothing`), unless the plan allows changes.

    The files are executed notebooks, checkpoints, artifacts and notes. They are removed so that no
    new trial resumes from a checkpoint of an old one. If the sweep is killed before the stored
    study is removed, the next call removes it.

    A storage that is an old copy is never replaced, because trials that it lacks may have
    completed. `refuse_older_copy` then refuses the sweep.
    """
    has_begun = study.facts.confirms is not None or not study.has_only_planned
    if has_begun and (plan.allow_changes or not is_worth_nothing(study, plan.fingerprint)):
        return False
    if unknown_end(study.records(), study.facts, plan.paths) is not None:
        return False
    if has_begun:
        _log.warning("no trial of the study has completed, so the study begins anew")
    if plan.remote is not None:
        plan.remote.begin_anew()
    paths = plan.paths
    for path in paths.written_run_ids().values():
        metadata = read_metadata(path)
        if metadata is not None and metadata.study_id == study.study_id:
            path.unlink(missing_ok=True)
    for record in study.records():
        shutil.rmtree(paths.checkpoints(record.run_id), ignore_errors=True)
        shutil.rmtree(paths.saved(record.run_id), ignore_errors=True)
    paths.notes.unlink(missing_ok=True)
    return True


def _note_places(plan: SweepPlan, study: Study) -> None:
    """Store in a new study where its notebooks and MLflow runs are, so that commands find them.

    This is done before data is fetched, which may take hours, and before MLflow is opened.
    """
    if not study.facts.template:
        study.note_facts(template=plan.paths.template, tracking_uri=str(plan.tracking))


@contextmanager
def _opened_tracker(
    plan: SweepPlan, study: Study, is_stopped: Callable[[], bool]
) -> Iterator[Tracker]:
    """Open MLflow, and yield the tracker, which sends trials to it.

    MLflow needs two seconds to open a store. Trials do not wait for the default store next to the
    outputs: what they report is sent to it later. They wait for any other store, because its
    address may be wrong, or it may need a password. They also wait if the notebook itself uses
    MLflow, because it must find the run of its trial in the store.
    """
    store = store_of(plan, study)
    check_reachable(store)
    tracker = Tracker(store)
    try:
        # Trials may begin before the default store is open. The exception is a notebook that itself
        # logs to MLflow, because it must find the run of its trial there.
        if not store.is_embedded or "mlflow" in "".join(plan.notebook.code):
            tracker.wait_until_open(is_stopped)
        tracker.set_others_aside([record.run_id for record in study.records()])
        yield tracker
    finally:
        # This call acts only after an error, because a regular end has closed the tracker already.
        tracker.close(lambda: 0.0)


def _note_call(plan: SweepPlan, study: Study, tracker: Tracker) -> None:
    """Store the paths, settings, fingerprint and inputs of this sweep in the study.

    Other commands read them there. With `study.order: fixed`, also make proposals independent of
    which trials end first.
    """
    settings = plan.settings
    if settings.study.order == "fixed":
        _keep_order(plan, study)
    study.note_facts(
        template=plan.paths.template,
        notebook=str(plan.notebook.path),
        tracking_uri=tracker.uri,
        trials=settings.study.trials,
        settings=settings.as_mapping,
        made_of=plan.fingerprint,
        repeats=None if settings.repeat is None else plan_of_repeats(settings),
        # MLflow may lack data until the sweep has ended. If the sweep is killed, the next command
        # logs these data.
        tracking_is_behind=True,
        inputs=plan.input_facts or study.facts.inputs,
    )
    tracker.when_open(lambda: study.note_facts(experiment_id=tracker.experiment_id))


def store_of(plan: SweepPlan, study: Study) -> Store:
    """Return the address of the study's MLflow store, and the text and view that its UI shows.

    The store is not opened.
    """
    settings = plan.settings
    return Store(
        address=plan.tracking,
        study=study.name,
        study_id=study.study_id,
        paths=plan.paths,
        note=_description(plan),
        view=view_of(settings.search_space, settings.objective, study_id=study.study_id),
    )


def _keep_order(plan: SweepPlan, study: Study) -> None:
    """Make proposals independent of which trials end first, as `study.order: fixed` requires.

    Log a warning if, therefore, fewer than `-j` trials can run at once.
    """
    jobs = plan.executor.jobs
    most = study.keep_order(jobs)
    if jobs > most:
        _log.warning(
            "study.order: fixed: at most %d of -j %d trials run at once, because this study "
            "began with a smaller -j and would propose other trials with a larger one",
            most,
            jobs,
        )


def _description(plan: SweepPlan) -> str:
    """Return the text that MLflow shows above the runs: the objectives and the sweep's command.

    The command is left out if there is none: a confirmation is started by the sweep of its search,
    and settings that were made in Python have no file.
    """
    settings = plan.settings
    goals = ", ".join(f"{goal.direction} {name}" for name, goal in settings.objective.items())
    description = f"Sweep over `{plan.notebook.display_name}`: {goals}."
    if plan.confirming is not None or settings.file is None:
        return description
    words = ["notebook_hpo.py", "-i", display_path(plan.notebook.path)]
    words += ["-o", plan.paths.displayed_template, "-p", display_path(settings.file)]
    words += [*settings.flags_of_study, "-j", str(plan.executor.jobs)]
    return f"{description}\n\n    {shlex.join(words)}"
