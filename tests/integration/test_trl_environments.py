"""Environments for TRL's own tool loop, as its trainer (August 2026) uses them: real servers, TRL's steps by hand.

tests/train runs the trainer itself.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from gymnast import Collector
from gymnast.errors import UserError
from gymnast.train import FewerRolloutsError
from gymnast.train.trl_environments import ROW_INDEX, TrlEnvironments, response_of
from tests.helpers.train_tasks import TOKENS, shop_tasks, sum_tasks

SHOP = "shop_lookup_resources_server"


@pytest.fixture
def shop() -> Iterator[TrlEnvironments]:
    collector = Collector(environments=["shop_lookup"], model_type="embedded_model", overrides=[TOKENS])
    with TrlEnvironments(collector, shop_tasks(3), environment=SHOP) as environments:
        yield environments


def tool_methods(instance: Any) -> dict[str, Any]:
    """What TRL takes for tools."""
    members = inspect.getmembers(instance, predicate=inspect.ismethod)
    return {name: method for name, method in members if name not in {"reset", "get_reward"} and name[0] != "_"}


def test_tools_have_the_signatures_and_descriptions_of_the_environment(shop: TrlEnvironments) -> None:
    instance = shop.factory()
    declared = {tool["name"]: tool for tool in shop_tasks(1)[0]["responses_create_params"]["tools"]}
    methods = tool_methods(instance)
    assert set(methods) == set(declared)
    for name, method in methods.items():
        schema = declared[name]["parameters"]
        parameters = inspect.signature(method).parameters
        assert set(parameters) == set(schema["properties"])
        assert all(key in method.__doc__ for key in schema["properties"])
        assert inspect.iscoroutinefunction(method)


def solve(row: dict[str, Any], methods: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a policy that uses a tool and then says the right answer."""
    name, method = next(iter(methods.items()))
    arguments = dict.fromkeys(inspect.signature(method).parameters, "apple")
    output = asyncio.run(method(**arguments))
    return [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
        },
        {"role": "tool", "name": name, "content": output},
        {"role": "assistant", "content": f"Answer: {expected(row)}"},
    ]


def expected(row: dict[str, Any]) -> str:
    return str(next(value for key, value in row.items() if re.search("answer|expected", key)))


def test_a_session_is_seeded_used_and_verified(shop: TrlEnvironments) -> None:
    rows = shop_tasks(3)
    instances = [shop.factory() for _ in range(4)]
    for number, instance in enumerate(instances):
        instance.reset(prompt=[], **{ROW_INDEX: number % 2})
    right = solve(rows[0], tool_methods(instances[0]))
    wrong = [{"role": "assistant", "content": "I do not know."}]
    logged: dict[str, float] = {}
    rewards = shop.reward(
        [right, wrong, wrong, wrong],
        environments=instances,
        log_metric=logged.__setitem__,
        prompts=None,
        completion_ids=None,
    )
    assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert logged == {"gymnast/failed": 0.0}


def test_arguments_that_do_not_fit_are_an_answer_for_the_model(shop: TrlEnvironments) -> None:
    instance = shop.factory()
    instance.reset(**{ROW_INDEX: 0})
    method = next(iter(tool_methods(instance).values()))
    assert asyncio.run(method(nonsense=1))
    assert instance.gymnast_session.failure is None


@pytest.mark.parametrize("max_failed", [0, 1])
def test_an_environment_that_fails_is_not_a_reward_of_0(shop: TrlEnvironments, max_failed: int) -> None:
    shop.max_failed = max_failed
    instances = [shop.factory() for _ in range(2)]
    for instance in instances:
        instance.reset(**{ROW_INDEX: 0})
    session = instances[1].gymnast_session
    session.row = {**session.row, "responses_create_params": {"input": None}}  # /verify refuses it
    if max_failed:
        assert shop.reward(["no", "no"], environments=instances) == [0.0, None]
        return
    with pytest.raises(FewerRolloutsError, match="1 of 2 rollouts were scored"):
        shop.reward(["no", "no"], environments=instances)


def test_mistakes_are_reported() -> None:
    collector = Collector(environments=["arithmetic"], model_type="embedded_model", overrides=[TOKENS])
    environments = TrlEnvironments(collector, sum_tasks(1), environment="arithmetic_resources_server")
    with pytest.raises(UserError, match="the servers are not running"):
        _ = environments.factory
    with environments, pytest.raises(UserError, match="an example has no 'gymnast_row_index'"):
        environments.factory().reset(prompt=[])


def test_a_completion_becomes_the_items_that_verifiers_read() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "f", "content": "2"},
        {"role": "assistant", "content": "<think>hm</think>4"},
    ]
    output = response_of(messages, {"input": "?"})["output"]
    assert [item["type"] for item in output] == ["function_call", "function_call_output", "reasoning", "message"]
    assert output[0]["call_id"] == output[1]["call_id"]
    assert (output[0]["arguments"], output[3]["content"][0]["text"]) == ('{"a":1}', "4")
    assert response_of("text", {"input": "?"})["output"][0]["content"][0]["text"] == "text"
