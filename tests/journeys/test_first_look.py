"""Test a notebook as the only argument: it runs once and its scores are listed.

Then this observed run usually becomes the first trial of the sweep.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from commands import Command, call
from studies import until
from terminals import Terminal

from sweeper.notebooks.reading import read_notebook
from sweeper.settings import Settings

pytestmark = pytest.mark.kernel

#: A score that depends on no value of the notebook that could be swept.
UNREACHED = "val_acc = sum([0.2, 0.3]) / 2"
#: A cell that adds a line to a file, so that the tests can count the runs of the notebook.
COUNTED = (
    "from pathlib import Path\nwith Path('runs').open('a') as file:\n    _ = file.write('run\\n')"
)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in its own working folder."""
    monkeypatch.chdir(tmp_path)


def write(*cells: str, tags: dict[int, str] | None = None) -> None:
    """Write a notebook without a parameters cell."""
    node = nbformat.v4.new_notebook()
    node.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    for index, tag in (tags or {}).items():
        node.cells[index].metadata["tags"] = [tag]
    nbformat.write(node, "my.ipynb")


def runs() -> int:
    """Return how often the notebook was run."""
    file = Path("runs")
    return file.read_text().count("run") if file.exists() else 0


def swept(*options: str) -> dict[str, Any]:
    """Sweep the notebook. Return the JSON result."""
    done = call("my.ipynb", "--trials", "3", "--cold", "--json", *options)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


LASSO = (
    "import numpy as np\nfrom sklearn.linear_model import Lasso\n"
    "from sklearn.metrics import mean_squared_error\nfrom sklearn.datasets import load_diabetes\n"
    "X, y = load_diabetes(return_X_y=True)",
    "model = Lasso(alpha=0.1).fit(X[:300], y[:300])\n"
    "score = np.sqrt(mean_squared_error(y[300:], model.predict(X[300:])))\n"
    "print(f'Final score (RMSE): {score}')",
)
EXPONENT = (
    "def train(lr=0.1):\n    for step in range(2):\n"
    "        print(f'step {step} loss = {3e5 * (lr * 10) ** 2 + step:.5g}')",
    "train()",
)
BASELINE = (
    "lr = 0.01\ndef rmse(e):\n    return abs(e)",
    "out = [7.5, lr - 0.03]\nprint(f'OOF baseline RMSE: {rmse(out[0]):.4f}')\n"
    "print(f'OOF NN RMSE:       {rmse(out[1]):.4f}')",
)


@pytest.mark.parametrize(
    ("cells", "name", "first"),
    [
        (LASSO, "score", None),
        (EXPONENT, "loss", 3e5),
        (BASELINE, "oof_nn_rmse", 0.02),
    ],
)
def test_without_a_parameters_file_the_winner_is_the_best_by_the_score_found_in_the_notebook(
    cells: tuple[str, ...], name: str, first: float | None
) -> None:
    write(*cells, COUNTED)
    result = swept("--yes")
    scores = [trial["scores"][name] for trial in result["trials"]]
    assert result["best"]["scores"][name] == min(scores)
    assert len({*scores}) > 1
    assert first is None or scores[0] == first
    assert runs() == 3, "the run that was observed is the first trial"
    papermill.execute_notebook(
        "my.ipynb", "by papermill.ipynb", progress_bar=False, kernel_name="python3"
    )
    expected = nbformat.read("by papermill.ipynb", as_version=4)
    executed = read_notebook(Path("out/my.0000.ipynb"))
    assert [cell.outputs for cell in executed.cells] == [cell.outputs for cell in expected.cells]
    assert executed.metadata["sweeper"]["params"] == result["trials"][0]["params"]
    assert result["trials"][0]["mlflow_run_id"]
    assert not Path("out/my/observed.ipynb").exists()


RESUMING = (
    "import sweeper\nlr = 0.1\nsaved = sweeper.load_checkpoint() or {'epoch': 0}",
    "val_loss = abs(lr - 0.3) + saved['epoch']\nsweeper.save_checkpoint(epoch=5)",
    "Path('weights').write_text('w')\nsweeper.save_artifact('weights')",
)


