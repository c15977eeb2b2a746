"""Choose the trials of a study and record their ends, in Optuna's storage.

One process asks for trials and records their ends, one at a time under one lock. In addition to
Optuna's state, each trial has a record (`TrialRecord`), which is written before Optuna's state. A
trial whose record states a final end is never run again. A trial whose record says `running` or
`stopped` is run again first, with the same number, params and seed.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ..errors import NoStudyError, StorageAwayError, StudyError, shortened
from ..search.pruners import Curves, curves_of, why_pruned
from ..search.repeats import REPEAT, plan_of_repeats
from ..search.samplers import (
    SamplerFactory,
    ScoreModels,
    as_queued,
    can_predict,
    check_fits,
    surfaces_of,
)
from ..search.trial_codec import RECORD, encode, has_begun, record_of
from ..settings import Settings
from ..settings.addresses import Address
from ..settings.messages import as_yaml
from ..settings.space import SearchSpace, from_scalar
from ..study_folder.patience import Patience
from ..trials import (
    FOLD,
    Confirmation,
    Importance,
    LearnedTrial,
    Params,
    Proposal,
    Reason,
    Repeats,
    RerunPlan,
    TrialOutcome,
    TrialRecord,
    TrialState,
    run_id_of,
)
from .access import close_storage, file_of, log_ahead, open_storage, place_of, refuse_another_file
from .endings import interrupted, left_open, name_objectives, never_begun, tell_optuna
from .facts import ATTRIBUTE, StudyFacts
from .files import has_study
from .insights import figure_of, param_importances
from .proposals import (
    BY_HAND,
    FIRST,
    QUEUED,
    RETRY,
    SEED,
    TrialQueue,
    is_by_hand,
    is_planned,
    runs_again,
)
from .rebuilt import proposal_of
from .session_lock import locked_storage
from .storage import MirroredStorage
from .stored import stored_records

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """Result of a comparison of a study's trials with a plan of runs (`RerunPlan`).

    Attributes:
        missing: Params and seed of each run of the plan that the study lacks.
        of_others: Queued trials of earlier plans.
        n_staying: Number of trials that have begun, or that are queued for the plan.
    """

    missing: list[tuple[dict[str, Any], int]]
    of_others: list[FrozenTrial]
    n_staying: int


class Study:
    """A named study that can be resumed. Safe to use from several threads of one process.

    Args:
        study: Optuna's study. While a sweep runs it, its storage is a `MirroredStorage`.
        storage: Storage of a study that is read or corrected, or to which trials are queued.
            None while a sweep runs the study.
    """

    def __init__(self, study: optuna.Study, storage: RDBStorage | None = None) -> None:
        self._study = study
        self._storage = storage
        self._lock = threading.RLock()
        # This lock is held while a sampler computes, which can take long. Trials can end meanwhile,
        # because `_lock` is free.
        self._proposing = threading.RLock()
        # Only a sweep asks for trials, and its storage is a `MirroredStorage`.
        storage_of_sweep: Any = study._storage
        self._queue = TrialQueue(storage_of_sweep)
        self._kept_facts: Path | None = None
        #: Number of completed trials, and the models that were fitted to their scores.
        self._fitted: tuple[int, ScoreModels | None] = (0, None)

    @property
    def name(self) -> str:
        """Name of the study."""
        return str(self._study.study_name)

    @property
    def facts(self) -> StudyFacts:
        """Facts that sweeps have stored about the study, such as its settings.

        Raises:
            StudyError: The facts are stored in an unknown form.
        """
        with _of_this_version(self.name):
            return StudyFacts.of(self._study.user_attrs)

    @property
    def study_id(self) -> str:
        """Id of the study. No other study has it, not even one with the same name."""
        return self.facts.id

    @classmethod
    def all_in(cls, storage_url: str | Address) -> list[Study]:
        """Return all studies that sweeps have begun in a storage, for reading.

        If the storage is a file, it must have Optuna's tables already. Their version is not
        checked, which would take 0.4 s.

        Raises:
            StudyError: The storage cannot be opened.
        """
        address = Address.of(storage_url)
        storage = open_storage(address, is_known=address.file is not None)
        return [
            cls(_loaded(storage, study.study_name), storage)
            for study in storage.get_all_studies()
            if StudyFacts.are_in(study.user_attrs)
        ]

    @classmethod
    def load(cls, storage_url: str | Address, name: str, *, is_known: bool = False) -> Study:
        """Load an existing study for reading, queueing and corrections.

        Args:
            storage_url: URL of the storage.
            name: Name of the study.
            is_known: Whether the storage's tables need not be checked. Only for reading.

        Raises:
            NoStudyError: The storage has no study with this name that a sweep has begun.
            StudyError: The storage cannot be opened, or the study's facts have an unknown form.
        """
        storage = open_storage(storage_url, is_known=is_known)
        try:
            study = cls(_loaded(storage, name), storage)
            _ = study.facts
        except KeyError as error:
            place = place_of(storage.engine.url)
            raise NoStudyError(f"{place}: there is no study {name!r}") from error
        return study

    @classmethod
    def open(
        cls,
        storage: str | Address | RDBStorage,
        settings: Settings,
        *,
        kept_facts: Path | None = None,
        begins_anew: Callable[[Study], bool] = lambda _: False,
        check_held: Callable[[], object] = lambda: None,
    ) -> Study:
        """Open the study of these settings for a sweep by this process. Create it if it is new.

        Args:
            storage: URL of the storage, or an open storage.
            settings: Settings of the sweep.
            kept_facts: File to which the facts about the study are also written. None for no file.
            begins_anew: Called with an existing study. Returns whether a new, empty study replaces
                it. The function must then have removed all files of the old study's trials. The
                time and the trials of the old study count as spent by the new one.
            check_held: Called before each change of the study. Raises an error if another sweep has
                taken over the study.

        Raises:
            StudyError: Another process sweeps the study on a server.
            StudyError: The storage cannot be opened, or its study with this name does not fit the
                settings.
        """
        held = locked_storage(storage, settings.name)
        try:
            opened = cls._opened(held, settings, kept_facts, begins_anew)
        except BaseException:
            held.engine.dispose()  # Closing the connection releases the lock on a server.
            raise
        opened._mirror.patience.check = check_held
        return opened

    @classmethod
    def _opened(
        cls,
        storage: RDBStorage,
        settings: Settings,
        kept_facts: Path | None,
        begins_anew: Callable[[Study], bool],
        replaced: StudyFacts | None = None,
    ) -> Study:
        log_ahead(storage)
        names = list(settings.objective)
        optuna.create_study(
            study_name=settings.name,
            storage=storage,
            directions=[objective.direction for objective in settings.objective.values()],
            sampler=_neutral(),
            load_if_exists=True,
        )
        place = place_of(storage.engine.url)
        patience = Patience(place, may_pass=lambda error: isinstance(error, StorageAwayError))
        opened = cls(_loaded(MirroredStorage(storage, settings.name, patience)))
        opened._kept_facts = kept_facts
        is_begun = StudyFacts.are_in(opened._study.user_attrs)
        if is_begun:
            opened._requeue()
            names = [*opened.facts.objectives]
            if begins_anew(opened):
                replaced = opened._remove()
                return cls._opened(storage, settings, kept_facts, begins_anew, replaced)
        check_fits(opened._study, names, settings, place)
        if not is_begun:  # The study is new, or its creator was killed.
            # A killed sweep may have removed the study to begin anew. Then the file still has the
            # facts of the removed study.
            opened._begin(settings, replaced or StudyFacts.kept_in(kept_facts, study=settings.name))
            opened._requeue()
        opened._refuse_another_file(storage)
        return opened

    def _remove(self) -> StudyFacts:
        """Remove the study from its storage. Before that, write its facts to their file.

        Returns:
            The facts that were written. Their `replaced_trials` also counts the trials that the
            study had begun, and those that were queued by hand.
        """
        facts = self.facts
        n_trials = facts.replaced_trials + sum(self.claimed())
        facts = replace(facts, replaced_trials=n_trials)
        self._keep_facts(facts)
        self._mirror.remove()
        return facts

    def _begin(self, settings: Settings, earlier: StudyFacts | None) -> None:
        """Store the facts of a new study.

        Args:
            settings: Settings of the sweep.
            earlier: Facts of the study that this one replaces. None if it replaces none.
        """
        names = list(settings.objective)
        name_objectives(self._study, names)
        repeats = None if settings.repeat is None else plan_of_repeats(settings)
        facts = StudyFacts(id=uuid.uuid4().hex, objectives=names, repeats=repeats)
        if earlier is not None:
            spent_s, n_trials = earlier.spent_s, earlier.replaced_trials
            facts = replace(facts, spent_s=spent_s, replaced_trials=n_trials)
        self._store_facts(facts)

    def _refuse_another_file(self, storage: RDBStorage) -> None:
        """Let the storage raise an error from now on if its file no longer has this study."""
        file = file_of(storage.engine.url)
        if file is not None:
            is_ours = partial(has_study, file, self.name, self.study_id)
            refuse_another_file(storage.engine, file, is_ours=is_ours)

    def be_patient(self, limit_s: Callable[[], float]) -> None:
        """From now on, wait for an unavailable storage before `StorageAwayError` is raised.

        Args:
            limit_s: Returns the seconds to wait. Called anew at each wait.
        """
        self._mirror.patience.limit_s = limit_s

    def check_held(self) -> None:
        """Raise `StudyError` if another sweep has taken over the study."""
        self._mirror.patience.check()

    def close(self) -> None:
        """Close the storage.

        The records of a study that was swept can still be read from memory.
        """
        if self._storage is None:
            self._mirror.close()
        else:
            close_storage(self._storage)

    def note_facts(self, **changes: Any) -> None:
        """Store new values of fields of the study's facts.

        Args:
            **changes: New values by the names of the fields of `StudyFacts`.
        """
        with self._lock:
            self._store_facts(replace(self.facts, **changes))

    def _store_facts(self, facts: StudyFacts) -> None:
        self._study.set_user_attr(ATTRIBUTE, facts.encode())
        self._keep_facts(facts)

    def _keep_facts(self, facts: StudyFacts) -> None:
        if self._kept_facts is not None:
            with suppress(OSError):  # The disk may be full. The next call writes all facts again.
                facts.write(self._kept_facts, study=self.name)

    def _requeue(self) -> None:
        """Read the ends that an earlier sweep could not store, and queue its unfinished trials."""
        for trial in self._trials(OptunaState.RUNNING):
            record = left_open(record_of(trial) or never_begun(trial.number), self.facts)
            if record.is_final:
                self._write(record)
                self._tell(record)
            else:
                self._queue.put_back(record)

    def keep_order(self, jobs: int) -> int:
        """Let no proposal depend on which trials end first, from now on (`study.order: fixed`).

        Args:
            jobs: Number of trials that run at once. Only the first call for a study has an effect,
                so that a sweep with another number makes the same proposals.

        Returns:
            Number of trials that can run at once. Further trials wait for the end of an earlier
            one.
        """
        lag = self.facts.lag
        if lag is None:
            lag = jobs
            self.note_facts(lag=lag)
        self._queue.lag = lag
        return lag

    # --- calls of the scheduler ---------------------------------------------------------------

    def ask(
        self,
        samplers: SamplerFactory,
        notebook_of: Callable[[int], Path],
        wait: Callable[[], bool] = lambda: False,
    ) -> TrialRecord | None:
        """Return the next trial to run.

        Return None if the study has all its trials, or if `wait` returns False.

        Args:
            samplers: Makes the sampler for a new proposal.
            notebook_of: Returns the path of the executed notebook from a trial number.
            wait: Waits for the end of a running trial. Called if the next trial depends on that
                end. Returns whether another trial is still wanted.
        """
        while True:
            with self._proposing:
                self._read_new_trials(samplers.settings.search_space)
                is_too_early = self._queue.is_too_early(samplers)
                if not is_too_early:
                    record = self._queue.next(samplers, notebook_of)
                    if record is None or self._store(record):
                        return record
                    self._reread()
            if is_too_early and not wait():
                return None

    def _store(self, record: TrialRecord) -> bool:
        """Store a trial that begins. Return False if another process has used its number."""
        with self._lock:
            self._write(record)
            return self._mirror.store_trial(self._trial(record.number)._trial_id)

    def prepare(self, samplers: SamplerFactory) -> None:
        """Make the proposal for the next `ask` ahead of time, unless the study has all its trials.

        The sampler then does not see trials that end before that `ask`. With a fixed order of
        trials, the proposal is made ahead only if it does not depend on a running trial.
        """
        with self._proposing:
            self._read_new_trials(samplers.settings.search_space)
            self._queue.prepare(samplers)

    def enqueue(self, params: Params, *, again: TrialRecord | None = None) -> int:
        """Queue a trial in addition to `study.trials`. Any process may call this.

        Args:
            params: Some or all params of the trial. The sampler chooses the others.
            again: Record of the earlier trial that this one retries. None if it is not a retry.

        Returns:
            Number of the queued trial.
        """
        attrs: dict[str, Any] = {BY_HAND: True}
        if again is not None:
            attrs |= {RETRY: again.first_number, SEED: again.seed}
            if again.repeat_of is not None:
                attrs[REPEAT] = again.repeat_of
        self._study.enqueue_trial(as_queued(params), user_attrs=attrs)
        return max(trial.number for trial in self._trials() if is_by_hand(trial))

    def queue_first(
        self, settings: Settings, learned: Sequence[Sequence[LearnedTrial]] | None = None
    ) -> None:
        """Queue the trials that run first: those of `start`, and the best params of other studies.

        Trials that an earlier call has queued in this way are removed from the queue, if `start`
        and the other studies no longer contain their params.

        Args:
            settings: Settings of this sweep.
            learned: Trials of each earlier study, the best first. None to keep those of the last
                call.
        """
        if learned is not None:
            self.note_facts(learned=learned)
        space = settings.proposed_space  # Without the fold, which is chosen when a trial begins.
        first = self._first_params(settings)
        wanted = [_in_space(params, space) for params in first]
        known = []
        for trial in self._trials():
            params = _in_space(_queued_params(trial), space)
            if _is_queued_first(trial) and params not in wanted:
                self._drop(trial)
            elif not _is_dropped(trial):
                known.append(params)
        added = [params for params in first if _in_space(params, space) not in known]
        for params in added:
            self._study.enqueue_trial(as_queued(params), user_attrs={FIRST: True})
        if added:
            self._warn_if_full(settings, len(added))

    def _first_params(self, settings: Settings) -> list[dict[str, Any]]:
        """Return the params of `start`, and the best params of each study in `learn_from`.

        Params of an earlier study are left out if the search space does not allow them, or if
        `start` or another study has them already.
        """
        space = settings.proposed_space
        first = list(settings.start_params)
        for trials in self.facts.learned or ():
            best = _in_space(trials[0].params, space)
            is_known = best in [_in_space(params, space) for params in first]
            if _allows(space, best) and not is_known:
                first.append(best)
        return first

    def _warn_if_full(self, settings: Settings, n_added: int) -> None:
        """Log a warning if the study has all its trials, so that added ones do not run.

        Args:
            settings: Settings of the sweep.
            n_added: Number of trials that `queue_first` has just queued.
        """
        n_begun, _ = self.claimed()
        n_wanted = settings.study.trials
        if n_begun < n_wanted:
            return
        n_waiting = sum(map(_is_queued_first, self._trials()))
        _log.warning(
            "study.trials: %d: the study has all its trials, so the %d that were added to "
            "`start` or `learn_from` do not run; to run them, give --trials %d",
            n_wanted,
            n_added,
            n_begun + n_waiting,
        )

    def _drop_outside(self, space: SearchSpace) -> None:
        """Remove queued trials with values that the space does not allow, and warn of them.

        Another process may have queued such a trial: the command `enqueue`, before this sweep had
        stored its settings, or another tool that writes to Optuna's storage.
        """
        for trial in self._trials(OptunaState.WAITING):
            params = _queued_params(trial)
            if not runs_again(trial) and not _allows(space, params):
                self._drop(trial)
                _log.warning(
                    "trial %s was queued with %s, which is outside the search space now, so it "
                    "does not run",
                    run_id_of(trial.number),
                    as_yaml(params),
                )

    def _drop(self, trial: FrozenTrial) -> None:
        """Remove a trial from the queue. It ends without a record, because it has never begun."""
        self._mirror.set_trial_state_values(trial._trial_id, OptunaState.FAIL)

    def confirm(self, plan: RerunPlan, *, has_changed: bool = False) -> None:
        """Queue the runs of a plan that the study lacks. Remove queued runs of earlier plans.

        All trials run on a seed before the first trial runs on the next seed. Earlier runs with
        other code or settings are ignored: their params and seeds are queued again, and interrupted
        runs do not resume.

        Args:
            plan: Params and seeds to run.
            has_changed: Whether new trials run other code or settings than the trials so far.
        """
        plan = replace(plan, since=self._counts_since(has_changed=has_changed))
        self.note_facts(confirms=plan)
        if has_changed:
            self._give_up_unfinished()
        runs = self._runs_of(plan)
        for trial in runs.of_others:
            self._drop(trial)
        for params, seed in runs.missing:
            self._study.enqueue_trial(params, user_attrs={SEED: seed})

    def _give_up_unfinished(self) -> None:
        """End the planned trials that were interrupted, so that they are not run again."""
        for record in self.records():
            if not record.is_final and not record.by_hand:
                message = "the code or settings have changed since, so the run would not count"
                ended = replace(
                    record, state=TrialState.STOPPED, reason=Reason.BY_HAND, message=message
                )
                self._queue.take_back(record.number)
                self._write(ended)
                self._tell(ended)

    def repeats_trials_of(self, study_id: str) -> bool:
        """Return whether the study confirms or ablates the study with this id."""
        confirms = self.facts.confirms
        return confirms is not None and confirms.of == study_id

    def n_confirming(self, plan: RerunPlan, *, has_changed: bool = False) -> int:
        """Return how many trials the study would have after `confirm` with the same arguments.

        Trials that were queued by hand are left out.
        """
        since = self._counts_since(has_changed=has_changed)
        runs = self._runs_of(replace(plan, since=since))
        return runs.n_staying + len(runs.missing)

    def _counts_since(self, *, has_changed: bool) -> int:
        """Return the number of the first trial with the present code and settings.

        Earlier trials are ignored in a plan of runs.

        Args:
            has_changed: Whether all trials so far ran other code or settings.
        """
        if has_changed:
            return len(self._trials())
        confirms = self.facts.confirms
        return 0 if confirms is None else confirms.since

    def _runs_of(self, plan: RerunPlan) -> _Runs:
        """Compare the study with a plan. Trials that were queued by hand belong to no plan."""
        runs = [(as_queued(params), seed) for params, seed in plan.runs]
        missing, of_others, n_staying = list(runs), list[FrozenTrial](), 0
        for trial in self._trials():
            if is_by_hand(trial) or _is_dropped(trial):
                continue
            run = trial.system_attrs.get(QUEUED), trial.user_attrs.get(SEED)
            counts = trial.number >= plan.since
            if counts and run in missing:
                missing.remove(run)
            if trial.state is OptunaState.WAITING and not (counts and run in runs):
                of_others.append(trial)
            else:
                n_staying += 1
        return _Runs(missing=missing, of_others=of_others, n_staying=n_staying)

    @property
    def has_only_planned(self) -> bool:
        """Whether no trial has begun, and all queued trials are those of `queue_first`."""
        return all(map(_is_queued_first, self._trials()))

    @property
    def has_trial_by_hand(self) -> bool:
        """Whether a trial that was queued by hand is waiting."""
        return self._queue.has_trial_by_hand

    def claimed(self) -> tuple[int, int]:
        """Return how many planned trials have begun, and how many trials were queued by hand."""
        trials = [trial for trial in self._trials() if not _is_dropped(trial)]
        return sum(map(is_planned, trials)), sum(map(is_by_hand, trials))

    def tried_again(self) -> set[int]:
        """Return the numbers of trials with a retry that has not failed.

        The retry may also be queued or running.
        """
        numbers = set()
        for trial in self._trials():
            record = record_of(trial)
            if RETRY in trial.user_attrs and (not record or record.state is not TrialState.FAILED):
                numbers.add(int(trial.user_attrs[RETRY]))
        return numbers

    def open_retries(self) -> set[int]:
        """Return the numbers of trials with a retry that is queued, running, or interrupted."""
        open_trials = self._trials(OptunaState.WAITING, OptunaState.RUNNING)
        return {trial.user_attrs[RETRY] for trial in open_trials if RETRY in trial.user_attrs}

    def _read_new_trials(self, space: SearchSpace) -> None:
        if not self._mirror.read_new_trials():
            self._reread()  # Another process has used the number of the prepared proposal.
        self._drop_outside(space)

    def _reread(self) -> None:
        with self._lock:
            self._study = _loaded(self._mirror.reread())
            self._queue.use(self._mirror)

    @property
    def _mirror(self) -> MirroredStorage:
        storage = self._study._storage
        assert isinstance(storage, MirroredStorage), "a study from `load` cannot be swept"
        return storage

    def why_to_prune(self, number: int, pruner: BasePruner) -> str | None:
        """Ask the pruner about a running trial after its latest report.

        A trial at the last step of the longest completed trial is never pruned, because its
        training is complete. If a param such as the number of epochs decides how many steps a
        trial has, `PredictivePruner` learns this from completed trials. It then prunes no trial at
        that trial's own last step, unless the last value is NaN.

        Returns:
            Why the trial should be pruned, in words. None if it should continue.
        """
        with self._lock:
            latest = self._trial(number)
            if latest.state.is_finished() or not pruner.prune(self._study, latest):
                return None
            ends = [trial.last_step for trial in self._trials(OptunaState.COMPLETE)]
            known = [end for end in ends if end is not None]
            if known and latest.last_step == max(known):
                return None
            return why_pruned(pruner, self._study, latest)

    def note_report(self, number: int, step: int, value: float) -> None:
        """Store a value that a running trial has reported.

        Args:
            number: Trial number in the study.
            step: Step of the report.
            value: Value of the objective.
        """
        with self._lock:
            trial_id = self._trial(number)._trial_id
            self._study._storage.set_trial_intermediate_value(trial_id, step, value)

    def curves(self, *, frozen: Collection[int]) -> Curves:
        """Return the reported values of all trials as learning curves.

        Args:
            frozen: Numbers of the trials that are frozen (paused). Optuna stores them as running.
        """
        with self._lock:
            return curves_of(self._study, frozen=frozen)

    def why_pruned(self, number: int, pruner: BasePruner) -> str:
        """Return why a trial is pruned after its latest report, in words."""
        with self._lock:
            return why_pruned(pruner, self._study, self._trial(number))

    def note_state(self, number: int, state: TrialState) -> TrialRecord:
        """Store that a trial is frozen (paused) or runs again.

        Do nothing if the trial has ended meanwhile.

        Args:
            number: Trial number in the study.
            state: The new state.

        Returns:
            The record of the trial.
        """
        with self._lock:
            record = record_of(self._trial(number))
            assert record is not None
            if record.state.has_ended:
                return record
            record = replace(record, state=state)
            self._write(record)
            return record

    def tell(self, number: int, outcome: TrialOutcome) -> TrialRecord:
        """Store how a trial has ended.

        Optuna still stores a trial as running if it was stopped with its sweep.

        Args:
            number: Trial number in the study.
            outcome: Outcome of the trial's last attempt.

        Returns:
            The record of the trial after its end.
        """
        with self._lock:
            record = self.ended(number, outcome)
            self._write(record)
            if record.is_final:
                self._tell(record)
            return record

    def ended(self, number: int, outcome: TrialOutcome) -> TrialRecord:
        """Return the record that `tell` would store for a trial."""
        before = record_of(self._trial(number))
        assert before is not None
        return before.ended(outcome)

    def proposal(self, number: int) -> Proposal:
        """Return what Optuna has stored about a trial that begins.

        The trial's executed notebook keeps it, so that a lost database can be rebuilt.
        """
        mirror = self._mirror
        noted = mirror.get_study_system_attrs(mirror.study_id)
        return proposal_of(self._trial(number), noted)

    def queue_again(self, record: TrialRecord) -> None:
        """Let a trial run again in this sweep, with the same number, params and seed."""
        with self._proposing:
            self._queue.put_back(record)

    def _tell(self, record: TrialRecord) -> None:
        # At the end of their last trial, some samplers try to stop Optuna's `optimize`, which does
        # not run here. So a neutral sampler is set before Optuna is told the end.
        self._study.sampler = _neutral()
        tell_optuna(self._study, record, self.facts.objectives)

    def _write(self, record: TrialRecord) -> None:
        # Write directly to the storage, because creating an `optuna.Trial` would run the sampler
        # again.
        trial_id = self._trial(record.number)._trial_id
        self._study._storage.set_trial_user_attr(trial_id, RECORD, encode(record))

    # --- records and results ------------------------------------------------------------------

    def records(self) -> list[TrialRecord]:
        """Return the records of all trials that have ever begun, in the order of their numbers.

        Raises:
            StudyError: A record is stored in an unknown form.
        """
        if self._storage is not None:
            with _of_this_version(self.name):
                return stored_records(self._storage, self._study._study_id)
        return _records_of(self._trials())

    @property
    def confirmation(self) -> Confirmation | None:
        """Ranking by mean scores, for a study that runs the same params several times.

        Such a study belongs to `confirm` or `ablate`, or has `repeat`. None for other studies.
        """
        facts = self.facts
        if facts.confirms is not None:
            return Confirmation.of(self.name, facts.confirms, self.records())
        if facts.repeats is not None:
            return Repeats(facts.repeats, self.records()).confirmation(self.name)
        return None

    def best(self) -> list[TrialRecord]:
        """Return the best trial, or all Pareto-optimal trials if there are several objectives.

        If the means of several runs decide (in a study that runs trials again, or with `repeat`),
        return the first run of the winner. Empty if there is no winner, or if no trial has
        completed. During a sweep, the call reads memory only, so it never waits for an unavailable
        storage.
        """
        confirmation = self.confirmation
        if confirmation is not None and confirmation.decides:
            return confirmation.own_best
        try:
            is_single = len(self._study.directions) == 1
            best = [self._study.best_trial] if is_single else self._study.best_trials
        except ValueError:  # Optuna raises this if no trial has completed.
            return []
        return sorted(_records_of(best), key=lambda record: record.number)

    def importances(
        self, space: SearchSpace, before_step: Callable[[], None] = lambda: None
    ) -> Mapping[str, Mapping[str, Importance]]:
        """Return the importance of each param, by objective; see `param_importances`.

        Empty if this study confirms or ablates another one, because it has too few sets of params.
        """
        if self.facts.confirms is not None:
            return {}
        known = self.known_importances()
        if known is not None:
            return known
        models, facts = self._modelled(space), self.facts
        # The fold explains a part of the variance, but no sampler chooses it.
        by_fold = facts.repeats is not None and facts.repeats.by_fold
        return param_importances(
            self._study,
            facts.objectives,
            models,
            without={FOLD} if by_fold else (),
            before_step=before_step,
        )

    def known_importances(self) -> Mapping[str, Mapping[str, Importance]] | None:
        """Return the stored importances.

        None if none are stored, or if further trials have completed since they were computed.
        """
        facts = self.facts
        return facts.importances if facts.importances_of == self._n_completed() else None

    def noise(self) -> Mapping[str, float]:
        """Return the noise of each score: its standard deviation between runs of the same params.

        A score is missing if its noise was neither stored nor measured by `importances`.
        """
        if self.known_importances() is not None:
            return self.facts.noise
        models = self._models()
        return {} if models is None else models.noise

    def note_importances(
        self, found: Mapping[str, Mapping[str, Importance]], noise: Mapping[str, float]
    ) -> None:
        """Store importances and the noise that were computed from the completed trials."""
        self.note_facts(importances=found, noise=noise, importances_of=self._n_completed())

    def _n_completed(self) -> int:
        return len(self._trials(OptunaState.COMPLETE))

    def _models(self) -> ScoreModels | None:
        """Return the models of the scores. None if they were not fitted to all completed trials."""
        n_known, models = self._fitted
        return models if n_known == self._n_completed() else None

    def _modelled(self, space: SearchSpace) -> ScoreModels | None:
        """Return the models of the scores, new ones if further trials have completed.

        None without torch.
        """
        models = self._models()
        if models is None and can_predict():
            models = ScoreModels(self._study, space, self.facts.objectives)
            self._fitted = self._n_completed(), models
        return models

    def surfaces(
        self,
        space: SearchSpace,
        importances: Mapping[str, Mapping[str, Importance]],
        before_step: Callable[[], None] = lambda: None,
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return predicted scores over pairs of the most important params; see `surfaces_of`.

        Empty without torch, or without importances.
        """
        models = self._modelled(space) if importances else None
        if models is None:
            return {}
        important = {name: list(found) for name, found in importances.items()}
        return surfaces_of(models, important, before_step=before_step)

    def figure(self, kind: str, space: SearchSpace) -> Any:
        """Return a matplotlib figure for a paper; see `figure_of`.

        Args:
            kind: Name of the figure, one of `FIGURES`.
            space: Search space. Only the figure `importances` needs it.
        """
        importances = self.importances(space) if kind == "importances" else {}
        names = self.facts.objectives
        return figure_of(self._study, names, kind=kind, importances=importances)

    def left_by_a_crash(self) -> list[TrialRecord]:
        """Return the records of trials that were running or just ended when their sweep was killed.

        The record has no outcome, or Optuna does not have the outcome that the record states. A
        trial that was stopped with its sweep is left out: Optuna stores it as running, so that it
        runs again.
        """
        assert self._storage is not None, "only for a study that no sweep has open"
        with _of_this_version(self.name):
            running = stored_records(self._storage, self._study._study_id, OptunaState.RUNNING)
        return [record for record in running if record.is_final or not record.state.has_ended]

    def mark_interrupted(self) -> list[TrialRecord]:
        """Store the ends of the trials that a killed sweep left as running.

        If a trial's record or notebook states a final end, store this end in Optuna as well. Mark
        all other trials as stopped in their records only, so that the next sweep runs them again.
        Call this only while no sweep runs.

        Returns:
            The corrected records.
        """
        with self._lock:
            corrected = [
                interrupted(left_open(record, self.facts)) for record in self.left_by_a_crash()
            ]
            for record in corrected:
                self._write(record)
                if record.is_final:
                    self._tell(record)
            return corrected

    def _trials(self, *states: OptunaState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states or None)

    def _trial(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]


