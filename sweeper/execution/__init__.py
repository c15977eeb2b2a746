"""Run a trial, from its spec to its outcome: executor, worker, attempt.

Except for `machine`, only this folder uses joblib. The folder `machine` shares a machine among
trials. The folder `sweep` chooses which trial is next.
"""
