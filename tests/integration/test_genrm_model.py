"""genrm_model: a reward model behind a chat endpoint gets the responses in roles of their own."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gymnast.builtin.resources_servers.genrm_compare.app import GenRMCompare
from gymnast.builtin.resources_servers.genrm_compare.settings import GenRMCompareSettings
from gymnast.builtin.responses_api_models.genrm_model.app import GenRMModel, GenRMModelSettings
from gymnast.wire.http_client import HttpClient
from gymnast.wire.transports import InProcessTransport
from tests.helpers.environments import response, said
from tests.helpers.model_bench import Bench, chat

SCORES = json.dumps({"score_1": 5, "score_2": 2, "ranking": 1})


@pytest.mark.parametrize("supports_principle", [True, False])
async def test_a_comparison_reaches_the_reward_model(supports_principle: Any) -> None:
    async with HttpClient() as client, AsyncExitStack() as stack:
        bench = Bench(stack, client)
        endpoint = await bench.endpoint(chat(SCORES))
        model = GenRMModel(
            "genrm_model",
            GenRMModelSettings(
                base_url=endpoint.url,
                api_key="sk",
                model="judge",
                uses_reasoning_parser=False,
                supports_principle_role=supports_principle,
            ),
            bench.context,
        )
        given = {
            "genrm_model_server": {"name": "genrm_model"},
            "genrm_responses_create_params": {"input": [], "max_output_tokens": 99},
            "use_principle": True,
        }
        environment = GenRMCompare("env", GenRMCompareSettings.model_validate(given), bench.context)
        for name, server in (("genrm_model", model), ("env", environment)):
            await server.start()
            stack.push_async_callback(server.stop)
            bench.transports[name] = InProcessTransport(server)
        row = {"responses_create_params": {"input": "Which?"}, "principle": "Be brief.", "compare_with": ["other"]}
        reply = await bench.calls.call("env", "/verify", {**row, "response": response(said("mine"))})
    assert reply.body["reward"] == 3.5  # 5 as the first, 2 as the second
    request = endpoint.asked[0]
    messages = [(message["role"], message["content"]) for message in request["messages"]]
    principle = [("principle", "Be brief.")] if supports_principle else []
    assert messages == [("user", "Which?"), *principle, ("response_1", "mine"), ("response_2", "other")]
    assert (request["model"], request["max_tokens"], "metadata" in request) == ("judge", 99, False)
