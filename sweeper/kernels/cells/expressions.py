"""What the sweep asks a kernel next to the cells, and what the kernel answers.

The module `in_kernel` answers, in the kernel. The names in expressions are the notebook's.
Builtins, `repr` and the encoding of answers are not, whatever the notebook has done to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..forking.zygote import finders, in_kernel

_PACKAGE_FOLDER = str(Path(__file__).parents[2])
_FINDERS = Path(finders.__file__).read_text(encoding="utf-8")
_IN_KERNEL = Path(in_kernel.__file__).read_text(encoding="utf-8")


def prepare_started(
    environment: Mapping[str, str], gpu_fraction: float | None, frozen: Mapping[str, str]
) -> str:
    """Return code that prepares a started kernel for its trial, before its first cell.

    The kernel runs the source of `in_kernel` and calls a function of it, which leaves no name in
    the notebook.

    Args:
        environment: Variables of the trial.
        gpu_fraction: The share of a GPU's memory that torch may use; None for all.
        frozen: The sources of frozen modules, by their absolute paths without links.
    """
    arguments = {
        "finders": _FINDERS,
        "folder": _PACKAGE_FOLDER,
        "frozen": dict(frozen),
        **_arguments(environment, gpu_fraction),
    }
    module = {"__name__": "sweeper_in_kernel"}
    run_source = f"__import__('builtins').exec({_IN_KERNEL!r}, module)"
    call = f"module['prepare_started'](**{arguments!r})"
    return f"(lambda module: ({run_source}, {call}))({module!r})\n"


def prepare_forked(environment: Mapping[str, str], gpu_fraction: float | None) -> str:
    """Return the same for a forked kernel, which has the modules of its zygote."""
    modules = "__import__('sys').modules"
    arguments = _arguments(environment, gpu_fraction)
    return f"{modules}['_sweeper_zygote.in_kernel'].prepare_forked(**{arguments!r})\n"


def _arguments(environment: Mapping[str, str], gpu_fraction: float | None) -> dict[str, Any]:
    return {"environment": dict(environment), "gpu_fraction": gpu_fraction}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to read in a kernel after its last cell.

    Attributes:
        floats: Variables, and expressions of them, to read as numbers.
        values: Variables to read as plain values.
        reads_imports: Whether to list what the kernel has imported.
    """

    floats: Sequence[str] = ()
    values: Sequence[str] = ()
    reads_imports: bool = False

    def as_expressions(self) -> dict[str, str]:
        """Return the question as the expressions of a request."""
        return {in_kernel.QUESTION: json.dumps(asdict(self))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a kernel has answered; what could not be read is missing.

    Attributes:
        floats: The numbers, by expression.
        values: The plain values by name: scalars of JSON, floats with NaN and infinities, and a
            short `repr` of all else.
        imports: What the kernel has imported, and the variables that libraries read at import.
        gpu_bytes: The most memory that torch has held of its GPU, CUDA's own share not included;
            None if it has used none.
        not_replicable: The operations that need not repeat bit for bit, as torch has warned.
        numbers: What a kernel that was watched has noted, as `in_kernel.WatchedNumbers` has it.
    """

    floats: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)
    imports: Mapping[str, Any] | None = None
    gpu_bytes: int | None = None
    not_replicable: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, expressions: Mapping[str, Any]) -> Answer:
        """Read the answer among a reply's expressions; a kernel that is no IPython gives none."""
        text = expressions.get(in_kernel.QUESTION, {}).get("answer")
        if text is None:
            return cls()
        read = json.loads(text)
        floats = {
            name: float.fromhex(digits)
            for name, digits in read["floats"].items()
            if digits is not None
        }
        values = {
            name: read_value["value"]
            for name, read_value in read["values"].items()
            if read_value is not None
        }
        return cls(
            floats=floats,
            values=values,
            imports=read.get("imports"),
            gpu_bytes=read["gpu_bytes"],
            not_replicable=tuple(read["not_replicable"] or ()),
            numbers=read["numbers"] or {},
        )
