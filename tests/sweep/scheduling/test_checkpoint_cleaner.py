"""The checkpoint cleaner removes checkpoints of ended trials that no run needs any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from studies import small_settings, trial_record

from sweeper.errors import StorageAwayError
from sweeper.search.repeats import seeds_of
from sweeper.sweep.scheduling.checkpoint_cleaner import CheckpointCleaner
from sweeper.trials import Confirmation, RerunPlan, TrialRecord, TrialState, run_id_of

STATES = [
    TrialState.COMPLETED,
    TrialState.COMPLETED,
    TrialState.PRUNED,
    TrialState.FAILED,
    TrialState.STOPPED,
    TrialState.RUNNING,
]
RECORDS = [trial_record(number, state=state) for number, state in enumerate(STATES)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(len(STATES)):
        (tmp_path / run_id_of(number)).mkdir()
        (tmp_path / run_id_of(number) / "000001.ckpt").write_bytes(b"x" * 1000)
    (tmp_path / "notes").mkdir()
    return tmp_path


def cleaner_of(
    folder: Path,
    best: Callable[[], Any],
    policy: Any,
    *,
    confirms: Any = None,
    follow: Callable[[str], Any] = lambda _: None,
    **more: Any,
) -> CheckpointCleaner:
    """Return the cleaner of a study whose best trials are those that `best` returns.

    Args:
        confirms: Plan of a study that runs the best trials of another one on fresh seeds.
        follow: Function that returns the study in which the best trials of this one were confirmed.
    """
    facts = SimpleNamespace(confirms=confirms)
    located: Any = SimpleNamespace(
        study=SimpleNamespace(name="own", best=best, facts=facts),
        paths=SimpleNamespace(all_checkpoints=folder),
        readable_following=follow,
    )
    return CheckpointCleaner(located, small_settings("own", checkpoints=policy, **more))


def kept_after(folder: Path, cleaner: CheckpointCleaner, ends: Sequence[TrialRecord]) -> list[int]:
    """Let trials end one after the other. Return the numbers of those that keep checkpoints."""
    records: dict[int, TrialRecord] = {}
    for record in ends:
        (folder / record.run_id).mkdir(exist_ok=True)
        records[record.number] = record
        cleaner.clean(records)
    return [number for number in names_in(folder) if number in records]


def left(folder: Path, *more: TrialRecord, **policy: Any) -> list[int]:
    records = {record.number: record for record in [*RECORDS, *more]}
    cleaner_of(folder, lambda: [RECORDS[1]], policy).clean(records)
    return names_in(folder)


def names_in(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({}, [0, 1, 3, 4, 5]),
        ({"pruned": "keep"}, [0, 1, 2, 3, 4, 5]),
        ({"completed": "best"}, [1, 3, 4, 5]),
        ({"completed": "remove"}, [3, 4, 5]),
    ],
)
def test_checkpoints_of_trials_that_may_run_again_are_kept_and_settings_decide_on_the_others(
    folder: Path, policy: dict[str, Any], kept: list[int]
) -> None:
    assert left(folder, **policy) == kept
    assert (folder / "notes").is_dir()


def test_a_trial_that_ends_while_the_cleaner_looks_for_the_best_keeps_its_checkpoints(
    folder: Path,
) -> None:
    records = {0: RECORDS[0], 1: trial_record(1, state=TrialState.RUNNING)}

    def ends_meanwhile() -> list[TrialRecord]:
        records[1] = RECORDS[1]
        return [RECORDS[0]]

    cleaner_of(folder, ends_meanwhile, {"completed": "best"}).clean(records)
    assert names_in(folder) == [0, 1, 2, 3, 4, 5]


def test_checkpoints_of_trials_that_will_be_confirmed_are_kept(folder: Path) -> None:
    scores = {0: 0.5, 1: 0.9, 2: 0.7}
    records = {n: trial_record(n, params={"x": v}, scores={"val": v}) for n, v in scores.items()}
    confirm = {"best": 2, "seeds": 2}
    cleaner_of(folder, list, {"completed": "best"}, confirm=confirm).clean(records)
    assert names_in(folder) == [1, 2, 3, 4, 5]


def test_checkpoints_of_the_best_trial_outside_of_the_narrowed_space_are_not_kept_for_confirmation(
    folder: Path,
) -> None:
    params = {0: 0.5, 1: 3.0, 2: 0.7}
    scores = {0: 0.5, 1: 0.9, 2: 0.7}
    records = {
        n: trial_record(n, params={"x": params[n]}, scores={"val": scores[n]}) for n in params
    }
    confirm = {"best": 1, "seeds": 2}
    cleaner_of(folder, list, {"completed": "best"}, confirm=confirm).clean(records)
    assert names_in(folder) == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("confirm", "kept"), [({}, [2, 3]), ({"confirm": {"best": 2, "seeds": 2}}, [0, 1, 2, 3])]
)
def test_checkpoints_of_all_repeats_are_kept_while_their_mean_may_be_among_the_best(
    folder: Path, confirm: Any, kept: list[int]
) -> None:
    repeats = {"repeat": {"seeds": 2}, "study": {"trials": 8}, **confirm}
    cleaner = cleaner_of(folder, list, {"completed": "best"}, **repeats)
    first, second = seeds_of(small_settings("own", **repeats))
    runs = [(0, first, 0.8), (0, second, 0.8), (2, first, 0.95), (2, second, 0.95)]
    lucky = [(4, first, 0.99), (4, second, 0.1)]
    ends = [
        trial_record(
            number,
            seed=seed,
            params={"x": proposal / 10},
            scores={"val": score},
            repeat_of=None if number == proposal else proposal,
        )
        for number, (proposal, seed, score) in enumerate([*runs, *lucky])
    ]
    assert kept_after(folder, cleaner, ends) == kept


@pytest.mark.parametrize(("seeds", "kept"), [([7, 8], [1, 3]), ([7, 8, 9], [0, 1, 2, 3])])
def test_a_confirming_study_keeps_the_checkpoints_of_all_its_runs_until_it_has_a_winner(
    folder: Path, seeds: list[int], kept: list[int]
) -> None:
    found = [trial_record(number, params={"x": number}) for number in range(2)]
    plan = RerunPlan.of_trials(found, seeds, objective="val", direction="maximize")
    cleaner = cleaner_of(folder, list, {"completed": "best"}, confirms=plan)
    ends = [
        trial_record(number, params={"x": number % 2}, seed=seed, scores={"val": score})
        for number, (seed, score) in enumerate([(7, 0.5), (7, 0.6), (8, 0.5), (8, 0.6)])
    ]
    assert kept_after(folder, cleaner, ends) == kept


def test_the_confirmed_winner_keeps_its_checkpoints_when_the_search_continues(
    folder: Path,
) -> None:
    plan = RerunPlan.of_trials([RECORDS[0]], [7], objective="val", direction="maximize")
    confirmed = Confirmation.of("own-confirm", plan, [replace(RECORDS[0], seed=7)])
    calls: list[str] = []

    def follow(kind: str) -> Any:
        calls.append(kind)
        if len(calls) == 1:
            raise StorageAwayError("study.db: database is locked")
        return SimpleNamespace(study=SimpleNamespace(confirmation=confirmed))

    cleaner = cleaner_of(folder, lambda: [RECORDS[1]], {"completed": "best"}, follow=follow)
    records = {record.number: record for record in [*RECORDS, trial_record(6)]}
    (folder / "0006").mkdir()
    cleaner.clean(records)
    assert {0, 1, 6} <= {*names_in(folder)}, "no winner is known yet"
    cleaner.clean(records)
    assert {0, 1, 6} & {*names_in(folder)} == {0, 1}


def test_an_error_of_the_cleaner_ends_no_trial_and_is_logged_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> NoReturn:
        raise MemoryError

    cleaner = cleaner_of(folder, fails, {"completed": "best"})
    for _ in range(2):
        cleaner.clean({0: RECORDS[0]})
    (record,) = caplog.records
    assert "checkpoints could not be removed: MemoryError" in record.getMessage()


def test_checkpoints_of_a_failed_trial_are_kept_until_its_retry_has_ended(folder: Path) -> None:
    assert 3 in left(
        folder, trial_record(6, state=TrialState.RUNNING, retry_of=3), completed="remove"
    )
    assert 3 not in left(folder, trial_record(6, retry_of=3), completed="remove")
