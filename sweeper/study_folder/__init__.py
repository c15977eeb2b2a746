"""Manage a study's folder: locks, requests, snapshots of code, and hashes of artifacts.

The folders `study` and `tracking` own the files of Optuna and MLflow in it.
"""
