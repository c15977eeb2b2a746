"""The params of a trial as its run in MLflow has them."""

from __future__ import annotations

import math

from ..settings.space import SearchSpace
from ..trials import Params, value_text


def run_params(space: SearchSpace, params: Params) -> dict[str, str]:
    """The swept params; `n/a` for those that do not exist in the trial's branch.

    A log-scaled `lr` comes with its `log10_lr`: MLflow's parallel coordinates have no log axis.
    """
    texts = {name: value_text(params[name]) if name in params else "n/a" for name in space}
    for name in space.log_names:
        value = params.get(name)
        texts[f"log10_{name}"] = (
            f"{math.log10(value):.6f}" if isinstance(value, int | float) else "n/a"
        )
    return texts
