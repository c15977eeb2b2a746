"""Test command lines that are refused or answered before anything runs."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opened_studies import asked, opened_in
from shells import new_shell
from studies import assert_says, small_settings

from sweeper.cli import magic, main, proposal
from sweeper.cli.console_output import ConsoleOutput
from sweeper.cli.parser import make_parsers, parse
from sweeper.cli.run_options import RunOptions
from sweeper.cli.streams import Output
from sweeper.drafting.draft import Draft
from sweeper.drafting.scores.score_guesses import Source
from sweeper.drafting.scores.seen_scores import SeenScore
from sweeper.drafting.space.places import Entry, Params
from sweeper.errors import SettingsError
from sweeper.testing import write_notebook
from sweeper.trials import StudyPaths

ROOT = Path(__file__).parents[2]
PARAMETERS = "objective: {val: maximize}\nspace: {lr: {low: 0.0, high: 1.0}}\n"
RIGHT = ["-i", "n.ipynb", "-o", "out/{run_id}.ipynb", "-p", "p.yml"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_notebook(Path("n.ipynb"), "val = lr", parameters="lr = 0.5")
    Path("p.yml").write_text(PARAMETERS)
    return tmp_path


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command line that is refused. Return its one line of error."""
    assert main(list(arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("notebook_hpo.py: ")
    assert len(printed.err.splitlines()) == 1
    return printed.err.strip()


@pytest.mark.parametrize(
    ("arguments", "wrong", "remedy"),
    [
        (["stats", "out/"], "'stats'", "'status'"),
        (["frobnicate"], "'frobnicate'", "run, init, "),
        (["resume"], "'resume'", "the command that began a study"),
        (["my.ipynb"], "my.ipynb", "no such notebook"),
        (["x" * 300 + ".ipynb"], "x.ipynb", "cannot be read"),
        (["best", "out/my"], "'best'", "status"),
        (["-o", "x"], "-i/--input, -p/--parameters", "notebook_hpo.py -i my.ipynb"),
        (["diff"], "[STUDY_OR_FOLDER] RUN_ID RUN_ID", "notebook_hpo.py diff"),
        ([*RIGHT, "--sampler", "gp"], "'--sampler'", "study.sampler"),
        ([*RIGHT, "--trails=3"], "'--trails'", "'--trials'"),
        ([*RIGHT, "lr=3"], "'lr=3'", "unexpected argument"),
        ([*RIGHT, "--trials", "1.5"], "--trials", "whole number of 1 or more; got '1.5'"),
        (["s" * 100_000], "unknown command", "characters …"),
        ([*RIGHT, "--seeds", "1"], "--seeds", "whole number of 2 or more"),
        ([*RIGHT, "--timeout", "soon"], "--timeout", "'soon'"),
    ],
)
def test_the_refusal_of_a_wrong_command_line_has_the_wrong_word_and_a_remedy(
    arguments: Sequence[str], wrong: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = refused(arguments, capsys)
    assert wrong in refusal and remedy in refusal


@pytest.mark.parametrize(
    "arguments", [["-i", "a\udcff.ipynb"], ["--study", "\udcff"], ["status", "\udcff"]]
)
def test_a_command_line_word_that_is_not_utf8_is_refused_in_one_line(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert r"\udcff" in refused([*RIGHT, *arguments], capsys)


def test_a_working_folder_that_is_not_utf8_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a\udcff"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert "rename the file or folder" in refused(["status"], capsys)


def test_outputs_and_parameters_file_are_named_after_a_notebook_that_is_the_only_argument() -> None:
    parsed = parse(["a/n{b} (1).ipynb"])
    assert parsed.parameters == "a/n{b} (1).yml"
    outputs = StudyPaths.parse(parsed.output, study="n")
    assert outputs.notebook("0000") == Path("out/n{b} (1).0000.ipynb").absolute()


def test_check_and_init_of_a_notebook_use_the_file_names_that_its_sweep_uses() -> None:
    checked = parse(["check", "a/n.ipynb", "-j", "2"])
    assert (checked.input, checked.parameters) == ("a/n.ipynb", "a/n.yml")
    assert checked.output == parse(["a/n.ipynb"]).output
    assert parse(["check", "n.ipynb", "-p", "b.yml"]).parameters == "b.yml"
    assert parse(["init", "n.ipynb", "--run"]).input == "n.ipynb"


@pytest.mark.parametrize("study", [["--study", "wide"], ["--study=wide"]])
def test_with_the_option_study_outputs_are_named_after_the_study_and_not_the_notebook(
    study: Sequence[str],
) -> None:
    parsed = parse(["n.ipynb", "-j", "2", *study])
    outputs = StudyPaths.parse(parsed.output, study=parsed.study)
    assert outputs.notebook("0000") == Path("out/wide.0000.ipynb").absolute()
    assert parse(["n.ipynb", *study, "-o", "x/{run_id}.ipynb"]).output == "x/{run_id}.ipynb"


def test_a_tilde_in_the_path_of_a_parameters_file_means_the_home_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for words in (["~/n.ipynb"], [*RIGHT, "--parameters=~/n.yml"], ["mcp", "-p", "~/n.yml"]):
        budget = ["--budget", "1"] if words[0] == "mcp" else []
        assert parse([*words, *budget]).parameters == "/home/me/n.yml"


@pytest.mark.parametrize("arguments", [["--version"], ["run", "--version"]])
def test_the_printed_version_is_that_of_the_package(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"notebook-hpo {version('notebook-hpo')}\n"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("flags", "wrong", "remedy"),
    [
        (["--study", ""], "--study ''", "use letters"),
        (["--set", "lrr=3"], "--set lrr=3", "not assigned in n.ipynb"),
        (["--cluster", "loal:4"], "--cluster loal:4", "expected the address of a Dask"),
        (["--set", "class=3"], "--set class=3", "a keyword of Python"),
        (["--set", "lr=2020-01-01"], "--set lr=2020-01-01", "expected a number"),
        (["--set", "lr=0.5"], "--set lr=0.5", "space is empty"),
        (["--study", "狐" * 90], "the study's name 狐", "--study"),
        (["-o", "n" * 260 + ".{run_id}.ipynb"], "231 bytes", "choose a shorter one"),
    ],
)
def test_the_refusal_of_a_wrong_flag_names_the_flag_and_not_the_parameters_file(
    flags: Sequence[str], wrong: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = refused([*RIGHT, *flags], capsys)
    assert wrong in refusal and remedy in refusal
    assert "p.yml" not in refusal


# --- output that cannot be written ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_command_whose_output_cannot_be_written_reports_that_and_exits_with_2() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, ROOT / "notebook_hpo.py", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr == (
        "notebook_hpo.py: standard output cannot be written: No space left on device\n"
    )


@pytest.mark.slow
def test_a_command_whose_streams_are_closed_exits_with_its_usual_code() -> None:
    command = shlex.join([sys.executable, str(ROOT / "notebook_hpo.py"), "stats"]) + " >&- 2>&-"
    assert subprocess.run(command, shell=True).returncode == 2


@pytest.mark.slow
def test_characters_that_an_encoding_lacks_are_written_as_escapes() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "notebook_hpo.py", "stop", "--help"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0
    assert rb"[RUN_ID\u2026]" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("fault", ["No space left on device", None])
def test_output_to_a_stream_that_has_failed_is_dropped_without_an_error(fault: str | None) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    if fault is not None:
        os.close(writer)
        writer = os.open("/dev/full", os.O_WRONLY)
    with open(writer, "w") as stream:
        output = Output(stream)
        for _ in range(2):
            assert output.write("text") == 4
            output.flush()
            assert output.fault == fault
    assert stream.closed


def test_every_command_has_a_help_that_prints() -> None:
    for name, parser in make_parsers()[1].items():
        called = "notebook_hpo.py" if name == "run" else f"notebook_hpo.py {name}"
        assert called in parser.format_help()


def test_a_run_id_may_be_given_without_its_leading_zeros(folder: Path) -> None:
    parse = make_parsers()[0].parse_args
    assert parse(["retry", "out/s", "7", "0012"]).targets == ["out/s", "0007", "0012"]
    assert parse(["enqueue", "lr=0.1", "--like", "3"]).like == "0003"
    assert parse(["stop", "1" * 300]).targets == ["1" * 300]
    Path("7").mkdir()
    assert parse(["stop", "7"]).targets == ["7"], (
        "an existing folder named 7 is the target, and not trial 0007"
    )


def test_run_ids_and_params_may_be_given_before_and_after_an_option_of_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("replay out/s -j 4 7 0012", "diff out/s --json 7 12", "stop --json out/s 7 12"):
        assert parse(command.split()).targets == ["out/s", "0007", "0012"]
    for command in (
        "enqueue out/s lr=1 --like 3 width=8",
        "enqueue out/s lr=1 --like 3 -- width=8",
    ):
        options = parse(command.split())
        assert (options.targets, options.like) == (["out/s", "lr=1", "width=8"], "0003")
    assert "--jsn" in refused(["diff", "out/s", "--jsn", "7", "12"], capsys)


def test_a_dry_run_of_a_notebook_shows_what_could_be_swept_and_runs_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_notebook(Path("n.ipynb"), "val_acc = lr", parameters="lr = 0.5")
    assert main(["n.ipynb", "--dry-run"]) == 0
    assert "lr: {low: 0.05, high: " in capsys.readouterr().out
    assert not Path("n.yml").exists()
    Path("n.yml").write_text(f"{PARAMETERS}studdy: 3")
    assert "did you mean 'study'?" in refused(["n.ipynb", "--yes"], capsys)


@pytest.mark.parametrize(
    ("score", "is_refused"),
    [("val", False), ("val:max", False), ("val:min", True), ("val_acc", True), ("1", True)],
)
def test_if_the_parameters_file_exists_the_option_score_may_only_name_the_objective_in_it(
    folder: Path, score: str, is_refused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words, file = ["n.ipynb", "--score", score], Path("n.yml")
    file.write_text(PARAMETERS)
    if is_refused:
        assert_says(refused(words, capsys), f"--score {score}: n.yml", "val: maximize", "leave")
    else:
        arguments = parse(words)
        options, console = RunOptions.of(arguments), ConsoleOutput.of(arguments)
        assert proposal.propose(options, console), "the sweep starts with the existing file"


@pytest.mark.slow  # because all libraries of a sweep are imported
def test_a_notebook_whose_study_has_trials_is_not_run_to_draft_another_parameters_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, settings = StudyPaths.parse("out/n.{run_id}.ipynb", study="n"), small_settings("n")
    study = opened_in(paths, settings)
    asked(study, settings, paths)
    study.close()
    assert main(["n.ipynb", "--yes"]) == 2
    assert_says(capsys.readouterr().err, "'n' has 1 trial(s)", "no n.yml", "--study NAME")
    assert not (paths.folder / "observed.ipynb").exists()


def test_an_empty_parameters_file_counts_as_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # `notebook_hpo.py init … > n.yml` leaves an empty file if it fails.
    Path("n.yml").touch()
    assert main(["n.ipynb", "--score", "val", "--dry-run"]) == 0
    assert "lr: {low: " in capsys.readouterr().out


@pytest.mark.parametrize("file", ["missing/n.yml", "n.ipynb/n.yml"])
def test_a_parameters_file_that_cannot_be_written_is_refused_before_the_notebook_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    message = refused(["n.ipynb", "--yes", "-p", file], capsys)
    assert f"{file}: cannot be written" in message and "-p" in message
    assert not Path("out").exists()


def test_a_dry_run_of_a_notebook_with_json_prints_the_drafted_search_space(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["n.ipynb", "--dry-run", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["space"].keys() == {"lr"}
    assert "lr: {low: " in printed.err


def proposed(*words: str) -> proposal._Proposal:
    """Return a proposed sweep, as after a run with the scores R2 and val. Run no notebook."""
    scores = [
        SeenScore(name="R2", source=Source.VARIABLE, cell=1, at=0, values=[0.5]),
        SeenScore(
            name="val", source=Source.VARIABLE, cell=1, at=1, values=[0.7], direction="maximize"
        ),
    ]
    run: Any = SimpleNamespace(
        scores=scores,
        best=scores[0],
        duration_s=60.0,
        named={score.name: score for score in scores}.get,
        drafted=lambda *_, chosen, direction, **__: Draft(
            head=[],
            trials=12,
            is_grid=False,
            objectives=[],
            params=Params(
                start=[{"x": 1}, {"x": 2}],
                swept={},
                left_out=[Entry(text=f"{chosen.name} {direction}")],
            ),
        ),
    )
    arguments = parse(["n.ipynb", *words])
    return proposal._Proposal(
        run,
        SimpleNamespace(display_name="n.ipynb"),  # type: ignore[arg-type]
        RunOptions.of(arguments),
        jobs=3,
        file=Path("n.yml"),
        console=ConsoleOutput.of(arguments),
    )


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("R2:max\n\n", "R2 maximize"),
        (":MIN\n\n", "R2 minimize"),
        ("1:min\n\n", "R2 minimize"),
        ("2\n:min\n\n", "val minimize"),
        ("val\n\n", "val maximize"),
        ("\nQ\n", None),
    ],
)
def test_the_question_which_score_to_optimise_is_answered_by_a_name_a_number_or_a_direction(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    kept: str | None,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert proposed().ask() is (kept is not None)
    assert kept is None or f"# {kept}" in Path("n.yml").read_text()
    shown = capsys.readouterr().out
    assert "11 more trials take about 3m40s, 3 at once" in shown
    assert "the next trials change one value each" in shown


def test_the_option_score_does_not_accept_the_number_of_a_score_in_the_list(folder: Path) -> None:
    with pytest.raises(SettingsError, match="no score '2'"):
        proposed("--score", "2")


@pytest.mark.parametrize(
    ("typed_at", "shown_at", "quiet", "in_a_cell", "is_asked"),
    [
        ("terminal", "terminal", False, False, True),
        ("terminal", "terminal", False, True, False),
        ("terminal", "terminal", True, False, False),
        ("terminal", "file", False, False, False),
        ("file", "terminal", False, False, False),
        ("nothing", "terminal", False, False, False),
    ],
)
def test_a_question_is_asked_only_if_input_and_output_are_a_terminal_and_without_quiet(
    monkeypatch: pytest.MonkeyPatch,
    typed_at: str,
    shown_at: str,
    quiet: bool,
    in_a_cell: bool,
    is_asked: bool,
) -> None:
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    if in_a_cell:  # IPython's `!` gives the command a terminal.
        monkeypatch.setenv("JPY_PARENT_PID", "1")
    streams: dict[str, Any] = {"file": io.StringIO(), "terminal": io.StringIO(), "nothing": None}
    streams["terminal"].isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", streams[typed_at])
    monkeypatch.setattr(sys, "stdout", streams[shown_at])
    assert ConsoleOutput(quiet=quiet, verbose=False, json=False).can_ask is is_asked


def test_the_notebook_magic_runs_no_trial_with_the_option_dry_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(magic, "prepared", pytest.fail)
    assert magic.sweep("n.ipynb --dry-run") is None
    assert "lr: {low: " in capsys.readouterr().out


def test_the_first_interrupt_of_the_notebook_magic_lets_trials_finish_and_the_second_stops_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stops: list[bool] = []

    def run() -> str:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        return "the result"

    swept = SimpleNamespace(
        plan=SimpleNamespace(close=lambda: None),
        stop=lambda _, *, now: stops.append(now),
        run=run,
    )
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(magic, "propose", lambda *_: True)
    monkeypatch.setattr(magic, "prepared", lambda *_, **__: swept)
    result: Any = magic.sweep("n.ipynb")
    assert result == "the result"
    assert stops == [False, True]  # Interrupts: first let trials finish, then stop them.
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("option", ["--json", "--quiet", "--verbose", "--events e.jsonl"])
def test_the_notebook_magic_refuses_options_that_have_no_effect_in_a_cell(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert magic.sweep(f"n.ipynb {option}") is None
    assert f"{option.split()[0]} has no effect in a cell" in capsys.readouterr().err
    assert [file.name for file in folder.iterdir() if file.suffix != ".yml"] == ["n.ipynb"]


@pytest.mark.slow
def test_the_notebook_magic_does_not_replace_braces_in_its_line_by_variables(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = new_shell()
    shell.user_ns["run_id"] = "7"
    shell.register_magic_function(magic.sweep, "line")
    shell.run_line_magic("sweep", "-i n.ipynb -o {run_id} -p p.yml")
    assert "'{run_id}' does not end in .ipynb" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--score", "val"), ("--dry-run",)])
def test_score_and_dry_run_are_refused_if_the_command_line_does_not_begin_with_the_notebook(
    folder: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    assert option[0] in refused(["-i", "n.ipynb", "-o", "{run_id}", "-p", "p.yml", *option], capsys)


@pytest.mark.slow  # because all libraries of a sweep are imported
def test_sigterm_ends_the_run_of_a_notebook_by_init_and_removes_the_folder_of_this_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []

    def observe(_: object, sweep_of: Any) -> None:
        outputs.append(Path(sweep_of.keywords["output"]).parent)
        assert outputs[0].is_dir()
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("sweeper.drafting.observed_run.observe", observe)
    assert main(["init", "-i", "n.ipynb", "--run"]) == 143
    assert "stopped by SIGTERM" in capsys.readouterr().err
    assert not outputs[0].exists()


def test_a_relative_path_of_the_python_interpreter_is_made_absolute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relative = os.path.relpath(sys.executable)  # as if PATH had a relative folder
    whole = os.path.abspath(relative)
    monkeypatch.setattr(sys, "executable", relative)
    assert main(["--version"]) == 0
    assert sys.executable == whole


@pytest.mark.parametrize("verbose", [False, True])
def test_a_warning_names_its_module_only_with_the_option_v(
    folder: Path, verbose: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(_: object) -> int:
        logging.getLogger("sweeper.somewhere").warning("the study %r", "my")
        logging.getLogger("library").warning("it is old")
        return 0

    root, ours = logging.getLogger(), logging.getLogger("sweeper")
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(ours, "level", ours.level)
    options = argparse.Namespace(command=warn, verbose=verbose)
    monkeypatch.setattr("sweeper.cli.parse", lambda _: options)
    assert main([]) == 0
    prefix = "sweeper.somewhere: " if verbose else ""
    assert capsys.readouterr().err.splitlines() == [f"{prefix}the study 'my'", "library: it is old"]