def test_the_first_trial_has_the_artifacts_and_values_of_the_run_before_the_sweep() -> None:
    write(COUNTED, *RESUMING)
    first = swept("--yes")["trials"][0]
    assert runs() == 3
    metadata = read_notebook(Path(first["notebook"])).metadata["sweeper"]
    assert metadata["originals"] == {"lr": 0.1}
    assert [*metadata["artifacts"]] == ["weights"]
    assert Path("out/my/artifacts/0000/weights").read_text() == "w"
    assert not [*Path("out/my").glob("*/observed*")]


def test_all_trials_have_the_same_steps_of_a_score_in_a_redrawn_progress_line() -> None:
    write(
        "def train(lr=0.1):\n    for step in range(3):\n"
        "        print(f'\\rstep {step} loss = {(lr * 10) ** 2 + step:.4f}', end='')",
        f"train()\n{COUNTED}",
    )
    trials = swept("--score", "loss:min")["trials"]
    for trial in trials:
        printed = read_notebook(Path(trial["notebook"])).metadata["sweeper"]["printed"]
        assert printed["loss"]["steps"] == [0, 1, 2]
    assert trials[0]["scores"]["loss"] == 3.0, "the notebook's own value"
    assert runs() == 4, "the observed run lacks the first two steps"


def test_no_trial_or_other_run_resumes_from_checkpoints_of_the_run_before_the_sweep() -> None:
    write(COUNTED, *RESUMING)
    keeping = ("my.ipynb", "--score", "no_such_score")
    assert call(*keeping).returncode == 2
    write(COUNTED, "edited = True", *RESUMING)
    assert call(*keeping).returncode == 2
    assert runs() == 2
    shown = read_notebook(Path("out/my/observed.ipynb")).metadata["sweeper"]["numbers"]
    assert float.fromhex(shown["val_loss"]["values"][-1]) == abs(0.1 - 0.3)
    Path("my.yml").write_text(
        "objective: {val_loss: minimize}\nspace: {lr: [0.5, 0.7]}\nstart: [{lr: 0.5}]"
    )
    result = swept()
    assert result["trials"][0]["scores"]["val_loss"] == abs(0.5 - 0.3)
    assert not [*Path("out/my").rglob("observed*")]


def test_a_command_with_all_options_uses_the_run_before_the_sweep_even_with_set_clip_inf() -> None:
    write("lr = 0.1\nclip = 1.0", COUNTED, "val_loss = abs(lr - 0.3) * min(clip, 2)")
    infinite = ("--set", "clip=.inf")
    for _ in range(2):
        assert call("my.ipynb", "--score", "no_such_score", *infinite).returncode == 2
    assert runs() == 1
    Path("my.yml").write_text(
        "objective: {val_loss: minimize}\nspace: {lr: [0.1, 0.5]}\nstart: [{lr: 0.1}]"
    )
    long = ("-i", "my.ipynb", "-o", "out/my.{run_id}.ipynb", "-p", "my.yml")
    assert call(*long, "--trials", "2", "--cold", *infinite).returncode == 0
    assert runs() == 2
    assert not [*Path("out/my").rglob("observed*")]


def test_the_option_set_changes_the_run_before_the_sweep_and_wrong_options_prevent_it() -> None:
    write("lr = 0.1\nepochs = 100", COUNTED, "val_loss = abs(lr - 0.3) * epochs")
    for wrong in (("--set", "epochz=2"), ("--set", "epochs"), ("--seeds", "5")):
        refused = call("my.ipynb", "--yes", *wrong)
        assert refused.returncode == 2
        assert wrong[0] in refused.stderr
    assert runs() == 0 and not Path("my.yml").exists()
    result = swept("--yes", "--set", "epochs=2")
    assert result["trials"][0]["scores"]["val_loss"] == abs(0.1 - 0.3) * 2
    assert runs() == 3


