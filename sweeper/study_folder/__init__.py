"""Manage a study's folder: locks, requests, snapshots of code, and hashes of artifacts.

Optuna's and MLflow's files in it belong to other folders.
"""
