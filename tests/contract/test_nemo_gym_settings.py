"""Reading configurations with the types of `nemo_gym.config_types`, and other names that tools import."""

from __future__ import annotations

from typing import Any

import pytest
from nemo_gym.config_types import (
    ConfigError,
    ConfigPathNotFoundError,
    DatasetConfig,
    ServerRefNotFoundError,
    ServerRefTypeAdapter,
    is_almost_server,
    is_server_ref,
    maybe_get_server_instance_config,
)
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymFunctionCallOutput,
    NeMoGymResponseOutputMessage,
    training_variant_of,
)
from nemo_gym.rollout_correlation import current_rollout_id, maybe_rollout_id_from_run_body, rollout_context
from omegaconf import OmegaConf
from pydantic import ValidationError

DATASET: dict[str, Any] = {"name": "d", "type": "example", "jsonl_fpath": "x.jsonl"}
ON_HUB = {"repo_id": "a/b", "artifact_fpath": "x.jsonl"}


def server(kind: str = "responses_api_models", **settings: Any) -> Any:
    return OmegaConf.create({kind: {"mine": {"entrypoint": "app.py", **settings}}})


@pytest.mark.parametrize("kind", ["responses_api_models", "resources_servers", "responses_api_agents"])
def test_references(kind: str) -> None:
    value = {"type": kind, "name": "a"}
    assert ServerRefTypeAdapter.validate_python(value).model_dump() == value
    assert is_server_ref(OmegaConf.create(value)) == ServerRefTypeAdapter.validate_python(value)
    assert is_server_ref({"type": "else", "name": "a"}) is None


def test_a_dataset_has_a_license_and_one_source() -> None:
    assert DatasetConfig(**DATASET).num_repeats == 1
    for wrong, message in (
        ({"type": "train"}, "needs a license"),
        ({"license": "mine"}, "unknown license"),
        ({"source": {"type": "huggingface", **ON_HUB}, "huggingface_identifier": ON_HUB}, "both a source and"),
        ({"source": {"type": "elsewhere"}}, "elsewhere"),
    ):
        with pytest.raises(ValidationError, match=message):
            DatasetConfig(**{**DATASET, **wrong})


def test_the_two_ways_to_name_a_source_are_kept_in_step() -> None:
    by_source = DatasetConfig(**DATASET, source={"type": "huggingface", **ON_HUB})
    by_identifier = DatasetConfig(**DATASET, huggingface_identifier=ON_HUB)
    assert by_source == by_identifier
    assert by_source.huggingface_identifier is not None
    assert by_source.huggingface_identifier.repo_id == "a/b"


def test_a_block_is_an_instance_or_says_why_not() -> None:
    instance, error = maybe_get_server_instance_config("policy", server(prefix="P", datasets=[DATASET]))
    assert error is None
    assert instance is not None
    assert instance.get_server_ref() == is_server_ref({"type": "responses_api_models", "name": "policy"})
    assert instance.get_inner_run_server_config_dict().prefix == "P"
    assert [dataset.name for dataset in instance.datasets or []] == ["d"]
    assert maybe_get_server_instance_config("env", server("resources_servers", domain="math"))[1] is None
    none, error = maybe_get_server_instance_config("env", server("resources_servers"))
    assert none is None
    assert "needs a domain" in str(error)
    assert maybe_get_server_instance_config("text", "x") == (None, None)
    assert [is_almost_server(value) for value in (server(), OmegaConf.create({"a": 1}), "x")] == [True, False, False]


def test_errors_are_caught_by_the_types_that_callers_know() -> None:
    assert issubclass(ServerRefNotFoundError, (ConfigError, ValueError))
    assert issubclass(ConfigPathNotFoundError, FileNotFoundError)
    assert str(ConfigPathNotFoundError("no file")) == "no file"
    for kind in (ConfigError, KeyError):
        with pytest.raises(kind, match="no instance 'b'"):
            get_first_server_config_dict(OmegaConf.create({"a": {}}), "b")


def test_the_rollout_of_running_code() -> None:
    identity = {"_ng_task_index": 3, "_ng_rollout_index": 1}
    bodies: list[tuple[Any, str | None]] = [
        (None, None),
        ({}, None),
        (identity, "3-1"),
        ({**identity, "_ng_attempt_index": 2}, "3-1-a2"),
        ({**identity, "_ng_rollout_id": "x.y"}, "x.y"),
    ]
    assert [maybe_rollout_id_from_run_body(body) for body, _ in bodies] == [wanted for _, wanted in bodies]
    with pytest.raises(ValueError, match="_ng_rollout_id"):
        maybe_rollout_id_from_run_body({"_ng_rollout_id": "a/b"})
    with rollout_context("r-1"):
        assert current_rollout_id() == "r-1"
    assert current_rollout_id() is None


def test_custom_tools_in_chats() -> None:
    call = {"id": "1", "type": "custom", "custom": {"name": "n", "input": "i"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"finish_reason": "tool_calls", "index": 0, "message": message}
    completion = NeMoGymChatCompletion.model_validate(
        {"id": "c", "choices": [choice], "created": 1, "model": "m", "object": "chat.completion"}
    )
    assert completion.model_dump()["choices"][0]["message"]["tool_calls"] == [call]
    tools = [{"type": "custom", "custom": {"name": "n"}}]
    params = NeMoGymChatCompletionCreateParamsNonStreaming.model_validate({"messages": [message], "tools": tools})
    assert params.model_dump(exclude_unset=True) == {"messages": [message], "tools": tools}


def test_items_with_tokens_have_their_own_classes() -> None:
    assert training_variant_of(NeMoGymResponseOutputMessage).__name__ == "NeMoGymResponseOutputMessageForTraining"
    with pytest.raises(NotImplementedError, match="NeMoGymFunctionCallOutput"):
        training_variant_of(NeMoGymFunctionCallOutput)
