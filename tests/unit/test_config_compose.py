"""Names and an endpoint become a configuration: which model server an endpoint gets."""

from __future__ import annotations

import pytest

from gymnast.config import compose, read_environ

MODELS = "policy_model.responses_api_models"


@pytest.mark.parametrize(
    ("url", "overrides", "server"),
    [
        ("http://127.0.0.1:1/v1", (), "vllm_model"),
        ("http://127.0.0.1:1/v1", (f"++{MODELS}.vllm_model.prices={{input: 1.0, output: 2.0}}",), "vllm_model"),
        ("https://api.anthropic.com", (f"++{MODELS}.anthropic_model.max_attempts=1",), "anthropic_model"),
        (
            "http://127.0.0.1:1/v1",
            ("+config_paths=[responses_api_models/openai_model/configs/openai_model.yaml]",),
            "openai_model",
        ),
    ],
)
def test_an_endpoint_gets_a_model_server_also_if_settings_of_it_are_overridden(
    url: str, overrides: tuple[str, ...], server: str
) -> None:
    config = compose(read_environ({}), environments=["mcqa"], model_url=url, model="m", overrides=overrides)
    assert config.require_valid().instances["policy_model"].implementation == server
