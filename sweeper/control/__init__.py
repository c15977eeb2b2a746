"""Read and change a study from outside its sweep: look it up, show, stop, enqueue, retry, export.

The folder `sweep` carries out what other processes request.
"""

from __future__ import annotations

import warnings

# Optuna imports tqdm, which warns in a notebook without widgets. A study needs no progress bar.
warnings.filterwarnings("ignore", "IProgress not found")
