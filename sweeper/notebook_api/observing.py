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
#: Longest wait for MLflow's first answer, in seconds. By default, MLflow's client repeats a failed
#: call for about this time.
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
    """Use the logs of a library as reports from now on, if the sweep has asked for this.

    In a sweep, MLflow's calls are directed into the trial's run even if it has not asked.

    Args:
        module: Imported module whose name is a key of `_LIBRARIES`.
    """
    known, name = _how_to_observe(), module.__name__
    if name in _acted_on or not known:
        return
    if known["reports"] or name == "mlflow":
        _acted_on.add(name)
        _LIBRARIES[name](module)


def _how_to_observe() -> dict[str, Any]:
    """Return the JSON in `OBSERVED_VARIABLE`: how to use logs of this notebook's libraries.

    It is empty in a notebook that is run by hand.
    """
    known: dict[str, Any] = json.loads(os.environ.get(OBSERVED_VARIABLE, "{}"))
    return known


def _report(
    library: str,
    step: int,
    values: Mapping[Any, Any],
    source: PointSource = PointSource.OBSERVED,
) -> None:
    """Send the sweep the numbers among the values that a library has logged.

    If several libraries use the same name for a metric, only the values of the first library are
    reported.

    Args:
        library: Name of the library.
        step: Step of the values.
        values: Values by name. Values that are not numbers are left out.
        source: Way in which the library has stated the values.
    """
    metrics = {}
    for key, value in values.items():
        name = str(key)
        if isinstance(value, str) or _owners.setdefault(name, library) != library:
            continue
        # Leave out a value that is not a number.
        with suppress(TypeError, ValueError, OverflowError, RuntimeError):
            metrics[name] = float(value)
    if metrics:
        observed(Point(step=int(step), metrics=metrics, source=source, library=library))


class _NoStep(int):
    """Marks a call of MLflow without a step.

    MLflow's code evaluates `step or 0`. This object counts as true, so it is not replaced by 0.
    """

    def __bool__(self) -> bool:
        return True


_NO_STEP = _NoStep()


def _step_of(name: str, step: int | None, *, run: str = "") -> int:
    """Return the step of a value. A value without a step gets the next number of its series.

    Each call without a step increases the number by 1. The first number is 0. For a series of the
    trial, it is the number after the last step of the series in the earlier attempt, if any.

    Args:
        name: Name of the series.
        step: Step that the notebook has given. None or `_NO_STEP` if it has given none.
        run: Id of an MLflow run other than the trial's. Empty for a series of the trial.
    """
    if step is not None and step is not _NO_STEP:
        return step
    if (run, name) not in _counts and not run:
        begun = _how_to_observe().get("begun", {})
        _counts[run, name] = begun.get(name, 0)
    _counts[run, name] += 1
    return _counts[run, name] - 1


#: Function that is called in place of a library's function. It gets a function that makes the
#: original call, and the call's arguments by name. It may change the arguments before that call.
_Substitute = Callable[[Callable[[], Any], dict[str, Any]], Any]


def _replace(owner: Any, name: str, substitute: _Substitute) -> None:
    """Replace a function of a library.

    Args:
        owner: Class or module of the function.
        name: Name of the function.
        substitute: Function that is called instead. It gets a function that makes the original
            call, and the arguments by name.
    """
    function = getattr(owner, name)
    parameters = signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            given = parameters.bind(*arguments, **options)
        except TypeError:  # Let the library raise its own error about wrong arguments.
            return function(*arguments, **options)
        return substitute(lambda: function(*given.args, **given.kwargs), given.arguments)

    setattr(owner, name, call)


def _after(owner: Any, name: str, report: Callable[[Mapping[str, Any]], None]) -> None:
    """Call `report` after each call of a library's function, unless the call raises an error.

    Args:
        owner: Class or module of the library's function.
        name: Name of the library's function.
        report: Function that gets the arguments of the library's function, by name.
    """

    def call(go_on: Any, given: Mapping[str, Any]) -> Any:
        result = go_on()
        report(given)
        return result

    _replace(owner, name, call)