def test_a_first_trial_that_ran_before_the_sweep_can_be_replayed_and_its_code_exported() -> None:
    write(*BASELINE)
    assert swept("--yes")["counts"]["completed"] == 3
    replayed = call("replay", "out/my", "0000", "0001")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    exported = call("export", "out/my", "--code", "0000")
    assert exported.returncode == 0, exported.stderr
    code = nbformat.read("out/my/code/0000/my.ipynb", as_version=4)
    assert [cell.source for cell in code.cells] == list(BASELINE)


def test_the_user_must_name_one_of_two_likely_scores_and_the_notebook_is_not_run_again() -> None:
    write("lr = 0.1", COUNTED, "acc_a = abs(lr - 0.3)\nacc_b = abs(lr - 0.4)")
    for options in ((), ("--yes",)):
        done = call("my.ipynb", *options)
        assert done.returncode == 2
        assert "acc_a" in done.stderr
        assert "--score acc_" in done.stderr
        assert not Path("my.yml").exists()
    assert runs() == 1
    wrong = call("my.ipynb", "--score", "acc_c")
    assert wrong.returncode == 2
    assert "acc_b" in wrong.stderr
    result = swept("--score", "acc_b:min")
    assert Settings.load("my.yml").objective["acc_b"].direction == "minimize"
    assert result["trials"][0]["scores"]["acc_b"] == abs(0.1 - 0.4)
    assert runs() == 3
    swept("--score", "acc_b:min")
    assert runs() == 3, "the same command resumes, and the study has all its trials"


def test_the_user_must_state_the_direction_of_a_score_if_it_is_unknown() -> None:
    write("lr = 0.1", "merit = lr * (1 - lr)")
    done = call("my.ipynb", "--score", "merit")
    assert done.returncode == 2
    assert "merit:min" in done.stderr
    assert swept("--score", "merit:min")["best"]["scores"]["merit"] <= 0.2


def test_a_notebook_that_fails_is_swept_only_after_its_failing_cell_got_the_tag_skip() -> None:
    failing = "raise ConnectionError('no server')"
    write("lr = 0.1\nval_loss = (lr - 0.03) ** 2", failing)
    done = call("my.ipynb", "--yes")
    assert done.returncode == 1
    assert "ConnectionError: no server" in done.stderr
    assert "tag code cell 2 `skip`" in done.stderr
    assert not Path("my.yml").exists()
    write("lr = 0.1\nval_loss = (lr - 0.03) ** 2", failing, tags={1: "skip"})
    result = swept("--yes")
    assert result["counts"]["completed"] == 3
    papermill.inspect_notebook("my.ipynb")


def test_a_trial_that_fails_after_its_score_names_the_tag_that_skips_the_failing_cell() -> None:
    fails_later = "if lr != 0.1:\n    raise ConnectionError('no server')"
    write("lr = 0.1\nval_loss = (lr - 0.03) ** 2", fails_later)
    done = call("my.ipynb", "--yes", "--trials", "3", "--json")
    failed = json.loads(done.stdout.splitlines()[-1])["trials"][1]
    assert failed["state"] == "failed"
    message = nbformat.read(failed["notebook"], as_version=4).metadata["sweeper"]["message"]
    assert "ConnectionError" in message
    assert "`skip`" in message


def test_a_run_before_the_sweep_that_is_killed_without_a_checkpoint_starts_again() -> None:
    write("lr = 0.1", COUNTED, "import time\ntime.sleep(2)\nval_loss = abs(lr - 0.3)")
    command = Command("my.ipynb", "--yes", "--trials", "3", "--cold")
    until(lambda: runs() == 1, "the notebook does not run")
    command.send_signal(signal.SIGKILL)
    command.communicate()
    result = swept("--yes")
    assert result["counts"]["completed"] == 3
    assert runs() == 4


