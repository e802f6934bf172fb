"""Keys by name are used and never shown; prices come from a table that says its date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymnast.cli.bundle import _redactor
from gymnast.cli.main import main
from gymnast.config import Config, compose, read_environ
from gymnast.config.compose import config_path
from gymnast.config.explain import explain_key
from gymnast.config.keyring import stored_keys
from gymnast.endpoints.price_table import TABLE, find_prices, read_price_table
from gymnast.errors import ConfigError, DataError, NotFoundError
from tests.helpers.model_bench import Bench, chat

SECRET = "sk-very-secret-0123456789"
MODEL = config_path("responses_api_models", "openai_model")


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "keys.yaml"
    file.write_text(f"mine: {SECRET}\nnumber: 5\n")
    file.chmod(0o600)
    monkeypatch.setenv("GYMNAST_KEYS", str(file))
    return file


def load(**arguments: Any) -> Config:
    return compose(read_environ(), model="m", model_url="http://127.0.0.1:1/v1", **arguments)


def policy_key(config: Config) -> Any:
    (policy,) = (instance for instance in config.instances.values() if instance.name == "policy_model")
    return policy.settings.get("api_key") or policy.settings.get("openai_api_key")


def test_a_key_is_named_on_the_command_line_and_in_configs(keys: Path) -> None:
    assert policy_key(load(model_key_name="mine").require_valid()) == SECRET
    assert policy_key(load(overrides=["++policy_api_key=${key:mine}"]).require_valid()) == SECRET
    (keys.parent / "env.yaml").write_text("policy_api_key: ${key:mine}\n")
    assert policy_key(load(model_type="openai").require_valid()) == SECRET


def test_a_key_is_never_shown(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (keys.parent / "env.yaml").write_text("policy_api_key: ${key:mine}\nx_plain: Bearer-${key:mine}\n")
    config = load().require_valid()
    assert config.values["x_plain"] == f"Bearer-{SECRET}"
    shown = json.dumps([config.masked_values(), explain_key(config, "x_plain"), explain_key(config, "policy_api_key")])
    assert SECRET not in shown
    assert SECRET not in repr(config.root)
    assert SECRET not in config.scrubber.scrub(f"refused: {SECRET}")
    for words in (["show"], ["show", "--json"], ["show", "--origins"], ["explain", "x_plain"], ["validate"]):
        with pytest.raises(SystemExit):
            main(["config", *words, "-c", MODEL])
        out, err = capsys.readouterr()
        assert SECRET not in out + err


def test_a_bundle_has_no_key(keys: Path) -> None:
    assert _redactor({})._scrubber.scrub(f"refused {SECRET}") == "refused ****"
    keys.chmod(0o644)
    assert stored_keys(keys) == []


def problem(**arguments: Any) -> str:
    with pytest.raises(ConfigError) as failed:
        load(**arguments).require_valid()
    assert SECRET not in str(failed.value)
    return str(failed.value)


def test_what_is_wrong_with_a_key_is_reported_without_showing_any(keys: Path) -> None:
    assert "did you mean 'mine'" in problem(model_key_name="mime")
    assert "is not a text" in problem(model_key_name="number")
    assert "letters, digits" in problem(overrides=["++policy_api_key='${key:a b}'"])
    keys.write_text(f"mine: [{SECRET}\n")
    assert "not valid YAML" in problem(model_key_name="mine")
    keys.write_text(SECRET)
    assert "cannot be used" in problem(model_key_name="mine")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_keys_file_that_others_can_read_is_refused(keys: Path, mode: int) -> None:
    keys.chmod(mode)
    text = problem(model_key_name="mine")
    assert "other users can read it" in text
    assert f"chmod 600 {keys}" in text


def test_a_missing_keys_file_is_missed_only_if_a_key_is_named(keys: Path) -> None:
    keys.unlink()
    load().require_valid()
    assert "does not exist" in problem(model_key_name="mine")


def test_the_keys_file_has_a_usual_place(tmp_path: Path) -> None:
    assert read_environ({"HOME": "/h"}).keys_file == Path("/h/.config/gymnast/keys.yaml")
    assert read_environ({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}).keys_file == Path("/c/gymnast/keys.yaml")
    assert read_environ({"HOME": "/h", "GYMNAST_KEYS": "/k"}).keys_file == Path("/k")


def test_keys_come_from_the_environment_too(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    override = "++policy_api_key=${oc.env:MY_KEY}"
    config = load(overrides=[override]).require_valid()
    assert policy_key(config) == SECRET
    assert SECRET not in json.dumps(config.masked_values())
    monkeypatch.delenv("MY_KEY")
    assert "environment variable MY_KEY, which is not set" in problem(overrides=[override])


@pytest.mark.parametrize(
    ("arguments", "server"),
    [
        ({"model_type": "anthropic"}, "anthropic_model"),
        ({"model_type": "anthropic_model"}, "anthropic_model"),
        ({"model_type": "openai"}, "openai_model"),
        ({"model_url": "https://api.anthropic.com"}, "anthropic_model"),
        ({"model_url": "https://api.example.org/v1"}, "vllm_model"),
    ],
)
def test_model_servers_have_short_names(keys: Path, arguments: dict[str, Any], server: str) -> None:
    config = compose(read_environ(), **{"model": "m", "model_url": "http://h/v1", **arguments}).require_valid()
    assert config.instance("policy_model").implementation == server


# --- prices ----------------------------------------------------------------------------------------------------------


def test_the_table_that_ships_is_dated_and_complete() -> None:
    table = read_price_table(TABLE)
    assert table.date == str(yaml.safe_load(TABLE.read_text())["date"])
    assert table.currency == "USD"
    for prices in table.models.values():
        assert 0 < (prices.cached_input or 0) < prices.input < prices.output


def test_a_version_at_the_end_of_a_name_does_not_matter() -> None:
    named = find_prices("table", "gpt-4.1")
    assert find_prices("table", "gpt-4.1-2025-04-14") == named
    assert find_prices("table", "claude-haiku-4-5-20251001") == find_prices("table", "claude-haiku-4-5")
    assert find_prices("table", "gpt-4.1-mini") != named


def test_an_unknown_model_is_an_error_with_the_date_and_similar_names() -> None:
    with pytest.raises(NotFoundError, match=r"price table of \d{4}-\d{2}-\d{2}(.|\n)*did you mean 'gpt-4\.1'"):
        find_prices("table", "gpt-4.11")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("currency: EUR\nmodels: {}", "'date'"),
        ("date: 2026-01-01\ncurrency: EUR\nmodels: {m: {input: -1, output: 2}}", "models.m.input"),
        ("date: 2026-01-01\ncurrency: EUR\nmodels: {m: {input: 1}}", "models.m.output"),
        ("date: 2026-01-01\ncurrency: EUR\nmodels: {m: {input: .inf, output: 1}}", "models.m.input"),
        ("models: [", "not valid YAML"),
        ("- a", "price table"),
    ],
)
def test_a_table_that_is_wrong_says_where(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises((DataError, ConfigError), match=why):
        find_prices(str(file), "m")


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises((DataError, ConfigError), match="No such file"):
        find_prices(str(tmp_path / "none.yaml"), "m")


async def test_a_table_of_your_own_prices_calls(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("date: 2026-01-01\ncurrency: EUR\nmodels: {the-model: {input: 1000000, output: 2000000}}")
    endpoint = await bench.endpoint(chat("hi"))
    model = bench.vllm(endpoint.url, prices=str(file))
    assert model._meter._prices is not None
    assert model._meter._prices.output == 2_000_000
