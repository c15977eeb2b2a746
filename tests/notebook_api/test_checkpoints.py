"""A resumed training gives the same bits. A damaged checkpoint is skipped for an older one."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sweeper import load_checkpoint, save_checkpoint
from sweeper.notebook_api.checkpoints import checkpoint_files

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow  # the tests use torch, and kill processes

FOLDER = Path("checkpoints", "by-hand")


class Counter:
    """A minimal object with a state."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        random.random()  # loading draws a random number, as building a layer does
        self.count = state["count"]


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def run_script(code: str, **environment: str) -> str:
    """Run a script in the test's folder, and return the text that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


#: Processes are forked from one that has imported torch, because the import takes longer than a
#: training of these tests.
_FORKING = multiprocessing.get_context("forkserver")
# An optimizer imports torch._dynamo, which takes as long as the import of torch.
_FORKING.set_forkserver_preload(["torch", "torch._dynamo", "sweeper"])


def run_script_with_torch(code: str, *, exit_code: int = 0) -> str:
    """Run a script in a process that has imported torch, and return the text that it prints."""
    printed = Path("printed").absolute()
    printed.unlink(missing_ok=True)
    begin = f"import os; os.chdir({str(printed.parent)!r}); "
    begin += f"os.dup2(os.open({str(printed)!r}, os.O_WRONLY | os.O_CREAT), 1)\n"
    process = _FORKING.Process(target=exec, args=(begin + code, {}))
    process.start()
    process.join(120)
    assert process.exitcode == exit_code
    return printed.read_text().strip()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- saving and loading ----------------------------------------------------------------------


def test_loading_without_a_checkpoint_returns_none_and_makes_no_folder() -> None:
    assert load_checkpoint(counter=Counter()) is None
    assert not FOLDER.exists()


def test_load_checkpoint_checks_its_arguments_even_if_there_is_no_checkpoint() -> None:
    with pytest.raises(ValueError, match=r"load_checkpoint\(loader=…\).* got a list; .*loader out"):
        load_checkpoint(counter=Counter(), loader=[1, 2])


def test_load_checkpoint_restores_objects_in_place_and_returns_plain_values() -> None:
    history = [0.1 + 0.2, float("inf"), None, "a"]
    save_checkpoint(counter=Counter(3), epoch=7, history=history, best={"acc": 1})
    expected, counter = random.random(), Counter()
    plain = load_checkpoint(counter=counter)
    assert random.random() == expected, "random states are restored last"
    assert counter.count == 3
    assert plain == {"epoch": 7, "history": history, "best": {"acc": 1}}


def test_the_newest_checkpoint_is_loaded_and_keep_limits_the_number_of_checkpoints() -> None:
    for epoch in range(5):
        path = save_checkpoint(keep=2, epoch=epoch)
    assert path == Path.cwd() / FOLDER / "000005.ckpt"
    assert names_in(FOLDER) == ["000004.ckpt", "000005.ckpt"]
    assert load_checkpoint() == {"epoch": 4}
    with pytest.raises(ValueError, match=r"keep=….*got 0"):
        save_checkpoint(keep=0)


def test_checkpoint_files_are_listed_newest_first(tmp_path: Path) -> None:
    for name in ("000002.ckpt", "1000000.ckpt", "999999.ckpt", "000003.ckpt.part", "best.ckpt"):
        (tmp_path / name).touch()
    names = [path.name for path in checkpoint_files(tmp_path)]
    assert names == ["1000000.ckpt", "999999.ckpt", "000002.ckpt"]
    assert checkpoint_files(tmp_path / "nowhere") == []


def test_checkpoints_do_not_import_torch() -> None:
    code = """if True:
        import sys, random, sweeper
        sweeper.save_checkpoint(epoch=1)
        assert "numpy" not in sys.modules
        import numpy as np
        np.random.seed(3)
        weights = np.arange(6.0).reshape(2, 3)
        sweeper.save_checkpoint(weights=weights, epoch=np.int64(2))
        expected = random.random(), np.random.rand()
        plain = sweeper.load_checkpoint()
        assert plain["weights"].tolist() == [[0, 1, 2], [3, 4, 5]] and plain["epoch"] == 2
        plain["weights"] += 1
        assert (random.random(), np.random.rand()) == expected
        print("torch" in sys.modules)
    """
    assert run_script(code) == "False"


def test_the_random_state_of_numpy_is_restored_before_numpy_is_imported() -> None:
    run_script("import numpy as np, sweeper; np.random.seed(3); sweeper.save_checkpoint()")
    code = "import sweeper; sweeper.load_checkpoint(); import numpy as np; print(np.random.rand())"
    drawn = run_script(code)
    assert drawn == run_script("import numpy as np; np.random.seed(3); print(np.random.rand())")


# --- what goes wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: 0, "function"),
        ([1, {"lock": threading.Lock()}], "lock"),
        ((n for n in range(3)), "generator"),
        ([Counter(), Counter()], "pass the Counter in it under its own name"),
    ],
    ids=["function", "lock", "generator", "stateful"],
)
def test_save_checkpoint_refuses_a_value_that_cannot_be_stored_and_leaves_no_file(
    value: Any, words: str
) -> None:
    with pytest.raises(TypeError, match=rf"save_checkpoint\(wrong=…\).*{words}"):
        save_checkpoint(epoch=1, wrong=value)
    assert not FOLDER.exists() or not list(FOLDER.iterdir())


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [({"modle": Counter()}, "Counter"), ({"model": {}}, "dict"), ({"epoch": 0}, "int")],
)
def test_loading_a_checkpoint_with_an_unknown_name_lists_the_saved_names(
    wrong: dict[str, Any], kind: str
) -> None:
    save_checkpoint(model=Counter(), other=Counter(), epoch=1)
    counter = Counter(5)
    name = next(iter(wrong))
    named = rf"{name}=….* \(model, other in .*000001\.ckpt\) .* got {name} and a {kind}$"
    with pytest.raises(ValueError, match=named):
        load_checkpoint(other=counter, **wrong)
    assert counter.count == 5, "no object changes before all names are checked"


def test_load_checkpoint_says_why_a_saved_state_does_not_fit_an_object() -> None:
    class Wider(Counter):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise RuntimeError("size mismatch for weight")

    save_checkpoint(model=Counter())
    with pytest.raises(ValueError, match=r"model=….*does not fit this Wider: size mismatch"):
        load_checkpoint(model=Wider())


def test_a_saved_state_that_is_not_restored_causes_a_warning() -> None:
    save_checkpoint(model=Counter(), optimizer=Counter())
    with pytest.warns(UserWarning, match=r"also has the state of optimizer") as warned:
        load_checkpoint(model=Counter())
    assert warned[0].filename == __file__


def test_the_message_about_a_checkpoint_whose_class_is_not_defined_names_the_file() -> None:
    run_script(
        "import sweeper\nclass Lost: pass\nlost = Lost()\nsweeper.save_checkpoint(lost=lost)"
    )
    with pytest.raises(ValueError, match=r"cannot read .*000001\.ckpt: .*Lost"):
        load_checkpoint()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, empty, flip_a_bit])
def test_the_checkpoint_before_a_damaged_one_is_used(damage: Any) -> None:
    for epoch in range(3):
        path = save_checkpoint(keep=3, epoch=epoch)
    damage(path)
    with pytest.warns(UserWarning, match=r"000003\.ckpt is incomplete or changed: skipped"):
        assert load_checkpoint() == {"epoch": 1}
    save_checkpoint(keep=1, epoch=9)
    assert load_checkpoint() == {"epoch": 9}
    assert names_in(FOLDER) == ["000004.ckpt"]


def test_the_partial_file_of_a_killed_attempt_is_removed() -> None:
    save_checkpoint(epoch=1)
    (FOLDER / "000002.ckpt.part").write_bytes(b"half")
    assert load_checkpoint() == {"epoch": 1}
    save_checkpoint(epoch=2)
    assert names_in(FOLDER) == ["000002.ckpt"]


class Remover(dict[str, int]):
    """A state that removes the checkpoint folder the first time that it is pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        if FOLDER.exists() and "removed" not in self:
            shutil.rmtree(FOLDER)
            self["removed"] = 1
        return dict, (dict(self),)


