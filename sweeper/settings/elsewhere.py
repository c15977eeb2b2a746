"""Find keys and values of other tools (W&B, Optuna, Ray Tune) in a parameters file.

The functions return remedies for messages: what to write in a parameters file instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .messages import as_yaml

_SAMPLERS = {
    "bayes": "gp",
    "bayesian": "gp",
    "grid": "grid",
    "random": "random",
    "tpe": "tpe",
}
_LOW = ("low", "min", "lower")
_HIGH = ("high", "max", "upper")
_CHOICES = ("choices", "values", "grid_search", "options", "categories")
_STEP = ("step", "q")
_DIRECTION = ("goal", "direction", "mode")
#: Keys whose values name a distribution, as in `distribution: log_uniform_values`.
_KINDS = ("type", "distribution", "scale", "prior")
#: Keys of a dimension that only other tools have.
_FOREIGN = {*_LOW, *_HIGH, *_CHOICES, *_STEP, *_KINDS, "value", "mu", "sigma"}
_FOREIGN -= {"low", "high", "choices", "step", "type"}


def section_hint(key: str, value: Any) -> str:
    """Return a remedy for a key of another tool at the top of a parameters file, or in `study`.

    Args:
        key: Unknown key.
        value: Value of the key.

    Returns:
        An empty text if no other tool has this key.
    """
    match key:
        case "method" | "search_alg" | "algorithm":
            sampler = _SAMPLERS.get(str(value).lower(), "auto")
            return f"write study: {{sampler: {sampler}}}"
        case "metric" | "metrics":
            return f"write {objective_here(value)}"
        case "goal" | "direction" | "mode":
            direction = "maximize" if str(value).startswith("max") else "minimize"
            return f"write objective: {{NAME: {direction}}} with the score's name"
        case "n_trials" | "num_samples" | "run_cap" | "max_trials" | "count":
            trials = value if isinstance(value, int) else "…"
            return f"write study: {{trials: {trials}}}"
        case "early_terminate" | "scheduler":
            return "write study: {pruner: auto}"
        case "program" | "command" | "notebook":
            return "the notebook is named by -i NOTEBOOK; leave the key out"
        case "parameters" | "params" | "search_space" | "param_space" | "hyperparameters":
            return "write space: {lr: {low: 1e-4, high: 1e-1, log: true}}"
    return ""


def objective_here(value: Any) -> str:
    """Return the text of an `objective` that means the same as W&B's `{name: …, goal: …}`."""
    name, direction = "NAME", "minimize"
    if isinstance(value, Mapping):
        name = str(value.get("name", name))
        if str(_first(value, _DIRECTION)).startswith("max"):
            direction = "maximize"
    return f"objective: {{{name}: {direction}}}"


def dimension_here(entry: Mapping[Any, Any]) -> str:
    """Return a remedy for a dimension with keys or types of other tools.

    Args:
        entry: Entry of `space`.

    Returns:
        An empty text if the entry has no such keys or types.
    """
    kind = " ".join(str(entry[key]) for key in _KINDS if key in entry).lower()
    if _FOREIGN.isdisjoint(entry) and "uniform" not in kind:
        return ""
    if "value" in entry:
        return f"a single value belongs to fixed, as in fixed: {{NAME: {as_yaml(entry['value'])}}}"
    choices = _first(entry, _CHOICES)
    if choices is not None:
        return f"write {as_yaml(choices)}"
    low = _first(entry, _LOW)
    high = _first(entry, _HIGH)
    step = _first(entry, _STEP)
    if low is None or high is None or "normal" in kind:
        return ""
    here: dict[str, Any] = {"low": low, "high": high}
    if "log" in kind:
        if not isinstance(low, int | float) or low <= 0:
            return "write {low: …, high: …, log: true}, with the values and not their logarithms"
        here["log"] = True
    elif step is not None:
        here["step"] = step
    elif "uniform" in kind and not kind.startswith(("int", "q")):
        here["type"] = "float"
    if "when" in entry:
        here["when"] = entry["when"]
    return f"write {as_yaml(here)}"


def _first(entry: Mapping[Any, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key in entry:
            return entry[key]
    return None