def test_a_run_before_the_sweep_that_is_killed_continues_from_its_checkpoint() -> None:
    write(
        "import sweeper, time\nfrom pathlib import Path\nlr = 0.1",
        "saved = sweeper.load_checkpoint() or {'epoch': 0}\n"
        "for epoch in range(saved['epoch'], 3):\n"
        "    val_loss = abs(lr - 0.3) + epoch\n"
        "    sweeper.report(epoch, val_loss=val_loss)\n"
        "    with Path('runs').open('a') as file: _ = file.write('run\\n')\n"
        "    sweeper.save_checkpoint(epoch=epoch + 1)\n"
        "    trial = sweeper.trial()\n"
        "    while epoch == 1 and (trial.number, trial.attempt) == (0, 1): time.sleep(0.1)",
    )
    command = Command("my.ipynb", "--yes", "--trials", "2", "--cold")
    until(lambda: runs() == 2, "the notebook does not run")
    until(lambda: [*Path("out/my").rglob("000002.ckpt")], "there is no checkpoint")
    command.send_signal(signal.SIGKILL)
    command.communicate()
    done = call("my.ipynb", "--yes", "--trials", "2", "--cold", "--json")
    assert done.returncode == 0, done.stderr
    assert runs() == 3 + 3
    assert not [*Path("out/my").rglob("observed*")]


def test_the_option_timeout_also_limits_the_run_before_the_sweep() -> None:
    write("lr = 0.1", COUNTED, "import time\ntime.sleep(600)\nval_loss = abs(lr - 0.3)")
    done = call("my.ipynb", "--yes", "--timeout", "8s")
    assert done.returncode == 1
    assert "--timeout after 8 s" in done.stderr
    assert not Path("my.yml").exists()


@pytest.mark.parametrize("editor", [None, "no-such-editor --wait", "an 'open quote"])
def test_the_run_before_the_sweep_is_the_first_trial_even_if_the_parameters_file_was_edited(
    editor: str | None,
) -> None:
    write("lr = 0.1", COUNTED, "val_loss = abs(lr - 0.3)\nval_mae = val_loss * 2")
    usual = Path("bin/sensible-editor").absolute()
    usual.parent.mkdir()
    usual.write_text("#!/bin/sh\necho opened > opened\n")
    usual.chmod(0o755)
    path = f"{usual.parent}{os.pathsep}{os.environ['PATH']}"
    env = {"EDITOR": editor, "VISUAL": None, "PATH": path}
    terminal = Terminal("my.ipynb", cwd=Path.cwd(), env=env)
    terminal.until_seen("q leaves")
    terminal.press("e\r")
    assert terminal.wait() == 0, terminal.text
    assert Path("opened").exists() is (editor is None)
    assert (editor or "my.yml is kept") in terminal.text
    assert "Traceback" not in terminal.text
    assert runs() == 1
    if editor is not None:  # with a broken editor the file stays unedited, so nothing is swept here
        return
    text = Path("my.yml").read_text()
    Path("my.yml").write_text(text.replace("val_mae: minimize", "val_loss: minimize"))
    result = swept()
    assert [*result["best"]["scores"]] == ["val_loss"]
    assert runs() == 3


def test_the_list_of_scores_fits_80_columns_and_a_key_chooses_one() -> None:
    long_name = "a_loss_whose_name_is_as_long_as_a_line_of_the_terminal_or_longer"
    layers = "sizes_of_hidden_layers = (1024, 512, 256)"
    write(
        f"lr = 0.1\n{layers}",
        COUNTED,
        f"val_acc = 1 - lr / 3\ntest_acc = 1 - lr / 4\n{long_name} = lr / 7",
    )
    terminal = Terminal("my.ipynb", "--trials", "2", cwd=Path.cwd())
    terminal.until_seen("q leaves")
    assert terminal.ever(r">1 +val_acc +0\.96667 +↑")
    assert not [line for line in terminal.lines if len(line) > 80]
    assert "[[1024, 512, 256], …]" in " ".join(" ".join(terminal.lines).split()), "a remedy is cut"
    assert "Traceback" not in terminal.text
    terminal.press("9\r")
    terminal.until_seen("'9' is no score of the list")
    terminal.press("2\r")
    terminal.until_seen(">2")
    terminal.press("\r")
    assert terminal.wait() == 0, terminal.text
    assert [*Settings.load("my.yml").objective] == ["test_acc"]
    assert "best: " in terminal.text


