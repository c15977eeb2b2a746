"""Choose the params of trials with samplers, and the trials that end early with pruners.

The folder `study` stores these choices.
"""

from __future__ import annotations

import warnings

# Optuna imports tqdm, which warns in a notebook without widgets. A study needs no progress bar.
warnings.filterwarnings("ignore", "IProgress not found")
