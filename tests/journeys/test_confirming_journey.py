"""Test a sweep that is killed while it confirms its best trial, and then resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from commands import Command, call, project
from studies import until

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("here")]

CONFIRM = ["--confirm", "2", "--seeds", "2"]
#: Confirming runs from 0002 on, those with the second seed, wait while the file `hold` exists.
CELL = """
import random, time, sweeper
from pathlib import Path
if "-confirm" in str(sweeper.trial().checkpoint_dir) and int(run_id) >= 2:
    while Path("hold").exists():
        time.sleep(0.02)
for step in range(3):
    sweeper.report(step, val=x + random.Random(seed).gauss(0, 0.01))
"""


def test_a_kill_during_the_confirmation_loses_no_run_and_repeats_no_completed_run() -> None:
    names = 'x = 0.5\nseed = 0\nrun_id = "0000"'
    study = "study: {name: noisy, trials: 3, sampler: grid}\nspace: {x: [0.1, 0.5, 0.9]}"
    words = [*project(CELL, settings=study, parameters=names), "-j", "2", *CONFIRM]
    hold = Path("hold")
    hold.touch()
    sweeping = Command(*words)
    waiting = [Path(f"out/confirm-{run_id}.ipynb") for run_id in ("0002", "0003")]
    until(lambda: all(f.exists() and '"status": "running"' in f.read_text() for f in waiting))
    sweeping.send_signal(signal.SIGKILL)
    _, printed = sweeping.communicate(timeout=60)
    assert "study noisy-confirm: 4 trials" in printed
    hold.unlink()

    killed = json.loads(call("status", "out/noisy", "--json").stdout)
    assert killed["counts"] == {"completed": 3, "pruned": 0, "failed": 0, "stopped": 0}
    assert (killed["confirmation"]["wanted"], killed["confirmation"]["missing"]) == (4, 2)
    assert killed["best"]["won_by"] == "search_score"
    assert "2 of 4 runs on fresh seeds are missing" in call("status", "out/noisy").stdout

    resumed = call(*words, "--json")
    assert resumed.returncode == 0, resumed.stderr
    answer = json.loads(resumed.stdout.splitlines()[-1])
    assert "the runs on fresh seeds: out/noisy-confirm/index.html" in resumed.stderr
    assert (answer["best"]["params"], answer["best"]["won_by"]) == ({"x": 0.9}, "confirmed_mean")
    assert answer["trials"] == killed["trials"]
    runs = json.loads(call("status", "out/noisy-confirm", "--json").stdout)["trials"]
    assert [run["attempt"] for run in runs] == [1, 1, 2, 2]
    assert Path("out/confirm-0003.attempt1.ipynb").exists()

    replayed = call("replay", "out/confirm-0000.ipynb")
    assert replayed.returncode == 0, replayed.stderr
    again = json.loads(call(*words, "--json").stdout.splitlines()[-1])
    assert again["confirmation"] == answer["confirmation"], "nothing is left to do"


#: A notebook that seeds itself, and splits its data with the same seed.
SEEDED = """
import random
import numpy as np
from sklearn.model_selection import train_test_split
SEED = 42
random.seed(SEED)
part, _ = train_test_split(np.arange(100), random_state=SEED)
luck = random.random()
val = x + luck
"""


def test_an_unseeded_notebook_draws_other_numbers_in_confirming_runs_than_in_the_search() -> None:
    study = "study: {name: own, trials: 2, sampler: grid}\nspace: {x: [0.1, 0.5]}"
    cell = "import random, numpy as np\nval = x + random.random() + np.random.rand()"
    words = [*project(cell, settings=study, parameters="x = 0.5"), "-o", "free/{run_id}.ipynb"]
    assert call(*words, "--confirm", "1", "--seeds", "2").returncode == 0
    searched, confirmed = (
        json.loads(call("status", f"free/{name}", "--json").stdout)["trials"]
        for name in ("own", "own-confirm")
    )
    luck = [trial["scores"]["val"] - trial["params"]["x"] for trial in (*searched, *confirmed)]
    assert len({round(value, 9) for value in luck}) == 3, "one in the search, two on fresh seeds"
    for trial in (searched[1], confirmed[1]):
        replayed = call("replay", trial["notebook"])
        assert (replayed.returncode, "equal, bit for bit" in replayed.stdout) == (0, True)


def test_confirming_runs_replace_the_notebooks_seeds_except_for_data_splits() -> None:
    study = "study: {name: own, trials: 2, sampler: grid}\nspace: {x: [0.1, 0.5]}"
    words = project(SEEDED, settings=study, parameters="x = 0.5")
    words += ["-o", "seeded/{run_id}.ipynb"]
    assert call(*words, "--confirm", "1", "--seeds", "2").returncode == 0
    searched, confirmed = (
        json.loads(call("status", f"seeded/{name}", "--json").stdout)["trials"]
        for name in ("own", "own-confirm")
    )
    seeds = [trial["seed"] for trial in confirmed]
    notebooks = [json.loads(Path(it["notebook"]).read_text()) for it in (*searched, *confirmed)]
    sources = [str([cell["source"] for cell in notebook["cells"]]) for notebook in notebooks]
    assert ["random.seed(SEED)" in source for source in sources] == [True] * 2 + [False] * 2
    assert all(
        f"random.seed({seed})  # was SEED" in source
        for seed, source in zip(seeds, sources[2:], strict=True)
    )
    assert all("random_state=SEED" in source for source in sources)
    luck = [trial["scores"]["val"] - trial["params"]["x"] for trial in (*searched, *confirmed)]
    assert len({round(value, 9) for value in luck}) == 3, "one in the search, two on fresh seeds"
    assert call("replay", confirmed[0]["notebook"]).returncode == 0
