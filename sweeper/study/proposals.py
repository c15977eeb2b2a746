"""Choose the next trial and its params: an unfinished trial, a queued one, or a proposal."""

from __future__ import annotations

import bisect
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ..search.repeats import REPEAT, RepeatedTrials, seeds_of
from ..search.samplers import InOrder, SamplerFactory, as_queued, distributions, noted_by, suggest
from ..search.seeds import trial_seed
from ..search.trial_codec import RECORD, has_begun
from ..settings import Settings
from ..settings.messages import as_yaml
from ..settings.space import SearchSpace, from_scalar
from ..trials import FOLD, Params, TrialRecord, TrialState, run_id_of
from .facts import StudyFacts
from .storage import MirroredStorage

#: Name of Optuna's trial attribute that marks a trial as queued by hand. Such a trial does not
#: count towards `study.trials`.
BY_HAND = "sweeper.by_hand"
#: Name of Optuna's trial attribute with the number of the first trial that this trial retries.
RETRY = "sweeper.retry"
#: Name of Optuna's trial attribute with the seed with which the trial was queued.
SEED = "sweeper.seed"
#: Name of Optuna's own trial attribute with the params of a queued trial.
QUEUED = "fixed_params"
#: A queued trial with one of these attributes runs an earlier trial again.
_AGAIN = {SEED, RETRY, REPEAT}

_log = logging.getLogger(__name__)


#: Number and params of a trial.
_Proposal = tuple[int, Params]


