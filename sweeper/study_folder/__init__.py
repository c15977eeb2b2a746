"""What lies on disk for one study: its lock, heartbeat, requests and checkpoints' clean-up.

What Optuna or MLflow store there does not belong here.
"""
