"""URLs as people write them: host:port is accepted, and what is no URL is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.config import Config, compose, read_environ
from gymnast.config.urls import BadUrl, parse_base_url, parse_url
from gymnast.errors import UserError
from gymnast.runtime.find_head import parse_head_url
from gymnast.runtime.probe import endpoint_urls
from gymnast.sidecars.server_options import base_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8000", "http://localhost:8000/v1"),
        ("localhost:8000/v1", "http://localhost:8000/v1"),
        ("localhost", "http://localhost/v1"),
        ("10.0.0.1:80/", "http://10.0.0.1:80/v1"),
        (" http://localhost:8000/v1/ ", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/chat/completions", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/responses/", "http://localhost:8000/v1"),
        ("https://api.example.com", "https://api.example.com"),
        ("HTTPS://api.example.com/v1", "HTTPS://api.example.com/v1"),
        ("[::1]:8000", "http://[::1]:8000/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://user:pass@host:8000/v1", "http://user:pass@host:8000/v1"),
        ("http:8000", "http://http:8000/v1"),  # a host called http
        ("addresses:///folder", "addresses:///folder"),
    ],
)
def test_a_base_url_as_people_write_it(text: str, url: str) -> None:
    assert parse_base_url(text) == url


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("http://", "no host"),
        ("http:///v1", "no host"),
        (":8000", "no host"),
        ("ftp://x:1/v1", "starts with http://"),
        ("file:///etc/passwd", "starts with http://"),
        ("http:/localhost:8000", "starts with http://"),
        ("http:localhost:8000", "starts with http://"),
        ("https//localhost:8000", "starts with https://"),
        ("http://localhost:99999/v1", "range"),
        ("http://localhost:abc/v1", "'abc'"),
        ("http://localhost:0/v1", "port 0"),
        ("http://local host:9/v1", "spaces"),
        ("http://[::1:9/v1", "not a valid URL"),
        ("::1", "brackets"),
        ("fe80::1:8000", "brackets"),
        ("http://localhost:9/v1?x=1", "has no '?'"),
        ("http://localhost:9/v1#f", "has no '#'"),
        ("localhost:9,localhost:10", "expected one URL"),
    ],
)
def test_what_is_not_a_base_url_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_base_url(text)
    assert why in str(caught.value)


def load(*overrides: str, model_url: str | None = None, model_type: str | None = None) -> Config:
    return compose(
        read_environ({}),
        environments=["mcqa"],
        overrides=overrides,
        model="m",
        model_url=model_url,
        model_type=model_type,
    )


def test_a_model_url_without_http_is_read_as_http_and_said() -> None:
    config = load(model_url="localhost:8000").require_valid()
    assert list(endpoint_urls(config.instances.values())) == ["http://localhost:8000/v1"]
    assert config.notes == ("--model-url localhost:8000 is read as http://localhost:8000/v1",)


@pytest.mark.parametrize("url", ["", "ftp://x", "http://h:99999/v1"])
def test_a_bad_model_url_is_an_error_of_the_user_that_names_the_option(url: str) -> None:
    with pytest.raises(UserError, match="--model-url"):
        load(model_url=url)


@pytest.mark.parametrize("url", ["ftp://x", "[http://ok/v1,'no pe']", "http://h:99999"])
def test_a_bad_base_url_in_the_configuration_is_a_problem_that_names_the_key(url: str) -> None:
    config = load(f"+policy_base_url={url}", "+policy_api_key=x", model_type="vllm_model")
    assert "'base_url'" in "\n".join(str(problem) for problem in config.problems)


def test_base_urls_in_the_configuration_are_completed() -> None:
    config = load("+policy_base_url=['localhost:1','h:2/v1']", "+policy_api_key=x", model_type="vllm_model")
    assert list(endpoint_urls(config.require_valid().instances.values())) == ["http://localhost:1/v1", "http://h:2/v1"]


def test_the_url_of_an_instance_may_leave_out_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far.yaml").write_text("far: {resources_servers: {far: {url: 'host:9000', domain: other}}}")
    config = compose(read_environ({}), config_paths=["far.yaml"], stub_policy=True)
    assert config.require_valid().instance("far").url == "http://host:9000"


def test_other_addresses_are_completed_or_refused_the_same_way() -> None:
    assert parse_url("h:1") == "http://h:1"
    assert parse_head_url("localhost:11000") == "http://localhost:11000"
    assert base_url("h:8000") == base_url("http://h:8000/") == "http://h:8000/v1"
    for parse in (parse_head_url, base_url):
        with pytest.raises(UserError):
            parse("ftp://x")


def test_a_missing_policy_is_answered_with_the_options_that_name_one() -> None:
    text = "\n".join(str(problem) for problem in load().problems)
    assert "--model-url URL -m NAME" in text
    assert "--model-type embedded_model" in text