def _keras(module: Any) -> None:
    def report(given: Mapping[str, Any]) -> None:
        _report("Keras", given["epoch"], given.get("logs") or {})

    # `keras.callbacks` and `keras.src.callbacks` have the same class: replace its method once.
    if not hasattr(module.CallbackList.on_epoch_end, "__wrapped__"):
        _after(module.CallbackList, "on_epoch_end", report)


def _transformers(module: Any) -> None:
    def report(given: Mapping[str, Any]) -> None:
        _report("Transformers", given["self"].state.global_step, given["logs"])

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

    # Report after Lightning's own function. Only then are the values of all hooks known, and
    # checkpoints saved.
    def end_epoch(go_on: Any, given: Mapping[str, Any]) -> None:
        trainer = given["self"].trainer
        epoch = trainer.current_epoch
        go_on()
        report(trainer, epoch)

    def end_evaluation(given: Mapping[str, Any]) -> None:
        report(given["self"], given["self"].current_epoch)

    loop_class = getattr(module, "_FitLoop", None) or module.FitLoop
    _replace(loop_class, "on_advance_end", end_epoch)
    _after(module.Trainer, "validate", end_evaluation)
    _after(module.Trainer, "test", end_evaluation)


def _xgboost(module: Any) -> None:
    def report(given: Mapping[str, Any]) -> None:
        newest = {}
        for data, series in given["self"].history.items():
            for name, values in series.items():
                newest[f"{data}-{name}"] = values[-1]
        _report("XGBoost", given["epoch"], newest)

    _after(module.CallbackContainer, "after_iteration", report)


def _lightgbm(module: Any) -> None:
    def report(env: Any) -> None:
        results = env.evaluation_result_list or ()
        values = {f"{data}-{name}": value for data, name, value, *_ in results}
        _report("LightGBM", env.iteration, values)

    def train(go_on: Any, given: dict[str, Any]) -> Any:
        given["callbacks"] = [*(given.get("callbacks") or ()), report]
        return go_on()

    places: list[Any] = [module, *map(import_module, ("lightgbm.engine", "lightgbm.sklearn"))]
    for place in places:
        _replace(place, "train", train)


def _fastai(module: Any) -> None:
    def report(given: Mapping[str, Any]) -> None:
        recorder = given["self"]
        _report("fastai", recorder.epoch, dict(zip(recorder.metric_names, recorder.log)))

    _after(module.Recorder, "after_epoch", report)


def _tensorboard(module: Any) -> None:
    def report(given: Mapping[str, Any]) -> None:
        tag = given["tag"]
        step = _step_of(tag, given.get("global_step"))
        _report("TensorBoard", step, {tag: given["scalar_value"]})

    _after(module.SummaryWriter, "add_scalar", report)


