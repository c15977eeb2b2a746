"""Load parameters files for the tests of settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from parameters_files import Load

from sweeper.settings import Settings


@pytest.fixture
def load_settings(tmp_path: Path) -> Load:
    """Return a function that loads a text as the parameters file `digits.yml`."""

    def load(text: str) -> Settings:
        file = tmp_path / "digits.yml"
        file.write_text(text, encoding="utf-8")
        return Settings.load(file)

    return load
