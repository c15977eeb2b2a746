"""A worker's way to the tracker: only public keys travel, and only to one port."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import tunnel_keys

KEY = "ssh-ed25519 " + "A" * 68


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "host.pub").write_text(f"{KEY} root@tracker\n")
    (tmp_path / "worker.pub").write_text(f"{KEY} worker-1\n")
    url = f"file://{tmp_path}/tracker"
    tunnel_keys.announce(url, "34.1.2.3", str(tmp_path / "host.pub"))
    return url


def authorised(url: str, tmp_path: Path) -> str:
    """What the file of keys says after one look."""
    file = tmp_path / "authorized_keys"
    running = subprocess.Popen(
        [sys.executable, tunnel_keys.__file__, "authorise", url, str(file), "5000"]
    )
    try:
        while not file.exists():
            assert running.poll() is None
            time.sleep(0.02)
    finally:
        running.terminate()
        running.wait()
    return file.read_text()


def test_a_worker_may_open_one_port_and_nothing_else(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known_hosts"
    tunnel_keys.offer(url, "worker-1", str(tmp_path / "worker.pub"), str(known))
    assert capsys.readouterr().out == "34.1.2.3\n"
    assert known.read_text() == f"tracker {KEY}\n"
    rule = 'restrict,port-forwarding,permitopen="127.0.0.1:5000",permitlisten="1"'
    (tmp_path / "tracker" / "keys" / "other.pub").write_text(f'command="sh" {KEY}\n{KEY}')
    assert authorised(url, tmp_path) == f"{rule} {KEY}\n"


def test_a_new_tracker_removes_the_keys_of_an_earlier_one(url: str, tmp_path: Path) -> None:
    tunnel_keys.offer(url, "worker-1", str(tmp_path / "worker.pub"), str(tmp_path / "known"))
    tunnel_keys.announce(url, "35.4.5.6", str(tmp_path / "host.pub"))
    assert list((tmp_path / "tracker" / "keys").iterdir()) == []


def test_without_a_tracker_the_message_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no tracker has announced itself in file://"):
        tunnel_keys.offer(f"file://{tmp_path}", "worker-1", "key", "known")


@pytest.mark.parametrize("address", ["-oProxyCommand=sh", "host name", ""])
def test_an_address_that_is_none_is_refused(url: str, tmp_path: Path, address: str) -> None:
    tunnel_keys.announce(url, address, str(tmp_path / "host.pub"))
    with pytest.raises(ValueError, match="is no address"):
        tunnel_keys.offer(url, "worker-1", str(tmp_path / "worker.pub"), str(tmp_path / "known"))
