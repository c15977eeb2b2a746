"""One study's folder: its locks, requests, snapshots of code, and hashes of what trials saved.

What Optuna or MLflow store there does not belong here.
"""
