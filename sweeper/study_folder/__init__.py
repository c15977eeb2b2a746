"""The files of one study's folder: its locks, heartbeat, requests and old checkpoints.

What Optuna or MLflow store there does not belong here.
"""
