"""Find keys and values of other tools (W&B, Optuna, Ray Tune) in a parameters file.

The functions return remedies for messages: what to write in a parameters file instead.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from .messages import as_yaml

_SAMPLERS = {"bayes": "gp", "random": "random", "grid": "grid", "tpe": "tpe", "bayesian": "gp"}
_LOW = ("low", "min", "lower")
_HIGH = ("high", "max", "upper")
_CHOICES = ("choices", "values", "grid_search", "options", "categories")
_STEP = ("step", "q")
#: Keys whose values name a distribution, as in `distribution: log_uniform_values`.
_KINDS = ("type", "distribution", "scale", "prior")
_FOREIGN = ({*_LOW, *_HIGH, *_CHOICES, *_STEP, *_KINDS, "value", "mu", "sigma"}) - {
    *("low", "high", "choices", "step", "type")
}


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
        stated = next((value[key] for key in ("goal", "direction", "mode") if key in value), "")
        name = str(value.get("name", name))
        direction = "maximize" if str(stated).startswith("max") else direction
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
    low, high, step = (_first(entry, keys) for keys in (_LOW, _HIGH, _STEP))
    if low is None or high is None or "normal" in kind:
        return ""
    is_log = "log" in kind
    if is_log and not _is_positive(low):  # The bounds of W&B's `log_uniform` are exponents of e.
        low, high = (math.exp(bound) if _is_small(bound) else "…" for bound in (low, high))
    whole_words = ("int", "q_", "quniform")
    if "uniform" in kind and step is None and not any(word in kind for word in whole_words):
        low, high = (
            float(bound) if isinstance(bound, int) and abs(bound) < sys.float_info.max else bound
            for bound in (low, high)
        )
    here: dict[str, Any] = {"low": low, "high": high}
    if is_log:
        here["log"] = True
    elif step is not None:
        here["step"] = step
    if "when" in entry:
        here["when"] = entry["when"]
    return f"write {as_yaml(here)}"


def call_here(text: str) -> str:
    """Return a remedy for a dimension that is a call of another tool.

    Args:
        text: Entry of `space`, such as `tune.loguniform(1e-4, 1)`.

    Returns:
        An empty text for entries that are not such a call.
    """
    name = text.partition("(")[0].lower()
    if "(" not in text:
        return ""
    if any(word in name for word in ("choice", "categorical", "grid")):
        return "write a list of choices, as in [32, 64]"
    if any(word in name for word in ("uniform", "float", "int", "range")):
        return f"write {{low: …, high: …{', log: true' if 'log' in text.lower() else ''}}}"
    return ""


def _first(entry: Mapping[Any, Any], keys: tuple[str, ...]) -> Any:
    return next((entry[key] for key in keys if key in entry), None)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def _is_small(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 100
