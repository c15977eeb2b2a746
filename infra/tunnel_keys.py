#!/usr/bin/env python3
"""Exchange addresses and public SSH keys between the tracker and its workers, through a bucket.

    tunnel_keys.py announce s3://bucket/tracker 34.1.2.3 /etc/ssh/ssh_host_ed25519_key.pub
    tunnel_keys.py authorise s3://bucket/tracker ~tunnel/.ssh/authorized_keys 5000
    tunnel_keys.py offer s3://bucket/tracker worker-1 ~/.ssh/tracker_key.pub known_hosts

The tracker is a machine with an MLflow server, and workers reach this server through SSH tunnels.
Only public keys are written to the bucket. The tracker announces its address and its host key, so
that a worker refuses any other machine. A worker offers the public key of a key pair that it has
made. The tracker authorises this key only for connections to the port of the MLflow server. So
everybody who can write to the bucket can reach the server.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import fsspec

#: Pattern of one public key. It allows no options of SSH before the key and no line break, with
#: which a worker could get more rights.
_KEY = re.compile(r"(ssh-ed25519 [A-Za-z0-9+/=]{40,200})(?: [\w.@-]*)?")
_NAME = re.compile(r"[\w.-]{1,100}")
_EVERY_S = 5.0


def announce(url: str, address: str, host_key: str) -> None:
    """Write the tracker's address and host key to the bucket.

    Keys that workers have offered to an earlier tracker are removed.

    Args:
        url: URL of the tracker's folder in the bucket.
        address: IP address or host name of the tracker.
        host_key: File with the public host key of the tracker's SSH server.

    Raises:
        ValueError: The file has no public ed25519 key.
    """
    fs, root = fsspec.core.url_to_fs(url.rstrip("/"))
    match = _KEY.fullmatch(Path(host_key).read_text("utf-8").strip())
    if match is None:
        raise ValueError(f"{host_key} is no public ed25519 key")
    for path in _keys(fs, root):
        fs.rm_file(path)
    door = {"address": address, "host_key": match[1]}
    fs.makedirs(root, exist_ok=True)
    fs.pipe_file(f"{root}/door.json", json.dumps(door).encode())


def authorise(url: str, authorized_keys: str, port: str) -> None:
    """Write the workers' keys from the bucket to a file every few seconds, until SIGTERM.

    Args:
        url: URL of the tracker's folder in the bucket.
        authorized_keys: The file, in the format of SSH's `authorized_keys`.
        port: Port of the MLflow server, the only one to which the keys open a tunnel.
    """
    fs, root = fsspec.core.url_to_fs(url.rstrip("/"))
    # `port-forwarding` also permits clients to listen on ports of this machine. `permitlisten`
    # limits this to port 1, which only root can open.
    restrict = f'restrict,port-forwarding,permitopen="127.0.0.1:{int(port)}",permitlisten="1"'
    target, complaint = Path(authorized_keys), ""
    while True:
        try:
            fs.invalidate_cache()
            lines = []
            for path in _keys(fs, root):
                match = _KEY.fullmatch(fs.cat_file(path).decode(errors="replace").strip())
                if match is not None:  # A file without a valid key is ignored.
                    lines.append(f"{restrict} {match[1]}\n")
            _replace(target, "".join(sorted(lines)))
            complaint = ""
        except Exception as error:  # noqa: BLE001  The next round tries again with the old keys.
            line = f"keys of workers cannot be read: {error}".splitlines()[0]
            if line != complaint:
                print(f"tunnel_keys.py: {line}", file=sys.stderr, flush=True)
            complaint = line
        time.sleep(_EVERY_S)


def offer(url: str, name: str, key: str, known_hosts: str) -> None:
    """Write a worker's public key to the bucket, and print the tracker's address.

    Args:
        url: URL of the tracker's folder in the bucket.
        name: Name of the worker.
        key: File with the worker's public key.
        known_hosts: File to write, in which SSH finds the tracker's host key.

    Raises:
        ValueError: No tracker has announced itself, or its address, its host key or the name of the
            worker is not valid.
    """
    fs, root = fsspec.core.url_to_fs(url.rstrip("/"))
    fs.invalidate_cache()
    try:
        door = json.loads(fs.cat_file(f"{root}/door.json"))
    except FileNotFoundError:
        raise ValueError(f"no tracker has announced itself in {url}/door.json") from None
    address, host_key = str(door["address"]), str(door["host_key"])
    if not re.fullmatch(r"[A-Za-z0-9.:-]{1,255}", address) or address.startswith("-"):
        raise ValueError(f"{url}/door.json: {address!r} is no address")
    if not _KEY.fullmatch(host_key):
        raise ValueError(f"{url}/door.json: host_key is no public ed25519 key")
    _replace(Path(known_hosts), f"tracker {host_key}\n")
    fs.makedirs(f"{root}/keys", exist_ok=True)
    fs.pipe_file(f"{root}/keys/{_checked(name)}.pub", Path(key).read_bytes())
    print(address)


def _keys(fs: fsspec.AbstractFileSystem, root: str) -> list[str]:
    try:
        return [str(p) for p in fs.ls(f"{root}/keys", detail=False) if str(p).endswith(".pub")]
    except FileNotFoundError:
        return []


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a worker; use letters, digits, '.', '_', '-'")
    return name


def _replace(file: Path, content: str) -> None:
    beside = file.with_name(f".{file.name}.new")
    beside.write_text(content, "utf-8")
    os.replace(beside, file)


_COMMANDS: Mapping[str, tuple[Callable[..., None], int]] = {
    "announce": (announce, 3),
    "authorise": (authorise, 3),
    "offer": (offer, 4),
}


def main() -> int:
    """Run the command line."""
    name, *arguments = sys.argv[1:] or [""]
    command, count = _COMMANDS.get(name, (None, 0))
    if command is None or len(arguments) != count:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    try:
        command(*arguments)
    except Exception as error:  # noqa: BLE001  Each storage has exceptions of its own.
        print(
            f"tunnel_keys.py: {(str(error) or type(error).__name__).splitlines()[0]}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    sys.exit(main())
