"""Fixtures: a storage for each test, and new studies in it."""

from opened_studies import begin, empty_storage, storage

__all__ = ["begin", "empty_storage", "storage"]
