"""The tags with which MLflow itself names the git commit of a run."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...errors import StudyError
from ...study_folder.snapshots import read_environment
from ...trials import StudyPaths

_log = logging.getLogger(__name__)

_TAG = "mlflow.source.git"


class GitTags:
    """Reads the commit in which a trial ran; nearly all trials of a sweep have the same."""

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._known: dict[str, Mapping[str, str]] = {"": {}}

    def of(self, environment: str) -> Mapping[str, str]:
        """The tags of a trial; empty where no commit is known.

        Args:
            environment: the name of the record of where it ran; may be empty.
        """
        if environment not in self._known:
            try:
                git = read_environment(self._paths, environment).get("git", {})
            except StudyError as error:
                _log.info("MLflow is not given the git commit: %s", error)
                git = {}
            tags = {f"{_TAG}.{name}": git[name] for name in ("commit", "branch") if name in git}
            if "is_dirty" in git:
                tags[f"{_TAG}.dirty"] = str(git["is_dirty"]).lower()
            if git.get("diff"):
                tags[f"{_TAG}.diff"] = git["diff"]
            self._known[environment] = tags
        return self._known[environment]
