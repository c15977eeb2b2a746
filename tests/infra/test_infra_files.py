"""Test the files in `infra/`: they parse, open only the port of SSH, and contain no secret."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
FILES = sorted(
    path for path in INFRA.rglob("*") if path.is_file() and "__pycache__" not in path.parts
)
SCRIPTS = [path for path in FILES if path.suffix in (".sh", ".sbatch")]
#: Patterns of secrets: keys of AWS and Google, private keys, and passwords or tokens as values.
SECRET = re.compile(
    r"AKIA[0-9A-Z]{16}|AIza[\w-]{35}|-----BEGIN [A-Z ]*PRIVATE KEY|"
    r"""(?i:password|secret|token|api_?key)\s*[=:]\s*['"]?[\w/+-]{8,}"""
)


def name(path: Path) -> str:
    return str(path.relative_to(INFRA))


def loaded(file: str) -> dict[str, Any]:
    return dict(YAML(typ="safe").load((INFRA / file).read_text("utf-8")))


def test_the_worker_is_preemptible_the_tracker_is_not_and_machines_use_service_accounts() -> None:
    tracker, worker = (loaded(f"{kind}.yaml")["resources"] for kind in ("tracker", "worker"))
    assert tracker["use_spot"] is False
    assert tracker["autostop"]["down"] is True
    assert worker["use_spot"] is True
    # A sweep exits with 143 after SIGTERM, which a preempted machine sends. The job then starts
    # again.
    assert worker["job_recovery"]["recover_on_exit_codes"] == [143]
    config = loaded("sky.config.yaml")
    assert {config[cloud]["remote_identity"] for cloud in ("gcp", "aws")} == {"SERVICE_ACCOUNT"}
    assert config["jobs"]["controller"]["autostop"]["down"] is True


def test_no_infra_file_opens_a_port_to_other_machines() -> None:
    assert not any("ports" in loaded(f"{it}.yaml")["resources"] for it in ("tracker", "worker"))
    texts = {name(path): path.read_text("utf-8") for path in FILES if path.suffix != ".md"}
    assert [file for file, text in texts.items() if "0.0.0.0" in text or "::/0" in text] == []
    served = re.findall(r"(?:--host|--ip)[ =](\S+)", "\n".join(texts.values()))
    assert served
    assert set(served) == {"127.0.0.1"}
    assert [file for file, text in texts.items() if re.search(r"(?m)^EXPOSE|ingress", text)] == []


def test_no_infra_file_contains_a_secret() -> None:
    assert [name(path) for path in FILES if SECRET.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_parse_and_pass_shellcheck(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    if shutil.which("shellcheck") is not None:
        subprocess.run(["shellcheck", "-s", "bash", "-x", str(path)], cwd=ROOT, check=True)


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_the_bucket_is_private_and_its_results_are_deleted_only_on_request(cloud: str) -> None:
    text = (INFRA / "account" / cloud / "main.tf").read_text("utf-8")
    assert re.search(r"force_destroy\s+= var\.delete_results", text)
    assert "block_public_acls" in text or 'public_access_prevention    = "enforced"' in text


def test_the_image_copies_only_files_in_its_build_context() -> None:
    text = (INFRA / "container" / "Dockerfile").read_text("utf-8")
    copied = [
        source
        for line in re.findall(r"(?m)^COPY (?!--from)(.*)$", text)
        for source in line.split()[:-1]
    ]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    allowed = (INFRA / "container" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert [s for s in copied if f"!{s.removeprefix('./')}" not in allowed] == []
    assert re.search(r"(?m)^USER 1000", text)
