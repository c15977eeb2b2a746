"""Parameters files: what they mean, and what each wrong one is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from sweeper.errors import SettingsError
from sweeper.settings import Settings
from sweeper.settings.flags import read_duration_flag, read_trials_flag, read_value
from sweeper.settings.sections import (
    PRUNERS,
    SAMPLERS,
    Algorithm,
    CheckpointPolicy,
    Cost,
    Limits,
    Objective,
    Resources,
    ScoreSource,
    StudySettings,
    Sync,
)
from sweeper.settings.space import ChoiceDimension, FloatDimension, IntDimension

Load = Callable[[str], Settings]

SMALLEST = """\
objective: {val_acc: maximize}
space:
  lr: {low: 1e-4, high: 1e-1, log: true}
  batch_size: [32, 64, 128]
"""

EVERYTHING = """\
study:
  name: digits-cnn
  seed: 3
  trials: 40
  sampler: {name: tpe, n_startup_trials: 5}
  stop_after_failures: 10
objective:
  val_acc: {direction: maximize, take: best}
  val_loss: minimize
scores:
  val_acc: {variable: acc}
  val_loss: {pattern: 'val_loss=([0-9.eE+-]+)'}
space:
  lr: {type: float, low: 1e-4, high: 1e-1, log: true}
  width: {type: int, low: 16, high: 256, step: 16}
  optimizer: {choices: [sgd, adam]}
  momentum: {low: 0.8, high: 0.99, when: {optimizer: sgd}}
fixed:
  epochs: 5
start:
  - {lr: 0.01, optimizer: adam, width: 64}
  - {optimizer: sgd, momentum: 0.9}
limits:
  trial: 2h
  cell_output: 1MB
