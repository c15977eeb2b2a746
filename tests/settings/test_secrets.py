"""Test that secrets in the params of trials are refused, and others are published as `***`."""

from __future__ import annotations

import time
from typing import Any

import pytest
from parameters_files import SMALLEST, Load

from sweeper.errors import SettingsError
from sweeper.settings import Settings
from sweeper.settings.secrets import masked


@pytest.mark.parametrize(
    "name", "api_key apiKey HF_TOKEN hfToken db-password APIKey s3_secret".split()
)
def test_a_text_is_a_secret_if_its_name_has_a_word_such_as_token(name: str) -> None:
    assert masked({name: "hush"}) == {name: "***"}
    assert masked([{"deep": {name: ["hush", 8]}}]) == [{"deep": {name: ["***", 8]}}]
    assert masked(f"export {name}=hush && run --{name}='hush hush' x=1") == (
        f"export {name}=*** && run --{name}=*** x=1"
    )


@pytest.mark.parametrize(
    "value",
    [
        {"keyboard": "qwerty", "monkey": "a", "tokenizer": "bpe", "max_tokens": "9", "key": ""},
        {
            "pad_token": "a",
            "key_dim": 64,
            "token": None,
            "use_key": True,
            "scales": [float("inf"), 1e-3],
        },
        "https://host:80/a?b=c#d and a@b, or s3://me@bucket, if x == y and z=1",
    ],
)
def test_masking_of_secrets_leaves_other_values_unchanged(value: Any) -> None:
    assert masked(value) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hu/sh@host/db", "postgresql://me:***@host/db"),
        ("https://host/a?token=hush", "https://host/a?token=***"),
        ("pip install git+https://hush@host/a", "pip install git+https://***@host/a"),
        ("export proxy=http://me:hush@host:80", "export proxy=http://me:***@host:80"),
    ],
)
def test_passwords_in_urls_are_secrets(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("fixed: {api_key: hush-hush}", "fixed.api_key: looks like a secret"),
        ("fixed: {client: {api_key: hush-hush}}", "fixed.client: looks like a secret"),
        ("fixed: {place: 'mysql://me:hush-hush@host/db'}", "fixed.place: looks like a secret"),
        ("smoke: {hf_token: hush-hush}", "smoke.hf_token: looks like a secret"),
        ("  place: ['mysql://me:hush-hush@host/db', b]", "space.place: looks like a secret"),
    ],
)
def test_a_secret_in_the_parameters_of_trials_is_refused(
    load_settings: Load, line: str, named: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(SMALLEST + line)
    assert named in str(refused.value)
    assert "os.environ['API_KEY']" in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("sort_key", "price", "list it in space as the only choice"),
        ("options", {"key": "price"}, "list it in space as the only choice"),
        ("prompt", "answer as key=value", "write it in the notebook"),
        ("url", "ftp://anonymous:guest@host/set", "write it in the notebook"),
    ],
)
def test_the_refusal_of_a_value_that_looks_like_a_secret_says_what_to_do_if_it_is_not_secret(
    name: str, value: Any, remedy: str
) -> None:
    content = {"objective": {"acc": "maximize"}, "space": {"lr": [1]}}
    with pytest.raises(SettingsError, match=f"if it is not a secret, {remedy}"):
        Settings.from_mapping({**content, "fixed": {name: value}})
    if "space" in remedy:
        Settings.from_mapping({**content, "space": {name: [value]}})
    else:
        with pytest.raises(SettingsError, match=remedy):
            Settings.from_mapping({**content, "space": {name: [value]}})


def test_the_message_about_a_flag_with_a_secret_does_not_contain_it(load_settings: Load) -> None:
    with pytest.raises(
        SettingsError, match=r"^--set api_key=\*\*\*: fixed.api_key: looks like a secret"
    ) as refused:
        load_settings(SMALLEST).with_overrides(fixed={"api_key": "hush"})
    assert "hush" not in str(refused.value)


def test_a_swept_param_may_have_the_name_of_a_secret(load_settings: Load) -> None:
    assert load_settings(SMALLEST + "  pad_token: ['<pad>']").to_yaml().count("<pad>") == 1


def test_the_options_of_a_cluster_keep_their_secrets_but_are_published_without_them(
    load_settings: Load,
) -> None:
    options = "{password: hush, env: {HF_TOKEN: hush}, job_script_prologue: [export A_KEY=hush]}"
    settings = load_settings(
        f"{SMALLEST}cluster: {{class: a.B, options: {options}}}  # password: hush\n"
    )
    assert settings.cluster is not None
    assert settings.cluster.options["password"] == "hush"
    for published in (settings.to_yaml(), str(settings.as_mapping)):
        assert published.count("***") == 3
        assert "hush" not in published


def test_the_password_of_an_earlier_studys_storage_is_used_and_not_published(
    load_settings: Load,
) -> None:
    settings = load_settings(f"{SMALLEST}learn_from: ['postgresql://me:hush@host/db', out/one]\n")
    assert settings.learn_from[0] == "postgresql://me:hush@host/db"
    assert "postgresql://me:***@host/db" in settings.to_yaml()
    assert settings.as_mapping["learn_from"] == ["postgresql://me:***@host/db", "out/one"]


@pytest.mark.parametrize("text", ["x" * 100_000, "x-" * 50_000, "a://" * 25_000, "a@" * 50_000])
def test_a_long_text_is_searched_for_secrets_in_seconds(text: str) -> None:
    began_s = time.process_time()
    assert masked(text, "lr") == text
    assert time.process_time() - began_s < 10  # a quadratic search takes more than a minute
