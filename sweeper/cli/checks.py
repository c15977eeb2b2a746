"""The commands `check` and `doctor`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .codes import FOUND_FAULTS, OK
from .console_output import ConsoleOutput
from .run_options import RunOptions
from .signals import end_command, handled


def check(arguments: argparse.Namespace) -> int:
    """Check a sweep before it starts. Return 0 if no check failed."""
    from ..checking.check import check as run_checks

    console, options = ConsoleOutput.of(arguments), RunOptions.of(arguments)
    settings = options.settings()
    if settings.cluster is not None:
        console.progress(f"this machine is checked, not the cluster {settings.cluster.place}")
        settings = settings.model_copy(update={"cluster": None})
    findings = []
    with handled(end_command):
        plan = options.sweep(settings, options.input).plan
        for finding in run_checks(plan, dry_run=arguments.dry_run, on_run=console.progress):
            console.line(finding.line())
            findings.append(asdict(finding))
    forecast = [finding.pop("forecast") for finding in findings][-1]
    faults = sum(finding["holds"] is False for finding in findings)
    unclear = sum(finding["holds"] is None for finding in findings)
    if faults:
        console.line(f"{faults} of {len(findings)} checks found something to change")
    else:
        kernels = ", no kernel was started" if arguments.dry_run else ""
        n = len(findings)
        passed = f"all {n} checks hold"
        if unclear:
            passed = f"{n - unclear} of {n} checks hold, {unclear} unclear"
        console.line(f"{passed}{kernels}")
    console.json({"holds": not faults, "findings": findings, "forecast": forecast})
    return FOUND_FAULTS if faults else OK


def doctor(arguments: argparse.Namespace) -> int:
    """Print versions, kernels, GPUs and limits of this machine, for a bug report."""
    from ..checking.doctor import description

    console, found = ConsoleOutput.of(arguments), dict(description())
    for subject, line in found.items():
        console.line(f"{subject}: {line}")
    console.json(found)
    return OK
