"""The only owner of MLflow."""

from .tracker import Tracker

__all__ = ["Tracker"]
