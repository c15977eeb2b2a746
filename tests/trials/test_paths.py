"""Output templates, and the paths and names that follow from them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sweeper.errors import OutputError, StudyError
from sweeper.files import write_atomically
from sweeper.trials import StudyPaths, attempt_path, display_path, run_id_of


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


@pytest.fixture(autouse=True)
def in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("template", "notebook", "root"),
    [
        ("out/digits.{run_id}.ipynb", "out/digits.0007.ipynb", "out"),
        ("{run_id}.ipynb", "0007.ipynb", "."),
        ("out/{study}/{run_id}.ipynb", "out/d/0007.ipynb", "out"),
        ("{study}.{run_id}.ipynb", "d.0007.ipynb", "."),
        ("a/b/{run_id}/{study}.ipynb", "a/b/0007/d.ipynb", "a/b"),
        ("a/{run_id}/x.{run_id}.ipynb", "a/0007/x.0007.ipynb", "a"),
        ("a/../b/{run_id}.ipynb", "b/0007.ipynb", "b"),
        ("a b/ü.{run_id}.ipynb", "a b/ü.0007.ipynb", "a b"),
    ],
)
def test_all_paths_of_a_study_follow_from_its_output_template(
    template: str, notebook: str, root: str, tmp_path: Path
) -> None:
    paths = StudyPaths.parse(template, study="d")
    assert paths.notebook("0007") == tmp_path / notebook
    assert paths.root == tmp_path / root
    assert paths.folder == tmp_path / root / "d"


def test_a_tilde_in_a_template_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert StudyPaths.parse("~/out/{run_id}.ipynb", study="d").root == tmp_path / "me" / "out"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("out/digits.ipynb", "has no {run_id}, so all trials would write the same file"),
        ("out/{run_id}/../x.ipynb", "has no {run_id}"),
        ("out/{{run_id}}.ipynb", "has no {run_id}"),
        ("out/{run_id}.{lr}.ipynb", "{lr} is not known; only {run_id} and {study} can be used"),
        ("out/{}.ipynb", "{} is not known"),
        ("out/{run_id:06d}.ipynb", "{run_id:06d} is not known"),
        ("out/{run_id.ipynb", "expected '}'"),
        ("out/{run_id}.html", "does not end in .ipynb"),
        ("s3://bucket/{run_id}.ipynb", "is not a path of this machine"),
    ],
)
def test_the_message_about_a_wrong_template_quotes_it_and_shows_a_right_one(
    template: str, message: str
) -> None:
    with pytest.raises(OutputError) as raised:
        StudyPaths.parse(template, study="d")
    assert repr(template) in str(raised.value)
    assert message in str(raised.value)
    assert "./out/digits.{run_id}.ipynb" in str(raised.value)


@pytest.mark.parametrize(
    "template",
    [
        f"out/{'n' * 221}.{{run_id}}.ipynb",
        f"out/{'ü' * 120}.{{run_id}}.ipynb",
        f"{'f' * 256}/{{run_id}}.ipynb",
    ],
)
def test_an_output_template_with_a_name_of_more_than_231_bytes_is_refused(template: str) -> None:
    with pytest.raises(OutputError, match="has more than 231 bytes; choose a shorter one with -o"):
        StudyPaths.parse(template, study="d")


def test_a_notebook_with_the_longest_allowed_name_can_be_written_and_renamed(
    tmp_path: Path,
) -> None:
    template = f"{tmp_path}/{'n' * 220}.{{run_id}}.ipynb"
    notebook = StudyPaths.parse(template, study="d").following("confirm").notebook("0000")
    write_atomically(notebook, "{}")
    notebook.rename(attempt_path(notebook, 12))


def test_a_run_id_has_at_least_four_digits() -> None:
    assert [run_id_of(number) for number in (7, 9999, 10000)] == ["0007", "9999", "10000"]


@pytest.mark.parametrize(
    "template",
    [
        "out/digits.{run_id}.ipynb",
        "{run_id}.ipynb",
        "out/{run_id}/notebook.ipynb",
        "out/{run_id}.{run_id}.ipynb",
        "out/d+(1).{run_id}.ipynb",
    ],
)
def test_executed_notebooks_of_a_study_are_found_by_its_output_template(template: str) -> None:
    paths = StudyPaths.parse(template, study="d.x")
    assert paths.written_run_ids() == {}
    written = {run_id: touch(paths.notebook(run_id)) for run_id in ("0010", "0002", "12345")}
    assert paths.written_run_ids() == written
    assert list(paths.written_run_ids()) == sorted(written)


def test_files_that_do_not_match_the_output_template_are_not_listed_as_notebooks() -> None:
    paths = StudyPaths.parse("out/digits.{run_id}.ipynb", study="d")
    for name in (
        "digits.7.ipynb",
        "digits.0007.html",
        "digits.0007.attempt1.ipynb",
        "xdigits.0007.ipynb",
        "digitsx0007.ipynb",
        ".digits.0007.ipynb.99.part",
    ):
        touch(Path("out") / name)
    assert paths.written_run_ids() == {}
    Path("out/0003").mkdir()
    assert StudyPaths.parse("out/{run_id}/nb.ipynb", study="d").written_run_ids() == {}


def test_absolute_output_paths_work_even_if_the_working_folder_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    paths = StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="s")
    assert paths.notebook("0000") == tmp_path / "0000.ipynb"
    assert display_path(paths.folder) == f"{tmp_path}/s"


def test_a_path_is_displayed_as_relative_only_if_it_is_below_the_working_folder(
    tmp_path: Path,
) -> None:
    assert display_path(tmp_path / "out" / "x.ipynb") == "out/x.ipynb"
    assert display_path(tmp_path.parent / "x.ipynb") == str(tmp_path.parent / "x.ipynb")


@pytest.mark.parametrize("study", ["mlflow.db", "mlflow-artifacts"])
def test_a_study_cannot_have_the_name_of_the_mlflow_store(study: str) -> None:
    with pytest.raises(OutputError, match="--study"):
        StudyPaths.parse("out/{run_id}.ipynb", study=study)


NASTY = "{x} {{y}} {run_id} {study} {{run_id}} }{ { {} 100% a?b"


def test_braces_in_folder_names_are_not_placeholders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / NASTY
    (folder / "out").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    for template in ("out/x.{run_id}.ipynb", "~/out/x.{run_id}.ipynb"):
        paths = StudyPaths.parse(template, study="d")
        assert paths.root == folder / "out"
        assert paths.notebook("0007") == folder / "out" / "x.0007.ipynb"
        assert paths.displayed_template == "out/x.{run_id}.ipynb"
        assert paths.following("confirm").notebook("0007") == folder / "out/x.confirm-0007.ipynb"
        write_atomically(paths.notebook("0007"), "{}")
        assert paths.written_run_ids() == {"0007": paths.notebook("0007")}
        assert paths.copied_below(folder).notebook("0007") == Path(
            f"{folder}{paths.notebook('0007')}"
        )
        monkeypatch.chdir("/")
        assert StudyPaths.parse(paths.template, study="d") == paths, "studies store the template"
        assert StudyPaths.parse(paths.displayed_template, study="d") == paths
        monkeypatch.chdir(folder)


@pytest.mark.parametrize(
    ("template", "options"),
    [
        ("out/{study}.{run_id}.ipynb", "--study NAME"),
        ("out/x.{run_id}.ipynb", "--study NAME -o 'out/x.{study}.{run_id}.ipynb'"),
        ("out/{run_id}/{{x}}.ipynb", "--study NAME -o 'out/{study}.{run_id}/{{x}}.ipynb'"),
    ],
)
def test_the_options_for_another_study_lead_to_other_notebook_paths(
    template: str, options: str
) -> None:
    paths = StudyPaths.parse(template, study="d")
    assert paths.options_of_another == options
    template = shlex.split(options)[-1] if "-o" in options else template
    other = StudyPaths.parse(template, study="NAME")
    assert other.root == paths.root
    assert other.notebook("0000") != paths.notebook("0000")


def test_the_message_about_an_output_folder_whose_name_is_not_utf8_quotes_the_name() -> None:
    with pytest.raises(OutputError, match=r"'a\\udcff' has a name that is not UTF-8.*with -o"):
        StudyPaths.parse("/out/a\udcff/{run_id}.ipynb", study="d")


@pytest.mark.parametrize("name", ["../../secret", "/etc/secret", "a/../../../secret", "a\0b"])
def test_a_name_from_a_notebook_cannot_lead_outside_of_the_studys_folder(name: str) -> None:
    paths = StudyPaths.parse("out/{run_id}.ipynb", study="digits")
    with pytest.raises(StudyError, match="expected the relative path of a file"):
        paths.snapshot(name)
    with pytest.raises(StudyError, match="expected the relative path of a file"):
        paths.environment(f"x/{name}")
    with pytest.raises(StudyError, match="expected the relative path of a file"):
        paths.input("0" * 64, name)
