"""Test the Markdown files: links exist, command lines parse, parameters files load."""

from __future__ import annotations

import dataclasses
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.cli.parser import parse
from sweeper.notebooks.metadata import TrialMetadata
from sweeper.settings import Settings
from sweeper.settings.sections import PRUNERS, SAMPLERS
from sweeper.settings.yaml_reader import BadYaml, read_yaml
from sweeper.trials import Event, Reason, StopCause, TrialState

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("infra/*.md"),
    ]
)
#: Paths that pages name and that are rightly not in the repository: a sweep makes them, or the page
#: says that they do not exist.
ELSEWHERE = {
    *("requests/", "copying/", "checkpoints/by-hand/", "notebooks/0007.ipynb"),
    "sweeper/trial.py",
}
#: The required keys of a parameters file, added to examples that show only a part.
SMALLEST = {"objective": {"val_acc": "maximize"}, "space": {"lr": [3e-4], "batch_size": [64]}}
LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_blocks(page: Path) -> Iterator[str]:
    """Yield the indented and fenced blocks of a page, without their indentation."""
    block: list[str] = []
    fenced = False
    for line in [*page.read_text("utf-8").splitlines(), "end"]:
        if line.strip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    ") or (block and not line):
            block.append(line)
        elif block:
            depth = min(len(line) - len(line.lstrip()) for line in block if line)
            yield "\n".join(line[depth:] for line in block).strip("\n")
            block = []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for link in LINK.findall(page.read_text("utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def paragraphs(page: Path) -> Iterator[list[str]]:
    """Yield the paragraphs and list items of a page, without code and tables."""
    paragraph: list[str] = []
    is_code = False
    for line in [*page.read_text("utf-8").splitlines(), ""]:
        is_code ^= line.startswith("```")
        is_text = bool(line.strip()) and not (is_code or line.startswith(("    ", "|", "```", "#")))
        begins_item = re.match(r" *(?:-|\d+\.) ", line) is not None
        if paragraph and (begins_item or not is_text):
            yield paragraph
            paragraph = []
        if is_text or (begins_item and not is_code):
            paragraph.append(line)


#: Pages whose lines or paragraphs may be longer, such as the generated reference.
DENSE = {"executors.md", "private-names.md", "score-sources.md", "reference.md"}
DENSE_FOLDERS = {"decisions", "benchmarks", "infra"}


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p.name not in DENSE and p.parent.name not in DENSE_FOLDERS],
    ids=title,
)
def test_pages_have_short_lines_and_short_paragraphs(page: Path) -> None:
    found = list(paragraphs(page))
    assert [line for paragraph in found for line in paragraph if len(line) > 120] == []
    assert [paragraph[0] for paragraph in found if len(paragraph) > 5] == []


def command_lines(page: Path) -> list[str]:
    """Return every call of `notebook_hpo.py` in a page's code blocks, without comments."""
    lines = [line for block in code_blocks(page) for line in block.splitlines()]
    calls = [line.split("notebook_hpo.py", 1)[1] for line in lines if "notebook_hpo.py " in line]
    return [re.sub(r"(^|\s)#.*|[>|].*", "", call).strip() for call in calls]


@pytest.mark.parametrize(
    "page",
    [
        ROOT / "README.md",
        ROOT / "docs" / "tutorial" / "README.md",
        *(ROOT / "docs" / f"{name}.md" for name in ("guide", "how-do-i", "reference")),
    ],
    ids=title,
)
def test_every_command_line_in_a_page_parses(page: Path) -> None:
    calls = command_lines(page)
    assert calls
    for call in calls:
        required = "-i a.ipynb -o '{run_id}.ipynb' -p a.yml -j 2"
        parse(shlex.split(call.replace("…", required)))


def test_every_script_and_example_file_in_the_readmes_commands_exists() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for script in re.findall(r"uv run (\S+\.py)", text):
        assert (ROOT / script).exists()
    for path in re.findall(r"(?:-i|-p) '?((?:notebooks|parameters)/\S+)", text):
        assert (ROOT / path).exists()


