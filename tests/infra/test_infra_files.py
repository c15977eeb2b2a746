"""What lies in `infra/`: its files parse, open nothing but SSH, and contain no secret."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
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
#: Keys of AWS and Google, private keys, passwords and tokens that are no names of variables.
SECRET = re.compile(
    r"AKIA[0-9A-Z]{16}|AIza[\w-]{35}|-----BEGIN [A-Z ]*PRIVATE KEY|"
    r"""(?i:password|secret|token|api_?key)\s*[=:]\s*['"]?[\w/+-]{8,}"""
)


def name(path: Path) -> str:
    return str(path.relative_to(INFRA))


def machines() -> dict[str, Any]:
    yaml = YAML(typ="safe")
    return {kind: yaml.load((INFRA / f"{kind}.yaml").read_text()) for kind in ("tracker", "worker")}


def test_the_tracker_stays_and_the_worker_may_go() -> None:
    both = machines()
    assert both["tracker"]["resources"]["use_spot"] is False
    assert both["tracker"]["resources"]["autostop"]["down"] is True
    assert both["worker"]["resources"]["use_spot"] is True
    # The sweep's exit code after SIGTERM or a preemption notice.
    assert both["worker"]["resources"]["job_recovery"]["recover_on_exit_codes"] == [143]


def test_machines_get_an_identity_of_the_cloud_and_no_copied_credentials() -> None:
    config = YAML(typ="safe").load((INFRA / "sky.config.yaml").read_text("utf-8"))
    assert {config[cloud]["remote_identity"] for cloud in ("gcp", "aws")} == {"SERVICE_ACCOUNT"}
    assert config["jobs"]["controller"]["autostop"]["down"] is True


def test_no_port_is_open_but_that_of_ssh() -> None:
    assert not any("ports" in task["resources"] for task in machines().values())
    texts = {name(path): path.read_text("utf-8") for path in FILES if path.suffix != ".md"}
    assert [file for file, text in texts.items() if "0.0.0.0" in text or "::/0" in text] == []
    served = re.findall(r"(?:--host|--ip)[ =](\S+)", "\n".join(texts.values()))
    assert served
    assert set(served) == {"127.0.0.1"}
    assert [file for file, text in texts.items() if re.search(r"(?m)^EXPOSE|ingress", text)] == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_file_contains_a_secret(path: Path) -> None:
    assert SECRET.findall(path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_parse(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_shellcheck_has_nothing_to_say(path: Path) -> None:
    subprocess.run(["shellcheck", "-s", "bash", "-x", str(path)], cwd=ROOT, check=True)


@pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")
@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_terraform_can_read_the_account(cloud: str) -> None:
    folder = INFRA / "account" / cloud
    subprocess.run(["terraform", "fmt", "-check", "-diff", str(folder)], check=True)


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_the_bucket_is_private_and_survives_a_destroy(cloud: str) -> None:
    text = (INFRA / "account" / cloud / "main.tf").read_text("utf-8")
    assert re.search(r"force_destroy\s+= var\.delete_results", text)
    assert "block_public_acls" in text or 'public_access_prevention    = "enforced"' in text


def test_the_image_copies_files_that_exist_and_are_sent_along() -> None:
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


def test_the_package_has_nothing_of_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["sweeper"]
    modules = ROOT.joinpath("sweeper").rglob("*.py")
    assert not any("budget_guard" in module.read_text("utf-8") for module in modules)