resources:
  gpus: [0, 1]
  cpus_per_trial: 2
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Reads a text as the file `digits.yml`."""

    def load(text: str) -> Settings:
        file = tmp_path / "digits.yml"
        file.write_text(text, encoding="utf-8")
        return Settings.load(file)

    return load


# --- right files ---------------------------------------------------------------------------------


def test_the_smallest_file_is_enough(load: Load) -> None:
    settings = load(SMALLEST)
    assert settings.name == "digits"  # the file's stem
    assert {n: (o.direction, o.take) for n, o in settings.objective.items()} == {
        "val_acc": ("maximize", "last")
    }
    lr, batch_size = settings.space["lr"], settings.space["batch_size"]
    assert isinstance(lr, FloatDimension)
    assert (lr.low, lr.high, lr.log) == (0.0001, 0.1, True)
    assert isinstance(batch_size, ChoiceDimension)
    assert batch_size.choices == (32, 64, 128)


def test_what_a_file_leaves_out_has_its_default(load: Load) -> None:
    settings = load(SMALLEST)
    assert settings.study.seed == 0
    assert settings.study.trials == 20
    assert settings.study.sampler.name == "auto"
    assert settings.study.stop_after_failures is None
    assert settings.limits.trial is None
    assert settings.limits.cell_output == 10_000_000
    assert settings.resources.gpus == "auto"
    assert settings.resources.threads == 1
    assert (settings.scores, settings.fixed, settings.start) == ({}, {}, ())


def test_everything_that_a_file_can_say_arrives(load: Load) -> None:
    settings = load(EVERYTHING)
    assert settings.name == "digits-cnn"
    assert (settings.study.seed, settings.study.trials) == (3, 40)
    assert settings.study.sampler.name == "tpe"
    assert settings.study.sampler.options == {"n_startup_trials": 5}
    assert settings.study.stop_after_failures == 10
    assert {n: (o.direction, o.take) for n, o in settings.objective.items()} == {
        "val_acc": ("maximize", "best"),
        "val_loss": ("minimize", "last"),
    }
    assert settings.scores["val_acc"].variable == "acc"
    assert settings.scores["val_loss"].pattern == "val_loss=([0-9.eE+-]+)"
    assert isinstance(settings.space["width"], IntDimension)
    assert settings.space["momentum"].when == {"optimizer": ("sgd",)}
    assert settings.fixed == {"epochs": 5}
    assert settings.start[0] == {"lr": 0.01, "optimizer": "adam", "width": 64}
    assert settings.limits.trial == 7200
    assert settings.limits.cell_output == 1_000_000
    assert settings.resources.gpus == (0, 1)
    assert settings.resources.threads == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("012", 12),
        ("0o14", 12),
        ("0x1f", 31),
        ("-7", -7),
        ("+3", 3),
        (".inf", float("inf")),
        ("true", True),
        ("null", None),
        ("~", None),
        ("on", "on"),
        ("yes", "yes"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("'1e-3'", "1e-3"),
        ("[1, 2.0]", [1, 2.0]),
    ],
)
def test_values_are_those_of_yaml_1_2(load: Load, text: str, value: Any) -> None:
    read = load(SMALLEST + f"fixed: {{x: {text}}}").fixed["x"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("8h", 28800),
        ("1d", 86400),
        ("1.5h", 5400),
        ("30", 30),
        ("250ms", 0.25),
    ],
)
def test_durations_have_units(load: Load, text: str, seconds: float) -> None:
    assert load(SMALLEST + f"limits: {{trial: {text}}}").limits.trial == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("10MB", 10_000_000), ("9GB", 9_000_000_000), ("512KiB", 524288), ("1.5k", 1500), ("7", 7)],
)
def test_sizes_have_units(load: Load, text: str, size: int) -> None:
    assert load(SMALLEST + f"limits: {{cell_output: {text}}}").limits.cell_output == size


@pytest.mark.parametrize("gpus", ["auto", "none"])
def test_gpus_may_be_all_or_none(load: Load, gpus: str) -> None:
    assert load(SMALLEST + f"resources: {{gpus: {gpus}}}").resources.gpus == gpus


def test_a_fixed_parent_decides_its_branches(load: Load) -> None:
    text = EVERYTHING.replace("  optimizer: {choices: [sgd, adam]}\n", "")
    text = text.replace("optimizer: adam, ", "").replace("optimizer: sgd, ", "")
    opened = load(text.replace("epochs: 5", "optimizer: sgd"))
    assert set(opened.search_space) == {"lr", "width", "momentum"}
    assert opened.start_params == [{"lr": 0.01, "width": 64}, {"momentum": 0.9}]
    closed = load(text.replace("epochs: 5", "optimizer: adam"))
    assert set(closed.search_space) == {"lr", "width"}
    assert closed.start_params == [{"lr": 0.01, "width": 64}]  # of the other nothing is left


def test_the_same_can_be_said_in_code() -> None:
    settings = Settings.from_mapping(
        {"objective": {"loss": "minimize"}, "space": {"x": {"low": 0.0, "high": 1.0}}}
    )
    assert settings.name == "study"
    assert settings.space["x"].allows(0.5)


MADE_IN_SHORT: dict[str, Any] = {"objective": {"val": "maximize"}, "space": {"x": [1, 2]}}
MADE_OF_RECORDS: dict[str, Any] = {
    "objective": {"val": Objective(direction="maximize", take="best"), "loss": "minimize"},
    "space": {
        "lr": FloatDimension(low=1, high=2),
        "opt": ChoiceDimension(choices=("sgd", None)),
        "momentum": FloatDimension(low=0.5, high=0.9, when={"opt": ("sgd",)}),
        "k": IntDimension(low=1, high=9, step=2),
    },
    "study": StudySettings(sampler=Algorithm(name="tpe", options={"n_startup_trials": 5})),
    "scores": {"loss": ScoreSource(pattern=r"loss=(\d+)")},
    "fixed": {"depth": None, "layers": [32, {"a": 1.5}]},
    "start": ({"lr": 1.5, "opt": None},),
    "limits": Limits(trial=0.00001, cell_output=5000),
    "resources": Resources(gpus=(0, 1), gpu_memory=10**9, cpus_per_trial=2),
    "checkpoints": CheckpointPolicy(completed="best", limit=10**12),
    "cost": Cost(price_per_hour=2.5),
    "sync": Sync(url="s3://bucket/prefix", every=2),
}


@pytest.mark.parametrize(
    "made",
    [
        lambda _: Settings(**MADE_IN_SHORT),
        lambda _: Settings(**MADE_OF_RECORDS),
        lambda load: load(EVERYTHING),
        lambda load: load(SMALLEST).model_copy(update={"study": StudySettings(name="copied")}),
    ],
)
def test_what_a_study_stores_of_its_settings_makes_the_same_again(
    load: Load, made: Callable[[Load], Settings]
) -> None:
    settings = made(load)
    stored = json.loads(json.dumps(settings.as_mapping))
    again = Settings.from_mapping(stored)
    assert again.name == settings.name
    named = settings.study.model_copy(update={"name": settings.name})
    assert again == settings.model_copy(update={"study": named, "file": None})
    assert again.as_mapping == settings.as_mapping


def test_the_example_files_are_stored_and_read_again_as_the_same() -> None:
    files = sorted((ROOT / "parameters").glob("*.yml"))
    assert files
    for file in files:
        settings = Settings.load(file)
        again = Settings.from_mapping(json.loads(json.dumps(settings.as_mapping)))
        assert again.with_overrides(study="other") == settings.with_overrides(
            study="other"
        ).model_copy(update={"file": None})


# --- what one call says differently --------------------------------------------------------------


def test_an_override_leaves_the_settings_themselves_alone(load: Load) -> None:
    settings = load(EVERYTHING)
    changed = settings.with_overrides(study="other", trials=3, fixed={"lr": 0.5})
    assert (changed.name, changed.study.trials, changed.study.seed) == ("other", 3, 3)
    assert (settings.name, settings.study.trials) == ("digits-cnn", 40)
    assert "lr" in settings.space
    assert settings.fixed == {"epochs": 5}


def test_a_fixed_name_leaves_the_space_and_the_start_trials(load: Load) -> None:
    changed = load(EVERYTHING).with_overrides(fixed={"lr": 0.5})
    assert set(changed.search_space) == {"width", "optimizer", "momentum"}
    assert changed.fixed == {"epochs": 5, "lr": 0.5}  # 0.5 lies outside the range, and may
    assert changed.start_params[0] == {"optimizer": "adam", "width": 64}


def test_fixing_a_parent_opens_or_closes_its_branch(load: Load) -> None:
    opened = load(EVERYTHING).with_overrides(fixed={"optimizer": "sgd"})
    assert set(opened.search_space) == {"lr", "width", "momentum"}
    assert opened.search_space.is_flat
    closed = load(EVERYTHING).with_overrides(fixed={"optimizer": "adam"})
    assert set(closed.search_space) == {"lr", "width"}
    assert {"momentum": 0.9} not in closed.start_params


def test_a_value_that_is_no_choice_may_be_fixed(load: Load) -> None:
    assert load(SMALLEST).with_overrides(fixed={"batch_size": 48}).fixed == {"batch_size": 48}


def test_a_list_may_be_fixed_for_one_call_and_decides_its_branches(load: Load) -> None:
    settings = load(
        "objective: {val: maximize}\n"
        "space:\n"
        "  layers: [[32], [64, 64]]\n"
        "  width: {low: 1, high: 9, when: {layers: [[64, 64]]}}\n"
        "start: [{layers: [64, 64], width: 3}]\n"
    )
    _, opens = read_value("layers=[64, 64]")
    again = Settings.from_mapping(json.loads(json.dumps(settings.as_mapping)))
    for before in (settings, again):
        fixed = before.with_overrides(fixed={"layers": opens})
        assert (fixed.fixed, list(fixed.search_space)) == ({"layers": [64, 64]}, ["width"])
        assert fixed.start_params == [{"width": 3}]
        with pytest.raises(SettingsError, match="leaves nothing to sweep"):
            before.with_overrides(fixed={"layers": [64.0, 64], "width": 3})
    with pytest.raises(SettingsError, match=r"layers: \[64\] is outside .* \[32\], \[64, 64\]"):
        again.check_params({"layers": [64]})


def test_an_override_replaces_a_fixed_value(load: Load) -> None:
    assert load(EVERYTHING).with_overrides(fixed={"epochs": 1}).fixed == {"epochs": 1}


def test_overrides_add_up(load: Load) -> None:
    changed = load(EVERYTHING).with_overrides(trials=3).with_overrides(study="other")
    assert (changed.study.trials, changed.name) == (3, "other")


def test_settings_that_were_made_in_code_can_be_overridden() -> None:
    changed = Settings(**MADE_OF_RECORDS).with_overrides(trials=3, fixed={"lr": 9}, cold=True)
    assert (changed.study.trials, changed.fixed["lr"], changed.execution.kernels) == (3, 9, "cold")
    assert set(changed.search_space) == {"opt", "momentum", "k"}
    assert changed.start_params == [{"opt": None}]
    assert changed.study.sampler.options == {"n_startup_trials": 5}
    assert changed.resources.gpus == (0, 1)


@pytest.mark.parametrize(
    ("overrides", "fragments"),
    [
        ({"fixed": {"lr": "big"}}, ["--set lr=big", "a number from 0.0001 to 0.1"]),
        ({"fixed": {"lr": True}}, ["--set lr=true", "not a number"]),
        ({"fixed": {"batch-size": 3}}, ["--set batch-size=3", "did you mean 'batch_size'?"]),
        ({"fixed": {"class": 3}}, ["--set class=3", "not a Python identifier"]),
        ({"fixed": {"lr": 0.1, "batch_size": 3}}, ["--set batch_size=3", "nothing to sweep"]),
        ({"study": "a/b"}, ["--study", "'a/b'", "use letters"]),
        ({"trials": 0}, ["study.trials", "must be 1 or more", "got 0"]),
    ],
)
def test_an_override_that_does_not_fit_is_refused(
    load: Load, overrides: dict[str, Any], fragments: list[str]
) -> None:
    with pytest.raises(SettingsError) as raised:
        load(SMALLEST).with_overrides(**overrides)
    for fragment in fragments:
        assert fragment in str(raised.value)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("lr=1e-3", "lr", 0.001),
        ("smoke=true", "smoke", True),
        ("name=a=b", "name", "a=b"),
        ("sizes=[1, 2]", "sizes", [1, 2]),
        ("note=", "note", None),
        (" x = 3", "x", 3),
    ],
)
def test_a_value_on_the_command_line_is_read_as_in_a_file(text: str, name: str, value: Any) -> None:
    assert read_value(text) == (name, value)


@pytest.mark.parametrize("text", ["lr", "=3", "x=[1", "x={a", "x=" + "[" * 9999, "x=&a [*a]"])
def test_what_is_no_name_and_value_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--set"):
        read_value(text)


def test_flags_for_numbers_say_what_is_wrong_with_theirs() -> None:
    assert (read_trials_flag("12"), read_trials_flag(None)) == (12, None)
    assert (read_duration_flag("--timeout", "2m"), read_duration_flag("--timeout", None)) == (
        120.0,
        None,
    )
    for wrong in ("0", "-3", "many", "1.5", ""):
        with pytest.raises(SettingsError, match=r"--trials .*whole number of 1 or more"):
            read_trials_flag(wrong)
    with pytest.raises(SettingsError, match="--timeout: cannot read 'soon' as a duration"):
        read_duration_flag("--timeout", "soon")


# --- wrong files ---------------------------------------------------------------------------------

OBJECTIVE = "objective: {val_acc: maximize}\n"
SPACE = "space: {lr: {low: 1e-4, high: 1e-1}, opt: [sgd, adam]}\n"
BOTH = OBJECTIVE + SPACE


#: Wrong files, by text, with parts of what each is told: what no parser reads, …
NO_YAML: list[tuple[str, list[str]]] = [
    # the file as a whole
    ("objective: {a: maximize", ["line 1", "not valid YAML"]),
    ("objective:\n\tval: maximize", ["line 2", "not valid YAML"]),
    (BOTH + "space: {x: [1]}", ["line 3", "not valid YAML", "'space' stands twice"]),
    ("a: b: c", ["line 1, column 5", "put text with a colon in quotes"]),
    ("a:\n  b: 1\n c: 2", ["line 3", "indent the keys of a mapping alike"]),
    (BOTH + "fixed: {a: 1, a: 2}", ["line 3, column 15", "the key 'a' stands twice"]),
    (BOTH + "fixed: {a: *nope}", ["line 3", "'nope'", "put text that begins with *"]),
    (BOTH + "fixed: {a: @b}", ["line 3", "'@'", "in quotes"]),
    (BOTH + "fixed: {a: !foo 1}", ["line 3", "'!foo'", "leave the tag out"]),
    (BOTH + "fixed: {a: 'b}", ["line 3", "close the quote"]),
    (BOTH + "fixed: {a: [1, 2}", ["line 3", "close the bracket"]),
    (BOTH + "---\n" + BOTH, ["line 3", "one file has one document"]),
    (BOTH + "{a: 1}: 2", ["line 3", "a key must be text"]),
    ("\x00", ["not valid YAML", "special characters are not allowed"]),
    (BOTH + "fixed: &a {b: [*a]}", ["line 3, column 16", "*a holds itself"]),
    (BOTH + "fixed: {b: &b [*b, *b]}", ["line 3, column 16", "*b holds itself"]),
    (BOTH + f"fixed: {{a: {'[' * 2000}{']' * 2000}}}", ["line 3, column 60", "more than 50 deep"]),
    (BOTH + f"fixed: {{a: {'[' * 99_999}", ["line 3, column 60", "more than 50 deep"]),
    (
        BOTH + "fixed:\n" + "".join(f"{'  ' * n} a:\n" for n in range(500)),
        ["line 53, column 100", "more than 50 deep"],
    ),
    (
        BOTH
        + f"fixed:\n  a0: &a0 [{'x, ' * 9}]\n"
        + "".join(f"  a{n + 1}: &a{n + 1} [{f'*a{n}, ' * 9}]\n" for n in range(30)),
        [
            "line 9, column 42",
            "*a4 and the aliases before it repeat more than 1,000,000 characters",
        ],
    ),
    (
        BOTH + f"fixed:\n  a: &a {'x' * 100_000}\n  b: [{'*a, ' * 50}]",
        ["line 5, column 43", "*a", "more than 1,000,000 characters; write out"],
    ),
]

#: … what an editor sees, too, because the JSON Schema refuses it, …
WRONG_SHAPE: list[tuple[str, list[str]]] = [
    # the file as a whole
    ("", ["expected a mapping with the keys objective and space", "null"]),
    ("- 1\n- 2", ["expected a mapping", "[1, 2]"]),
    ("just words", ["expected a mapping", "'just words'"]),
    (OBJECTIVE, ["space", "missing"]),
    (SPACE, ["objective", "missing"]),
    (BOTH + "studdy: {trials: 3}", ["'studdy'", "did you mean 'study'?"]),
    (BOTH + "file: x.yml", ["unknown key 'file'"]),
    (BOTH + "null: 2", ["unknown key null", "known: study, objective"]),
    (BOTH + "fil: x", ["unknown key 'fil'"]),
    # study
    (BOTH + "study: 7", ["study", "expected a mapping", "trials", "7"]),
    (BOTH + "study:", ["study", "expected a mapping", "null"]),
    (BOTH + "study: {trails: 3}", ["study", "'trails'", "did you mean 'trials'?"]),
    (BOTH + "study: {trials: 0}", ["study.trials", "1 or more", "got 0"]),
    (BOTH + "study: {trials: many}", ["study.trials", "a whole number", "'many'"]),
    (BOTH + "study: {trials: 2.5}", ["study.trials", "a whole number", "2.5"]),
    (BOTH + "study: {trials: true}", ["study.trials", "a whole number", "got true"]),
    (BOTH + "study: {seed: -1}", ["study.seed", "0 or more", "-1"]),
    (BOTH + "study: {seed: 9223372036854775808}", ["study.seed", "less than"]),
    (BOTH + "study: {name: a/b}", ["study.name", "'a/b'", "use letters"]),
    (BOTH + "study: {name: ../up}", ["study.name", "'../up'", "use letters"]),
    (BOTH + "study: {name: 7}", ["study.name", "expected text", "7"]),
    (BOTH + "study: {sampler: tpo}", ["study.sampler", "'tpo'", "did you mean 'tpe'?"]),
    (BOTH + "study: {sampler: 3}", ["study.sampler", "name", "3"]),
    (BOTH + "study: {stop_after_failures: 0}", ["study.stop_after_failures", "1 or more"]),
    (BOTH + "study: {name: ''}", ["study.name", "''", "use letters"]),
    (BOTH + f"study: {{name: {'a' * 101}}}", ["study.name", "at most 100"]),
    (BOTH + "study: {trials: '40'}", ["study.trials", "a whole number", "got '40'"]),
    (BOTH + "study: {seed: abc}", ["study.seed", "a whole number", "'abc'"]),
    (BOTH + "study: {sampler: TPE}", ["study.sampler", "'TPE'", "did you mean 'tpe'?"]),
    (BOTH + "study: {sampler: {name: foo}}", ["study.sampler", "'foo'", "known: auto, tpe"]),
    (
        BOTH + "study: {sampler: {n_startup_trials: 3}}",
        ["study.sampler", "{name: NAME, …options}", "got {n_startup_trials: 3}"],
    ),
    (BOTH + "study: {sampler: [tpe]}", ["study.sampler", "a name", "got ['tpe']"]),
    (BOTH + "study: {stop_after_failures: 2.5}", ["stop_after_failures", "whole", "2.5"]),
    # objective
    (SPACE + "objective: {}", ["objective", "must not be empty"]),
    (SPACE + "objective: val_acc", ["objective", "{NAME: maximize}", "'val_acc'"]),
    (SPACE + "objective: {a: up}", ["objective.a", "'maximize' or 'minimize'", "'up'"]),
    (SPACE + "objective: {a: 3}", ["objective.a", "direction, take", "3"]),
    (SPACE + "objective: {a: {take: last}}", ["objective.a.direction", "missing"]),
    (
        SPACE + "objective: {a: {direction: maximize, take: first}}",
        ["objective.a.take", "'last', 'best' or 'mean'", "'first'"],
    ),
    (SPACE + "objective:", ["objective", "{NAME: maximize}", "got null"]),
    (SPACE + "objective: {a: {direction: up}}", ["objective.a.direction", "'maximize'", "'up'"]),
    (
        SPACE + "objective: {a: {direction: maximize, tak: last}}",
        ["objective.a", "'tak'", "did you mean 'take'?"],
    ),
    # scores
    (BOTH + "scores: {val_acc: acc}", ["scores.val_acc", "variable, pattern", "'acc'"]),
    (BOTH + "scores: {val_acc: {}}", ["scores.val_acc", "exactly one of"]),
    (
        BOTH + "scores: {val_acc: {variable: acc, pattern: '(1)'}}",
        ["scores.val_acc", "exactly one of"],
    ),
    (BOTH + "scores: [a]", ["scores", "a mapping", "got ['a']"]),
    (BOTH + "scores: {a: {varible: b}}", ["scores.a", "'varible'", "did you mean 'variable'?"]),
    (BOTH + "scores: {a: {variable: 3}}", ["scores.a.variable", "text", "got 3"]),
    # space
    (OBJECTIVE + "space: {}", ["space is empty"]),
    (OBJECTIVE + "space: [lr]", ["space", "from names to ranges", "['lr']"]),
    (OBJECTIVE + "space: {lr: 0.1}", ["space.lr", "cannot read 0.1", "{low: …, high: …}"]),
    (OBJECTIVE + "space: {lr: {low: 1}}", ["space.lr", "cannot read {low: 1}"]),
    (OBJECTIVE + "space: {lr: {low: 1, hihg: 2}}", ["space.lr", "hihg"]),
    (
        OBJECTIVE + "space: {lr: {low: 1, high: 2, stepp: 1}}",
        ["space.lr", "'stepp'", "did you mean 'step'?"],
    ),
    (OBJECTIVE + "space: {lr: {low: 1.0, high: big}}", ["space.lr.high", "number", "'big'"]),
    (
        OBJECTIVE + "space: {lr: {type: int, low: 1.5, high: 3}}",
        ["space.lr.low", "a whole number", "1.5"],
    ),
    (
        OBJECTIVE + "space: {lr: {type: real, low: 1, high: 3}}",
        ["space.lr", "'real'", "float, int or choice"],
    ),
    (OBJECTIVE + "space: {lr: {low: 1, high: 9, log: 3}}", ["space.lr.log", "true or false"]),
    (OBJECTIVE + "space: {opt: []}", ["space.opt", "must not be empty"]),
    (OBJECTIVE + "space: {opt: [a, b, a]}", ["space.opt", "'a' stands twice"]),
    (OBJECTIVE + "space: {opt: {choices: sgd}}", ["space.opt.choices", "a list", "'sgd'"]),
    (OBJECTIVE + "space: {learning-rate: [1]}", ["space.learning-rate", "underscores"]),
    (OBJECTIVE + "space:", ["space", "from names to ranges", "got null"]),
    (OBJECTIVE + "space: {lr: }", ["space.lr", "cannot read null", "{choices: […]}"]),
    (OBJECTIVE + "space: {lr: {min: 1, max: 2}}", ["space.lr", "{min: 1, max: 2}", "low: …"]),
    (OBJECTIVE + "space: {lr: {type: int, low: 1}}", ["space.lr.high", "missing"]),
    (OBJECTIVE + "space: {lr: {type: choice}}", ["space.lr.choices", "missing"]),
    (OBJECTIVE + "space: {lr: {type: [int]}}", ["space.lr", "['int']", "float, int or choice"]),
    (OBJECTIVE + "space: {lr: {choices: [1], low: 1}}", ["space.lr", "'low'", "choices"]),
    (OBJECTIVE + "space: {lr: {low: '1e-4', high: 1.0}}", ["space.lr.low", "number", "'1e-4'"]),
    (OBJECTIVE + "space: {lr: {low: 1, high: 2, log: yes}}", ["space.lr.log", "true", "'yes'"]),
    (OBJECTIVE + "space: {lr: {low: 1, high: 9, step: big}}", ["space.lr.step", "'big'"]),
    (OBJECTIVE + "space: {lr: [2024-01-01]}", ["space.lr.0", "2024-01-01", "in quotes"]),
    (OBJECTIVE + "space: {'': [1]}", ["space.''", "not a Python identifier"]),
    # branches
    (BOTH.replace("1e-1}", "1e-1, when: opt}"), ["space.lr.when", "a mapping", "'opt'"]),
    (BOTH.replace("1e-1}", "1e-1, when: {opt: []}}"), ["space.lr.when.opt", "not be empty"]),
    (BOTH.replace("1e-1}", "1e-1, when: }"), ["space.lr.when", "a mapping", "got null"]),
    # fixed and start
    (BOTH + "fixed: 3", ["fixed", "a mapping", "3"]),
    (BOTH + "fixed: {my-epochs: 1}", ["fixed.my-epochs", "not a Python identifier"]),
    (BOTH + "start: {lr: 0.01}", ["start", "a list"]),
    (BOTH + "start: [0.01]", ["start.0", "a mapping", "0.01"]),
    (BOTH + "fixed: {a b: 1}", ["fixed.a b", "not a Python identifier"]),
    (BOTH + "start: [[lr, 1]]", ["start.0", "a mapping", "got ['lr', 1]"]),
    # limits and resources
    (BOTH + "limits: {trail: 2h}", ["limits", "'trail'", "did you mean 'trial'?"]),
    (BOTH + "limits: {trial: soon}", ["limits.trial", "'soon'", "90s"]),
    (BOTH + "limits: {trial: true}", ["limits.trial", "true"]),
    (BOTH + "limits: {cell_output: lots}", ["limits.cell_output", "'lots'", "10MB"]),
    (BOTH + "resources: {gpus: all}", ["resources.gpus", "'all'", "auto, none or a list"]),
    (BOTH + "resources: {gpus: [-1]}", ["resources.gpus", "[-1]"]),
    (BOTH + "resources: {gpus: []}", ["resources.gpus", "[]"]),
    (BOTH + "resources: {cpus_per_trial: 0}", ["resources.cpus_per_trial", "1 or more", "0"]),
    (BOTH + "resources: {gpu_memory: lots}", ["resources.gpu_memory", "'lots'", "9GB"]),
    (BOTH + "limits: 2h", ["limits", "the keys trial, cell_output", "got '2h'"]),
    (BOTH + "limits: {trial: 1h30m}", ["limits.trial", "'1h30m'", "90s"]),
    (BOTH + "limits: {cell_output: 10XB}", ["limits.cell_output", "'10XB'", "10MB"]),
    (BOTH + "limits: {cell_output: 0.1}", ["limits.cell_output", "0.1", "10MB"]),
    (BOTH + "resources: {gpu: 1}", ["resources", "'gpu'", "did you mean 'gpus'?"]),
    (BOTH + "resources: {gpus: 2}", ["resources.gpus", "a list of GPU numbers", "got 2"]),
    (BOTH + "resources: {gpus: [true]}", ["resources.gpus", "got [true]"]),
    (BOTH + "resources: {gpus: [0, 0]}", ["resources.gpus", "0 stands twice"]),
    (BOTH + "resources: {cpus_per_trial: 1.5}", ["cpus_per_trial", "whole number", "1.5"]),
    (BOTH + "resources: {gpu_memory: 0.2}", ["resources.gpu_memory", "0.2", "9GB"]),
    # pruner, cost and execution
    (BOTH + "study: {pruner: medain}", ["study.pruner", "'medain'", "'median'"]),
    (BOTH + "study: {pruner: 3}", ["study.pruner", "a name", "3"]),
    (BOTH + "cost: {price_per_hour: 0}", ["cost.price_per_hour", "more than 0"]),
    (BOTH + "cost: {budget: 3}", ["cost.price_per_hour", "missing"]),
    (BOTH + "execution: {kernels: hot}", ["execution.kernels", "'warm' or 'cold'", "'hot'"]),
    (BOTH + "study: {pruner: null}", ["study.pruner", "a name", "got null"]),
    (BOTH + "study: {pruner: {name: asah}}", ["study.pruner", "'asah'", "'asha'"]),
    (BOTH + "cost: 3", ["cost", "the keys price_per_hour, budget", "got 3"]),
    (BOTH + "cost: {price_per_hour: cheap}", ["cost.price_per_hour", "a number", "'cheap'"]),
    (
        BOTH + "cost: {price_per_hour: 1, budget: 0}",
        ["cost.budget", "must be more than 0;", "got 0"],
    ),
    (BOTH + "execution: {kernel: warm}", ["execution", "'kernel'", "did you mean 'kernels'?"]),
    (BOTH + "execution: {prefix: on}", ["execution.prefix", "'auto' or 'off'", "got 'on'"]),
    (BOTH + "execution: warm", ["execution", "the keys kernels, prefix", "got 'warm'"]),
]

#: … and what is well-formed and makes no sense.
WRONG_SENSE: list[tuple[str, list[str]]] = [
    # study
    (BOTH + "study: {sampler: {name: tpe, 3: 4}}", ["study.sampler", "tpe has no option 3"]),
    # objective
    (SPACE + "objective: {1: maximize}", ["objective.1", "a name must be text"]),
    (SPACE + "objective: {'': maximize}", ["objective", "a score needs a name"]),
    # scores
    (
        BOTH + "scores: {val_acc: {variable: my-acc}}",
        ["scores.val_acc", "my-acc", "not a Python identifier"],
    ),
    (BOTH + "scores: {a: {pattern: '(['}}", ["scores.a", "no regular expression"]),
    (BOTH + "scores: {a: {pattern: 'x=1'}}", ["scores.a", "'x=1'", "has no group"]),
    (BOTH + "scores: {a: {variable: class}}", ["scores.a", "class", "another name"]),
    (BOTH + "scores: {a: {variable: ''}}", ["scores.a", "''", "not a Python identifier"]),
    (BOTH + "scores: {1: {variable: b}}", ["scores.1", "a name must be text", "got 1"]),
    # space
    (OBJECTIVE + "space: {lr: {low: 2, high: 1}}", ["space.lr", "low (2)", "high (1)", "swap"]),
    (OBJECTIVE + "space: {lr: {low: 1.0, high: .inf}}", ["space.lr.high", "finite", "inf"]),
    (
        OBJECTIVE + "space: {lr: {low: -1.7e308, high: 1.7e308}}",
        ["space.lr", "-1.7e+308 to 1.7e+308 is wider than", "1.8e308", "narrow it"],
    ),
    (
        OBJECTIVE + "space: {lr: {low: 0.0, high: 1e308, step: 1e-308}}",
        ["space.lr", "more than 9007199254740992 steps", "widen it"],
    ),
    (OBJECTIVE + "space: {lr: {low: 0, high: 1.0, step: 1e-300}}", ["space.lr", "widen it"]),
    (OBJECTIVE + "space: {lr: {low: 0.0, high: 1.0, log: true}}", ["space.lr", "low > 0"]),
    (
        OBJECTIVE + "space: {lr: {low: 1, high: 9, log: true, step: 2}}",
        ["space.lr", "log: true and step exclude each other"],
    ),
    (OBJECTIVE + "space: {lr: {low: 1, high: 9, step: 0}}", ["space.lr", "step", "got 0"]),
    (OBJECTIVE + "space: {opt: [1, true]}", ["space.opt", "true stands twice"]),
    (OBJECTIVE + "space: {class: [1]}", ["space.class", "not a Python identifier"]),
    (OBJECTIVE + "space: {1: [1]}", ["space.1", "a name must be text"]),
    (OBJECTIVE + "space: {lr: {low: 1, high: 9, step: -1}}", ["space.lr", "step", "got -1"]),
    (
        OBJECTIVE + "space: {n: {low: 1, high: 99999999999999999999}}",
        ["space.n.high", "9007199254740992 or less", "99999999999999999999"],
    ),
    (OBJECTIVE + "space: {lr: [0.1, .nan]}", ["space.lr.1", "finite number", "got .nan"]),
    (OBJECTIVE + "space: {a: [[1, .inf], [2]]}", ["space.a.0", "finite", "got [1, .inf]"]),
    (OBJECTIVE + "space: {a: [[1], [2024-01-01]]}", ["space.a.1", "2024-01-01", "in quotes"]),
    (OBJECTIVE + "space: {a: [{1: 2}, [2]]}", ["space.a.0", "by text", "got {1: 2}"]),
    (OBJECTIVE + "space: {a: [[1], [2], [1]]}", ["space.a", "[1] stands twice"]),
    (OBJECTIVE + "space: {a: [{x: 1, y: 2}, {y: 2, x: 1}]}", ["space.a", "stands twice"]),
    # branches
    (
        BOTH.replace("1e-1}", "1e-1, when: {optt: sgd}}"),
        ["space.lr.when", "'optt'", "did you mean 'opt'?"],
    ),
    (
        BOTH.replace("1e-1}", "1e-1, when: {opt: sdg}}"),
        ["space.lr.when.opt", "'sdg' never occurs", "'sgd', 'adam'"],
    ),
    (
        OBJECTIVE + "space: {a: {choices: [1], when: {b: 1}}, b: {choices: [1], when: {a: 1}}}",
        ["a, b", "in a circle"],
    ),
    (BOTH.replace("1e-1}", "1e-1, when: {lr: 1}}"), ["space.lr.when", "'lr' is a range"]),
    (
        BOTH.replace("1e-1}", "1e-1, when: {opt: [sgd, sdg]}}"),
        ["space.lr.when.opt", "'sdg' never occurs"],
    ),
    (BOTH.replace("1e-1}", "1e-1, when: {1: sgd}}"), ["space.lr.when.1", "must be text"]),
    (BOTH.replace("1e-1}", "1e-1, when: {opt: {a: 1}}}"), ["lr.when.opt: {a: 1} never occurs"]),
    (
        OBJECTIVE + "space: {a: [[8], [8, 8]], b: {choices: [1], when: {a: [8, 8]}}}",
        ["space.b.when.a: 8 never", "one of [8], [8, 8]", "to mean the list, write [[8, 8]]"],
    ),
    # fixed and start
    (BOTH + "fixed: {lr: 0.1}", ["'lr' stands in both space and fixed"]),
    (BOTH + "start: [{}, {lrr: 0.01}]", ["start[1]", "'lrr'", "did you mean 'lr'?"]),
    (BOTH + "start: [{lr: 0.5}]", ["start[0]", "0.5", "from 0.0001 to 0.1"]),
    (BOTH + "start: [{opt: rms}]", ["start[0]", "'rms'", "one of 'sgd', 'adam'"]),
    (BOTH + "fixed: {a: 2024-01-01}", ["fixed.a", "2024-01-01 is a date", "in quotes"]),
    (BOTH + "fixed: {a: !!binary aGk=}", ["fixed.a", "expected a number", "binary data"]),
    (BOTH + "fixed: {a: {1: 2}}", ["fixed.a", "mappings (by text)", "got {1: 2}"]),
    (BOTH + "start: [{lr: true}]", ["start[0]", "lr: true is outside", "from 0.0001 to 0.1"]),
    (BOTH + "start: [{opt: null}]", ["start[0]", "opt: null is outside", "'sgd', 'adam'"]),
    (
        BOTH.replace("1e-1}", "1e-1, when: {opt: sgd}}") + "start: [{opt: adam, lr: 0.01}]",
        ["start[0]", "'lr' does not exist when opt is 'adam'", "leave it out"],
    ),
    (BOTH + "fixed: {e: 1}\nstart: [{e: 1}]", ["start[0]", "'e' is not in the space"]),
    # limits and resources
    (BOTH + "limits: {trial: 0s}", ["limits.trial", "'0s'"]),
    (BOTH + "limits: {trial: 99999d}", ["limits.trial", "'99999d' is too long", "10 years"]),
]


@pytest.mark.parametrize(("text", "fragments"), [*NO_YAML, *WRONG_SHAPE, *WRONG_SENSE])
def test_a_wrong_file_is_refused_in_one_line_that_names_file_key_value_and_remedy(
    load: Load, tmp_path: Path, text: str, fragments: list[str]
) -> None:
    with pytest.raises(SettingsError) as raised:
        load(text)
    message = str(raised.value)
    assert message.startswith(str(tmp_path / "digits.yml"))
    assert len(message.splitlines()) == 1
    for fragment in fragments:
        assert fragment in message


def test_all_mistakes_of_a_file_are_told_at_once(load: Load) -> None:
    with pytest.raises(SettingsError) as raised:
        load(OBJECTIVE + "space: {lr: {low: 2, high: 1}, opt: []}\nlimits: {trial: soon}")
    keys = [line.split(": ")[1] for line in str(raised.value).splitlines()]
    assert keys == ["space.lr", "space.opt", "limits.trial"]


def test_of_very_many_mistakes_the_first_are_told_and_the_others_counted(load: Load) -> None:
    with pytest.raises(SettingsError) as raised:
        load(OBJECTIVE + "space: {" + "".join(f"x{n}: [], " for n in range(1000)) + "}")
    lines = str(raised.value).splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith("digits.yml: and 980 mistakes more")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_file_that_another_system_has_encoded_is_read(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "digits.yml"
    file.write_bytes((SMALLEST + "fixed: {größe: 1}\n").encode(encoding))
    assert Settings.load(file).fixed == {"größe": 1}


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yml: there is no such parameters file"):
        Settings.load(tmp_path / "nowhere.yml")
    with pytest.raises(SettingsError, match="cannot be read"):
        Settings.load(tmp_path)
    (tmp_path / "latin.yml").write_bytes("ü: 1".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"latin\.yml: cannot be read"):
        Settings.load(tmp_path / "latin.yml")


def test_a_file_whose_name_cannot_name_a_study_needs_a_name_inside(tmp_path: Path) -> None:
    file = tmp_path / "what?.yml"
    file.write_text(SMALLEST)
    with pytest.raises(SettingsError, match=r"what\?\.yml: study\.name: 'what\?'"):
        Settings.load(file)
    file.write_text(SMALLEST + "study: {name: what}")
    assert Settings.load(file).name == "what"


CONTRACT = """
study:
  name: digits-cnn
  seed: 0
  trials: 40
  sampler: auto
  pruner: median
  stop_after_failures: 10
