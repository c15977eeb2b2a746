"""Find params that made no difference: neither to scores and series, nor to outputs."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from ..notebooks.compare import Execution, compare
from ..notebooks.metadata import BLANK, metadata_of
from ..trials import TrialRecord, TrialState, have_equal_scores
from ..trials.confirmation import key_of

#: Users are told that all params had no effect after this number of completed trials (chosen, not
#: measured).
_TRIALS_TO_TELL = 10

#: Reads what is compared of a trial.
Read = Callable[[TrialRecord], Execution]


def execution_of(record: TrialRecord) -> Execution:
    """Read the scores, series and outputs of a trial from its executed notebook.

    Raises:
        NotebookError: The notebook is missing or damaged.
    """
    # `status` imports this module, and does not wait for the import of nbformat.
    from ..notebooks.reading import read_notebook
    from ..notebooks.scores import series_of

    node = read_notebook(record.notebook)
    series = series_of(metadata_of(node) or BLANK)
    return Execution(cells=node.cells, scores=record.scores, series=series)


def are_equal(executions: Iterable[Execution]) -> bool:
    """Return whether scores, series and outputs are equal, apart from times in the outputs."""
    all_differences = [compare(first, second) for first, second in pairwise(executions)]
    return all(found.has_equal_numbers and not found.outputs for found in all_differences)


def without_effect(records: Iterable[TrialRecord], read: Read = execution_of) -> list[str]:
    """Return remarks that name params that made no difference to scores, series and outputs.

    Equal scores alone say little: an accuracy is often equal by chance. So the executed notebooks
    of some trials are compared, too. If one of them cannot be read, there is no remark.

    If all completed trials have equal scores and there are at least 10 of them, return one remark
    on all params that were varied. Otherwise, return a remark on each param without effect: some
    trials differ in this param alone, and all such trials have equal scores.

    Args:
        records: Records of the trials.
        read: Reads a trial.
    """
    completed = [record for record in records if record.state is TrialState.COMPLETED]
    names = [*dict.fromkeys(name for record in completed for name in record.params)]
    if len(completed) >= _TRIALS_TO_TELL and have_equal_scores(completed):
        first = completed[0]
        others = {name: _other_value(name, first, completed) for name in names}
        tried = {name: other for name, other in others.items() if other is not None}
        shown = {record.number: record for record in (first, *tried.values())}
        if tried and _look_equal([*shown.values()], read):
            return [
                f"{', '.join(tried)} made no difference: all {len(completed)} completed trials "
                f"have the same scores to the last bit, and {_listed([*shown.values()])} the same "
                "series and outputs; either nothing reads these names, or their effect is too "
                "small to show"
            ]
    found = []
    for name, groups in _groups_without_each(names, completed).items():
        if not groups or not all(map(have_equal_scores, groups)):
            continue
        first = groups[0][0]
        other = _other_value(name, first, groups[0])
        if other is not None and _look_equal([first, other], read):
            found.append(
                f"{name} made no difference: trials {first.run_id} and {other.run_id} differ in no "
                "other param, and have the same scores, series and outputs to the last bit; either "
                f"nothing reads {name}, or its effect is too small to show"
            )
    return found


def _look_equal(records: Sequence[TrialRecord], read: Read) -> bool:
    try:
        return are_equal(map(read, records))
    except Exception:  # noqa: BLE001  a remark that cannot be made must not end a sweep
        return False


def _other_value(
    name: str, first: TrialRecord, records: Iterable[TrialRecord]
) -> TrialRecord | None:
    """Return a trial in which a param has another value than in the first one."""
    value = key_of({name: first.params.get(name)})
    others = (record for record in records if key_of({name: record.params.get(name)}) != value)
    return next(others, None)


def _listed(records: Sequence[TrialRecord]) -> str:
    *most, last = [record.run_id for record in records]
    return f"{', '.join(most)} and {last}"


def _groups_without_each(
    names: Iterable[str], completed: Sequence[TrialRecord]
) -> Mapping[str, list[list[TrialRecord]]]:
    """Return, for each param, groups of trials that differ in it and agree in all other params."""
    hashes = [
        {name: hash((name, key_of({name: value}))) for name, value in record.params.items()}
        for record in completed
    ]
    return {name: _alike_without(name, completed, hashes) for name in names}


def _alike_without(
    name: str, completed: Sequence[TrialRecord], hashes: Sequence[Mapping[str, int]]
) -> list[list[TrialRecord]]:
    """Return groups of trials that have different values of one param and agree in all others.

    Args:
        name: The param.
        completed: The trials.
        hashes: For each trial the hashes of its params, by name.
    """
    groups: dict[int, list[tuple[TrialRecord, int]]] = {}
    for record, own in zip(completed, hashes, strict=True):
        if name in own:
            # The xor of the params' hashes identifies all params. A further xor with the hash of
            # one param removes this param from it.
            others = functools.reduce(operator.xor, own.values()) ^ own[name]
            groups.setdefault(others, []).append((record, own[name]))
    return [
        [record for record, _ in group]
        for group in groups.values()
        if len({own for _, own in group}) > 1
    ]
