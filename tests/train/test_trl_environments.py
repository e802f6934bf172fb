"""TRL's trainer with Gymnast's environments in TRL's own tool loop: five real steps."""

from __future__ import annotations

import math
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, LlamaForCausalLM
from transformers.utils import get_json_schema
from trl.chat_template_utils import qwen3_schema

from gymnast import Collector
from gymnast.builtin.responses_api_models.embedded_model.policy import SHIPPED
from gymnast.train.trl_environments import TrlEnvironments
from tests.helpers.train_tasks import TOKENS, shop_tasks
from tests.integration.test_trl_environments import tool_methods
from tests.train.test_trl import Watched, arguments

_RESULTS = re.compile(r"(?:\n<\|im_start\|>tool\n(?:\d+)<\|im_end\|>)+\n<\|im_start\|>assistant\n")


def test_transformers_makes_the_declared_schema_of_the_tools() -> None:
    collector = Collector(environments=["shop_lookup"], model_type="embedded_model", overrides=[TOKENS])
    with TrlEnvironments(collector, shop_tasks(3), environment="shop_lookup_resources_server") as shop:
        methods = tool_methods(shop.factory())
    declared = {tool["name"]: tool for tool in shop_tasks(1)[0]["responses_create_params"]["tools"]}
    for name, method in methods.items():
        made = get_json_schema(method)["function"]
        assert made["name"] == name
        assert made["description"] == " ".join(declared[name]["description"].split())
        properties = declared[name]["parameters"]["properties"]
        assert {key: value["type"] for key, value in made["parameters"]["properties"].items()} == {
            key: value["type"] for key, value in properties.items()
        }
        assert sorted(made["parameters"].get("required", [])) == sorted(declared[name]["parameters"]["required"])


def test_five_steps_with_an_environment_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    tokenizer.response_schema = qwen3_schema  # of a template that TRL does not know, its calls are in the same form
    seen: list[Any] = []
    collector = Collector(environments=["shop_lookup"], model_type="embedded_model", overrides=[TOKENS])
    with TrlEnvironments(collector, shop_tasks(8), environment="shop_lookup_resources_server") as environments:

        def reward(completions: list[Any], **columns: Any) -> list[float | None]:
            found = environments.reward(completions, **columns)
            seen.append((completions, found))
            return found

        trainer = Watched(
            model=LlamaForCausalLM.from_pretrained(SHIPPED, dtype="float32"),
            reward_funcs=reward,
            args=arguments(
                tmp_path,
                max_steps=5,
                per_device_train_batch_size=4,
                num_generations=2,
                max_completion_length=64,
                max_tool_calling_iterations=2,
            ),
            train_dataset=environments.dataset(),
            processing_class=tokenizer,
            environment_factory=environments.factory,
        )
        trainer.train()
    assert len(seen) == 5
    rewards = [value for _, found in seen for value in found]
    assert all(value in {0.0, 1.0} for value in rewards)
    assert any(value for value in rewards), "the shipped policy answers some questions"
    tools = [
        message for found, _ in seen for completion in found for message in completion if message["role"] == "tool"
    ]
    assert tools, "it uses the tools"
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 5
    assert all(map(math.isfinite, losses))
    results = [part for inputs in trainer.seen for part in masked_parts(inputs, tokenizer)]
    assert any(results), "tool results are in the sequences"
    assert all(map(_RESULTS.fullmatch, results)), "what is masked is the tools' results, and nothing else is"


def masked_parts(inputs: dict[str, Any], tokenizer: Any) -> list[str]:
    """The texts in sequences that the loss leaves out; no sampled text has a part of a prompt."""
    parts = []
    rows = zip(inputs["completion_ids"], inputs["completion_mask"], inputs["tool_mask"], strict=True)
    for ids, whole, mask in rows:
        length = int(whole.sum())
        pairs = zip(ids[:length].tolist(), mask[:length].tolist(), strict=True)
        for is_sampled, run in groupby(pairs, key=lambda pair: pair[1]):
            text = tokenizer.decode([token for token, _ in run])
            if not is_sampled:
                parts.append(text)
            assert not is_sampled or "<|im_start|>" not in text
    return parts
