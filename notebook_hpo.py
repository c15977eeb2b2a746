"""Run a hyperparameter sweep over a notebook; see README.md."""

import sys

from sweeper.cli import main

if __name__ == "__main__":
    sys.exit(main())
