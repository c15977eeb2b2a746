"""Make snapshots of a running study, with defaults for what a test does not state."""

from __future__ import annotations

from typing import Any

from studies import trial_record

from sweeper.trials import Progress, Snapshot, TrialRecord


def progress(run_id: str = "0007", **stated: Any) -> Progress:
    usual: dict[str, Any] = {
        "run_id": run_id,
        "params": {"lr": 0.0123456, "optimizer": "adam", "width": 128},
        "attempt": 1,
        "cell": 4,
        "cells": 9,
        "step": 12,
        "metrics": {"loss": 0.5, "val_acc": 0.87654},
        "elapsed_s": 75.0,
        "memory_bytes": 512_000_000,
    }
    return Progress(**{**usual, **stated})


def snapshot(*running: Progress, **stated: Any) -> Snapshot:
    usual: dict[str, Any] = {
        "study": "digits",
        "trials": 40,
        "counts": {"completed": 9, "failed": 1, "stopped": 0, "running": len(running)},
        "objectives": ["val_acc"],
        "running": running,
        "best": [],
        "left_s": 150.0,
    }
    return Snapshot(**{**usual, **stated})


def completed(number: int, **stated: Any) -> TrialRecord:
    return trial_record(number, **{"params": {"lr": 0.5}, "scores": {"val_acc": 0.9375}, **stated})
