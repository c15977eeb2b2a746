"""The command `check`: what can be known of a sweep before it is paid for."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from .codes import FOUND_FAULTS, OK
from .console_output import ConsoleOutput
from .run import settings_of

if TYPE_CHECKING:
    from ..sweep.plan import SweepPlan


def check(options: argparse.Namespace) -> int:
    """Check a sweep; 0 where everything holds."""
    from ..control.check import check as run_checks

    console = ConsoleOutput(options)
    findings = []
    plan = _plan(options, console)
    for finding in run_checks(plan, dry_run=options.dry_run, on_run=console.progress):
        console.line(finding.line())
        findings.append(asdict(finding))
    forecast = [finding.pop("forecast") for finding in findings][-1]
    faults = sum(finding["holds"] is False for finding in findings)
    if faults:
        console.line(f"{faults} of {len(findings)} checks found something to change")
    else:
        kernels = ", no kernel was started" if options.dry_run else ""
        console.line(f"all {len(findings)} checks hold{kernels}")
    console.json({"holds": not faults, "findings": findings, "forecast": forecast})
    return FOUND_FAULTS if faults else OK


def _plan(options: argparse.Namespace, console: ConsoleOutput) -> SweepPlan:
    from ..notebooks.research import ResearchNotebook
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
