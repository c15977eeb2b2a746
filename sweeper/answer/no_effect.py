"""Find params that made no difference: neither to scores and series, nor to outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from ..notebooks.compare import Execution, compare
from ..notebooks.metadata import BLANK, metadata_of
from ..trials import TrialRecord, TrialState, have_equal_scores
from ..trials.confirmation import key_of

#: Function that reads a trial's scores, series and outputs, which are compared.
Read = Callable[[TrialRecord], Execution]


def execution_of(record: TrialRecord) -> Execution:
    """Read the scores, series and outputs of a trial from its executed notebook.

    Raises:
        NotebookError: The notebook is missing or damaged.
    """
    # Imported here, because the command `status` imports this module but needs no nbformat, whose
    # import takes long.
    from ..notebooks.reading import read_notebook
    from ..notebooks.scores import series_of

    node = read_notebook(record.notebook)
    series = series_of(metadata_of(node) or BLANK)
    return Execution(cells=node.cells, scores=record.scores, series=series)


def are_equal(executions: Iterable[Execution]) -> bool:
    """Return whether all executions have equal scores, series and outputs.

    Times and other parts of the outputs that differ between any two runs are not compared.
    """
    all_differences = [compare(first, second) for first, second in pairwise(executions)]
    return all(found.has_equal_numbers and not found.outputs for found in all_differences)


def without_effect(records: Iterable[TrialRecord], read: Read = execution_of) -> list[str]:
    """Return a remark on each param that made no difference to scores, series and outputs.

    A param made no difference if some trials differ in this param alone, and all such trials have
    equal scores. Equal scores alone say little: an accuracy is often equal by chance. So the
    executed notebooks of two such trials are compared, too. If one of the two notebooks cannot be
    read, there is no remark.

    Args:
        records: Records of the trials.
        read: Function that reads a trial's scores, series and outputs.
    """
    completed = [record for record in records if record.state is TrialState.COMPLETED]
    keys = [_keys_of(record) for record in completed]
    names = dict.fromkeys(name for record in completed for name in record.params)
    remarks = []
    for name in names:
        groups = _groups_without(name, completed, keys)
        if not groups or not all(map(have_equal_scores, groups)):
            continue
        first = groups[0][0]
        value = key_of({name: first.params[name]})
        other = next(trial for trial in groups[0] if key_of({name: trial.params[name]}) != value)
        if _look_equal(first, other, read):
            remarks.append(
                f"{name} made no difference: trials {first.run_id} and {other.run_id} differ in no "
                "other param, and have the same scores, series and outputs to the last bit; either "
                f"nothing reads {name}, or its effect is too small to show"
            )
    return remarks


def _keys_of(record: TrialRecord) -> Mapping[str, str]:
    """Return a text for each param of a trial. Equal values (also 1 and 1.0) have equal texts."""
    return {name: key_of({name: value}) for name, value in sorted(record.params.items())}


def _groups_without(
    name: str, completed: Sequence[TrialRecord], keys: Sequence[Mapping[str, str]]
) -> list[list[TrialRecord]]:
    """Return groups of trials that differ in one param, and have the same other params.

    Args:
        name: The param.
        completed: The trials.
        keys: For each trial, the text of each of its params, as `_keys_of` returns it.
    """
    groups: defaultdict[tuple[str, ...], list[TrialRecord]] = defaultdict(list)
    values: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for record, own in zip(completed, keys, strict=True):
        if name in own:
            # To blank the param in a copy is much faster than to leave it out in a loop.
            others = tuple({**own, name: ""}.values())
            groups[others].append(record)
            values[others].add(own[name])
    return [group for others, group in groups.items() if len(values[others]) > 1]


def _look_equal(first: TrialRecord, second: TrialRecord, read: Read) -> bool:
    try:
        return are_equal([read(first), read(second)])
    except Exception:  # noqa: BLE001  a remark that cannot be made must not end a sweep
        return False
