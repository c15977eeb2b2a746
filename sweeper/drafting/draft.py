"""Write a first parameters file for a notebook from its code, without running it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    from .space.places import Candidate, Entry, Params

#: A draft names at most this many scores: the objective, and others to choose from (chosen).
_MOST_SCORES = 4
_START = "start:    # the notebook's own values; then one changed at a time, which you may delete"
#: Matches characters that YAML does not allow or takes for the end of a line, except newline.
_NOT_IN_YAML = re.compile(r"[^\n -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The data of a parameters file that is proposed for a notebook.

    Attributes:
        head: Lines at the beginning of the file, about the notebook.
        trials: Number of trials of the sweep.
        is_grid: Whether the search space has exactly `trials` combinations, and each one runs once.
        objectives: Scores, each with the number of its code cell. The first one is optimised, and
            the others are comments. Empty if no score is known.
        params: What is swept, what is not, and the params of the first trials.
    """

    head: Sequence[str]
    trials: int
    is_grid: bool
    objectives: Sequence[tuple[Score, int]]
    params: Params

    @property
    def space(self) -> Mapping[str, Any]:
        """The search space: for each param its range or choices."""
        return {name: entry.space for name, entry in self.params.swept.items()}

    @property
    def text(self) -> str:
        """The content of the drafted parameters file."""
        start = [json.dumps(values, ensure_ascii=False) for values in self.params.start]
        sampler = ["  sampler: grid    # each combination once"] if self.is_grid else []
        sections = [
            self.head,
            ["study:", f"  trials: {self.trials}", *sampler],
            ["objective:", *_objectives(self.objectives)],
            _sources_of([score for score, _ in self.objectives]),
            [*swept_lines(self.params), *left_out_lines(self.params.left_out)],
            [_START, *(f"  - {values}" for values in start)],
        ]
        return _writable("\n\n".join("\n".join(lines) for lines in sections if lines)) + "\n"


def swept_lines(params: Params) -> list[str]:
    """Return the section `space` of a drafted file, without the lines about values not swept."""
    return ["space:", *(_writable(f"  {entry.text}") for entry in params.swept.values())]


def left_out_lines(entries: Sequence[Entry]) -> list[str]:
    """Return comment lines about the values that are not swept. Empty if `entries` is empty."""
    lines = [as_comment(entry.text) for entry in entries]
    return lines and [as_comment("Not swept; a line without its # would be:"), *lines]


def as_comment(text: str) -> str:
    """Return a comment as a line of the section `space`."""
    return _writable(f"  # {text}")


def _writable(text: str) -> str:
    """Return a text with a space in place of each character that YAML does not allow."""
    return _NOT_IN_YAML.sub(" ", text)


def params_behind(
    notebook: ResearchNotebook, code: Code, scores: Sequence[Score]
) -> list[dict[str, bool]]:
    """Return for each score of a notebook the values that could be swept and that change the score.

    Args:
        notebook: The research notebook.
        code: The notebook's code.
        scores: The scores.

    Returns:
        For each score, a dict by the names of these values. It has True if the notebook states the
        value, and False if the value is a library's default of an argument that a call leaves out.
        If the notebook has a parameters cell, each dict has all values in it.
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
    """Choose the candidates that a draft may sweep for a score.

    If the notebook has a parameters cell, all candidates are chosen. Otherwise, a candidate is
    chosen if it changes the score, if people usually tune such a value, and if a range for it is
    known. Defaults that have no effect are left out (see `without_given_defaults`).

    Args:
        candidates: Values of the notebook that a sweep might replace, by name.
        score: The score. None if no score is known. Then a candidate need not change a score.
    """
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
) -> Draft:
    """Draft a parameters file for a notebook, with ranges and comments to be edited.

    The ranges follow from the table `space/spaces.yml` and from the notebook's original values. The
    first trial has the original values. Each of the next trials changes one of them, which shows
    whether it has an effect. At most a third of all trials do so.

    Args:
        trials: Number of trials of the sweep.
        seen: Scores that a run of the notebook has shown, the chosen score first. None to guess the
            scores from the code.
        code: The notebook's code, with what each statement has changed in a run. None if the
            notebook has not been run.

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
        # A guess is left out if no value that could be swept changes it: it may be no score.
        guessed = scores_of(code, {*every})
        scores = [score for score in guessed if _leading_to(score, notebook, every, code)]
    else:
        scores = list(seen)
    first = scores[0] if scores else None
    candidates = _leading_to(first, notebook, every, code)
    others = {
        name: candidate for name, candidate in searched(every).items() if name not in candidates
    }
    # With a parameters cell, all values in it are candidates, whatever the score is.
    decisive = None if notebook.parameters_cell else first
    unfit = unfit_for(decisive, candidates) if decisive else {}
    params = params_of(notebook, candidates, others, unfit, trials=trials)
    if not params.swept:
        what = f"that changes {decisive.name} can be swept" if decisive else "can be swept"
        raise NotebookError(
            f"{notebook.display_name}: no number or choice {what} in a known range; "
            f"{why_nothing(notebook, every, first)}"
        )
    n_combinations = math.prod(_n_values(entry.space) for entry in params.swept.values())
    return Draft(
        head=[
            f"# A draft for {notebook.display_name}, to be edited: ranges and score are guesses.",
            *_about_seeds(notebook),
        ],
        trials=int(min(n_combinations, trials)),
        is_grid=n_combinations <= trials,
        objectives=[(score, code.statements[score.at][0]) for score in scores[:_MOST_SCORES]],
        params=params,
    )


def _about_seeds(notebook: ResearchNotebook) -> list[str]:
    """Return a comment line about the notebook's seeds.

    The line names the seeds that trials of `confirm` and `repeat` replace, or says that the
    training sets none. Empty if each trial's seed replaces the variable `seed`, or if the code
    shows neither for certain.
    """
    from ..notebooks.seeds import NO_SEED, is_unseeded, own_seeds, replaceable, seeds_in_words

    if notebook.takes("seed"):  # Each trial's seed replaces the value of this variable.
        return []
    own = replaceable(own_seeds(notebook.assignments.cells), notebook.node)
    if own:
        return [f"# {seeds_in_words(own)}"]
    return [f"# {NO_SEED}"] if is_unseeded(notebook.flows, notebook.all_code) else []


def _objectives(scores: Sequence[tuple[Score, int]]) -> list[str]:
    """Return the lines of the section `objective`: the first score, and the others as comments.

    Args:
        scores: Each score with the number of its code cell.
    """
    if not scores:
        return ["  score: maximize    # FILL IN: the score's name"]
    first, *others = [
        f"{as_flow(score.name)}: {score.direction or UNKNOWN_DIRECTION}    "
        f"# {score.remark} in code cell {cell}"
        for score, cell in scores
    ]
    lines = [f"  {first}"]
    if others:
        lines += ["  # or one of these:", *(f"  # {line}" for line in others)]
    return lines


def _n_values(space: Any) -> float:
    """Return the number of values in a range or list of choices, infinite for real numbers."""
    if isinstance(space, list):
        return len(space)
    low, high = space["low"], space["high"]
    is_whole = isinstance(low, int) and isinstance(high, int)
    return high - low + 1 if is_whole else math.inf


def _sources_of(scores: Sequence[Score]) -> list[str]:
    """Return the lines of the section `scores` in a draft. Empty if no score needs an entry.

    Each trial computes all scores in this section. A score costs time if it calls the notebook's
    functions again. So the entry of such a score is a comment, unless the score is the objective.

    Args:
        scores: The scores. The first one is the objective.
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