def _mlflow(module: Any) -> None:
    """Make the notebook's MLflow calls use the trial's run, and use the run's metrics as points."""
    known = _how_to_observe()
    uri, version = known["mlflow"]["uri"], known["mlflow"]["version"]
    is_same_version = module.__version__.split(".")[:2] == version.split(".")[:2]
    if uri.startswith("sqlite") and not is_same_version:
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
        trial: The trial's `run_id`, `study` and `study_id`, and `temporary`: the URI of a temporary
            folder. If `run_id` is None, this folder is the store, for this run only.
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
        end_s = time.monotonic() + _AWAY_LIMIT_S
        why = "MLflow is unavailable"
        has_answered = False
        while True:
            found = self._found()
            if found:
                return found[0]
            if found is not None and not has_answered:
                has_answered = True
                end_s = time.monotonic() + _RUN_LIMIT_S
                why = f"MLflow has no run of trial {run_id} after {_RUN_LIMIT_S:g} s"
            if time.monotonic() > end_s:
                _warn(why)
                return self._temporary()
            time.sleep(_LOOK_S)

    def _found(self) -> list[str] | None:
        """Return a list with the id of the trial's run, empty if MLflow does not have this run.

        Return None if MLflow is unavailable.

        Ask MLflow only once. Threads ask one after the other, because this method changes
        environment variables of the process.
        """
        wanted = (
            f"tags.`sweeper.run_id` = '{self._trial['run_id']}' "
            f"and tags.`sweeper.study_id` = '{self._trial['study_id']}'"
        )
        try:
            with self._looking, _environment(_ONE_CALL):
                experiment_id = self._set_experiment(self._trial["study"]).experiment_id
                found = self._module.MlflowClient().search_runs([experiment_id], wanted)
        except self._module.exceptions.MlflowException as error:
            if error.error_code not in (_LOCKED, _INTERNAL):
                raise
            return None
        return [str(run.info.run_id) for run in found]

    def _is_away(self, error: Exception) -> bool:
        """Return whether a call has failed because MLflow is unavailable.

        If the error leaves this open, ask MLflow for the trial's run to find out.

        Args:
            error: Error that the call has raised.
        """
        # A call about files through a proxy fails with an `OSError` of `requests`, without a code.
        # It is handled like an internal error: only a further call shows if MLflow is unavailable.
        code = getattr(error, "error_code", _INTERNAL)
        return code == _LOCKED or (code == _INTERNAL and self._found() is None)

    def use_folder(self) -> None:
        """Use the temporary folder as MLflow's store from now on."""
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # MLflow refuses a folder without this.
        self._set_uri(self._trial["temporary"])
        self._is_in_folder = True

    def _temporary(self) -> str:
        """Use the temporary folder as MLflow's store from now on, and create a run there.

        Return the id of the new run.
        """
        self.use_folder()
        experiment_id = self._set_experiment(self._trial["study"]).experiment_id
        return str(self._module.MlflowClient().create_run(experiment_id).info.run_id)

    @property
    def is_known(self) -> bool:
        """Whether the run's id is known, because an earlier call has needed it."""
        return "id" in vars(self)

    def has(self, run_id: str) -> bool:
        """Return whether an id is the id of the trial's run.

        If MLflow became unavailable, and a run in the temporary folder took its place, the ids of
        both runs count.
        """
        return run_id == self.id or run_id == self._earlier_id

    def client(self, known: Any) -> Any:
        """Return a client of the store that has the run.

        Args:
            known: Client of the notebook. It is returned unless the temporary folder has the run.
        """
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
            # Make the call again if the temporary folder became the store during this call: in the
            # lines above, in `call` itself, or in another thread.
            if was_in_folder or not self._is_in_folder:
                raise
            return call()

    def experiment(self) -> Any:
        """Return MLflow's experiment that contains the run."""

        def found() -> Any:
            run_id = self.id  # First, because it may change the store that the client uses.
            client = self._module.MlflowClient()
            return client.get_experiment(client.get_run(run_id).info.experiment_id)

        return self.calling(found)


def _warn(why: str) -> None:
    text = "so it does not get the params and files that this notebook logs from now on"
    warnings.warn(f"{why}, {text}", stacklevel=2)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the block runs. Restore their earlier values afterwards."""
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
    """Keep MLflow calls about the trial's run from failing while MLflow is unavailable.

    MLflow's client repeats a call for about four minutes. After that, the rest of what the notebook
    logs goes to the temporary folder. The sweep receives the metrics as points in any case.
    """

    def call(go_on: Any, given: dict[str, Any]) -> Any:
        if not run.is_known or not run.has(given["run_id"]):
            return go_on()
        known = given["self"]

        def in_store() -> Any:
            given.update(run_id=run.id, self=run.client(known))
            return go_on()

        return run.calling(in_store)

    for name, method in list(vars(client_class).items()):
        names = list(signature(method).parameters) if callable(method) else []
        if names[1:2] == ["run_id"]:
            _replace(client_class, name, call)


def _namespaces(module: Any) -> list[Any]:
    """Return the two modules that contain functions such as `start_run`.

    The notebook calls those of `mlflow`. MLflow itself calls those of `mlflow.tracking.fluent`.
    """
    return [module, import_module("mlflow.tracking.fluent")]


def _join_experiment(module: Any, run: _RunOfTrial) -> None:
    """Use the study's experiment in place of each experiment that the notebook names."""

    def set_experiment(*_: Any, **__: Any) -> Any:
        return run.experiment()

    def create_experiment(*_: Any, **__: Any) -> str:
        return str(run.experiment().experiment_id)

    for place in _namespaces(module):
        place.set_experiment = set_experiment
        place.create_experiment = create_experiment


