"""What a kernel is asked next to the cells, and what it answers.

The module `in_kernel` answers, in the kernel. Names of expressions are the notebook's; builtins,
`repr` and the encoding of answers are not, whatever the notebook has done to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..forking.zygote import finders, in_kernel

_PACKAGE_FOLDER = Path(__file__).parents[2]
_FINDERS = Path(finders.__file__).read_text(encoding="utf-8")
_IN_KERNEL = Path(in_kernel.__file__).read_text(encoding="utf-8")


def prepare_started(
    environment: Mapping[str, str], gpu_fraction: float | None, frozen: Mapping[str, str]
) -> str:
    """Return code that prepares a started kernel for its trial, before its first cell.

    Args:
        environment: variables of the trial.
        gpu_fraction: of a GPU's memory, that torch may take at most; None for all.
        frozen: the sources of frozen modules, by their absolute paths without links.
    """
    trial = {"environment": dict(environment), "gpu_fraction": gpu_fraction}
    return (
        f"(lambda names: (__import__('builtins').exec({_IN_KERNEL!r}, names), "
        f"names['prepare_started']({_FINDERS!r}, {str(_PACKAGE_FOLDER)!r}, {dict(frozen)!r}, "
        f"**{trial!r})))({{'__name__': 'sweeper_in_kernel'}})\n"
    )


def prepare_forked(environment: Mapping[str, str], gpu_fraction: float | None) -> str:
    """Return the same for a forked kernel, which has these modules of its zygote."""
    trial = {"environment": dict(environment), "gpu_fraction": gpu_fraction}
    modules = "__import__('sys').modules"
    return f"{modules}['_sweeper_zygote.in_kernel'].prepare_forked(**{trial!r})\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to read in a kernel after its last cell.

    Attributes:
        floats: variables, and expressions of them, to read as numbers.
        values: variables to read as plain values.
        reads_imports: whether to list what the kernel has imported.
    """

    floats: Sequence[str] = ()
    values: Sequence[str] = ()
    reads_imports: bool = False

    def as_expressions(self) -> dict[str, str]:
        """Return the question as the expressions of a request."""
        return {in_kernel.QUESTION: json.dumps(asdict(self))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A value that JSON does not have, by a short `repr`."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a kernel has answered; what could not be read is missing.

    Attributes:
        floats: the numbers, by expression.
        values: the plain values by name: scalars of JSON, floats with NaN and infinities.
        imports: what the kernel has imported, and the variables that libraries read then.
        gpu_bytes: what torch has held of its GPU at most; None if it has used none.
        not_replicable: the operations that need not repeat bit for bit, as torch has warned.
    """

    floats: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, bool | int | float | str | Shown | None] = field(default_factory=dict)
    imports: Mapping[str, Any] | None = None
    gpu_bytes: int | None = None
    not_replicable: tuple[str, ...] = ()

    @classmethod
    def of(cls, expressions: Mapping[str, Any]) -> Answer:
        """Read the answer among a reply's expressions; a kernel that is no IPython gives none."""
        text = expressions.get(in_kernel.QUESTION, {}).get("answer")
        if text is None:
            return cls()
        read = json.loads(text)
        return cls(
            floats={
                name: float.fromhex(digits)
                for name, digits in read["floats"].items()
                if digits is not None
            },
            values={
                name: Shown(text=value["shown"]) if "shown" in value else value["value"]
                for name, value in read["values"].items()
                if value is not None
            },
            imports=read.get("imports"),
            gpu_bytes=read["gpu_bytes"],
            not_replicable=tuple(read["not_replicable"] or ()),
        )
