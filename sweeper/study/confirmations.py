"""Finds what runs on fresh seeds say of a search.

The search `digits` and the study `digits-confirm`, which runs its best trials again, are in one
storage, or each in its own file beside its outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import StudyError
from ..settings.addresses import Address
from ..trials import Confirmation, StudyPaths, confirming_name
from .files import is_storage
from .stored import StoredStudy

if TYPE_CHECKING:
    from .study import Study


def confirmation_of(
    study: Study | StoredStudy, *, paths: StudyPaths, storage_url: Address
) -> Confirmation | None:
    """The confirmation of a search, or of the confirming study itself; None where there is none.

    A search that repeats its proposals has its own means as long as it is not confirmed.

    Args:
        paths: of the study.
        storage_url: of its storage.
    """
    own = study.confirmation
    if own is not None and own.repeats is None:
        return own
    name = confirming_name(study.name)
    file = paths.folder.with_name(name) / paths.storage.name
    if is_storage(file):
        storage_url = Address.of(f"sqlite:///{file}")
    elif storage_url.full.endswith(str(paths.storage)):  # which has no other study
        return own
    from .study import Study  # imports Optuna, which most looks at a study do without

    try:
        return Study.load(storage_url, name).confirmation
    except StudyError:
        return own