def test_a_checkpoint_folder_that_is_removed_while_a_trial_writes_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SWEEPER_TRIAL", "{}")
    counter = Counter()
    removing = Remover()
    counter.state_dict = lambda: removing  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="trying again"):
        path = save_checkpoint(counter=counter)
    assert path.exists()
    assert removing == {"removed": 1}


def test_a_checkpoint_folder_removed_while_a_notebook_run_by_hand_writes_is_made_again() -> None:
    counter = Counter()
    removing = Remover()
    counter.state_dict = lambda: removing  # type: ignore[method-assign]
    assert save_checkpoint(counter=counter).exists()
    assert removing == {"removed": 1}


def test_the_message_about_a_checkpoint_folder_that_cannot_be_made_names_it() -> None:
    FOLDER.parent.touch()
    with pytest.raises(NotADirectoryError, match=r"cannot write into .*by-hand: Not a directory"):
        save_checkpoint(epoch=1)


FULL_DISK = """if True:
    import os, resource, sys
    %s
    import sweeper
    folder = sweeper.save_checkpoint(epoch=1).parent
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, unlimited[1]))  # as a disk that is full
    try:
        sweeper.save_checkpoint(epoch=2, bulk=%s)
    except OSError as error:
        print(error.errno, error)
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    print(os.listdir(folder), sweeper.load_checkpoint())
    sweeper.save_checkpoint(epoch=4)
    print(os.listdir(folder), sweeper.load_checkpoint())
"""


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("begin", "bulk", "run"),
    [
        ("", "bytes(10**6)", run_script),
        ("import torch", "torch.zeros(10**6)", run_script_with_torch),
    ],
    ids=["pickle", "torch"],
)
def test_a_full_disk_loses_only_the_new_checkpoint(begin: str, bulk: str, run: Any) -> None:
    first, *others = run(FULL_DISK % (begin, bulk)).splitlines()
    assert "save_checkpoint: cannot write into" in first
    assert "by-hand: File too large; the previous checkpoint is unchanged" in first
    assert others == ["['000001.ckpt'] {'epoch': 1}", "['000002.ckpt'] {'epoch': 4}"]