def _join_starts(module: Any, run: _RunOfTrial) -> None:
    """Make `start_run` use the trial's run, unless the call asks for another or a nested run."""

    def start_run(go_on: Any, given: dict[str, Any]) -> Any:
        if given.get("run_id") or given.get("nested") or given.get("parent_run_id"):
            return go_on()

        def join() -> Any:
            given.update(run_id=run.id, experiment_id=None, run_name=None)
            return go_on()

        return run.calling(join)

    for place in _namespaces(module):
        _replace(place, "start_run", start_run)


def _leave_open(client_class: Any, run: _RunOfTrial) -> None:
    """Keep the notebook from ending the trial's run. It may end other runs."""

    def end_other(go_on: Any, given: Mapping[str, Any]) -> None:
        if not run.has(given["run_id"]):
            go_on()

    _replace(client_class, "set_terminated", end_other)


def _soften_params(module: Any, run: _RunOfTrial) -> None:
    """Store a param as a tag if the trial's run already has another value for it."""

    def log_softly(go_on: Any, given: Mapping[str, Any]) -> Any:
        try:
            return go_on()
        except module.exceptions.MlflowException:
            if not run.has(given["run_id"]):
                raise
            value = given["value"]
            given["self"].set_tag(given["run_id"], f"notebook.{given['key']}", value)
            return value

    _replace(module.MlflowClient, "log_param", log_softly)


def _mark_steps(module: Any) -> None:
    """Replace a missing step by `_NO_STEP` in calls of `mlflow.log_metric` and the like.

    Otherwise, MLflow would use the step 0.
    """

    def mark(go_on: Any, given: dict[str, Any]) -> Any:
        if given.get("step") is None:
            given["step"] = _NO_STEP
        return go_on()

    queue = import_module("mlflow.utils.autologging_utils.client").MlflowAutologgingQueueingClient
    _replace(queue, "log_metrics", mark)
    for place in _namespaces(module):
        _replace(place, "log_metric", mark)
        _replace(place, "log_metrics", mark)


def _observe_metrics(client_class: Any, run: _RunOfTrial, *, reports: bool) -> None:
    """Give each metric a step, and report the metrics of the trial's run as points.

    Args:
        client_class: The class `mlflow.MlflowClient`.
        run: The trial's run.
        reports: Whether metrics count as reports.
    """

    def step_of(run_id: str, key: str, step: Any) -> int:
        return _step_of(key, step, run="" if run.has(run_id) else run_id)

    def report(run_id: str, step: int, values: Mapping[str, Any]) -> None:
        if reports and run.has(run_id):
            own = {key: value for key, value in values.items() if not key.startswith(_OF_MACHINE)}
            _report("MLflow", step, own, PointSource.LOGGED)

    def log_metric(go_on: Any, given: dict[str, Any]) -> Any:
        run_id, key = given["run_id"], given["key"]
        given["step"] = step_of(run_id, key, given.get("step"))
        # Report first: MLflow may not answer for minutes.
        report(run_id, given["step"], {key: given["value"]})
        return go_on()

    def log_batch(go_on: Any, given: dict[str, Any]) -> Any:
        run_id = given["run_id"]
        steps: dict[int, dict[str, Any]] = {}
        for metric in given.get("metrics", ()):
            metric._step = step_of(run_id, metric.key, metric.step)
            steps.setdefault(metric.step, {})[metric.key] = metric.value
        for step, values in steps.items():
            # Report all values of a step at once, because a report may raise to end the trial.
            report(run_id, step, values)
        if run.has(run_id):
            for param in given.pop("params", ()):
                given["self"].log_param(run_id, param.key, param.value)
        return go_on()

    _replace(client_class, "log_metric", log_metric)
    _replace(client_class, "log_batch", log_batch)


_LIBRARIES: Mapping[str, Callable[[Any], None]] = {
    "fastai.learner": _fastai,
    "keras.callbacks": _keras,  # Until Keras 2.12. Later versions do not always import it.
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
#: Next step of a value without a step, by MLflow run and series. See `_step_of`.
_counts: Counter[tuple[str, str]] = Counter()
