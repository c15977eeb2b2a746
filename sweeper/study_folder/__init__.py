"""Manage a study's folder: locks, requests, snapshots of code, and hashes of artifacts.

The code for the files of Optuna and MLflow in a study's folder is in `study` and `tracking`.
"""
