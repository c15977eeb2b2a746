"""Test whole sweeps with real kernels, a real study and a real MLflow store."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import psutil
import pytest
from commands import Command, call, project
from studies import assert_says, kernels_in, mlflow_client, mlflow_runs, scored, sweep_of, until

from sweeper.cli import main
from sweeper.study_folder.requests import ALL, ask_to_stop
from sweeper.testing import write_notebook
from sweeper.tracking import Tracker
from sweeper.tracking.views import VIEW_TAG
from sweeper.trials import Event, TrialRecord

if TYPE_CHECKING:
    from sweeper import Sweep

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("here")]

TRAIN = (
    "import sweeper\nfor i in range(3):\n    sweeper.report(i, val=x / 3 + i, loss=1 / (x + i + 1))"
)
SPACE = {"x": {"low": 1e-3, "high": 1.0, "log": True}}


def sweep(
    name: str,
    *cells: str,
    jobs: int = 2,
    out: str = "out",
    without_kernels: bool = False,
    **changes: Any,
) -> Sweep:
    """Return a sweep of a notebook with these cells, or of a function in place of kernels."""
    parameters = changes.pop("parameters", "x = 0.5")
    notebook = write_notebook(Path(f"{name}.ipynb"), *(cells or (TRAIN,)), parameters=parameters)
    return sweep_of(
        notebook,
        name,
        scored if without_kernels else None,
        output=f"{out}/{{study}}.{{run_id}}.ipynb",
        jobs=jobs,
        options={k: changes.pop(k) for k in ("timeout_s", "observer") if k in changes},
        **{"space": SPACE, **changes, "study": {"trials": 2, **changes.pop("study", {})}},
    )


def runs_by_name(result: Any) -> dict[str, Any]:
    runs = mlflow_runs(result["tracking_uri"], result["study"])
    return {run.info.run_name: run for run in runs}


def test_a_score_is_the_same_float_in_result_study_notebook_and_its_only_mlflow_run() -> None:
    changes: dict[str, Any] = {
        "parameters": "x = 0.5\nkind = 'a'\ndepth = 1\nepochs = 1",
        "space": {
            **SPACE,
            "kind": ["a", "b"],
            "depth": {"low": 1, "high": 3, "when": {"kind": "b"}},
        },
        "fixed": {"epochs": 3},
        "start": [{"kind": "a", "x": 0.01}, {"kind": "b", "depth": 2, "x": 0.1}],
    }
    result = sweep("runs", TRAIN, "sweeper.score(extra=x ** 0.5)", **changes).run().to_json()
    assert result["counts"] == {"completed": 2, "pruned": 0, "failed": 0, "stopped": 0}
    assert json.dumps(result, allow_nan=False)
    import optuna

    study = optuna.load_study(study_name="runs", storage=result["storage"])
    client, runs = mlflow_client(result["tracking_uri"]), runs_by_name(result)
    assert sorted(runs) == ["0000", "0001"]
    for trial, stored in zip(result["trials"], study.trials, strict=True):
        x, run = trial["params"]["x"], runs[trial["run_id"]]
        assert trial["scores"]["val"] == stored.value == x / 3 + 2
        node = nbformat.read(trial["notebook"], as_version=4)
        nbformat.validate(node)
        assert node.metadata["sweeper"]["scores"] == trial["scores"] == run.data.metrics
        history = client.get_metric_history(run.info.run_id, "val")
        assert [(m.step, m.value) for m in history] == [(i, x / 3 + i) for i in range(3)]
        assert (run.info.run_id, run.info.status) == (trial["mlflow_run_id"], "FINISHED")
    best = max(result["trials"], key=lambda trial: trial["scores"]["val"])["run_id"]
    assert result["best"]["run_id"] == best

    first, second = runs["0000"].data, runs["0001"].data
    assert first.params == {"x": "0.01", "log10_x": "-2.000000", "kind": "a", "depth": "n/a"}
    assert second.params == {"x": "0.1", "log10_x": "-1.000000", "kind": "b", "depth": "2"}
    assert first.tags["sweeper.fixed.epochs"] == "3"
    assert first.tags["sweeper.state"] == "completed"
    assert "mlflow.parentRunId" not in first.tags
    run_id = runs["0000"].info.run_id
    assert {f.path for f in client.list_artifacts(run_id)} == {"runs.0000.html", "runs.0000.ipynb"}
    folder = Path(client.download_artifacts(run_id, ""))
    logged = folder.joinpath("runs.0000.ipynb").read_bytes()
    assert logged == Path("out/runs.0000.ipynb").read_bytes()
    assert "<caption>step 2</caption>" in folder.joinpath("runs.0000.html").read_text()
    page = f"/#/experiments/{result['experiment_id']}/runs?viewStateShareKey=sweeper&"
    assert page in result["compare_url"]
    tags = client.get_experiment(result["experiment_id"]).tags
    assert VIEW_TAG in tags
    answer, _, rest = tags["mlflow.note.content"].partition("\n")
    assert answer.startswith(f"**best** {result['best']['run_id']}  ")
    assert "**params** x=" in answer
    assert "maximize val" in rest


def test_lists_and_mappings_can_be_choices_of_a_swept_param_and_be_queued_by_hand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cells = (
        "import sweeper\nassert sweeper.trial().params['layers'] == layers",
        "val = float(sum(map(float, layers)) + sum(augment.values()))",
    )
    start = {"layers": [64, 64.0], "augment": {"flip": 1, "crop": 2.5}, "width": 5}
    result = sweep(
        "layers",
        *cells,
        parameters="layers = [8]\naugment = {}\nwidth = 1",
        space={
            "layers": [[], [32], [64, 64.0], "12"],
            "augment": {"choices": [{"flip": True}, {"flip": 1, "crop": 2.5}]},
            "width": {"low": 1, "high": 9, "when": {"layers": [[], [64, 64.0]]}},
        },
        start=[start, {"layers": "12", "augment": {"flip": True}}],
    ).run()
    tried = [repr(dict(record.params)) for record in result.records]
    assert tried == [repr(start), "{'layers': '12', 'augment': {'flip': True}}"]
    assert [record.scores["val"] for record in result.records] == [131.5, 4.0]
    logged = runs_by_name(result.to_json())["0000"].data.params
    assert logged["layers"] == "[64, 64.0]"
    assert logged["augment"] == '{"flip": 1, "crop": 2.5}'
    assert main(["enqueue", "out/layers", "layers=[64, 64]"]) == 2
    assert "[64, 64] is outside the space; expected one of [], [32]" in capsys.readouterr().err
    assert main(["enqueue", "out/layers", "layers=[32]", "--like", "0000"]) == 0
    queued = (
        'queued 0002 (layers=[32], augment={"flip": 1, "crop": 2.5}); the next sweep runs it first'
    )
    assert queued in capsys.readouterr().out


def test_a_sweep_without_a_completed_trial_exits_with_1() -> None:
    done = call(*project("1 / 0", settings="study: {name: hopeless, trials: 1}"), "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["best"] is None
    assert re.match(r"\[ *\d\S*s\] preparing the sweep of nb.ipynb: ", done.stderr)
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr


def endless(name: str) -> list[str]:
    """Return the options of a sweep whose trials never end."""
    cell = (
        "import subprocess, time, sweeper\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "sweeper.report(0, val=x)\nprint('up', flush=True)\ntime.sleep(600)"
    )
    files = project(cell, settings=f"study: {{name: {name}, trials: 4}}")
    return [*files, "-o", f"out/{name}.{{run_id}}.ipynb"]


def start_endless(name: str) -> Command:
    """Start a sweep from the command line whose trials never end, and wait until they run."""
    sweeping = Command(*endless(name), "-j", "2")
    first = [Path(f"out/{name}.{run_id}.ipynb") for run_id in ("0000", "0001")]
    until(lambda: all(f.exists() and '"status": "running"' in f.read_text() for f in first))
    until(lambda: sum("sleep" in p.name() for p in kernels_in(Path.cwd())) >= 2)
    return sweeping


def test_a_sweep_whose_params_do_not_affect_the_results_ends_after_three_trials(
    tmp_path: Path,
) -> None:
    words = project(
        "import math\nval = math.log(7)\nprint(val)", settings="study: {trials: 9}", folder=tmp_path
    )
    ended = call(*words, "--json", cwd=tmp_path)
    result = json.loads(ended.stdout.splitlines()[-1])
    assert (ended.returncode, result["stop_cause"]) == (1, "worthless"), ended.stderr
    assert result["counts"]["completed"] == 3
    allowed = call(*words, "--json", "--trials", "5", "--allow-changes", cwd=tmp_path)
    assert allowed.returncode == 0, allowed.stderr
    assert json.loads(allowed.stdout.splitlines()[-1])["counts"]["completed"] == 5


def test_ctrl_c_twice_stops_the_sweep_cleanly_and_reports_it() -> None:
    sweeping = start_endless("interrupted")
    sweeping.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert sweeping.poll() is None, "the first Ctrl-C lets running trials complete"
    sweeping.send_signal(signal.SIGINT)
    stdout, stderr = sweeping.communicate(timeout=60)
    assert sweeping.returncode == 130, stderr
    assert "2 stopped" in stdout
    assert "Ctrl-C again" in stderr
    assert "Traceback" not in stderr
    assert kernels_in(Path.cwd()) == []
    seen = json.loads(call("status", "interrupted", "--json").stdout)
    assert seen["counts"]["stopped"] == 2
    assert {run.info.status for run in runs_by_name(seen).values()} == {"KILLED"}


#: A training that ends when the file `go` exists. If `should_stop` returns true, it saves a
#: checkpoint.
SAVES_AT_ITS_END = """
import time
from pathlib import Path
import sweeper
saved = sweeper.load_checkpoint()
epochs = 0 if saved is None else saved["epochs"]
Path(f"trains-{run_id}").touch()
while not Path("go").exists():
    if sweeper.should_stop():
        sweeper.save_checkpoint(epochs=7)
        break
    time.sleep(0.05)
