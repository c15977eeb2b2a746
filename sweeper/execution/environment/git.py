"""The git commit of a folder, and what differs from it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: How long one call of git may take; in a large repository on a slow disk it takes long.
_LIMIT_S = 5.0
#: How much of the differences is kept; notebooks with images have long ones.
_DIFF_CHARACTERS = 65536


def git_state(folder: Path, env: Mapping[str, str], files: Iterable[str]) -> dict[str, Any] | None:
    """Commit, branch, and the changes of files; None outside of a git repository.

    Args:
        files: whose changes count, by their paths relative to `folder`.
        env: for the processes of git.
    """
    head = _git(folder, env, "rev-parse", "HEAD")
    if not head:
        return None
    state: dict[str, Any] = {"commit": head.strip()}
    branch = (_git(folder, env, "rev-parse", "--abbrev-ref", "HEAD") or "").strip()
    if branch not in ("", "HEAD"):
        state["branch"] = branch
    options = ("--no-color", "--no-ext-diff", "--no-textconv", "--")
    tracked = [f":(literal){file}" for file in files]
    diff = _git(folder, env, "diff", "HEAD", *options, *tracked) if tracked else ""
    if diff is not None:
        state["is_dirty"] = bool(diff)
        if diff:
            state["diff"] = diff[:_DIFF_CHARACTERS]
    return state


def _git(folder: Path, env: Mapping[str, str], *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**os.environ, **env, "GIT_OPTIONAL_LOCKS": "0"},  # the user's git may run now
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or it takes too long
        return None
    return done.stdout.decode("utf-8", "replace")
