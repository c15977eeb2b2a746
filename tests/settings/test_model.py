"""Test the settings that a file gives, the form in which they are stored, and overrides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parameters_files import EVERYTHING, SMALLEST, Load

from sweeper.errors import SettingsError
from sweeper.settings import Settings
from sweeper.settings.flags import read_value
from sweeper.settings.machines import Resources
from sweeper.settings.sections import (
    Algorithm,
    CheckpointPolicy,
    Cost,
    Limits,
    Objective,
    ScoreSource,
    StudySettings,
    Sync,
    checked_study_name,
    study_name_of,
)
from sweeper.settings.space import ChoiceDimension, FloatDimension, IntDimension


def test_a_parameters_file_needs_only_an_objective_and_a_space(load_settings: Load) -> None:
    settings = load_settings(SMALLEST)
    assert settings.name == "digits"  # the default name is the file's name without .yml
    assert settings.resources.claim_bytes is None
    assert {n: (o.direction, o.take) for n, o in settings.objective.items()} == {
        "val_acc": ("maximize", "last")
    }
    lr, batch_size = settings.space["lr"], settings.space["batch_size"]
    assert isinstance(lr, FloatDimension)
    assert (lr.low, lr.high, lr.log) == (0.0001, 0.1, True)
    assert isinstance(batch_size, ChoiceDimension)
    assert batch_size.choices == (32, 64, 128)


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
    "checkpoints": CheckpointPolicy(completed="best"),
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
def test_settings_read_back_from_their_mapping_or_yaml_are_equal_except_for_secrets(
    load_settings: Load, made: Callable[[Load], Settings]
) -> None:
    settings = made(load_settings)
    stored = json.loads(json.dumps(settings.as_mapping))
    again = Settings.from_mapping(stored)
    assert again.name == settings.name
    named = settings.study.model_copy(update={"name": settings.name})
    # The URL of `notify` is a secret, so it is not among the stored settings.
    without_file = settings.model_copy(update={"study": named, "notify": None})
    without_file._file = None
    assert again == without_file
    assert again.as_mapping == settings.as_mapping
    from_file = load_settings(settings.to_yaml())
    assert from_file.as_mapping == settings.as_mapping
    assert [*from_file.space] == [*settings.space]


def test_settings_with_overrides_are_a_copy_and_the_original_stays_unchanged(
    load_settings: Load,
) -> None:
    settings = load_settings(EVERYTHING)
    changed = settings.with_overrides(study="other", trials=3, fixed={"lr": 0.5})
    assert (changed.name, changed.study.trials, changed.study.seed) == ("other", 3, 1)
    assert (settings.name, settings.study.trials) == ("digits-cnn", 40)
    assert "lr" in settings.space
    assert settings.fixed == {"epochs": 5}


def test_a_param_that_is_fixed_is_removed_from_the_space_and_the_start_trials(
    load_settings: Load,
) -> None:
    settings = load_settings(EVERYTHING)
    changed = settings.with_overrides(fixed={"lr": 0.5, "epochs": 1})
    assert set(changed.search_space) == {*settings.search_space} - {"lr"}
    assert changed.fixed == {"epochs": 1, "lr": 0.5}  # a fixed value may be outside of the range
    assert changed.start_params[0] == {"optimizer": "adam", "width": 64}


def test_fixing_a_param_keeps_or_removes_the_params_that_depend_on_it(load_settings: Load) -> None:
    settings = load_settings(EVERYTHING)
    opened = settings.with_overrides(fixed={"optimizer": "sgd"})
    assert set(opened.search_space) == {*settings.search_space} - {"optimizer"}
    closed = settings.with_overrides(fixed={"optimizer": "adam"})
    assert set(closed.search_space) == {*opened.search_space} - {"momentum"}
    assert closed.start_params == [{"lr": 0.01, "width": 64}]
    without = Settings.from_mapping({**settings.as_mapping, "start": [{"momentum": 0.9}]})
    assert without.start_params == [{"momentum": 0.9, "optimizer": "sgd"}]
    all_fixed = settings.with_overrides(fixed={"optimizer": "adam", "lr": 0.1, "width": 64})
    assert all_fixed.start_params == []  # all params of the start trial are fixed, so it is dropped


def test_fixing_a_param_to_a_list_keeps_the_params_whose_condition_names_that_list(
    load_settings: Load,
) -> None:
    settings = load_settings(
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
        with pytest.raises(SettingsError, match="there is nothing to sweep"):
            before.with_overrides(fixed={"layers": [64.0, 64], "width": 3})
    with pytest.raises(SettingsError, match=r"layers: \[64\] is outside .* \[32\], \[64, 64\]"):
        again.check_params({"layers": [64]})


def test_settings_that_were_made_in_code_can_be_overridden() -> None:
    changed = Settings(**MADE_OF_RECORDS).with_overrides(trials=3, fixed={"lr": 9}, cold=True)
    assert (changed.study.trials, changed.fixed["lr"], changed.kernels) == (3, 9, "cold")
    assert set(changed.search_space) == {"opt", "momentum", "k"}
    assert changed.start_params == [{"opt": None}]
    assert changed.study.sampler.options == {"n_startup_trials": 5}
    assert (changed.resources.gpus, changed.resources.claim_bytes) == ((0, 1), 10**9)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_file_in_another_unicode_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "digits.yml"
    file.write_bytes((SMALLEST + "fixed: {größe: 1}\n").encode(encoding))
    assert Settings.load(file).fixed == {"größe": 1}


def test_the_message_for_a_missing_or_unreadable_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yml: there is no such parameters file"):
        Settings.load(tmp_path / "nowhere.yml")
    with pytest.raises(SettingsError, match="cannot be read"):
        Settings.load(tmp_path)
    (tmp_path / "latin.yml").write_bytes("ü: 1".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"latin\.yml: cannot be read"):
        Settings.load(tmp_path / "latin.yml")


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("notebook (1)", "notebook 1"),
        ("what?", "what"),
        ("étude-2.1", "étude-2.1"),
        ("-x{lr}", "xlr"),
        ("(?)", "study"),
        ("n" * 150, "n" * 100),
    ],
)
def test_a_studys_default_name_is_its_files_name_without_illegal_characters(
    stem: str, name: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{stem}.yml"
    file.write_text(SMALLEST)
    assert Settings.load(file).name == name
    file.write_text(SMALLEST + "study: {name: stated}")
    assert Settings.load(file).name == "stated"


@given(stem=st.text(min_size=1))
def test_a_study_name_that_is_made_from_any_file_name_is_legal(stem: str) -> None:
    name = study_name_of(stem)
    assert checked_study_name(name) == name


def test_flags_for_confirm_override_the_parameters_file() -> None:
    plain = Settings.from_mapping({"objective": {"a": "maximize"}, "space": {"x": [1, 2]}})
    assert plain.confirm is None
    confirm = plain.with_overrides(confirm=2).confirm
    assert confirm is not None
    assert (confirm.best, confirm.seeds) == (2, 5)
    both = plain.with_overrides(confirm=2, seeds=3)
    more = both.with_overrides(seeds=9).confirm
    assert more is not None
    assert (more.best, more.seeds) == (2, 9)
    assert Settings.from_mapping(both.as_mapping).confirm == both.confirm
    with pytest.raises(SettingsError, match=r"--seeds 3: .*--confirm 3 --seeds 3"):
        plain.with_overrides(seeds=3)
    with pytest.raises(SettingsError, match=r"^--seeds 1: confirm.seeds: .* 2 or more"):
        both.with_overrides(seeds=1)
    with pytest.raises(
        SettingsError, match=r"^--confirm 2 --set seed=1: confirm: runs .* remove it from fixed"
    ):
        plain.with_overrides(confirm=2, fixed={"seed": 1})
    with pytest.raises(SettingsError, match=r"confirm: runs .* remove it from fixed"):
        both.with_overrides(fixed={"seed": 1})


def test_a_confirmation_of_a_study_that_sweeps_the_seed_is_refused_with_a_remedy() -> None:
    space = {"seed": [1, 2], "x": [1, 2]}
    plain = Settings.from_mapping({"objective": {"a": "maximize"}, "space": space})
    with pytest.raises(SettingsError, match=r"remove it from space .*begin another"):
        plain.with_overrides(confirm=2)


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


def test_an_emoji_that_json_writes_as_two_escapes_is_one_character(load_settings: Load) -> None:
    text = 'objective: {val: maximize}\nspace: {v: ["\\ud83d\\ude00", "b"]}\n'
    choices = load_settings(text).space["v"]
    assert isinstance(choices, ChoiceDimension)
    assert choices.choices == ("\U0001f600", "b")


def test_nan_is_refused_and_not_mistaken_for_a_secret() -> None:
    with pytest.raises(SettingsError) as raised:
        read_value("lr=.nan")
    assert "expected a finite number" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("text", ["lr", "=3", "x=[1", "x={a", "x=" + "[" * 600, "x=&a [*a]"])
def test_a_set_flag_without_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--set"):
        read_value(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{SMALLEST}# {'z' * 1_000_000}\n", "1 MB"),
        (f"{SMALLEST}fixed:\n" + "".join(f"  n{i}: 1\n" for i in range(1001)), "fixed: 1,001"),
        (f"{SMALLEST}start: [{'{lr: 0.01}, ' * 1001}]\n", "start: 1,001"),
    ],
)
def test_a_file_that_is_too_large_is_refused_with_the_limit(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "p.yml").write_text(text)
    with pytest.raises(SettingsError, match=words) as refused:
        Settings.load(tmp_path / "p.yml")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["x=" + "1" * 1_000_000, "1" * 1_000_000])
def test_a_value_that_is_too_long_on_the_command_line_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_value(text)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("stated", "kept"),
    [
        ({"url": "tls://a:8786", "wait": "2h", "insecure": True}, (7200.0, True)),
        ({"class": "dask_jobqueue.SLURMCluster", "max": 8, "wait": 60}, (60.0, False)),
        (None, (600.0, False)),
    ],
)
def test_overriding_the_address_of_a_cluster_keeps_the_files_keys_wait_and_insecure(
    stated: dict[str, Any] | None, kept: tuple[float, bool]
) -> None:
    cluster = {} if stated is None else {"cluster": stated}
    settings = Settings.from_mapping({**MADE_IN_SHORT, **cluster})
    changed = settings.with_overrides(cluster="tls://b:8786").cluster
    assert changed is not None
    assert (changed.url, changed.wait, changed.insecure) == ("tls://b:8786", *kept)
    assert changed.class_ is None