objective:
  val_acc: {direction: maximize, take: last}
scores:
  val_acc: {variable: acc}
  val_loss: {pattern: 'val_loss=([0-9.eE+-]+)'}
space:
  lr: {type: float, low: 1e-4, high: 1e-1, log: true}
  width: {type: int, low: 16, high: 256, step: 16}
  optimizer: {choices: [sgd, adam]}
  momentum: {low: 0.8, high: 0.99, when: {optimizer: sgd}}
  batch_size: [32, 64]
fixed:
  epochs: 5
start:
  - {lr: 0.01, batch_size: 64, optimizer: adam, width: 64}
limits:
  trial: 2h
  cell_output: 10MB
resources:
  gpus: auto
  gpu_memory: auto
  cpus_per_trial: auto
cost: {price_per_hour: 1.10, budget: 48}
"""


def test_every_key_that_is_promised_can_be_given(load: Load) -> None:
    settings = load(CONTRACT)
    assert settings.study.pruner.name == "median"
    assert settings.resources.gpu_memory is None
    assert load(CONTRACT.replace("gpu_memory: auto", "gpu_memory: 9GB")).resources.gpu_memory == (
        9_000_000_000
    )
    assert settings.cost is not None
    assert settings.cost.budget == 48


# --- the schema ----------------------------------------------------------------------------------

SCHEMA = Settings.json_schema()
EDITOR = Draft202012Validator(SCHEMA)
ROOT = Path(__file__).parents[2]

SHORT_AND_LONG = """\
study: {sampler: {name: tpe, n_startup_trials: 5}, pruner: {name: asha}, stop_after_failures: null}
objective: {val_acc: maximize, 'F1 (macro)': {direction: maximize}}
scores: {val_acc: {variable: acc, pattern: null}}
space:
  größe: [3, 2.5, true, null, text]
  opt: {choices: [a, b], type: categorical}
  n: {low: 1, high: 9, step: 2, when: {opt: [a, b]}}
  m: {type: choice, choices: [1], when: {opt: a}}
  layers: [[], [32], [64, 64], 8, {conv: [3, 3], pool: null}, [[1], [1.0], [true]]]
  apart: {choices: [[1], [1.0], [true], '[1]', 'json:[1]']}
  deep: {low: 1, high: 2, when: {layers: [[], [64, 64], {conv: [3, 3], pool: null}], opt: a}}
  flat: {low: 1, high: 2, when: {layers: {conv: [3, 3], pool: null}}}
  x: {type: float, low: 1, high: 2, step: null}
