"""Times a push and a fetch of many small files, and fsspec's own `get` of the same files.

uv run benchmarks/data.py --files 50000
uv run benchmarks/data.py --files 5000 --s3      # moto's server on this machine
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import fsspec

from sweeper.settings.sections import Data
from sweeper.sync.datasets import Dataset

FOLDERS = 100
LEAST_BYTES, MOST_BYTES = 2_500, 3_500


def main() -> None:
    """Print one line for each step: seconds, and seconds of this process's CPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--s3", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _store(Path(folder), s3=options.s3) as url:
        home, away = (Path(folder, name) for name in ("home", "away"))
        _make(home / "data", options.files)
        pushing, fetching = _dataset(home, url), _dataset(away, url)
        _timed("push", lambda: pushing.push(_ignore))
        _timed("push again", lambda: pushing.push(_ignore))
        _timed("fetch", lambda: _bring(fetching))
        _timed("start with the data there", lambda: _bring(fetching))
        _timed("verify every file", lambda: _bring(fetching, reads_all=True))
        fs, root = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        fs.put(f"{home / 'data'}/", f"{root}/plain/", recursive=True)
        to = str(Path(folder, "plain"))
        _timed(
            "fsspec's get of one object each", lambda: fs.get(f"{root}/plain/", to, recursive=True)
        )


def _dataset(folder: Path, url: str) -> Dataset:
    return Dataset(Data.model_validate({"path": "data", "from": url}), folder=folder)


def _bring(dataset: Dataset, *, reads_all: bool = False) -> None:
    dataset.settle()
    dataset.bring(_ignore, reads_all=reads_all)


def _ignore(_line: str) -> None:
    """Display nothing."""


def _make(folder: Path, n_files: int) -> None:
    for number in range(n_files):
        path = folder / f"{number % FOLDERS:03}" / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.randbytes(random.randint(LEAST_BYTES, MOST_BYTES)))


def _timed(name: str, call: Callable[[], object]) -> None:
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    call()
    took_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    print(f"{name:32} {took_s:6.1f} s {cpu_s:6.1f} s of CPU", flush=True)


@contextmanager
def _store(folder: Path, *, s3: bool) -> Iterator[str]:
    if not s3:
        yield (folder / "bucket").as_uri()
        return
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
        AWS_ACCESS_KEY_ID="nobody",
        AWS_SECRET_ACCESS_KEY="nothing",
        AWS_DEFAULT_REGION="us-east-1",
    )
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            time.sleep(0.1)
        fsspec.filesystem("s3").mkdir("datasets")
        yield "s3://datasets/mine"
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
