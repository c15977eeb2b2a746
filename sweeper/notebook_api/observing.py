"""Use the logs of libraries as reports, and direct MLflow's calls into the trial's run.

In a kernel of a sweep, this module replaces functions of known libraries that the notebook imports.
In a notebook that is run by hand, it does nothing.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from inspect import signature
from typing import Any

from .calls import observed
from .messages import OBSERVED_VARIABLE, Point, PointSource

#: Longest wait for the trial's run in MLflow, which another process creates, in seconds (chosen,
#: not measured). The wait begins with MLflow's first answer.
_RUN_LIMIT_S = 60.0
#: Longest wait for MLflow's first answer, in seconds: the time for which MLflow's client repeats a
#: call.
_AWAY_LIMIT_S = 240.0
#: Time between two checks for the run, in seconds (chosen, not measured).
_LOOK_S = 0.2
#: Settings of MLflow's client while it looks for the trial's run. The client repeats no failed
#: call, because the whole search is repeated. It waits 30 s for an answer (chosen).
_ONE_CALL = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
#: MLflow's error codes of a database that is locked, and of a server that does not answer. MLflow
#: also uses the second code for calls that it refuses.
_LOCKED, _INTERNAL = "TEMPORARILY_UNAVAILABLE", "INTERNAL_ERROR"
#: Prefix of the names of MLflow's system metrics, which are not scores.
_OF_MACHINE = "system/"


def observe(module: Any) -> None:
    """Use the logs of a module's library as reports from now on, if the library is known."""
    known, name = json.loads(os.environ.get(OBSERVED_VARIABLE, "null")), module.__name__
    if known is not None and name not in _acted_on and (known["reports"] or name == "mlflow"):
        _acted_on.add(name)
        _LIBRARIES[name](module)


def _report(
    library: str,
    step: int,
    values: Mapping[Any, Any],
    source: PointSource = PointSource.OBSERVED,
) -> None:
    """Report those values of a library that are numbers.

    If several libraries use the same name, only the values of the first one are reported.

    Args:
        library: Name of the library.
        step: Step of the values.
        values: Values by name. Values that are not numbers are left out.
        source: Way in which the library has stated the values.
    """
    metrics = {}
    for name, value in values.items():
        if not isinstance(value, str) and _owners.setdefault(str(name), library) == library:
            # Leave out a value that is not a number.
            with suppress(TypeError, ValueError, OverflowError, RuntimeError):
                metrics[str(name)] = float(value)
    if metrics:
        observed(Point(step=int(step), metrics=metrics, source=source, library=library))


class _NoStep(int):
    """Stands for a step that is not given, also after MLflow's code has evaluated `step or 0`."""

    def __bool__(self) -> bool:
        return True


_NO_STEP = _NoStep()


def _step_of(name: str, step: int | None, *, run: str = "") -> int:
    """Return the step of a value. If no step is given, count the values of the series.

    The count continues that of earlier attempts at the trial.

    Args:
        name: Name of the series.
        step: Step that the notebook has given. None or `_NO_STEP` if it has given none.
        run: Id of an MLflow run other than the trial's, which has its own counts.
    """
    if step is None or step is _NO_STEP:
        if (run, name) not in _counts and not run:
            known = json.loads(os.environ.get(OBSERVED_VARIABLE, "null")) or {}
            _counts[run, name] = known.get("begun", {}).get(name, 0)
        step = _counts[run, name]
        _counts[run, name] += 1
    return step


def _after(owner: Any, name: str, report: Callable[..., None]) -> None:
    """Call `report` after each call of a function, with the same arguments.

    Args:
        owner: Class or module of the function.
        name: Name of the function.
        report: Function that is called with the same arguments.
    """
    function = getattr(owner, name)

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        report(*arguments, **options)
        return result

    setattr(owner, name, call)


def _keras(module: Any) -> None:
    def report(_: Any, epoch: int, logs: Any = None) -> None:
        _report("Keras", epoch, logs or {})

    # `keras.callbacks` and `keras.src.callbacks` have the same class: replace its method once.
    if not hasattr(module.CallbackList.on_epoch_end, "__wrapped__"):
        _after(module.CallbackList, "on_epoch_end", report)