fixed: {a: [1, {b: null}], c: null}
start: [{layers: [64, 64], apart: [1.0]}]
limits: {trial: 90.5, cell_output: 512 KiB}
resources: {gpus: [3], gpu_memory: 9GB, cpus_per_trial: 4}
execution: {kernels: cold, prefix: 'off'}
cost: null
"""


def told_by_editor(text: str) -> list[str]:
    """What an editor marks in a file, by its schema."""
    return [error.message for error in EDITOR.iter_errors(YAML(typ="safe", pure=True).load(text))]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["title"]
    assert "file" not in SCHEMA["properties"]
    assert set(SCHEMA["properties"]) == {*Settings.model_fields} - {"file"}


@pytest.mark.parametrize(
    "text",
    [
        SMALLEST,
        EVERYTHING,
        CONTRACT,
        SHORT_AND_LONG,
        *(path.read_text("utf-8") for path in sorted((ROOT / "parameters").glob("*.yml"))),
    ],
)
def test_the_schema_accepts_what_loads(load: Load, text: str) -> None:
    load(text)
    assert told_by_editor(text) == []


@pytest.mark.parametrize("text", [text for text, _ in WRONG_SHAPE])
def test_the_schema_refuses_what_is_wrong_by_shape(text: str) -> None:
    assert told_by_editor(text)


def test_the_schema_says_what_each_key_is_for() -> None:
    records = {"": SCHEMA, **SCHEMA["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, record in records.items()
        for key, described in record["properties"].items()
        if len(described.get("description", "")) < 12
        and "description" not in SCHEMA["$defs"].get(str(described.get("$ref"))[8:], {})
    ]
    assert silent == []


def test_the_schema_refuses_unknown_keys_wherever_the_reader_does() -> None:
    records = [SCHEMA, *SCHEMA["$defs"].values()]
    assert {record["additionalProperties"] for record in records} == {False}


def test_the_schema_proposes_the_names_that_are_known() -> None:
    study = SCHEMA["$defs"]["StudySettings"]["properties"]
    for key, known in (("sampler", SAMPLERS), ("pruner", PRUNERS)):
        name, options = study[key]["anyOf"]
        assert name["enum"] == options["properties"]["name"]["enum"] == list(known)
