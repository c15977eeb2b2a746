"""Make imports quick for each process of the tests, as `sweeper.cli.main` does for commands.

Import this module before nbformat.
"""

from __future__ import annotations

import sys

# Without it, jsonschema does not compile a grammar of addresses, which takes 0.7 s.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
