"""Write a first parameters file for a notebook from its code, without running it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..settings.yaml_reader import read_yaml
from .places import (
    as_flow,
    behind,
    candidates_of,
    params_of,
    searched,
    unfit_for,
    why_nothing,
    without_given_defaults,
)
from .score_guesses import Code, Score, scores_of

if TYPE_CHECKING:
    from ..notebooks.research import ResearchNotebook
    from .places import Candidate

_MOST_SCORES = 4
#: First line of the section `start`.
START = "start:    # the notebook's own values; then one changed at a time, which you may delete"
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
    found = [_leading_to(score, notebook, candidates, code) for score in scores]
    return [{name: not candidate.is_left_out for name, candidate in each.items()} for each in found]


def _leading_to(
    score: Score | None, notebook: ResearchNotebook, candidates: dict[str, Candidate], code: Code
) -> dict[str, Candidate]:
    """Choose the candidates that change a score. With a parameters cell, these are all of them."""
    if notebook.parameters_cell:
        return candidates
    lines = None if score is None else code.lines(score)
    others = [] if score is None else code.passed_by(score)
    spans = [(code.statements[at][0], part) for at, part in others]
    return without_given_defaults(notebook, behind(notebook, candidates, lines, spans))


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
    from ..notebooks.seeds import NO_SEED, is_unseeded, own_seeds, replaceable, seeds_in_words

    if notebook.language != "python":
        raise NotebookError(
            f"{notebook.display_name}: a draft can only be made from Python, and this notebook's "
            f"language is {notebook.language}; write the parameters file by hand"
        )
    code = code or Code(notebook.code, modules=notebook.modules.values())
    every = candidates_of(notebook)
    scores = scores_of(code, {*every}) if seen is None else list(seen)
    found = [_leading_to(score, notebook, every, code) for score in scores]
    if seen is None:  # a guessed score that no value of the notebook changes may be no score at all
        scores = [score for score, leading in zip(scores, found, strict=True) if leading]
        found = [*filter(None, found)]
    candidates = found[0] if found else _leading_to(None, notebook, every, code)
    unfit = unfit_for(scores[0], candidates) if scores and not notebook.parameters_cell else {}
    others = {
        name: candidate for name, candidate in searched(every).items() if name not in candidates
    }
    params = params_of(notebook, candidates, others, unfit, trials=trials)
    if not params.swept:
        which = f" leads to {scores[0].name}" if scores and not notebook.parameters_cell else ""
        raise NotebookError(
            f"{notebook.display_name}: no number or choice of which a range is known{which}; "
            f"{why_nothing(notebook, every, scores[0] if scores else None)}"
        )
    scores = scores[:_MOST_SCORES]
    named = [
        f"{as_flow(score.name)}: {score.direction}    "
        f"# {score.how} in code cell {code.statements[score.at][0]}"
        for score in scores
    ]
    first = named[0] if named else "score: maximize    # FILL IN: the score's name"
    objective = [f"  {first}"]
    if named[1:]:
        objective += ["  # or one of these:", *(f"  # {line}" for line in named[1:])]
    swept = [f"  {line}" for line in params.swept]
    left_out = [f"  # {line}" for line in params.left_out]
    if left_out:
        left_out.insert(0, "  # Not swept; a line without its # would be:")
    about_seeds = ""
    if not notebook.takes("seed"):  # If it does, each trial's seed replaces this variable's value.
        own = replaceable(own_seeds(notebook.assignments.cells), notebook.node)
        unseeded = NO_SEED if is_unseeded(notebook.flows, notebook.all_code) else ""
        about_seeds = seeds_in_words(own) if own else unseeded
    sections = [
        [
            f"# A draft for {notebook.display_name}, to be edited: ranges and score are guesses.",
            *([f"# {about_seeds}"] if about_seeds else []),
        ],
        ["study:", *_size_of_study(params.swept, trials)],
        ["objective:", *objective],
        *([sources] if (sources := _sources_of(scores)) else []),
        ["space:", *swept, *left_out],
        [
            START,
            *(f"  - {json.dumps(values, ensure_ascii=False)}" for values in params.start),
        ],
    ]
    return _NOT_IN_YAML.sub(" ", "\n\n".join(map("\n".join, sections))) + "\n"


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
    given = [score for score in scores if score.source]
    later = [score for score in given if score.is_called and score is not scores[0]]
    head = [] if not given else ["# scores:" if len(later) == len(given) else "scores:"]
    return head + [
        f"  {'# ' if score in later else ''}{as_flow(score.name)}: {score.entry}" for score in given
    ]