def _transformers(module: Any) -> None:
    def report(trainer: Any, logs: Any, *_: Any, **__: Any) -> None:
        _report("Transformers", trainer.state.global_step, logs)

    _after(module.Trainer, "log", report)


def _lightning(module: Any) -> None:
    last: dict[str, Any] = {}

    def report(trainer: Any, epoch: int) -> None:
        # Lightning keeps a metric until it is logged again, so the same object is not a new value.
        old, newest = dict(last), dict(trainer.callback_metrics)
        last.clear()
        last.update(newest)
        new = {name: value for name, value in newest.items() if value is not old.get(name)}
        _report("Lightning", epoch, new)

    loop_class = getattr(module, "_FitLoop", None) or module.FitLoop
    end_epoch = loop_class.on_advance_end

    # When Lightning's own function returns, the values of all hooks are known, and checkpoints are
    # saved.
    @functools.wraps(end_epoch)
    def observed_end(loop: Any) -> None:
        epoch = loop.trainer.current_epoch
        end_epoch(loop)
        report(loop.trainer, epoch)

    loop_class.on_advance_end = observed_end
    for name in ("validate", "test"):
        _after(
            module.Trainer, name, lambda trainer, *_, **__: report(trainer, trainer.current_epoch)
        )


def _xgboost(module: Any) -> None:
    def report(container: Any, _: Any, epoch: int, *__: Any) -> None:
        sets = container.history.items()
        newest = {
            f"{data}-{name}": values[-1] for data, series in sets for name, values in series.items()
        }
        _report("XGBoost", epoch, newest)

    _after(module.CallbackContainer, "after_iteration", report)


def _lightgbm(module: Any) -> None:
    def report(env: Any) -> None:
        results = env.evaluation_result_list or ()
        _report(
            "LightGBM",
            env.iteration,
            {f"{data}-{name}": value for data, name, value, *_ in results},
        )

    train = module.train

    @functools.wraps(train)
    def observed_train(*arguments: Any, **options: Any) -> Any:
        options["callbacks"] = [*(options.get("callbacks") or ()), report]
        return train(*arguments, **options)

    places: list[Any] = [module, *map(import_module, ("lightgbm.engine", "lightgbm.sklearn"))]
    for place in places:
        place.train = observed_train


def _fastai(module: Any) -> None:
    def report(recorder: Any) -> None:
        _report("fastai", recorder.epoch, dict(zip(recorder.metric_names, recorder.log)))

    _after(module.Recorder, "after_epoch", report)


def _tensorboard(module: Any) -> None:
    # The parameters have torch's names, because users may pass them by keyword.
    def report(
        _: Any, tag: str, scalar_value: Any, global_step: Any = None, *__: Any, **___: Any
    ) -> None:
        _report("TensorBoard", _step_of(tag, global_step), {tag: scalar_value})

    _after(module.SummaryWriter, "add_scalar", report)


def _mlflow(module: Any) -> None:
    """Direct MLflow's calls into the run of the trial, and use its metrics as points."""
    known = json.loads(os.environ[OBSERVED_VARIABLE])
    uri, version = known["mlflow"]["uri"], known["mlflow"]["version"]
    if uri.startswith("sqlite") and module.__version__.split(".")[:2] != version.split(".")[:2]:
        warnings.warn(
            f"MLflow {module.__version__} in the notebook and {version} in the sweep cannot share "
            f"a store of {uri.partition(':')[0]}: this notebook logs to its own store, not to the "
            "trial's run",
            stacklevel=2,
        )
        return
    run = _RunOfTrial(module, known["mlflow"])
    if known["mlflow"]["run_id"] is None:
        run.use_folder()
    else:
        module.set_tracking_uri(uri)
    module.set_tracking_uri = lambda *_, **__: None
    _join(module, run, reports=known["reports"])


