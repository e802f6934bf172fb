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


def test_a_judge_in_an_override_does_not_stand_for_the_policy() -> None:
    judge = "{entrypoint: app.py, base_url: 'http://127.0.0.1:2/v1', api_key: k, model: big}"
    overrides = [f"++judge.responses_api_models.openai_model={judge}"]
    config = compose(
        read_environ({}), environments=["mcqa"], model_url="http://127.0.0.1:1/v1", model="m", overrides=overrides
    )
    assert config.instances["policy_model"].implementation == "vllm_model"


def test_a_missing_model_name_is_reported_by_its_option() -> None:
    config = compose(read_environ({}), environments=["mcqa"], model_url="http://127.0.0.1:1/v1")
    (problem,) = config.problems
    assert "pass the model's name with -m NAME" in str(problem)


def test_a_misspelt_environment_suggests_configs_only() -> None:
    config = compose(read_environ({}), environments=["equivalence_llm_jugde"], stub_policy=True)
    text = "\n".join(map(str, config.problems))
    assert "did you mean 'resources_servers/equivalence_llm_judge/configs/equivalence_llm_judge.yaml'" in text
    assert "check.yaml" not in text