def test_a_terminal_lists_the_names_that_are_not_swept_and_a_key_shows_the_reasons() -> None:
    write("lr = 0.1\nbatch_size = 64", "val_loss = abs(lr - 0.3)", "val_mae = batch_size / 100")
    terminal = Terminal("my.ipynb", cwd=Path.cwd())
    terminal.until_seen("q leaves")
    assert terminal.ever("not swept: lr; type [?] for the reasons")
    assert not terminal.ever("0.1 in the notebook")
    terminal.press("?\r")
    terminal.until_seen("0.1 in the notebook")
    terminal.press("val_loss\r")
    terminal.until_seen("not swept: batch_size")
    terminal.press("q\r")
    assert terminal.wait() == 0, terminal.text


def test_the_user_is_not_asked_to_choose_a_score_if_no_score_depends_on_a_param() -> None:
    mean = (
        "class Mean:\n"
        "    def fit(self, x, y):\n"
        "        self.mean = sum(y) / len(y)\n"
        "        return self\n"
        "    def predict(self, x):\n"
        "        return [self.mean for _ in x]\n"
        "found = Mean().fit([1, 2], [1, 2]).predict([3, 4])\n"
        "test_rmse = (sum((a - b) ** 2 for a, b in zip(found, [3, 4])) / 2) ** 0.5"
    )
    write("lr = 0.1", "w = 1.0\nfor _ in range(3):\n    w -= lr * 2 * w", mean)
    terminal = Terminal("my.ipynb", cwd=Path.cwd())
    assert terminal.wait() == 2, terminal.text
    assert "test_rmse" in terminal.text, "the score that was found"
    assert "q leaves" not in terminal.text
    assert not Path("my.yml").exists()


def test_a_score_that_depends_on_no_param_cannot_be_chosen_in_the_list_of_scores() -> None:
    write("lr = 0.1", COUNTED, "val_loss = abs(lr - 0.3)", UNREACHED)
    terminal = Terminal("my.ipynb", "--trials", "2", cwd=Path.cwd())
    terminal.until_seen("q leaves")
    terminal.press("val_acc\r")
    terminal.until_seen(r"changes\s+val_acc")
    terminal.until_seen(r"(?s)changes\s+val_acc.*Enter runs them")
    terminal.press("\r")
    assert terminal.wait() == 0, terminal.text
    assert [*Settings.load("my.yml").objective] == ["val_loss"]


def test_the_key_q_ends_the_command_and_the_next_call_does_not_run_the_notebook_again() -> None:
    write("lr = 0.1", COUNTED, "val_loss = abs(lr - 0.3)")
    for _ in range(2):
        terminal = Terminal("my.ipynb", cwd=Path.cwd())
        terminal.until_seen("q leaves")
        terminal.press("q\r")
        assert terminal.wait() == 0, terminal.text
    assert not Path("my.yml").exists()
    assert runs() == 1


def test_a_dry_run_shows_the_drafted_search_space_without_running_the_notebook() -> None:
    write("lr = 0.1", COUNTED, "val_loss = abs(lr - 0.3)")
    done = call("my.ipynb", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "lr: {low: 0.01, high: 1.0" in done.stdout
    assert runs() == 0
    assert sorted(path.name for path in Path().iterdir()) == ["my.ipynb"]


def test_a_study_whose_trials_have_all_failed_starts_again_with_the_same_command() -> None:
    settings = "objective: {val: minimize}\nspace: {lr: {low: 0.0, high: 1.0}}"
    Path("p.yml").write_text(settings)
    words = ["-i", "my.ipynb", "-o", "out/{run_id}.ipynb", "-p", "p.yml", "--trials", "2", "--json"]
    write("lr = 0.1", "val = lr / 0")
    assert call(*words).returncode == 1
    write("lr = 0.1", "val = abs(lr - 0.3)")
    done = call(*words)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["counts"]["completed"] == 2
    assert result["counts"]["failed"] == 0
