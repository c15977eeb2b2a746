"""Prepare the inputs of a trial's kernel: a notebook with its params, and environment variables."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from .. import kernels
from ..notebook_api.messages import OBSERVED_VARIABLE, TRIAL_VARIABLE
from ..notebooks.executed import ExecutedNotebook
from ..notebooks.metadata import TrialMetadata
from ..notebooks.seeds import replace_seeds
from ..trials import Params, TrialSpec, Value
from .site import Site
from .workload import Workload


def new_file(
    site: Site, spec: TrialSpec, *, earlier: TrialMetadata | None = None
) -> ExecutedNotebook:
    """Return the executed notebook of a trial before it runs, with its params. Write no file.

    Args:
        site: Resources that the trials of this machine use.
        spec: Spec of the trial.
        earlier: Metadata of an earlier run of this attempt, whose checkpoint the trial resumes; see
            `ExecutedNotebook`.
    """
    workload = site.workload
    is_python = workload.notebook.language == "python"
    node = kernels.inject(
        workload.notebook.fresh_copy(workload.kernel_name),
        {**own_params(workload, spec), **spec.fixed},
        kernel_name=workload.kernel_name,
        language=kernels.language_of(workload.kernel_name),
    )
    if workload.replaces_seeds and is_python:
        replace_seeds(node, spec.seed)
    file = ExecutedNotebook(node, spec, earlier=earlier)
    file.note(
        originals=originals_of(workload, spec),
        snapshot=workload.snapshot_name,
        environment=site.environment,
        data=None if workload.data is None else workload.data.use,
        random_seed=random_seed_of(workload, spec) if is_python else None,
        host=workload.host,
        observed=workload.observed or {},
    )
    return file


def random_seed_of(workload: Workload, spec: TrialSpec) -> int:
    """Return the seed with which the random generators of a trial's kernel begin."""
    return spec.seed if workload.random_seed is None else workload.random_seed


def originals_of(workload: Workload, spec: TrialSpec) -> Params:
    """Return the plain values, such as `0.1`, that the notebook itself gives to a trial's params.

    A param to which it gives no plain value is left out.
    """
    known = workload.notebook.assignments
    names = {**spec.params, **spec.fixed}
    return {name: known.plain_value(name) for name in names if known.places(name)}


def own_params(workload: Workload, spec: TrialSpec) -> Params:
    """Return the injected params that differ between the trials of a sweep."""
    params: dict[str, Value] = {}
    if workload.notebook.takes("seed"):
        params["seed"] = spec.seed
    if workload.notebook.takes("run_id"):
        params["run_id"] = spec.run_id
    params |= spec.params
    for name, file in spec.inputs.items():
        params[name] = str(file.path)
    return {name: value for name, value in params.items() if name not in spec.fixed}


def variables_of(workload: Workload, spec: TrialSpec) -> Sequence[str]:
    """Return the names of the params of a trial that are variables of the notebook."""
    names = {**spec.params, **spec.fixed}
    return [name for name in names if workload.notebook.assigns(name)]


def changed_since(workload: Workload, spec: TrialSpec) -> Sequence[str]:
    """Return names of params that the parameters file no longer sets as when the trial began.

    These params were since moved to `fixed`, or removed from `fixed`, `inputs` or the search space.
    """
    own, fixed = own_params(workload, spec).keys(), spec.fixed.keys()
    return sorted((own - workload.own_names) | (fixed - workload.settings.fixed.keys()))


def env_of(
    site: Site, spec: TrialSpec, *, begun: Mapping[str, int], is_repetition: bool
) -> dict[str, str]:
    """Return the environment variables that only the kernel of this trial gets.

    Args:
        site: Resources that the trials of this machine use.
        spec: Spec of the trial.
        begun: For each metric that a library logged in the earlier attempt, the number after its
            last step. Values that are logged without a step are counted on from there.
        is_repetition: Whether the trial is repeated for a proof of forked kernels.
    """
    trial = {
        "number": spec.number,
        "run_id": spec.run_id,
        "params": dict(spec.params),
        "seed": spec.seed,
        "attempt": spec.attempt,
        "folder": str(spec.checkpoint_dir),
        "artifact_folder": str(spec.artifact_dir),
    }
    workload = site.workload
    observed = {
        "reports": workload.settings.reports == "auto",
        "begun": begun,
        "mlflow": _mlflow_of(site, spec, is_repetition=is_repetition),
    }
    env = {TRIAL_VARIABLE: json.dumps(trial), OBSERVED_VARIABLE: json.dumps(observed)}
    if workload.observed:
        env[kernels.WATCH_VARIABLE] = "1"
    return env


def _mlflow_of(site: Site, spec: TrialSpec, *, is_repetition: bool) -> dict[str, str | None]:
    """Return what MLflow calls in the notebook need to log into the trial's run in MLflow.

    The calls log to a temporary folder if MLflow has no run of the trial, as for a repetition, if
    MLflow does not create the run in time, or if the kernel cannot reach MLflow's store.
    """
    workload = site.workload
    has_run = workload.tracking is not None and not is_repetition
    temporary = (site.folder / f"mlflow-{uuid.uuid4().hex}").as_uri()
    return {
        "uri": workload.tracking if has_run else temporary,
        "temporary": temporary,
        "version": version("mlflow"),
        "study": spec.study,
        "study_id": spec.study_id,
        "run_id": spec.run_id if has_run else None,
    }
