"""Check a sweep before it is paid for: its surroundings, then the notebook in a few short runs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...settings import Settings
from ...sweep.inputs.data import bring_data, with_data
from ...sweep.inputs.resolving import with_inputs
from ...sweep.plan import SweepPlan
from ...trials import StudyPaths, inputs_of
from .corners import largest_params, random_params, typical_params
from .findings import Finding
from .forecast import SweepForecast, make_forecast
from .judging import forecast_finding, judge
from .probes import Measured, Probe, Role, run_probes
from .surroundings import check_surroundings, free_disk_bytes

#: A cell that draws its seed from the sweep without a parameter of that name.
_TRIAL_SEED = re.compile(r"\btrial\(\)\.seed|\b(t|trial)\.seed\b")
_SAVES = re.compile(r"\bsave_checkpoint\(")
#: How many trials at other params are run for the forecast.
_OTHERS = 2
#: How many runs at full length are tried beside each other at most.
_MOST_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What `check` has found.

    Attributes:
        forecast: None where a probe has failed, or none was run.
    """

    findings: Sequence[Finding]
    forecast: SweepForecast | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing was found that has to be changed."""
        return all(finding.holds is not False for finding in self.findings)


def check(
    plan: SweepPlan,
    *,
    dry_run: bool,
    on_finding: Callable[[Finding], None],
    on_probe: Callable[[str], None],
) -> CheckResult:
    """Check everything that can be known of a sweep, and forecast what it will take.

    Args:
        dry_run: whether to stop before any kernel is started.
        on_finding: called with each finding at once.
        on_probe: called with the words for what is run next, which may take long.

    Raises:
        SweepError: an input cannot be found in its study, or the data cannot be fetched.
    """
    findings: list[Finding] = []
    plan = with_data(with_inputs(plan))

    def note(found: Finding) -> None:
        findings.append(found)
        on_finding(found)

    for found in check_surroundings(plan):
        note(found)
    if dry_run:
        return CheckResult(findings=findings)
    bring_data(plan, on_probe, lambda: False)
    forecast = None
    with tempfile.TemporaryDirectory(prefix="check-") as folder:
        measured, kernel_findings = _run(plan, Path(folder), on_probe)
    for found in judge(
        measured,
        settings=plan.settings,
        has_seed=_has_seed(plan),
        kernel_findings=kernel_findings,
    ):
        note(found)
    if all(it.is_completed or it.probe.role is Role.INTERRUPTED for it in measured):
        forecast = make_forecast(plan.settings, measured, jobs=plan.executor.jobs)
        note(forecast_finding(forecast, free_disk_bytes=free_disk_bytes(plan.paths.root)))
    return CheckResult(findings=findings, forecast=forecast)


def _run(
    plan: SweepPlan, folder: Path, on_probe: Callable[[str], None]
) -> tuple[list[Measured], list[str]]:
    """Run the quick probes, then some at full length, as many at once as the sweep will run.

    Trials beside each other are slower than one alone: they share caches, cores and GPUs.
    """

    def announce(probe: Probe) -> None:
        on_probe(str(probe.role))

    settings = plan.settings
    quick = settings.with_overrides(fixed=settings.smoke) if settings.smoke else settings
    measured, findings = _run_with(
        plan, quick, list(_probes(plan, quick)), folder / "quick", announce
    )
    jobs = min(plan.executor.jobs, settings.study.trials, _MOST_AT_ONCE)
    has_more = bool(settings.smoke) or jobs > 1
    if has_more and all(it.is_completed or it.probe.role is Role.INTERRUPTED for it in measured):
        params = typical_params(settings, plan.notebook.parameters_source)
        full = [_probe(Role.FULL, n, params, settings, seed=n) for n in range(jobs)]
        more, _ = _run_with(plan, settings, full, folder / "full", announce, jobs=jobs)
        measured += more
    return measured, findings


def _run_with(
    plan: SweepPlan,
    settings: Settings,
    probes: Sequence[Probe],
    folder: Path,
    announce: Callable[[Probe], None],
    *,
    jobs: int = 1,
) -> tuple[list[Measured], list[str]]:
    paths = StudyPaths.parse(f"{folder}/{{run_id}}.ipynb", study="check")
    paths.folder.mkdir(parents=True)
    workload = replace(plan.workload, settings=settings, paths=paths)
    probes = [replace(it, inputs=inputs_of(plan.inputs, it.params)) for it in probes]
    measured, findings = run_probes(workload, probes, jobs=jobs, on_begin=announce)
    return measured, list(findings)


def _probes(plan: SweepPlan, settings: Settings) -> Iterator[Probe]:
    """The quick runs; each explains more, and the one that is likeliest to fail comes early."""
    typical = typical_params(settings, plan.notebook.parameters_source)
    yield _probe(Role.TYPICAL, 0, typical, settings, seed=0)
    yield _probe(Role.LARGEST, 1, largest_params(settings, typical), settings, seed=0)
    yield _probe(Role.AGAIN, 2, typical, settings, seed=0)
    if _has_seed(plan):
        yield _probe(Role.OTHER_SEED, 3, typical, settings, seed=1)
    for index in range(_OTHERS):
        yield _probe(Role.OTHER, 4 + index, random_params(settings, index), settings, seed=0)
    if any(map(_SAVES.search, plan.notebook.code)):
        interrupted = _probe(Role.INTERRUPTED, 4 + _OTHERS, typical, settings, seed=0)
        yield interrupted
        yield replace(interrupted, role=Role.CONTINUED, attempt=2)


def _probe(
    role: Role, number: int, params: dict[str, object], settings: Settings, *, seed: int
) -> Probe:
    fixed = settings.fixed
    return Probe(role=role, number=number, params=params, fixed=fixed, seed=seed)


def _has_seed(plan: SweepPlan) -> bool:
    """Whether the notebook takes the trial's seed."""
    if "seed" in plan.settings.fixed or "seed" in plan.settings.search_space:
        return False
    return plan.notebook.assigns("seed") or any(map(_TRIAL_SEED.search, plan.notebook.code))