def _records_of(trials: Iterable[FrozenTrial]) -> list[TrialRecord]:
    records = [record_of(trial) for trial in trials]
    return [record for record in records if record is not None]


def _is_dropped(trial: FrozenTrial) -> bool:
    """Return whether a queued trial was dropped before it began."""
    return trial.state.is_finished() and not has_begun(trial)


def _in_space(params: Params, space: SearchSpace) -> dict[str, Any]:
    """Return params without those that are not in the space, for comparisons.

    A choice that is missing is added if another param exists only with it (`when`).
    """
    return space.completed({name: value for name, value in params.items() if name in space})


def _queued_params(trial: FrozenTrial) -> dict[str, Any]:
    """Return the params with which a trial was queued. Empty if it was not queued."""
    queued = trial.system_attrs.get(QUEUED, {})
    return {name: from_scalar(value) for name, value in queued.items()}


def _allows(space: SearchSpace, params: Params) -> bool:
    """Return whether a space allows the values of those params that are in the space."""
    return all(space[name].allows(value) for name, value in params.items() if name in space)


def _is_queued_first(trial: FrozenTrial) -> bool:
    """Return whether a trial was queued by `queue_first` and still waits to begin."""
    return trial.state is OptunaState.WAITING and FIRST in trial.user_attrs


@contextmanager
def _of_this_version(name: str) -> Iterator[None]:
    """Raise a StudyError if the block, which decodes a study's data, raises a ValueError.

    Then the data has a form that this version of notebook-hpo does not know.

    Args:
        name: Name of the study.
    """
    try:
        yield
    except ValueError as error:
        why = shortened(" ".join(str(error).split()), 300)
        raise StudyError(
            f"the study {name!r} is stored in a form that this version of notebook-hpo does not "
            f"know; use the version that began it ({why})"
        ) from error


def _loaded(storage: BaseStorage, name: str | None = None) -> optuna.Study:
    """Load a study from Optuna. If no name is given, load the only study in the storage."""
    return optuna.load_study(study_name=name, storage=storage, sampler=_neutral())


def _neutral() -> optuna.samplers.BaseSampler:
    return optuna.samplers.RandomSampler(seed=0)