READ_ONLY = """if True:
    import os, threading
    from sweeper import load_checkpoint, save_checkpoint
    from sweeper.notebook_api import disks
    disks._PAUSE_S = 0.05
    folder = save_checkpoint(epoch=1).parent
    load_checkpoint()
    if os.geteuid() == 0:  # root can write anywhere
        for place in ('.', folder):
            os.chown(place, 65534, 65534)
        os.setuid(65534)
    folder.chmod(0o555)
    timer = threading.Timer(0.5, folder.chmod, [0o755])
    timer.start()
    print(save_checkpoint(epoch=2).name)
    timer.join()
    folder.chmod(0o555)
    disks.PATIENCE_S = 0.2
    for epoch in (3, 4):
        print(save_checkpoint(epoch=epoch).name)
    folder.chmod(0o755)
    print(save_checkpoint(epoch=5).name, load_checkpoint())
"""


def test_a_trial_waits_for_a_read_only_checkpoint_folder_then_continues_without_saving() -> None:
    folder = tempfile.mkdtemp(dir="/tmp")
    try:
        trial = json.dumps({"folder": f"{folder}/checkpoints"})
        code = f"import os; os.chdir({folder!r})\n{READ_ONLY}"
        printed = run_script(code, SWEEPER_TRIAL=trial)
    finally:
        shutil.rmtree(folder)
    assert printed.splitlines() == [
        "000002.ckpt",
        "000002.ckpt",
        "000002.ckpt",
        "000003.ckpt {'epoch': 5}",
    ]


# --- processes that are killed ---------------------------------------------------------------

SAVING = """if True:
    import sweeper
    n = (sweeper.load_checkpoint() or {"n": 0})["n"]
    while True:
        n += 1
        sweeper.save_checkpoint(n=n, bulk=bytes([n % 256]) * 1_000_000)
        print(n, flush=True)  # what is surely on the disk
"""


def test_a_process_that_is_killed_while_it_writes_leaves_a_complete_checkpoint() -> None:
    draw = random.Random(0)
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", SAVING], stdout=subprocess.PIPE) as saver:
            assert saver.stdout is not None
            first = saver.stdout.readline()
            time.sleep(draw.uniform(0, 0.04))
            saver.send_signal(signal.SIGKILL)
            lines = [first, *saver.stdout.read().splitlines()]
        saved = load_checkpoint()
        assert saved is not None
        assert saved["n"] >= int(lines[-1])
        assert saved["bulk"] == bytes([saved["n"] % 256]) * 1_000_000


