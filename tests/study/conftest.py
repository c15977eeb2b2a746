"""A storage for all tests of a folder, and a study of the test's own in it."""

from opened_studies import begin, storage

__all__ = ["begin", "storage"]