def _join(module: Any, run: _RunOfTrial, *, reports: bool) -> None:
    """Make the notebook's MLflow calls use the trial's run, and not runs that they would start.

    A nested run remains a separate run. A param that the trial's run already has with another value
    becomes a tag. Only the sweep ends the trial's run.

    Args:
        module: The module `mlflow`.
        run: The trial's run.
        reports: Whether metrics count as reports.
    """
    _survive_the_server(module.MlflowClient, run)
    _join_experiment(module, run)
    _join_starts(module, run)
    _leave_open(module.MlflowClient, run)
    _soften_params(module, run)
    _mark_steps(module)
    _observe_metrics(module.MlflowClient, run, reports=reports)


class _RunOfTrial:
    """The trial's run in MLflow. It is looked up when its id is first needed.

    Args:
        module: The module `mlflow`, before it is changed.
        trial: The trial's `run_id`, `study` and `study_id`, and the URI of a `temporary` folder. If
            `run_id` is None, this folder is the store, for this run only.
    """

    def __init__(self, module: Any, trial: Mapping[str, Any]) -> None:
        self._module, self._trial = module, trial
        self._set_experiment, self._set_uri = module.set_experiment, module.set_tracking_uri
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._is_in_folder = False
        self._earlier_id: str | None = None

    @functools.cached_property
    def id(self) -> str:
        """Id of the run in MLflow. Wait for the run, which another process creates.

        If MLflow has no such run after 60 s, or does not answer for four minutes, a run in a
        temporary folder takes its place.
        """
        run_id = self._trial["run_id"]
        if run_id is None:
            return self._temporary()
        end_s, why = time.monotonic() + _AWAY_LIMIT_S, "MLflow is unavailable"
        has_answered = False
        while not (found := self._found()):
            if found is not None and not has_answered:
                has_answered = True
                end_s = time.monotonic() + _RUN_LIMIT_S
                why = f"MLflow has no run of trial {run_id} after {_RUN_LIMIT_S:g} s"
            if time.monotonic() > end_s:
                _warn(why)
                return self._temporary()
            time.sleep(_LOOK_S)
        return found[0]

    def _found(self) -> list[str] | None:
        """Return the id of the trial's run, if MLflow has this run. None if MLflow is unavailable.

        Ask only once. One thread asks at a time, because it changes environment variables of the
        process.
        """
        trial = self._trial
        wanted = (
            f"tags.`sweeper.run_id` = '{trial['run_id']}' "
            f"and tags.`sweeper.study_id` = '{trial['study_id']}'"
        )
        try:
            with self._looking, _environment(_ONE_CALL):
                experiment_id = self._set_experiment(trial["study"]).experiment_id
                found = self._module.MlflowClient().search_runs([experiment_id], wanted)
        except self._module.exceptions.MlflowException as error:
            if error.error_code not in (_LOCKED, _INTERNAL):
                raise
            return None
        return [str(run.info.run_id) for run in found]

    def _is_away(self, error: Exception) -> bool:
        """Return whether a call has failed because MLflow is unavailable."""
        # A proxy's answer to a call about files is an `OSError` of `requests`, without a code.
        code = getattr(error, "error_code", _INTERNAL)
        return code == _LOCKED or (code == _INTERNAL and self._found() is None)

    def use_folder(self) -> None:
        """Use the temporary folder as the store from now on."""
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # MLflow refuses a folder without this.
        self._set_uri(self._trial["temporary"])
        self._is_in_folder = True

    def _temporary(self) -> str:
        """Create a run in the temporary folder, which is the store from now on. Return its id."""
        self.use_folder()
        experiment_id = self._set_experiment(self._trial["study"]).experiment_id
        return str(self._module.MlflowClient().create_run(experiment_id).info.run_id)

    @property
    def is_known(self) -> bool:
        """Whether the run was looked up."""
        return "id" in vars(self)

    def has(self, run_id: str) -> bool:
        """Return whether an id is that of the run, or was it before MLflow became unavailable."""
        return run_id == self.id or run_id == self._earlier_id

    def client(self, known: Any) -> Any:
        """Return a client of the store with the run: `known`, or one for the temporary folder."""
        return self._module.MlflowClient() if self._is_in_folder else known

    def calling(self, call: Callable[[], Any]) -> Any:
        """Make a call about the run. If MLflow is unavailable, make it in the temporary folder.

        Args:
            call: Function that makes the call. It must read `client` and `id` anew each time,
                because both change with the store.
        """
        was_in_folder = self._is_in_folder
        try:
            return call()
        except (self._module.exceptions.MlflowException, OSError) as error:
            with self._lock:
                if not self._is_in_folder and self._is_away(error):
                    _warn("MLflow is unavailable")
                    self._earlier_id, vars(self)["id"] = self.id, self._temporary()
            # Make the call again if the run was moved to the folder, here or by a part of the call.
            if was_in_folder or not self._is_in_folder:
                raise
            return call()

    def experiment(self) -> Any:
        """Return the experiment of the run."""

        def found() -> Any:
            run_id = self.id  # This may change the store, so it comes before the client is made.
            client = self._module.MlflowClient()
            return client.get_experiment(client.get_run(run_id).info.experiment_id)

        return self.calling(found)


