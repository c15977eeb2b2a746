"""The modules that kernels import as a snapshot has them, in a file that kernels can read."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .specs import is_ipykernel, language_of

_NAME = "frozen.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenModules:
    """What kernels import in place of what lies on disk.

    Attributes:
        folder: the private folder of the kernels.
        sources: of the modules, by their absolute paths without links; none where all is imported
            from disk. Bytes that are not UTF-8 stand as lone surrogates.
    """

    folder: Path
    sources: Mapping[str, str] = field(default_factory=dict)

    def file(self) -> Path | None:
        """The file with the sources, made again where it is gone; None where there are none.

        Raises:
            OSError: it cannot be written.
        """
        if not self.sources:
            return None
        file = self.folder / _NAME
        if not file.exists():
            self.folder.mkdir(mode=0o700, exist_ok=True)
            # Several threads may start kernels at once.
            with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as beside:
                json.dump(dict(self.sources), beside)
            os.replace(beside.name, file)
        return file


def can_freeze(name: str) -> bool:
    """Whether the kernels of a kernelspec import modules from a snapshot; only ipykernels do."""
    return language_of(name).lower() == "python" and is_ipykernel(name)
