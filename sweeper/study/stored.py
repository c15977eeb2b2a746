"""Read the records of a study's trials by one query on Optuna's tables.

Optuna only reads whole trials, with one object for each reported value. For 1,000 trials with 100
values each, that takes 3 s of CPU time instead of 0.05 s. A remote copy reads the study while
trials run, and `load` in a notebook reads it at each call.
"""

from __future__ import annotations

import json

from optuna.storages import RDBStorage
from optuna.trial import TrialState as OptunaState
from sqlalchemy import text

from ..search.trial_codec import RECORD, decode, is_own
from ..trials import TrialRecord

_RECORDS = text("""
SELECT trials.number, trials.state, attributes.value_json
FROM trials
JOIN trial_user_attributes AS attributes ON attributes.trial_id = trials.trial_id
WHERE trials.study_id = :study_id AND attributes.key = :key
ORDER BY trials.number
""")


def stored_records(
    storage: RDBStorage, study_id: int, only: OptunaState | None = None
) -> list[TrialRecord]:
    """Return the records of all trials that have ever begun, in the order of their numbers.

    Args:
        storage: The open storage.
        study_id: Optuna's id of the study in this storage.
        only: Optuna's state of the trials that are wanted. None for all trials.

    Raises:
        StorageAwayError: The storage does not answer.
        LostFileError: The storage is a damaged file.
    """
    with storage.engine.connect() as connection:
        rows = connection.execute(_RECORDS, {"study_id": study_id, "key": RECORD}).all()
    records = []
    for number, state_name, value in rows:
        state, stored = OptunaState[state_name], json.loads(value)
        is_wanted = only is None or state is only
        if is_wanted and is_own(stored, has_ended=state.is_finished()):
            records.append(decode(number, stored))
    return records
