"""Write a first parameters file for a notebook from its code, without running it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..settings.yaml_reader import read_yaml
from .scores.score_guesses import UNKNOWN_DIRECTION, Code, Score, scores_of
from .space.places import (
    as_flow,
    behind,
    candidates_of,
    params_of,
    searched,
    unfit_for,
    why_nothing,
    without_given_defaults,
)

if TYPE_CHECKING:
    from ..notebooks.research import ResearchNotebook
    from .space.places import Candidate, Params

_MOST_SCORES = 4
_START = "start:    # the notebook's own values; then one changed at a time, which you may delete"
#: Matches characters that YAML does not allow or takes for the end of a line, except newline.
_NOT_IN_YAML = re.compile(r"[^\n -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def params_behind(
    notebook: ResearchNotebook, code: Code, scores: Sequence[Score]
) -> list[dict[str, bool]]:
    """Return for each score of a notebook the values that could be swept and that change the score.

    Args:
        notebook: The research notebook.
        code: The notebook's code.
        scores: The scores.

    Returns:
        For each score, the names of the values. The value of each name is False if the notebook
        does not write it, because it is a library's default.
    """
    candidates = candidates_of(notebook)
    found = []
    for score in scores:
        leading = _leading_to(score, notebook, candidates, code)
        found.append({name: not candidate.is_left_out for name, candidate in leading.items()})
    return found


def _leading_to(
    score: Score | None, notebook: ResearchNotebook, candidates: dict[str, Candidate], code: Code
) -> dict[str, Candidate]:
    """Choose the candidates that change a score. With a parameters cell, these are all of them."""
    if notebook.parameters_cell:
        return candidates
    if score is None:
        found = behind(notebook, candidates)
    else:
        spans = [(code.statements[at][0], part) for at, part in code.passed_by(score)]
        found = behind(notebook, candidates, code.lines(score), spans)
    return without_given_defaults(notebook, found)


def draft(
    notebook: ResearchNotebook,
    *,
    trials: int = 20,
    seen: Sequence[Score] | None = None,
    code: Code | None = None,
) -> str:
    """Write a parameters file for a notebook, with ranges and comments to be edited.

    The ranges are those of the table `spaces.yml`, around the notebook's original values. The first
    trial has the original values. Each of the next trials changes one of them, which shows whether
    it has an effect.

    Args:
        trials: Number of trials of the sweep.
        seen: Scores that a run of the notebook has shown, the chosen score first. None to guess the
            scores from the code.
        code: The notebook's code, with what each statement has changed in a run. None without run.

    Returns:
        The text of the file.

    Raises:
        NotebookError: The notebook is not Python, or has nothing to sweep.
    """
    from ..errors import NotebookError

    if notebook.language != "python":
        raise NotebookError(
            f"{notebook.display_name}: a draft can only be made from Python, and this notebook's "
            f"language is {notebook.language}; write the parameters file by hand"
        )
    code = code or Code(notebook.code, modules=notebook.modules.values())
    every = candidates_of(notebook)
    if seen is None:
        # A guessed score that no value of the notebook changes may be no score at all.
        guessed = scores_of(code, {*every})
        scores = [score for score in guessed if _leading_to(score, notebook, every, code)]
    else:
        scores = list(seen)
    first = scores[0] if scores else None
    candidates = _leading_to(first, notebook, every, code)
    others = {
        name: candidate for name, candidate in searched(every).items() if name not in candidates
    }
    # All values in a parameters cell are candidates, whatever the score is.
    decisive = None if notebook.parameters_cell else first
    unfit = unfit_for(decisive, candidates) if decisive else {}
    params = params_of(notebook, candidates, others, unfit, trials=trials)
    if not params.swept:
        which = f" leads to {decisive.name}" if decisive else ""
        raise NotebookError(
            f"{notebook.display_name}: no number or choice of which a range is known{which}; "
            f"{why_nothing(notebook, every, first)}"
        )
    scores = scores[:_MOST_SCORES]
    sections = [
        [
            f"# A draft for {notebook.display_name}, to be edited: ranges and score are guesses.",
            *_about_seeds(notebook),
        ],
        ["study:", *_size_of_study(params.swept, trials)],
        ["objective:", *_objectives(scores, code)],
        _sources_of(scores),
        ["space:", *_space(params)],
        [_START, *(f"  - {json.dumps(values, ensure_ascii=False)}" for values in params.start)],
    ]
    text = "\n\n".join("\n".join(lines) for lines in sections if lines)
    return _NOT_IN_YAML.sub(" ", text) + "\n"


def _about_seeds(notebook: ResearchNotebook) -> list[str]:
    """Return a line about the notebook's own seeds. Empty if there is nothing to say."""
    from ..notebooks.seeds import NO_SEED, is_unseeded, own_seeds, replaceable, seeds_in_words

    if notebook.takes("seed"):  # Each trial's seed replaces the value of this variable.
        return []
    own = replaceable(own_seeds(notebook.assignments.cells), notebook.node)
    if own:
        return [f"# {seeds_in_words(own)}"]
    return [f"# {NO_SEED}"] if is_unseeded(notebook.flows, notebook.all_code) else []


def _objectives(scores: Sequence[Score], code: Code) -> list[str]:
    """Return the lines of the section `objective`: the first score, and the others as comments."""
    if not scores:
        return ["  score: maximize    # FILL IN: the score's name"]
    first, *others = [
        f"{as_flow(score.name)}: {score.direction or UNKNOWN_DIRECTION}    "
        f"# {score.how} in code cell {code.statements[score.at][0]}"
        for score in scores
    ]
    lines = [f"  {first}"]
    if others:
        lines += ["  # or one of these:", *(f"  # {line}" for line in others)]
    return lines


def _space(params: Params) -> list[str]:
    """Return the lines of the section `space`: what is swept, and the rest as comments."""
    lines = [f"  {line}" for line in params.swept]
    if params.left_out:
        lines.append("  # Not swept; a line without its # would be:")
        lines += [f"  # {line}" for line in params.left_out]
    return lines


def _n_values(entry: Any) -> float:
    """Return the number of values of a drafted entry of the space, infinite for real numbers."""
    if isinstance(entry, list):
        return len(entry)
    low, high = entry["low"], entry["high"]
    is_whole = isinstance(low, int) and isinstance(high, int)
    return high - low + 1 if is_whole else math.inf


def _size_of_study(swept: Sequence[str], trials: int) -> list[str]:
    """Return the lines that state the number of trials.

    If the space has no more combinations than this, each one is run once.
    """
    counts = [_n_values(entry) for entry in read_yaml("\n".join(swept)).values()]
    n_combinations = math.prod(counts)
    if n_combinations > trials:
        return [f"  trials: {trials}"]
    return [f"  trials: {n_combinations}", "  sampler: grid    # each combination once"]


def _sources_of(scores: Sequence[Score]) -> list[str]:
    """Return the lines of the section `scores` in a draft. Empty if no score needs an entry.

    Each trial computes all scores in this section. A score costs time if it calls the notebook's
    functions again. So such an entry is a comment, unless it is for the objective.
    """
    listed = [score for score in scores if score.key]
    if not listed:
        return []
    entries = []
    are_comments = True
    for score in listed:
        is_comment = score.is_called and score is not scores[0]
        are_comments = are_comments and is_comment
        mark = "# " if is_comment else ""
        entries.append(f"  {mark}{as_flow(score.name)}: {score.entry}")
    return ["# scores:" if are_comments else "scores:", *entries]