class TrialQueue:
    """Chooses the next trial: first unfinished trials, then queued ones, then new proposals.

    Not safe to use from several threads at once. Each call gets the study's storage as an argument,
    because the study may be read again.

    Attributes:
        lag: Number of trials at once, with `study.order: fixed`. A proposal then waits until all
            earlier trials except the last `lag - 1` have ended, and the sampler sees only the ends
            of those trials. None with a free order: a proposal waits for no trial, and the sampler
            sees all ends so far.
    """

    def __init__(self) -> None:
        self.lag: int | None = None
        self._unfinished: list[TrialRecord] = []
        self._prepared: _Proposal | None = None

    def put_back(self, record: TrialRecord) -> None:
        """Let a trial run again with the same number and params, before any new trial."""
        bisect.insort(self._unfinished, record, key=lambda record: record.number)

    def take_back(self, number: int) -> None:
        """Undo `put_back` for a trial, so that it does not run again."""
        self._unfinished = [record for record in self._unfinished if record.number != number]

    def forget(self) -> None:
        """Drop the proposal that was prepared, because the storage is read again."""
        self._prepared = None

    def is_too_early(self, storage: MirroredStorage, samplers: SamplerFactory) -> bool:
        """Return whether the next trial must wait for the end of a running one."""
        if self.lag is None and samplers.settings.repeat is not None:
            return self._waits_for_repeats(storage, samplers)
        if self.lag is None or self._is_over(storage, samplers):
            return False
        if self._unfinished:
            # An unfinished trial with params needs no proposal, so it waits for no other trial.
            if self._unfinished[0].params:
                return False
            number = self._unfinished[0].number
        elif self._prepared is not None:
            return False
        else:
            queued = self._queued(storage, samplers)
            number = queued[0].number if queued else storage.get_n_trials(storage.study_id)
        return any(trial.number <= number - self.lag for trial in _running(storage))

    def next(
        self,
        storage: MirroredStorage,
        samplers: SamplerFactory,
        notebook_of: Callable[[int], Path],
    ) -> TrialRecord | None:
        """Return the record of the trial that begins now.

        Return None if the study has all its trials.

        Args:
            storage: Storage of the study.
            samplers: Makes the sampler for a new proposal.
            notebook_of: Returns the path of the executed notebook from a trial number.
        """
        if self._is_over(storage, samplers):
            return None
        attempt, seed = 1, None
        if self._unfinished:
            earlier = self._unfinished.pop(0)
            attempt, number, params = earlier.attempt + 1, earlier.number, earlier.params
            if params:
                seed = earlier.seed
            else:
                number, params = self._propose(storage, samplers, again=number)
        elif self._prepared is not None and not has_trial_by_hand(storage):
            (number, params), self._prepared = self._prepared, None
        else:
            number, params = self._propose(storage, samplers)
        trial, settings = storage.trials()[number], samplers.settings
        return _begun(trial, params, settings, notebook_of(number), attempt=attempt, seed=seed)

    def prepare(self, storage: MirroredStorage, samplers: SamplerFactory) -> None:
        """Make the next proposal ahead of time, if the next call of `next` will need a new one."""
        is_ready = self._prepared is not None or self._unfinished or has_trial_by_hand(storage)
        if is_ready or self._is_over(storage, samplers):
            return
        if not self.is_too_early(storage, samplers):
            self._prepared = self._propose(storage, samplers)

    def _is_over(self, storage: MirroredStorage, samplers: SamplerFactory) -> bool:
        if self._unfinished or has_trial_by_hand(storage):
            return False
        if not self._is_complete(storage, samplers):
            return False
        settings = samplers.settings
        return settings.repeat is None or RepeatedTrials(settings, storage.trials()).due is None

    def _is_complete(self, storage: MirroredStorage, samplers: SamplerFactory) -> bool:
        trials = storage.trials()
        n_planned = sum(map(is_planned, trials))
        wanted, repeat = samplers.settings.study.trials, samplers.settings.repeat
        if n_planned >= wanted or repeat is None:
            return n_planned >= wanted or samplers.has_tried_all(trials)
        repeated = RepeatedTrials(samplers.settings, trials)
        has_room = n_planned + repeated.n_owed + repeat.runs <= wanted
        return repeated.due is None and (not has_room or samplers.has_tried_all(trials))

    def _waits_for_repeats(self, storage: MirroredStorage, samplers: SamplerFactory) -> bool:
        """Return whether the next trial can only be a repeat of a proposal that still runs."""
        if self._prepared is not None or not self._is_over(storage, samplers):
            return False
        trials = storage.trials()
        is_full = sum(map(is_planned, trials)) >= samplers.settings.study.trials
        return not is_full and RepeatedTrials(samplers.settings, trials).is_running

    def _queued(self, storage: MirroredStorage, samplers: SamplerFactory) -> list[FrozenTrial]:
        """Return the queued trials, the next one first.

        Trials that were queued by hand come before trials from the parameters file. With a fixed
        order, the trial number decides. Otherwise, a trial could wait for another trial that is
        behind it in the queue.
        """
        queued = storage.trials(OptunaState.WAITING)
        if self.lag is not None and not self._is_complete(storage, samplers):
            return sorted(queued, key=lambda trial: trial.number)
        return sorted(queued, key=lambda trial: (not _is_by_hand(trial), trial.number))

    def _propose(
        self,
        storage: MirroredStorage,
        samplers: SamplerFactory,
        *,
        again: int | None = None,
    ) -> _Proposal:
        """Choose the number and the params of a trial.

        Args:
            storage: Storage of the study.
            samplers: Makes the sampler.
            again: Number of a trial that was killed before it had params. None for a new trial.
        """
        if again is None:
            trial_id = self._next_id(storage, samplers)
        else:
            trial_id = storage.get_trial_id_from_study_id_trial_number(storage.study_id, again)
        number = storage.get_trial(trial_id).number
        if _runs_again(storage.get_trial(trial_id)):
            return number, _same_params(storage, trial_id, samplers.settings.search_space)
        seen: Any = storage
        if self.lag is not None:
            seen = InOrder(storage, number=number, lag=self.lag)
        else:
            # If the study began with a fixed order, samplers stored their data about the study with
            # its trials. Copy the data to the study, where samplers read it with a free order.
            known = storage.get_study_system_attrs(storage.study_id)
            for key, value in noted_by(storage.trials()).items():
                if key not in known:
                    storage.set_study_system_attr(storage.study_id, key, value)
        facts = StudyFacts.of(storage.get_study_user_attrs(storage.study_id))
        seen, index = samplers.seen(seen, facts.learned or ()), number
        if samplers.settings.repeat is not None:
            shown = seen.get_all_trials(storage.study_id, deepcopy=False)
            # Trials of earlier studies have the number -1, and are not counted.
            index = sum(0 <= other.number < number for other in shown)
        study = optuna.load_study(
            study_name=storage.get_study_name_from_id(storage.study_id),
            storage=seen,
            sampler=samplers.make(number, index),
        )
        return number, suggest(optuna.Trial(study, trial_id), samplers.settings.search_space)

    def _next_id(self, storage: MirroredStorage, samplers: SamplerFactory) -> int:
        """Begin a repeat that is due, a queued trial, or a new trial. Return its id in memory."""
        settings, queued = samplers.settings, self._queued(storage, samplers)
        if settings.repeat is not None and not any(map(_is_by_hand, queued)):
            repeated = RepeatedTrials(settings, storage.trials())
            if (due := repeated.due) is not None:
                return _create_run(storage, repeated, *due)
        if not queued:
            trial_id = storage.create_new_trial(storage.study_id)
            _fix_fold(storage, trial_id, settings)
            return trial_id
        first = queued[0]
        if not _runs_again(first):
            _drop_lost_values(storage, first, settings.search_space)
            _fix_fold(storage, first._trial_id, settings)
        storage.set_trial_state_values(first._trial_id, OptunaState.RUNNING)
        return first._trial_id


def _create_run(storage: MirroredStorage, repeated: RepeatedTrials, first: int, place: int) -> int:
    """Create a repeat of a proposal in memory. Return its id there.

    Args:
        storage: Storage of the study.
        repeated: The proposals and their runs.
        first: Number of the proposal's first trial.
        place: Seed or fold of the repeat.
    """
    trial_id = storage.create_new_trial(storage.study_id)
    fold = {FOLD: place} if repeated.by_fold else {}
    queued = as_queued({**repeated.proposals[first].params, **fold})
    storage.set_trial_system_attr(trial_id, QUEUED, queued)
    attrs: dict[str, Any] = {REPEAT: first, BY_HAND: _is_by_hand(storage.trials()[first])}
    if not repeated.by_fold:
        attrs[SEED] = place
    for name, value in attrs.items():
        storage.set_trial_user_attr(trial_id, name, value)
    return trial_id


