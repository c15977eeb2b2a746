"""Where trials run: interpreter, packages, machine, GPUs and git commit, kept for each trial.

What a trial is made of does not belong here, nor what a machine still has free.
"""

from .record import TrialEnvironment, environment_facts, environment_of

__all__ = ["TrialEnvironment", "environment_facts", "environment_of"]
