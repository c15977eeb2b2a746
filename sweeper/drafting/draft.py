"""Write the draft: the text of a parameters file with a suggestion for each parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import NotebookError
from ..notebooks import ResearchNotebook, vocabulary
from . import layout
from .cells import assignments
from .ranges import Choices, Fixed, Omitted, Range, Suggestion, suggest
from .scores import FoundScores, compared_words, direction, find_scores

_EXAMPLE = "assign plain numbers, words or true and false there, as in `lr = 1e-3`"


def draft(notebook: ResearchNotebook) -> str:
    """Write a parameters file for a notebook, with ranges and comments to be edited.

    The ranges contain the notebook's own values, which are the params of the first trial.

    Raises:
        NotebookError: the parameters cell is not Python, or assigns nothing that can be swept.
    """
    names = notebook.parameters()
    if names is None:
        raise NotebookError(
            f"{notebook.display_name}: a draft can only be made from Python, and this notebook's "
            f"language is {notebook.language}; write the parameters file by hand"
        )
    assigned = [a for a in assignments(notebook.parameters_source) if a.name in names]
    suggested = {a.name: suggest(a, compared_words(notebook.code, a.name)) for a in assigned}
    swept = {n: s for n, s in suggested.items() if isinstance(s, Range | Choices)}
    if not swept:
        has = f"assigns only {', '.join(names)}" if names else "assigns nothing"
        raise NotebookError(
            f"{notebook.display_name}: the parameters cell {has}: nothing to sweep; {_EXAMPLE}"
        )
    own = {a.name: a.value for a in assigned}
    found = find_scores(notebook.code, names)
    fixed = {n: s for n, s in suggested.items() if isinstance(s, Fixed)}
    parts = [
        [
            layout.comment(f"# Parameters for {notebook.display_name}: a draft, to be edited."),
            "# The ranges are guesses around the notebook's own values, which are tried first.",
        ],
        ["study:", *_study(swept, found)],
        ["objective:", *_objective(found)],
        ["space:", *_space(swept, own)],
        ["fixed:", *_fixed(fixed, own)] if fixed else [],
        _omitted({n: s for n, s in suggested.items() if isinstance(s, Omitted)}),
        ["start:", *_start({name: own[name] for name in swept})],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _study(swept: Mapping[str, Suggestion], found: FoundScores) -> list[str]:
    n_trials = max(20, min(100, 10 * len(swept)))
    counts = [len(s.values) if isinstance(s, Choices) else math.inf for s in swept.values()]
    combinations = math.prod(counts)
    lines = [
        (
            f"trials: {int(min(n_trials, combinations))}",
            "in all; a study that is continued counts its own",
        ),
        ("sampler: auto", "or tpe, gp, random, grid, qmc, cmaes, nsga2, brute_force"),
    ]
    if found.has_series:
        lines.append(
            ("# pruner: median", "ends trials early that fall behind: the notebook reports live")
        )
    return layout.block(lines)


def _objective(found: FoundScores) -> list[str]:
    if not found.names:
        return [
            "  # FILL IN: no score was found. Name what the notebook reports, as in",
            "  # sweeper.report(epoch, val_acc=…), or the variable that holds it at the end.",
            "  score: maximize",
        ]
    best, *others = found.names
    line = f"{layout.text(best)}: {direction(best)}"
    also = [layout.text(name) for name in others[:6]]
    lines = layout.block([(line, found.origin)])
    return lines + ([layout.comment(f"  # also there: {', '.join(also)}")] if also else [])


def _space(swept: Mapping[str, Suggestion], own: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, suggestion in swept.items():
        has = f"the notebook has {layout.value(own[name])}"
        branch = _branch(name, swept, own)
        if isinstance(suggestion, Choices):
            line, note = layout.sequence(suggestion.values), suggestion.note
        elif isinstance(suggestion, Range):
            entries = {"low": layout.value(suggestion.low), "high": layout.value(suggestion.high)}
            more = {"log": "true"} if suggestion.log else {}
            line, note = layout.mapping({**entries, **more, **branch}), suggestion.note
        remark = "; ".join(filter(None, [has, note, "only in that branch" if branch else ""]))
        lines.append((f"{layout.text(name)}: {line}", remark))
    return layout.block(lines)


def _branch(name: str, swept: Mapping[str, Suggestion], own: Mapping[str, Any]) -> dict[str, str]:
    """Restrict momentum to SGD, as it has no effect with the other optimizers."""
    if not vocabulary.matches(name, {"momentum"}):
        return {}
    for parent, suggestion in swept.items():
        if not vocabulary.matches(parent, {"optimizer", "optimiser", "optim", "opt"}):
            continue
        if isinstance(suggestion, Choices) and str(own[parent]).lower() == "sgd":
            return {"when": layout.mapping({parent: layout.value(own[parent])})}
    return {}


def _fixed(fixed: Mapping[str, Fixed], own: Mapping[str, Any]) -> list[str]:
    return layout.block(
        (f"{layout.text(name)}: {layout.value(own[name])}", suggestion.note)
        for name, suggestion in fixed.items()
    )


def _omitted(omitted: Mapping[str, Omitted]) -> list[str]:
    """Comment on the parameters that are not in the file, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for name, suggestion in omitted.items():
        reasons.setdefault(suggestion.reason, []).append(name)
    lines = [f"#   {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    head = ["# Not here, so that the notebook decides:"] if lines else []
    return [layout.comment(line) for line in head + lines]


def _start(params: Mapping[str, Any]) -> Sequence[str]:
    lines = [f"{layout.text(name)}: {layout.value(own)}" for name, own in params.items()]
    return [f"  {'-' if index == 0 else ' '} {line}" for index, line in enumerate(lines)]
