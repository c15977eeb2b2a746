"""Read and change a study from outside its sweep: look it up, show, stop, enqueue, retry, export.

How a sweep carries out a request does not belong here.
"""

from __future__ import annotations

import warnings

# Optuna imports tqdm, which warns in a notebook without widgets. A study needs no progress bar.
warnings.filterwarnings("ignore", "IProgress not found")
