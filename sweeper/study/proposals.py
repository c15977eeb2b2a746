"""Choose the next trial: an unfinished one, a queued one, or one with params from the sampler."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ..search.repeats import REPEAT, RepeatedTrials, seeds_of
from ..search.samplers import (
    SamplerFactory,
    StorageView,
    as_queued,
    distributions,
    in_order,
    suggest,
)
from ..search.seeds import trial_seed
from ..search.trial_codec import RECORD, has_begun
from ..settings import Settings
from ..settings.space import SearchSpace, from_scalar
from ..trials import FOLD, Params, TrialRecord, TrialState
from .facts import StudyFacts
from .storage import MirroredStorage

#: Name of Optuna's trial attribute that marks a trial as queued by hand. Such a trial does not
#: count towards `study.trials`.
BY_HAND = "sweeper.by_hand"
#: Name of Optuna's trial attribute that marks a trial as queued by `start` or `learn_from`.
FIRST = "sweeper.first"
#: Name of Optuna's trial attribute with the number of the trial that this trial retries, as in
#: `TrialRecord.retry_of`.
RETRY = "sweeper.retry"
#: Name of Optuna's trial attribute with the seed with which the trial was queued.
SEED = "sweeper.seed"
#: Name of Optuna's own trial attribute with the params of a queued trial.
QUEUED = "fixed_params"
#: A queued trial with one of these attributes runs an earlier trial again.
_AGAIN = {SEED, RETRY, REPEAT}

#: Number and params of a trial.
_Proposal = tuple[int, Params]


class TrialQueue:
    """Chooses the next trial: first unfinished trials, then queued ones, then new proposals.

    Not safe to use from several threads at once.

    Args:
        storage: Storage of the study.

    Attributes:
        lag: Number of trials that run at once, with `study.order: fixed`. A proposal then waits
            until all earlier trials except the last `lag - 1` have ended, and the sampler sees only
            the ends of those trials. None with a free order: a proposal waits for no trial, and the
            sampler sees all ends so far.
    """

    def __init__(self, storage: MirroredStorage) -> None:
        self.lag: int | None = None
        self._storage = storage
        self._unfinished: list[TrialRecord] = []
        self._prepared: _Proposal | None = None

    def put_back(self, record: TrialRecord) -> None:
        """Let a trial run again with the same number and params, before any new trial."""
        bisect.insort(self._unfinished, record, key=lambda record: record.number)

    def take_back(self, number: int) -> None:
        """Undo `put_back` for a trial, so that it does not run again."""
        self._unfinished = [record for record in self._unfinished if record.number != number]

    def use(self, storage: MirroredStorage) -> None:
        """Continue with a storage that has been read again. Drop the proposal that is prepared."""
        self._storage = storage
        self._prepared = None

    @property
    def has_trial_by_hand(self) -> bool:
        """Whether a trial that was queued by hand is waiting."""
        return any(map(is_by_hand, self._storage.trials(OptunaState.WAITING)))

    def is_too_early(self, samplers: SamplerFactory) -> bool:
        """Return whether the next trial must wait for the end of a running one."""
        if self.lag is None:
            return self._waits_for_repeats(samplers)
        if self._is_over(samplers):
            return False
        if self._unfinished:
            # An unfinished trial with params needs no proposal, so it waits for no other trial.
            if self._unfinished[0].params:
                return False
            number = self._unfinished[0].number
        elif self._prepared is not None:
            return False
        else:
            queued = self._queued(samplers)
            number = queued[0].number if queued else len(self._storage.trials())
        last_needed = number - self.lag
        return any(trial.number <= last_needed for trial in self._running())

    def _running(self) -> list[FrozenTrial]:
        """Return the trials that run in this sweep.

        A running trial without a record is left out. Another tool began it, and nobody knows
        whether it will end.
        """
        running = self._storage.trials(OptunaState.RUNNING)
        return [trial for trial in running if RECORD in trial.user_attrs]

    def next(
        self, samplers: SamplerFactory, notebook_of: Callable[[int], Path]
    ) -> TrialRecord | None:
        """Return the record of the trial that begins now.

        Return None if the study has all its trials.

        Args:
            samplers: Makes the sampler for a new proposal.
            notebook_of: Returns the path of the executed notebook from a trial number.
        """
        if self._is_over(samplers):
            return None
        earlier = self._unfinished.pop(0) if self._unfinished else None
        if earlier is not None and earlier.params:
            number, params = earlier.number, earlier.params
        elif earlier is not None:
            killed = self._storage.trials()[earlier.number]
            number, params = self._propose(samplers, killed._trial_id)
        elif self._prepared is not None and not self.has_trial_by_hand:
            number, params = self._prepared
            self._prepared = None
        else:
            number, params = self._propose(samplers, self._next_id(samplers))
        trial = self._storage.trials()[number]
        return _begun(trial, params, samplers.settings, notebook_of(number), earlier)

    def prepare(self, samplers: SamplerFactory) -> None:
        """Make the next proposal ahead of time, if the next call of `next` will need a new one."""
        if self._prepared is not None or self._unfinished or self.has_trial_by_hand:
            return
        if self._is_over(samplers) or self.is_too_early(samplers):
            return
        self._prepared = self._propose(samplers, self._next_id(samplers))

    def _is_over(self, samplers: SamplerFactory) -> bool:
        if self._unfinished or self.has_trial_by_hand or not self._is_complete(samplers):
            return False
        repeated = self._repeated(samplers)
        return repeated is None or repeated.due is None

    def _is_complete(self, samplers: SamplerFactory) -> bool:
        """Return whether the study needs no new proposal.

        This is so if it has all its trials, or has tried all combinations of params. With `repeat`,
        it is also so if too few trials are left for all runs of another proposal.
        """
        trials = self._storage.trials()
        n_planned = sum(map(is_planned, trials))
        wanted = samplers.settings.study.trials
        if n_planned >= wanted:
            return True
        repeated = self._repeated(samplers)
        if repeated is not None:
            if repeated.due is not None:
                return False
            n_runs = len(repeated.plan.values)
            if n_planned + repeated.n_owed + n_runs > wanted:
                return True
        return samplers.has_tried_all(trials)

    def _repeated(self, samplers: SamplerFactory) -> RepeatedTrials | None:
        """Return the proposals and their repeats. None if each proposal runs once."""
        if samplers.settings.repeat is None:
            return None
        return RepeatedTrials(samplers.settings, self._storage.trials())

    def _waits_for_repeats(self, samplers: SamplerFactory) -> bool:
        """Return whether the next trial can only repeat a proposal of which a trial is running."""
        repeated = self._repeated(samplers)
        if repeated is None or self._prepared is not None or not self._is_over(samplers):
            return False
        return repeated.is_running and not repeated.is_full

    def _queued(self, samplers: SamplerFactory) -> list[FrozenTrial]:
        """Return the queued trials, the next one first.

        Trials that were queued by hand come before trials from the parameters file. With a fixed
        order, this holds only once the study needs no new proposal. Until then, the lowest number
        comes first, because a trial waits for trials with lower numbers.
        """
        queued = self._storage.trials(OptunaState.WAITING)
        if self.lag is not None and not self._is_complete(samplers):
            return queued
        return sorted(queued, key=is_by_hand, reverse=True)

    def _propose(self, samplers: SamplerFactory, trial_id: int) -> _Proposal:
        """Choose the params of a trial that has none yet. Return its number and the params.

        Args:
            samplers: Makes the sampler.
            trial_id: Optuna's id of the trial in memory.
        """
        storage, settings = self._storage, samplers.settings
        trial = storage.get_trial(trial_id)
        if runs_again(trial):
            return trial.number, _same_params(storage, trial, settings.search_space)
        seen: Any = storage
        if self.lag is not None:
            seen = StorageView(storage, partial(in_order, number=trial.number, lag=self.lag))
        facts = StudyFacts.of(storage.get_study_user_attrs(storage.study_id))
        seen = samplers.seen(seen, facts.learned or ())
        index = trial.number
        if settings.repeat is not None:
            shown = seen.get_all_trials(storage.study_id, deepcopy=False)
            # Trials of earlier studies have the number -1, and are not counted.
            index = sum(0 <= other.number < trial.number for other in shown)
        study = optuna.load_study(
            study_name=storage.get_study_name_from_id(storage.study_id),
            storage=seen,
            sampler=samplers.make(trial.number, index),
        )
        return trial.number, suggest(optuna.Trial(study, trial_id), settings.search_space)

    def _next_id(self, samplers: SamplerFactory) -> int:
        """Begin a repeat of a proposal, a queued trial, or a new trial. Return its id in memory."""
        storage, settings = self._storage, samplers.settings
        repeated = self._repeated(samplers)
        due = None if repeated is None or self.has_trial_by_hand else repeated.due
        if repeated is not None and due is not None:
            return _create_run(storage, repeated, *due)
        queued = self._queued(samplers)
        if not queued:
            trial_id = storage.create_new_trial(storage.study_id)
            _fix_fold(storage, trial_id, settings)
            return trial_id
        first = queued[0]
        if not runs_again(first):
            _fix_fold(storage, first._trial_id, settings)
        storage.set_trial_state_values(first._trial_id, OptunaState.RUNNING)
        return first._trial_id


def _create_run(storage: MirroredStorage, repeated: RepeatedTrials, first: int, place: int) -> int:
    """Create a trial in memory that runs a proposal on another seed or fold. Return its id there.

    Args:
        storage: Storage of the study.
        repeated: The study's proposals and their runs.
        first: Number of the proposal's first trial.
        place: Seed or fold of the repeat.
    """
    trial_id = storage.create_new_trial(storage.study_id)
    fold = {FOLD: place} if repeated.by_fold else {}
    queued = as_queued({**repeated.proposals[first].params, **fold})
    storage.set_trial_system_attr(trial_id, QUEUED, queued)
    storage.set_trial_user_attr(trial_id, REPEAT, first)
    storage.set_trial_user_attr(trial_id, BY_HAND, is_by_hand(storage.trials()[first]))
    if not repeated.by_fold:
        storage.set_trial_user_attr(trial_id, SEED, place)
    return trial_id


def _fix_fold(storage: MirroredStorage, trial_id: int, settings: Settings) -> None:
    """Fix the fold of a proposal's first trial to 0, if each proposal runs on several folds.

    A trial that was queued with a fold keeps this fold.
    """
    queued = storage.get_trial(trial_id).system_attrs.get(QUEUED, {})
    if settings.repeat is not None and settings.repeat.by_fold and FOLD not in queued:
        storage.set_trial_system_attr(trial_id, QUEUED, {FOLD: 0, **queued})


def runs_again(trial: FrozenTrial) -> bool:
    """Return whether a queued trial runs an earlier trial again, with the same params."""
    return bool(trial.user_attrs.keys() & _AGAIN)


def _same_params(
    storage: MirroredStorage, trial: FrozenTrial, space: SearchSpace
) -> dict[str, Any]:
    """Set exactly the params with which a trial was queued, and return them.

    The space may have changed since the earlier trial. With a param more or less, the new trial
    would differ from the earlier one, and a retry would resume checkpoints of other params.
    """
    earlier = trial.user_attrs.get(RETRY, trial.user_attrs.get(REPEAT))
    known = distributions(space)
    if earlier is not None:
        known |= storage.trials()[earlier].distributions
    queued = trial.system_attrs[QUEUED]
    for name, value in queued.items():
        # A sweep that was killed may have set some params of the trial already.
        if name in known and name not in trial.params:
            inner = known[name].to_internal_repr(value)
            storage.set_trial_param(trial._trial_id, name, inner, known[name])
    return {name: from_scalar(value) for name, value in queued.items()}


def _begun(
    trial: FrozenTrial,
    params: Params,
    settings: Settings,
    notebook: Path,
    earlier: TrialRecord | None,
) -> TrialRecord:
    """Return the record of a trial that begins now with these params.

    Args:
        trial: The trial in Optuna's form.
        params: Its params.
        settings: Settings of the sweep.
        notebook: Path of its executed notebook.
        earlier: Record of the attempt that this one repeats. None for the first attempt.
    """
    if earlier is not None and earlier.params:
        seed = earlier.seed
    else:
        seed = _first_seed(trial, params, settings)
    return TrialRecord(
        number=trial.number,
        state=TrialState.RUNNING,
        params=params,
        seed=seed,
        retry_of=trial.user_attrs.get(RETRY),
        repeat_of=trial.user_attrs.get(REPEAT),
        by_hand=is_by_hand(trial),
        attempt=1 if earlier is None else earlier.attempt + 1,
        notebook=notebook,
        started_at_s=time.time(),
    )


def _first_seed(trial: FrozenTrial, params: Params, settings: Settings) -> int:
    """Return the seed of a trial's first attempt."""
    queued: int | None = trial.user_attrs.get(SEED)
    if queued is not None:
        return queued
    # If a swept or fixed param has the name `seed`, its value is the trial's seed.
    stated = {**settings.fixed, **params}.get("seed")
    if isinstance(stated, int):
        return stated
    if settings.repeat is None:
        return trial_seed(settings.study.seed, trial.number)
    # All proposals begin with the same seed.
    fold = int(str(params[FOLD])) if settings.repeat.by_fold else 0
    return seeds_of(settings)[fold]


def is_by_hand(trial: FrozenTrial) -> bool:
    """Return whether a trial was queued by hand, in addition to `study.trials`."""
    return bool(trial.user_attrs.get(BY_HAND))


def is_planned(trial: FrozenTrial) -> bool:
    """Return whether a trial has begun and counts towards `study.trials`."""
    return has_begun(trial) and not is_by_hand(trial)