TRAINING = """if True:
    import hashlib, itertools, json, multiprocessing, os, random, signal, warnings
    import numpy as np
    import torch
    import sweeper

    warnings.simplefilter("ignore", UserWarning)
    multiprocessing.set_start_method("fork", force=True)  # of the loader's workers

    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return 22

        def __getitem__(self, index):
            return torch.randn(4) + index, torch.tensor([np.random.rand() + random.random()])

    sweeper.seed_everything(5)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(), torch.nn.Linear(16, 1)
    )
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adam, 5)
    loader = sweeper.seeded_loader(
        Noisy(), batch_size=4, shuffle=True, num_workers=num_workers, seed=5
    )
    parts = dict(model=model, adam=adam, cosine=cosine, loader=loader)
    saved = sweeper.load_checkpoint(**parts) or {"epoch": -1, "scores": []}
    scores = saved["scores"]
    batches = itertools.count(7 * (saved["epoch"] + 1))  # with the save at the end of an epoch
    for epoch in range(saved["epoch"] + 1, 5):
        total = 0.0
        for x, y in loader:
            if next(batches) == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            adam.zero_grad()
            noise = random.random() + np.random.rand() + torch.rand(())
            loss = (model(x) - y + noise).square().mean()
            loss.backward()
            adam.step()
            total += loss.item()
        cosine.step()
        scores.append(total)
        sweeper.save_checkpoint(epoch=epoch, scores=scores, **parts)
        if next(batches) == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
    digest = hashlib.sha256()
    for part in (model.state_dict().values(), adam.state.values()):
        for entry in part:
            for tensor in entry.values() if isinstance(entry, dict) else [entry]:
                digest.update(tensor.numpy().tobytes())
    draws = [random.random(), np.random.rand(), torch.rand(()).item()]
    print(json.dumps([digest.hexdigest(), adam.param_groups[0]["lr"], scores, draws]))
"""


def train(num_workers: int = 0, *, killed_at: int = -1) -> str:
    """Train up to 5 epochs of 6 batches, from the newest checkpoint if there is one.

    Return a digest of the weights, the scores and random numbers, as JSON.

    Args:
        num_workers: Number of worker processes of the loader.
        killed_at: Number of batches and saves after which the training kills itself. -1 for never.
    """
    code = f"num_workers, killed_at = {num_workers}, {killed_at}\n{TRAINING}"
    return run_script_with_torch(code, exit_code=0 if killed_at < 0 else -signal.SIGKILL)


@pytest.mark.kernel
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_training_that_is_killed_and_continued_ends_in_the_same_bits(num_workers: int) -> None:
    whole = train()
    shutil.rmtree(FOLDER)
    # Killed after this many batches: in the third or fourth epoch.
    train(num_workers, killed_at=random.randint(14, 27))
    assert names_in(FOLDER) in ([f"00000{n}.ckpt"] for n in (2, 3, 4))
    assert train(num_workers) == whole


ON_A_GPU = """if True:
    import torch, sweeper
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sweeper.seed_everything(1)
    model = torch.nn.Linear(4, 3).to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=device == "cuda")
    parts = dict(model=model, optimizer=optimizer)
    def step():
        optimizer.zero_grad()
        model(torch.rand(2, 4, device=device)).sum().backward()
        optimizer.step()
"""


@pytest.mark.gpu
def test_a_training_on_a_gpu_continues_with_the_same_bits_and_loads_on_a_cpu() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    save = """
    step()
    sweeper.save_checkpoint(best=model.weight, **parts)
    step()
    print(model.weight.tolist(), torch.rand(2, device=device).tolist())
    """
    expected = run_script(ON_A_GPU + save)
    load = """
    step()
    plain = sweeper.load_checkpoint(**parts)
    assert plain["best"].device.type == "cpu"
    assert {s["exp_avg"].device.type for s in optimizer.state.values()} == {device}
    step()
    print(model.weight.tolist(), torch.rand(2, device=device).tolist())
    """
    assert run_script(ON_A_GPU + load) == expected
    run_script(ON_A_GPU + load, CUDA_VISIBLE_DEVICES="")