def parameters_files(page: Path) -> Iterator[dict[str, object]]:
    """Yield each parameters file in a page. Parts of files are completed with the required keys."""
    for block in code_blocks(page):
        try:
            data = read_yaml(block)
        except BadYaml:
            continue
        if isinstance(data, dict) and data.keys() & Settings.model_fields.keys():
            yield SMALLEST | data


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_module_and_folder_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    for name in re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|md|ipynb|yml))?)`", text):
        if name in ELSEWHERE or any(part.isupper() for part in name.split("/")):
            continue  # words in capitals, as in OUT/STUDY/, stand for any folder
        assert any((top / name).exists() for top in (ROOT, ROOT / "sweeper", page.parent)), name


def test_the_page_internals_names_every_module_that_starts_a_thread_or_a_process() -> None:
    starts = re.compile(
        r"\b(?:Thread|Timer|ThreadPoolExecutor|Popen|Parallel)\(|os\.fork\(|\bLive\("
    )
    names = re.compile(r'(?:\bThread\([^)]*?\bname|thread_name_prefix)="([^"]+)"')
    text = (ROOT / "docs" / "internals.md").read_text("utf-8")
    package = ROOT / "sweeper"
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        if starts.search(path.read_text("utf-8")) and not name.startswith("testing/"):
            assert f"`{name}`" in text, (
                f"{name} starts a thread or a process: list it in internals.md"
            )
            for thread in names.findall(path.read_text("utf-8")):
                assert f"`{thread}`" in text, f"{name} starts the thread {thread!r}: list it, too"


def test_every_example_of_settings_in_the_page_how_do_i_can_be_loaded() -> None:
    page = ROOT / "docs" / "how-do-i.md"
    sections = set()
    for line in "\n".join(code_blocks(page)).splitlines():
        section = re.match(r"(\w+): ", line)
        if section and section[1] in Settings.model_fields:
            Settings.from_mapping(SMALLEST | read_yaml(line))
            sections.add(section[1])
    assert {"space", "study", "objective"} <= sections


def test_the_page_how_do_i_explains_only_messages_that_the_package_has() -> None:
    page = (ROOT / "docs" / "how-do-i.md").read_text("utf-8")
    _, found, section = page.partition("### understand an error message")
    messages = re.findall(r"^\| `([^`]+)` \|", section.partition("\n### ")[0], re.MULTILINE)
    assert found and len(messages) > 10
    code = "".join(path.read_text("utf-8") for path in (ROOT / "sweeper").rglob("*.py"))
    text = re.sub(r'"\n\s+f?"', "", code)  # join strings that the code writes on several lines
    parts = [part.strip() for message in messages for part in message.split("…")]
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "how-do-i"], ids=title)
def test_every_parameters_file_in_a_page_loads(page: Path) -> None:
    files = list(parameters_files(page))
    assert files or title(page) not in ("README.md", "docs/reference.md")
    for data in files:
        Settings.from_mapping(data)


def test_the_reference_is_up_to_date_with_its_generator() -> None:
    make_page = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["make_page"]
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert page == make_page(), (
        "docs/reference.md is not up to date; run: uv run python docs/make_reference.py"
    )


def test_the_reference_explains_every_state_reason_event_sampler_pruner_and_extra() -> None:
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    enums = (TrialState, Reason, Event, StopCause)
    names = {*(str(member) for kind in enums for member in kind), "sweep_ended"}
    names |= {*SAMPLERS, *PRUNERS} - {"auto"} | {*project["optional-dependencies"]}
    explained = set(re.findall(r"^\| `(\w+)` \| .{5}", page, re.MULTILINE))
    assert names - explained == set()


def test_the_page_internals_lists_the_metadata_keys_of_executed_notebooks() -> None:
    with_metadata = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["with_metadata"]
    page = (ROOT / "docs" / "internals.md").read_text("utf-8")
    assert page == with_metadata(page), "run: uv run python docs/make_reference.py"
    keys = {field.name for field in dataclasses.fields(TrialMetadata)}
    assert keys <= set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs uv run --group docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    # Turn off the warning with which the theme Material announces its successor.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    guide = (tmp_path / "guide" / "index.html").read_text("utf-8")
    assert 'href="../benchmarks/#pruning"' in guide
    assert (tmp_path / "benchmarks" / "headline-languages.svg").exists()


@pytest.mark.slow
def test_the_readme_of_the_package_index_has_no_link_into_the_repository(tmp_path: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("needs uv")
    command = [uv, "build", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        text = wheel.read(name).decode()
    assert "## Limits" in text
    assert [link for link in LINK.findall(text) if "://" not in link and link[0] != "#"] == []