val = epochs + x / 2
"""


@pytest.mark.parametrize("kernels", ["cold", "fork"])
def test_trials_save_a_checkpoint_if_a_shutdown_sends_sigterm_to_all_processes(
    kernels: str, tmp_path: Path
) -> None:
    settings = f"study: {{name: preempted, trials: 8}}\nkernels: {kernels}"
    cells = ("import numpy", SAVES_AT_ITS_END)
    parameters = "x = 0.5\nrun_id = ''"
    files = project(*cells, settings=settings, parameters=parameters, folder=tmp_path, shared=1)
    sweeping = Command(*files, "-j", "2", cwd=tmp_path)
    until(lambda: len(list(tmp_path.glob("trains-*"))) == 2)
    # Two kernels. If kernels are forked, also the zygotes that fork them: one before the shared
    # cell has run, and one after it.
    marked = kernels_in(tmp_path)
    assert len(marked) >= (4 if kernels == "fork" else 2)
    everybody: list[Any] = [*marked, sweeping]
    for number in (signal.SIGHUP, signal.SIGTERM):
        for process in everybody:
            # A kernel that was prepared for a later trial may have ended.
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    _, stderr = sweeping.communicate(timeout=60)
    assert sweeping.returncode == 143, stderr
    (tmp_path / "go").touch()
    result = json.loads(call(*files, "-j", "2", "--json", cwd=tmp_path).stdout)
    epochs = {trial["run_id"]: int(trial["scores"]["val"]) for trial in result["trials"]}
    assert {run_id for run_id, count in epochs.items() if count == 7} == {"0000", "0001"}
    assert len(epochs) == 8


def test_a_signal_that_was_ignored_from_the_start_does_not_end_the_sweep(tmp_path: Path) -> None:
    # `nohup` makes a process ignore SIGHUP, and `&` SIGINT.
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    script = tmp_path / "nohup.py"
    lines = ["import signal, sys", "from sweeper.cli import main"]
    lines += [f"signal.signal({int(number)}, signal.SIG_IGN)" for number in ignored]
    script.write_text("\n".join([*lines, "sys.exit(main(sys.argv[1:]))"]))
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.1)"
    files = project(wait, "val = x", settings="study: {name: night, trials: 2}", folder=tmp_path)
    sweeping = Command(*files, "-j", "2", script=script, cwd=tmp_path)
    until(lambda: len(list(tmp_path.glob("out/0*.ipynb"))) == 2)
    for number in ignored:
        sweeping.send_signal(number)
    time.sleep(0.5)
    (tmp_path / "go").touch()
    stdout, stderr = sweeping.communicate(timeout=60)
    assert sweeping.returncode == 0, stderr
    assert "2 completed" in stdout


def test_kernels_of_a_killed_sweep_end_and_the_status_command_marks_its_trials_as_stopped() -> None:
    sweeping = start_endless("killed")
    busy = call(*endless("killed"))
    assert busy.returncode == 2
    assert f"process {sweeping.pid}" in busy.stderr
    alive = json.loads(call("status", "killed", "--json").stdout)
    assert (alive["running"], alive["counts"]["running"]) == (True, 2)
    sweeping.kill()
    sweeping.communicate()
    until(lambda: not kernels_in(Path.cwd()))
    seen = json.loads(call("status", "out/killed", "--json").stdout)
    assert (seen["running"], seen["counts"]["stopped"]) == (False, 2)
    assert {run.info.status for run in runs_by_name(seen).values()} == {"KILLED"}
    for trial in seen["trials"]:
        node = nbformat.read(trial["notebook"], as_version=4)
        nbformat.validate(node)
        assert node.metadata["sweeper"]["state"] == "stopped"


def test_kernels_left_after_a_kill_of_sweep_and_guard_are_ended_by_the_next_command() -> None:
    sweeping = start_endless("guardless")
    children = psutil.Process(sweeping.pid).children()
    guards = [child for child in children if "guard.py" in str(child.cmdline())]
    assert guards
    for process in (psutil.Process(sweeping.pid), *guards):
        process.suspend()  # so that the sweep replaces no killed guard, and no guard kills kernels
    for process in (*guards, psutil.Process(sweeping.pid)):
        process.kill()
    sweeping.communicate()
    orphans = kernels_in(Path.cwd())
    assert orphans
    assert call("status", "guardless").returncode == 0
    until(lambda: not kernels_in(Path.cwd()))


def test_the_next_sweep_writes_missing_and_incomplete_runs_of_earlier_trials_to_mlflow() -> None:
    result = sweep("missed", study={"trials": 3}).run().to_json()
    client = mlflow_client(result["tracking_uri"])
    lost, half, unreadable = (trial["mlflow_run_id"] for trial in result["trials"])
    client.update_run(half, status="RUNNING")
    for never_written in (lost, unreadable):
        client.set_tag(never_written, "sweeper.study_id", "")
        client.delete_run(never_written)
    # An incomplete file, as a full disk leaves it.
    Path("out/missed.0002.ipynb").write_text('{"cells": [')
    again = sweep("missed", study={"trials": 3}).run().to_json()
    runs = runs_by_name(again)
    assert {name: run.info.status for name, run in runs.items()} == dict.fromkeys(
        ["0000", "0001", "0002"], "FINISHED"
    )
    for trial in again["trials"]:
        run = runs[trial["run_id"]]
        assert run.data.metrics == trial["scores"]
        history = client.get_metric_history(run.info.run_id, "val")
        assert [m.step for m in history] == ([0] if trial["run_id"] == "0002" else [0, 1, 2])


def test_a_trial_has_the_same_score_with_one_slot_and_with_four() -> None:
    cells = (
        "import numpy as np, os\nrng = np.random.default_rng(seed)\n"
        "a = rng.normal(size=(400, 400)).astype('float32')\n"
        "for _ in range(20): a = a @ a.T / np.linalg.norm(a)\nval = float(a.sum()) * x"
    )

    def run(jobs: int, trials: int, out: str) -> list[tuple[Any, ...]]:
        study, parameters = {"trials": trials}, "x = 0.5\nseed = 0"
        made = sweep("shared", cells, jobs=jobs, out=out, study=study, parameters=parameters)
        return [(record.params, record.scores) for record in made.run().records]

    alone, beside = run(1, 2, "alone"), run(4, 4, "beside")
    assert len(alone) == 2
    assert alone == beside[:2]


WRONG: Sequence[tuple[str, list[str], list[str]]] = [
    ("unwritable folder", ["-o", "afile/{run_id}.ipynb"], ["afile", "cannot be written", "-o"]),
    ("dead server", ["--tracking-uri", "http://127.0.0.1:9"], ["127.0.0.1:9", "does not answer"]),
    ("no kernel", ["-k", "python33"], ["'python33'", "installed: ", "python3", "--kernel"]),
    ("foreign output", ["-o", "taken/{run_id}.ipynb"], ["taken/0000.ipynb", "in the way", "-o"]),
    (
        "foreign storage",
        ["--storage", "sqlite:////proc/x.db"],
        ["--storage", "sqlite:////proc/x.db"],
    ),
]


@pytest.fixture(scope="module")
def wrong_folder(here: Path) -> Path:
    folder = here / "wrong"
    write_notebook(folder / "right.ipynb", TRAIN)
    write_notebook(folder / "taken" / "0000.ipynb", "1")
    right = "objective: {val: maximize}\nspace: {x: {low: 0.0, high: 1.0}}\n"
    (folder / "right.yml").write_text(right)
    (folder / "afile").write_text("")
    return folder


@pytest.mark.parametrize(
    (("changed", "fragments")), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_a_wrong_command_gets_one_message_and_writes_nothing(
    wrong_folder: Path, changed: list[str], fragments: list[str]
) -> None:
    right = {"-i": "right.ipynb", "-o": "new/{run_id}.ipynb", "-p": "right.yml"}
    flags = {**right, **dict(zip(changed[::2], changed[1::2], strict=True))}

    def files() -> dict[Path, int | None]:
        there = wrong_folder.rglob("*")
        return {p: p.stat().st_mtime_ns if p.is_file() else None for p in there}

    before = files()
    arguments = [word for pair in flags.items() for word in pair]
    done = call(*arguments, cwd=wrong_folder)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    for fragment in fragments:
        assert fragment in done.stderr
    *progress, message = done.stderr.splitlines()
    assert message.startswith("notebook_hpo.py: ")
    # Checks that need the storage, MLflow or kernels come after the line "preparing the sweep".
    assert [line.partition("] ")[2][:9] for line in progress] in ([], ["preparing"])
    assert files() == before


def test_a_study_does_not_resume_with_changed_code_unless_changes_are_allowed() -> None:
    Path("beside.py").write_text("VALUE = 1\n")
    sweep("made", "import beside", TRAIN, study={"trials": 1}).run()
    Path("beside.py").write_text("VALUE = 2\n")
    changed = {**SPACE, "x": {"low": 1e-3, "high": 2.0, "log": True}}
    settings = f"study: {{name: made, trials: 2}}\nspace: {json.dumps(changed)}"
    files = project("import beside", "import time", TRAIN, settings=settings)
    arguments = [*files, "-o", "out/{study}.{run_id}.ipynb"]
    refused = call(*arguments)
    assert refused.returncode == 2
    cell, module, space, remedy = refused.stderr.splitlines()[2:]
    assert_says(cell, "code cell 3")
    assert_says(module, "beside.py")
    assert_says(space, "space.x", "low: 0.001, high: 1.0", "low: 0.001, high: 2.0")
    assert_says(remedy, "--study", "--allow-changes", "sweeper.code")
    assert call(*arguments, "--allow-changes").returncode == 0
    read = [json.loads(Path(f"out/made.000{n}.ipynb").read_text("utf-8")) for n in range(2)]
    first, second = (node["metadata"]["sweeper"]["code"] for node in read)
    assert first != second


def test_the_options_that_a_refusal_proposes_for_a_changed_notebook_begin_another_study() -> None:
    study = "study: {name: mistaken, trials: 1}"
    words = project("val = x * 2", settings=study)
    words[words.index("-o") + 1] = "out/mis taken.{run_id}.ipynb"
    assert call(*words).returncode == 0
    project("val = x", settings=study)
    refused = call(*words)
    assert refused.returncode == 2
    printed = re.search(r"begin another study with (--study NAME -o '.*?'), or", refused.stderr)
    assert printed is not None, refused.stderr
    obeyed = call(*words, *shlex.split(printed[1]), "--json")
    assert obeyed.returncode == 0, obeyed.stderr
    result = json.loads(obeyed.stdout.splitlines()[-1])
    assert (result["study"], result["counts"]["completed"]) == ("NAME", 1)


def test_the_option_set_fixes_a_param_and_removes_it_from_the_search_space() -> None:
    settings = "space: {x: [1.0, 2.0], y: {low: 0.0, high: 1.0}}\nstudy: {trials: 1}"
    files = project("val = x * y", settings=settings, parameters="x = y = 1.0")
    options = ["-o", "out/{study}/{run_id}.ipynb", "--set", "y=1e1", "--study", "with set"]
    done = call("run", *files, *options, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert list(result["best"]["params"]) == ["x"]
    assert result["best"]["scores"]["val"] == 10.0 * result["best"]["params"]["x"]
    assert result["best"]["notebook"] == "out/with set/0000.ipynb"


def test_a_study_whose_folder_was_removed_starts_anew_and_keeps_its_old_runs_in_mlflow() -> None:
    old = sweep("removed", without_kernels=True).run().to_json()
    shutil.rmtree("out/removed")
    new = sweep("removed", study={"seed": 9}, without_kernels=True).run().to_json()
    assert len(new["trials"]) == 2
    assert [t["params"] for t in new["trials"]] != [t["params"] for t in old["trials"]]
    client = mlflow_client(new["tracking_uri"])
    for trial in new["trials"] + old["trials"]:
        assert client.get_run(trial["mlflow_run_id"]).data.metrics == trial["scores"]


def test_a_sweep_whose_observer_raises_ends_normally_and_leaves_no_thread_or_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def observe(event: Event, _record: TrialRecord | None) -> None:
        if event is Event.TRIAL_ENDED:
            observed.stop("the observer")
        raise ValueError(event)

    before = {thread.name for thread in threading.enumerate()}
    observed = sweep(
        "observed",
        jobs=1,
        observer=observe,
        study={"trials": 9, "pruner": "median"},
        cost={"price_per_hour": 1.0},
    )
    result = observed.run()
    assert 1 <= result.counts["completed"] < 9
    assert result.stopped_by == "the observer"
    failures = [r.getMessage() for r in caplog.records if "the observer failed" in r.getMessage()]
    assert len(failures) == 1
    own = {"proposals", "pruning", "observer", "requests", "spending", "tracker"}
    after = {thread.name for thread in threading.enumerate()}
    assert (after - before) & own == set()
    running = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    assert not [p for p in running if "guard.py" in str(p.cmdline())]
    assert kernels_in(Path.cwd()) == []


def test_a_stop_request_during_the_start_of_a_sweep_is_obeyed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starting = sweep("early", study={"trials": 2}, without_kernels=True)
    # A request left over from an earlier sweep, which is dropped.
    ask_to_stop(starting.plan.paths.requests, ALL)
    when_open = Tracker.when_open
    codes: list[int] = []
    stopping = threading.Thread(target=lambda: codes.append(main(["stop", "out/early"])))

    def slowly(tracker: Tracker, call: Callable[[], object]) -> None:
        assert not list(starting.plan.paths.requests.iterdir())
        assert main(["status", "out/early"]) == 0
        stopping.start()
        until(lambda: starting.stopped_by)
        when_open(tracker, call)

    monkeypatch.setattr(Tracker, "when_open", slowly)
    stopped = starting.run()
    stopping.join(60)
    assert codes == [0]
    assert stopped.records == []
    assert stopped.stopped_by == "the command stop"
    monkeypatch.undo()
    again = sweep("early", study={"trials": 2}, without_kernels=True).run()
    assert again.counts["completed"] == 2
