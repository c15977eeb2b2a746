"""What the probes show: one finding for each thing that a sweep rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...display.quantities import duration, size
from ...display.screen import params_line
from ...settings import Settings
from .findings import Finding
from .forecast import SweepForecast
from .probes import Measured, Role


def judge(
    measured: Sequence[Measured],
    *,
    settings: Settings,
    has_seed: bool,
    kernel_findings: Sequence[str],
) -> Iterator[Finding]:
    """Judge probes, in the order in which they were run; the last one may have failed.

    Args:
        has_seed: whether the notebook takes a seed from its sweep.
        kernel_findings: what the executor found of how kernels came to be.
    """
    by_role: dict[Role, Measured] = {it.probe.role: it for it in measured}
    failed = [
        it for it in measured if not it.is_completed and it.probe.role is not Role.INTERRUPTED
    ]
    for it in failed:
        yield _failure(it)
    typical = by_role[Role.TYPICAL]
    if not typical.is_completed:
        return
    yield _score(typical, settings)
    if (again := by_role.get(Role.AGAIN)) is not None and again.is_completed:
        repeats = _repeats(typical, again)
        yield repeats
        if not repeats.holds:
            # Any two runs differ, so that a difference shows nothing.
            yield _not_judged()
            yield _memory(measured)
            return
        yield _kernels(measured, kernel_findings)
    if (other := by_role.get(Role.OTHER_SEED)) is not None and other.is_completed:
        yield _seed(typical, other)
    elif not has_seed:
        yield _no_seed(is_needed=settings.confirm is not None)
    varied = [it for it in measured if it.probe.role in (Role.LARGEST, Role.OTHER)]
    if varied and all(it.is_completed for it in varied):
        yield _params(typical, varied)
    yield from _checkpoints(typical, by_role)
    yield _memory(measured)


def _failure(it: Measured) -> Finding:
    lines = it.outcome.message.strip().splitlines() or [str(it.outcome.state)]
    params = params_line(it.probe.params)
    text = f"the notebook fails at {it.probe.role} ({params}): {lines[0]}"
    if it.probe.role is Role.LARGEST:
        remedy = "make the space smaller, or the notebook more careful there"
    else:
        remedy = "run it by hand with these values"
    return Finding(name="runs", holds=False, text=text, remedy=remedy)


def _score(it: Measured, settings: Settings) -> Finding:
    found = ", ".join(f"{name} {it.outcome.scores[name]:.6g}" for name in settings.objective)
    steps = max((len(points) for points in it.outcome.series.values()), default=0)
    many = "s" if steps > 1 else ""
    live = f", reported at {steps} step{many}" if steps else ", found after the last cell"
    text = f"the notebook runs in {duration(it.outcome.duration_s)} and gives {found}{live}"
    prunes = settings.study.pruner.name != "none"
    if prunes and not steps:
        remedy = "report it while it runs (sweeper.report), or no trial can be pruned"
        return Finding(name="score", holds=False, text=text, remedy=remedy)
    return Finding(name="score", holds=True, text=text)


def _repeats(first: Measured, second: Measured) -> Finding:
    difference = _difference(first, second)
    if difference is None:
        text = "the same seed gives the same score, to the last bit"
        return Finding(name="repeats", holds=True, text=text)
    return Finding(
        name="repeats",
        holds=False,
        text=f"the same seed gives another score: {difference}",
        remedy="call sweeper.seed_everything(seed) before anything random",
    )


def _not_judged() -> Finding:
    return Finding(
        name="not judged",
        holds=None,
        text="seed, params, checkpoints and forked kernels cannot be judged, as no run repeats",
        remedy="check again once the same seed gives the same score",
    )


def _kernels(measured: Sequence[Measured], findings: Sequence[str]) -> Finding:
    uses = [it.outcome.kernel for it in measured if it.outcome.kernel is not None]
    forked = [use for use in uses if use.is_forked]
    if forked:
        shared = max(use.shared_cells for use in forked)
        cells = f", after {shared} cells that run once for all trials" if shared else ""
        text = f"a forked kernel comes to the same as a started one{cells}"
        return Finding(name="warm kernels", holds=True, text=text, details=findings)
    if findings:
        text = "trials will each start a kernel of their own, which is slower"
        return Finding(name="warm kernels", holds=False, text=text, details=findings)
    why = uses[-1].reason if uses else "none was started"
    text = f"kernels are started, not forked ({why})"
    return Finding(name="warm kernels", holds=None, text=text)


def _seed(first: Measured, second: Measured) -> Finding:
    difference = _difference(first, second)
    if difference is not None:
        text = f"another seed gives another score ({difference})"
        return Finding(name="seed", holds=True, text=text)
    return Finding(
        name="seed",
        holds=False,
        text="another seed gives the same score, so the seed has no effect",
        remedy="pass it on: sweeper.seed_everything(seed), random_state=seed",
    )


def _no_seed(*, is_needed: bool) -> Finding:
    return Finding(
        name="seed",
        holds=False if is_needed else None,
        text="the notebook takes no seed" + (", which confirm needs" if is_needed else ""),
        remedy="assign `seed` in the parameters cell, or read sweeper.trial().seed, so that luck "
        "can be told from merit",
    )


def _params(typical: Measured, varied: Sequence[Measured]) -> Finding:
    if any(_difference(typical, it) for it in varied):
        return Finding(name="params", holds=True, text="other params give other scores")
    return Finding(
        name="params",
        holds=False,
        text=f"the score is the same for {len(varied) + 1} different sets of params",
        remedy="does the notebook use the names of its parameters cell?",
    )


def _checkpoints(typical: Measured, by_role: Mapping[Role, Measured]) -> Iterator[Finding]:
    interrupted, continued = by_role.get(Role.INTERRUPTED), by_role.get(Role.CONTINUED)
    if interrupted is None:
        return
    if interrupted.is_completed:
        text = "the trial ends before it can be interrupted after its first checkpoint"
        remedy = "let smoke have two epochs or more to try it"
        yield Finding(name="checkpoints", holds=None, text=text, remedy=remedy)
        return
    if continued is None or not continued.is_completed:
        return  # the failure is a finding by itself
    difference = _difference(typical, continued, scores_only=True)
    if difference is None:
        kept = size(continued.checkpoint_bytes)
        text = f"an interrupted trial goes on from its checkpoint ({kept}) to the same score"
        yield Finding(name="checkpoints", holds=True, text=text)
        return
    yield Finding(
        name="checkpoints",
        holds=False,
        text=f"an interrupted trial goes on to another score: {difference}",
        remedy="save all that the training changes: model, optimizer, scheduler, scaler, loader",
    )


def _memory(measured: Sequence[Measured]) -> Finding:
    peak = max((it.memory_bytes or 0 for it in measured), default=0)
    on_gpu = max((it.outcome.gpu.peak_bytes or 0 for it in measured if it.outcome.gpu), default=0)
    gpu = f", and {size(on_gpu)} of a GPU" if on_gpu else ""
    text = f"a trial takes at most {size(peak)} of memory{gpu}"
    return Finding(name="memory", holds=True, text=text)


def forecast_finding(forecast: SweepForecast, *, free_disk_bytes: int) -> Finding:
    """Whether the sweep as a whole fits this machine's memory and disk."""
    money = "" if forecast.cost is None else f", cost {forecast.cost:.2f}"
    n = forecast.confirming
    confirming = f" ({n} of them to confirm the best)" if n else ""
    text = (
        f"{forecast.trials} trials{confirming}, {forecast.at_once} at once, take about "
        f"{duration(forecast.duration_s)}{money} and at most {size(forecast.disk_bytes)} of disk"
    )
    remedies = []
    if forecast.memory_at_once is not None and forecast.memory_at_once < forecast.at_once:
        remedies.append(f"memory carries {max(1, forecast.memory_at_once)} at once: lower -j")
    if forecast.disk_bytes > free_disk_bytes:
        remedies.append(
            f"only {size(free_disk_bytes)} are free: make room, or keep fewer checkpoints "
            "(checkpoints: {completed: best})"
        )
    return Finding(name="forecast", holds=not remedies, text=text, remedy="; ".join(remedies))


def _difference(first: Measured, second: Measured, *, scores_only: bool = False) -> str | None:
    """The first score or step in which two runs differ, in words; None where none does."""
    for name, value in first.outcome.scores.items():
        other = second.outcome.scores.get(name)
        if repr(other) != repr(value):
            return f"{name} {value!r} and {other!r}"
    if scores_only:
        return None
    for name, points in first.outcome.series.items():
        for (step, value), (_, other) in zip(
            points, second.outcome.series.get(name, []), strict=False
        ):
            if repr(other) != repr(value):
                return f"{name} at step {step} {value!r} and {other!r}"
    return None
