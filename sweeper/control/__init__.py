"""Read and change a study from outside its sweep: look it up, show, stop, enqueue, retry, export.

The running sweep itself (folder `sweep`) carries out requests to stop.
"""

from __future__ import annotations

import warnings

# Optuna imports tqdm, which warns in a notebook without widgets. A study needs no progress bar.
warnings.filterwarnings("ignore", "IProgress not found")