def _warn(why: str) -> None:
    text = "so it does not get the params and files that this notebook logs from now on"
    warnings.warn(f"{why}, {text}", stacklevel=2)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the block runs."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _survive_the_server(client_class: Any, run: _RunOfTrial) -> None:
    """Let no call about the trial's run fail because MLflow is unavailable.

    MLflow's client repeats a call for about four minutes. After that, the rest of what the notebook
    logs goes to the temporary folder. The sweep receives the metrics as points in any case.
    """

    def surviving(method: Any) -> Any:
        @functools.wraps(method)
        def call(self: Any, run_id: str, *rest: Any, **more: Any) -> Any:
            if not run.is_known or not run.has(run_id):
                return method(self, run_id, *rest, **more)
            return run.calling(lambda: method(run.client(self), run.id, *rest, **more))

        return call

    for name, method in list(vars(client_class).items()):
        if callable(method) and [*signature(method).parameters][1:2] == ["run_id"]:
            setattr(client_class, name, surviving(method))


def _namespaces(module: Any) -> list[Any]:
    """Return the modules in which the notebook and MLflow itself look up MLflow's functions."""
    return [module, import_module("mlflow.tracking.fluent")]


def _join_experiment(module: Any, run: _RunOfTrial) -> None:
    """Use the study's experiment in place of each experiment that the notebook names."""

    def set_experiment(*_: Any, **__: Any) -> Any:
        return run.experiment()

    def create_experiment(*_: Any, **__: Any) -> str:
        return str(run.experiment().experiment_id)

    for place in _namespaces(module):
        place.set_experiment, place.create_experiment = set_experiment, create_experiment


def _join_starts(module: Any, run: _RunOfTrial) -> None:
    """Make `start_run` use the trial's run, unless the call asks for another or a nested run."""
    start_run = module.start_run

    @functools.wraps(start_run)
    def join_run(
        run_id: Any = None, experiment_id: Any = None, run_name: Any = None, *rest: Any, **more: Any
    ) -> Any:
        is_nested = (rest and rest[0]) or more.get("nested") or more.get("parent_run_id")
        if run_id is not None or is_nested:
            return start_run(run_id, experiment_id, run_name, *rest, **more)
        return run.calling(lambda: start_run(run.id, None, None, *rest, **more))

    for place in _namespaces(module):
        place.start_run = join_run


def _leave_open(client_class: Any, run: _RunOfTrial) -> None:
    """Keep the notebook from ending the trial's run. It may end other runs."""
    set_terminated = client_class.set_terminated

    def end_other(self: Any, run_id: str, *rest: Any, **more: Any) -> None:
        if not run.has(run_id):
            set_terminated(self, run_id, *rest, **more)

    client_class.set_terminated = end_other


def _soften_params(module: Any, run: _RunOfTrial) -> None:
    """Store a param as a tag if the trial's run already has another value for it."""
    log_param = module.MlflowClient.log_param

    def log_softly(self: Any, run_id: str, key: str, value: Any, *rest: Any, **more: Any) -> Any:
        try:
            return log_param(self, run_id, key, value, *rest, **more)
        except module.exceptions.MlflowException:
            if not run.has(run_id):
                raise
            self.set_tag(run_id, f"notebook.{key}", value)
            return value

    module.MlflowClient.log_param = log_softly


