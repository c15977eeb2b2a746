"""The command `check`: what can be known of a sweep before it is paid for."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from .codes import FOUND_FAULTS, OK
from .console_output import ConsoleOutput
from .run import settings_of

if TYPE_CHECKING:
    from ..control.check import Finding
    from ..sweep.plan import SweepPlan


def check(options: argparse.Namespace) -> int:
    """Check a sweep; 0 where everything holds."""
    from ..control.check import check as run_checks

    console = ConsoleOutput(options)

    def on_finding(finding: Finding) -> None:
        console.line(finding.line())

    result = run_checks(
        _plan(options, console),
        dry_run=options.dry_run,
        on_finding=on_finding,
        on_run=console.progress,
    )
    faults = [finding for finding in result.findings if finding.holds is False]
    if faults:
        console.line(f"{len(faults)} of {len(result.findings)} checks found something to change")
    else:
        kernels = ", no kernel was started" if options.dry_run else ""
        console.line(f"all {len(result.findings)} checks hold{kernels}")
    forecast = None if result.forecast is None else asdict(result.forecast)
    findings = [asdict(finding) for finding in result.findings]
    console.json({"holds": result.holds, "findings": findings, "forecast": forecast})
    return OK if result.holds else FOUND_FAULTS


def _plan(options: argparse.Namespace, console: ConsoleOutput) -> SweepPlan:
    from ..notebooks import ResearchNotebook
    from ..sweep import Sweep

    settings = settings_of(options)
    if settings.cluster is not None:
        console.progress(f"this machine is checked, not the cluster {settings.cluster.place}")
        settings = settings.model_copy(update={"cluster": None})
    sweep = Sweep.from_settings(
        settings,
        notebook=ResearchNotebook(options.input),
        output=options.output,
        jobs=options.jobs,
        storage=options.storage,
        tracking_uri=options.tracking_uri,
        kernel=options.kernel,
        allow_changes=True,
    )
    return sweep.plan
