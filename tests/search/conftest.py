"""Fixtures: one storage for all tests of a folder, and a new study in it for each test."""

from opened_studies import begin, storage

__all__ = ["begin", "storage"]