def _mark_steps(module: Any) -> None:
    """Let MLflow pass on whether a call gives a step. By itself, it passes 0 if there is none."""
    log_one, log_several = module.log_metric, module.log_metrics
    queue = import_module("mlflow.utils.autologging_utils.client").MlflowAutologgingQueueingClient
    log_queued = queue.log_metrics

    @functools.wraps(log_one)
    def log_metric(key: str, value: Any, step: Any = None, *rest: Any, **more: Any) -> Any:
        return log_one(key, value, _NO_STEP if step is None else step, *rest, **more)

    @functools.wraps(log_several)
    def log_metrics(metrics: Any, step: Any = None, *rest: Any, **more: Any) -> Any:
        return log_several(metrics, _NO_STEP if step is None else step, *rest, **more)

    @functools.wraps(log_queued)
    def log_automatically(
        self: Any, run_id: Any, metrics: Any, step: Any = None, *rest: Any, **more: Any
    ) -> Any:
        step = _NO_STEP if step is None else step
        return log_queued(self, run_id, metrics, step, *rest, **more)

    queue.log_metrics = log_automatically
    for place in _namespaces(module):
        place.log_metric, place.log_metrics = log_metric, log_metrics


def _observe_metrics(client_class: Any, run: _RunOfTrial, *, reports: bool) -> None:
    """Give each metric a step, and report the metrics of the trial's run as points.

    Args:
        client_class: The class `mlflow.MlflowClient`.
        run: The trial's run.
        reports: Whether metrics count as reports.
    """
    log_metric, log_batch = client_class.log_metric, client_class.log_batch

    def step_of(run_id: str, key: str, step: Any) -> int:
        return _step_of(key, step, run="" if run.has(run_id) else run_id)

    def report(run_id: str, step: int, values: Mapping[str, Any]) -> None:
        if reports and run.has(run_id):
            values = {
                key: value for key, value in values.items() if not key.startswith(_OF_MACHINE)
            }
            _report("MLflow", step, values, PointSource.LOGGED)

    def observed_metric(
        self: Any, run_id: str, key: str, value: Any, timestamp: Any = None, step: Any = None,
        *rest: Any, **more: Any,
    ) -> Any:  # fmt: skip
        step = step_of(run_id, key, step)
        report(run_id, step, {key: value})  # Report first: MLflow may not answer for minutes.
        return log_metric(self, run_id, key, value, timestamp, step, *rest, **more)

    def observed_batch(
        self: Any, run_id: str, metrics: Any = (), params: Any = (), tags: Any = (), *rest: Any,
        **more: Any,
    ) -> Any:  # fmt: skip
        steps: dict[int, dict[str, Any]] = {}
        for metric in metrics:
            metric._step = step_of(run_id, metric.key, metric.step)
            steps.setdefault(metric.step, {})[metric.key] = metric.value
        for step, values in steps.items():
            report(run_id, step, values)  # A whole step at once: a report may end the trial.
        if run.has(run_id):
            for param in params:
                self.log_param(run_id, param.key, param.value)
            params = ()
        return log_batch(self, run_id, metrics, params, tags, *rest, **more)

    client_class.log_metric, client_class.log_batch = observed_metric, observed_batch


_LIBRARIES: Mapping[str, Callable[[Any], None]] = {
    "fastai.learner": _fastai,
    "keras.callbacks": _keras,  # Until Keras 2.12. Later it is not always imported.
    "keras.src.callbacks": _keras,
    "lightgbm": _lightgbm,
    "lightning.pytorch.trainer.trainer": _lightning,
    "mlflow": _mlflow,
    "pytorch_lightning.trainer.trainer": _lightning,
    "tf_keras.src.callbacks": _keras,
    "torch.utils.tensorboard.writer": _tensorboard,
    "transformers.trainer": _transformers,
    "xgboost.callback": _xgboost,
}
#: Modules whose functions were already replaced.
_acted_on: set[str] = set()
#: Name of the library that reports a series, by the name of the series.
_owners: dict[str, str] = {}
#: Number of values that were logged without a step, by MLflow run and series.
_counts: Counter[tuple[str, str]] = Counter()