def _fix_fold(storage: MirroredStorage, trial_id: int, settings: Settings) -> None:
    """Queue a proposal for fold 0, if proposals repeat on folds and its params have no fold."""
    queued = storage.get_trial(trial_id).system_attrs.get(QUEUED, {})
    if settings.repeat is not None and settings.repeat.by_fold and FOLD not in queued:
        storage.set_trial_system_attr(trial_id, QUEUED, {FOLD: 0, **queued})


def _drop_lost_values(storage: MirroredStorage, trial: FrozenTrial, space: SearchSpace) -> None:
    """Drop the values of a queued trial that the search space no longer allows. Log a warning."""
    queued = trial.system_attrs.get(QUEUED, {})
    values = {name: from_scalar(value) for name, value in queued.items() if name in space}
    lost = {name: value for name, value in values.items() if not space[name].allows(value)}
    if lost:
        kept = {name: value for name, value in queued.items() if name not in lost}
        storage.set_trial_system_attr(trial._trial_id, QUEUED, kept)
        _log.warning(
            "trial %s was queued with %s, which is outside the search space now: the sampler "
            "chooses other values",
            run_id_of(trial.number),
            as_yaml(lost),
        )


def _runs_again(trial: FrozenTrial) -> bool:
    """Return whether a queued trial runs an earlier trial again, with the same params."""
    return bool(trial.user_attrs.keys() & _AGAIN)


def _same_params(storage: MirroredStorage, trial_id: int, space: SearchSpace) -> dict[str, Any]:
    """Set exactly the params with which a trial was queued, and return them.

    The space may have changed since the earlier trial. With a param more or less, the new trial
    would differ from the earlier one, and a retry would resume checkpoints of other params.
    """
    trial = storage.get_trial(trial_id)
    earlier = trial.user_attrs.get(RETRY, trial.user_attrs.get(REPEAT))
    known = distributions(space)
    if earlier is not None:
        known |= storage.trials()[earlier].distributions
    queued = trial.system_attrs[QUEUED]
    for name, value in queued.items():
        # A sweep that was killed may have set some params of the trial already.
        if name in known and name not in trial.params:
            inner = known[name].to_internal_repr(value)
            storage.set_trial_param(trial_id, name, inner, known[name])
    return {name: from_scalar(value) for name, value in queued.items()}


def _begun(
    trial: FrozenTrial,
    params: Params,
    settings: Settings,
    notebook: Path,
    *,
    attempt: int,
    seed: int | None,
) -> TrialRecord:
    """Return the record of a trial that begins now with these params.

    Args:
        trial: The trial in Optuna's form.
        params: Its params.
        settings: Settings of the sweep.
        notebook: Path of its executed notebook.
        attempt: Number of the attempt, from 1.
        seed: Seed of the earlier attempt, which this one continues. None if it is the first one.
    """
    seed = trial.user_attrs.get(SEED) if seed is None else seed
    # If a swept or fixed param has the name `seed`, its value is the trial's seed.
    stated = {**settings.fixed, **params}.get("seed")
    if seed is None and isinstance(stated, int):
        seed = stated
    elif seed is None and settings.repeat is not None:  # All proposals begin with the same seed.
        seed = seeds_of(settings)[int(str(params[FOLD])) if settings.repeat.by_fold else 0]
    elif seed is None:
        seed = trial_seed(settings.study.seed, trial.number)
    return TrialRecord(
        number=trial.number,
        state=TrialState.RUNNING,
        params=params,
        seed=seed,
        retry_of=trial.user_attrs.get(RETRY),
        repeat_of=trial.user_attrs.get(REPEAT),
        by_hand=_is_by_hand(trial),
        attempt=attempt,
        notebook=notebook,
        started_at_s=time.time(),
    )


def _is_by_hand(trial: FrozenTrial) -> bool:
    return bool(trial.user_attrs.get(BY_HAND))


def has_trial_by_hand(storage: MirroredStorage) -> bool:
    """Return whether a trial that was queued by hand is waiting."""
    return any(map(_is_by_hand, storage.trials(OptunaState.WAITING)))


def _running(storage: MirroredStorage) -> list[FrozenTrial]:
    """Return the trials that run in this sweep.

    A running trial without a record is left out. Another tool began it, and nobody knows whether it
    will end.
    """
    return [trial for trial in storage.trials(OptunaState.RUNNING) if RECORD in trial.user_attrs]


def is_planned(trial: FrozenTrial) -> bool:
    """Return whether a trial has begun and counts towards `study.trials`."""
    return has_begun(trial) and not _is_by_hand(trial)
