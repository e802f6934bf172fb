"""The embedded policy as a model server: dialects, exact ledgers, seeds, limits, many at once, and its end."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.builtin.graded_tasks import rows
from gymnast.builtin.resources_servers.shop_lookup.tasks import GENERATOR, Shop
from gymnast.builtin.responses_api_models.embedded_model.app import EmbeddedModel, EmbeddedModelSettings, make_renderer
from gymnast.builtin.responses_api_models.embedded_model.backend import set_blas_threads
from gymnast.builtin.responses_api_models.embedded_model.cache import Cache, Pool
from gymnast.builtin.responses_api_models.embedded_model.policy import (
    SHIPPED,
    Policy,
    read_policy,
    read_tensors,
    write_tensors,
)
from gymnast.builtin.responses_api_models.embedded_model.sampling import log_probabilities
from gymnast.endpoints.ledgers import OPEN_ROUTE, TAKE_ROUTE
from gymnast.errors import UserError
from gymnast.kit import ModelCall
from gymnast.tokens.audit import audit
from gymnast.tokens.backend import GeneratedTokens, Sampling
from gymnast.tokens.export import read_ledger
from gymnast.types.failure import Stage
from gymnast.types.tokens import LEDGER, TokenLedger
from gymnast.wire.calls import Scope
from gymnast.wire.message import Reply, Request
from gymnast.wire.transports import InProcessTransport
from tests.helpers.model_bench import Bench

HI = [{"role": "user", "content": "Work out 3 + 4. End with 'Answer: ' and the number."}]


@dataclass
class Policies:
    """Embedded policies in one process."""

    bench: Bench
    stack: AsyncExitStack

    def start(self, **settings: Any) -> EmbeddedModel:
        model = EmbeddedModel("policy", EmbeddedModelSettings(**settings), self.bench.context)
        self.stack.push_async_callback(model.stop)
        self.bench.transports["policy"] = InProcessTransport(model)
        return model

    async def post(self, path: str, body: Any, scope: Scope | None = None) -> Reply:
        return await self.bench.calls.call("policy", path, body, scope, stage=Stage.MODEL)

    async def ask(self, items: list[Any] | str = HI, scope: Scope | None = None, **params: Any) -> Any:
        reply = await self.post("/v1/responses", {"input": items, **params}, scope)
        assert reply.status == 200, reply.body
        return reply.body


@cache
def shipped_policy() -> Policy:
    """Read once: the weights do not change."""
    return read_policy()


@pytest.fixture
async def policies(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Policies]:
    monkeypatch.setattr(
        "gymnast.builtin.responses_api_models.embedded_model.app.read_policy",
        lambda folder=SHIPPED: shipped_policy() if folder == SHIPPED else read_policy(folder),
    )
    async with AsyncExitStack() as stack:
        yield Policies(bench, stack)


# --- rollouts in every dialect ---------------------------------------------------------------------------------------

ROW = list(rows(GENERATOR, count=8, seed=11, levels=[4]))[3]
TOOLS = ROW["responses_create_params"]["tools"]
Ask = Callable[[str, dict[str, Any]], Any]


def shop_tool(name: str, arguments: dict[str, Any]) -> str:
    return str(Shop(ROW["prices"], ROW["stock"]).look_up(name, arguments.get("item", "")))


async def by_responses(ask: Ask) -> str:
    items = list(ROW["responses_create_params"]["input"])
    while True:
        output = (await ask("/v1/responses", {"input": items, "tools": TOOLS}))["output"]
        items += output
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            return str(output[-1]["content"][0]["text"])
        for call in calls:
            told = shop_tool(call["name"], json.loads(call["arguments"]))
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": told})


async def by_chat(ask: Ask) -> str:
    tools = [
        {"type": "function", "function": {name: tool[name] for name in ("name", "description", "parameters")}}
        for tool in TOOLS
    ]
    messages = list(ROW["responses_create_params"]["input"])
    while True:
        completion = await ask("/v1/chat/completions", {"messages": messages, "tools": tools, "model": "m"})
        message = completion["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message["content"])
        for call in message["tool_calls"]:
            told = shop_tool(call["function"]["name"], json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": told})


async def by_messages(ask: Ask) -> str:
    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in TOOLS
    ]
    messages = list(ROW["responses_create_params"]["input"])
    while True:
        body = {"model": "m", "max_tokens": 300, "messages": messages, "tools": tools}
        content = (await ask("/v1/messages", body))["content"]
        messages.append({"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        if not calls:
            return str(content[-1]["text"])
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": shop_tool(call["name"], call["input"])}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})


async def watched(policies: Policies, talk: Callable[[Ask], Any], rollout: str) -> tuple[str, TokenLedger]:
    """A conversation and the ledger of its tokens."""
    scope = Scope(rollout)
    await policies.post(OPEN_ROUTE, {}, scope)

    async def ask(path: str, body: dict[str, Any]) -> Any:
        reply = await policies.post(path, body, scope)
        assert reply.status == 200, reply.body
        return reply.body

    said = await talk(ask)
    ledger = read_ledger({LEDGER: (await policies.post(TAKE_ROUTE, {}, scope)).body})
    assert ledger is not None
    return said, ledger


async def test_a_tool_rollout_has_the_same_exact_tokens_in_every_dialect(policies: Policies) -> None:
    policies.start(seed=4, return_token_id_information=True)
    turns = []
    for rollout in ("0-0", "0-2"):
        found = [await watched(policies, talk, rollout) for talk in (by_responses, by_chat, by_messages)]
        said, ledger = found[0]
        turns.append(len(ledger.calls))
        for other, tokens in found:
            assert other == said
            assert [call.sampled for call in tokens.calls] == [call.sampled for call in ledger.calls]
            assert [call.delta for call in tokens.calls] == [call.delta for call in ledger.calls]
            audit_result = audit(tokens)
            assert (audit_result.is_exact, audit_result.drift, len(audit_result.segments), audit_result.ids_sent) == (
                True,
                0,
                1,
                len(tokens.calls),
            )
    assert max(turns) >= 3


async def test_sampled_logprobs_are_those_of_a_fresh_pass(policies: Policies) -> None:
    policies.start(seed=1, return_token_id_information=True)
    transformer = shipped_policy().transformer
    for rollout in range(2):
        _, ledger = await watched(policies, by_responses, f"0-{rollout}")
        ids: list[int] = []
        for call in ledger.calls:
            assert call.keep == len(ids)
            ids += call.delta
            start, ids = len(ids), ids + call.sampled
            passed = log_probabilities(transformer.forward([(Cache(Pool(transformer.shape)), ids)], every=True))
            wanted = passed[np.arange(start - 1, len(ids) - 1), call.sampled]
            np.testing.assert_allclose(call.logprobs, wanted, atol=1e-4)


async def test_ids_travel_on_the_items_where_nobody_takes_the_ledger(policies: Policies) -> None:
    policies.start(return_token_id_information=True)
    item = (await policies.ask(scope=Scope("1-1")))["output"][-1]
    assert len(item["generation_token_ids"]) == len(item["generation_log_probs"])
    assert shipped_policy().tokenizer.decode(item["prompt_token_ids"]).endswith("<|im_start|>assistant\n")


# --- sampling --------------------------------------------------------------------------------------------------------


def text_of(response: Any) -> str:
    return str(response["output"][-1]["content"][0]["text"])


async def test_seeds_make_answers_repeatable_and_repeats_differ(policies: Policies) -> None:
    async def answers(**settings: Any) -> list[str]:
        policies.start(**settings)
        task = "Work out 684 - 257. End with 'Answer: ' and the number."
        replies = await asyncio.gather(*(policies.ask(task, Scope(f"0-{repeat}")) for repeat in range(8)))
        return [text_of(reply) for reply in replies]

    first = await answers(seed=3)
    assert await answers(seed=3) == await answers(seed=3, max_batch=1) == first
    assert len(set(first)) > 1
    assert await answers(seed=4) != first
    assert len(set(await answers(temperature=0))) == 1
    asked: dict[str, Any] = {"metadata": {"extra_body": '{"seed": 9, "top_k": 5}'}}
    assert text_of(await policies.ask(**asked)) == text_of(await policies.ask(**asked))


async def test_what_a_request_leaves_open_is_set_by_the_config(policies: Policies) -> None:
    policies.start(temperature=0.5, top_p=0.9, max_output_tokens=3)
    reply = await policies.ask()
    assert (reply["temperature"], reply["top_p"], reply["usage"]["output_tokens"]) == (0.5, 0.9, 3)
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (await policies.ask(temperature=0.0, max_output_tokens=40))["status"] == "completed"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"metadata": {"extra_body": '{"logit_bias": {}}'}}, "logit_bias"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"max_output_tokens": 0}, "max_tokens must be at least 1"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_what_it_cannot_do_is_refused(policies: Policies, params: dict[str, Any], said: str) -> None:
    policies.start()
    reply = await policies.post("/v1/responses", {"input": HI, **params})
    assert reply.status == 422
    assert said in reply.body["detail"]


async def test_a_full_context_is_an_outcome(policies: Policies) -> None:
    policies.start(max_context=40, temperature=0)
    cut = await policies.ask([{"role": "user", "content": "Work out 3 + 4."}])
    assert cut["usage"]["total_tokens"] <= 40
    over = await policies.ask([{"role": "user", "content": "apple " * 60}])
    assert over["incomplete_details"] == {"reason": "max_output_tokens"}
    assert over["usage"]["output_tokens"] == 0


# --- many at once, and the end ---------------------------------------------------------------------------------------


async def test_many_at_once_get_what_they_would_get_alone(policies: Policies) -> None:
    model = policies.start(seed=5, max_batch=16)
    tasks = [f"Work out {place} + {3 * place}. End with 'Answer: ' and the number." for place in range(64)]
    together = await asyncio.gather(*(policies.ask(task, Scope(f"{place}-0")) for place, task in enumerate(tasks)))
    await model.stop()
    policies.start(seed=5, max_batch=1)
    alone = [await policies.ask(tasks[place], Scope(f"{place}-0")) for place in range(0, 64, 7)]
    assert [text_of(reply) for reply in alone] == [text_of(together[place]) for place in range(0, 64, 7)]


async def test_stopping_leaves_no_thread_and_nobody_waiting(policies: Policies) -> None:
    threads = set_blas_threads(1)
    if threads is not None:
        set_blas_threads(threads)
    model = policies.start()
    waiting = [asyncio.create_task(policies.post("/v1/responses", {"input": HI})) for _ in range(40)]
    while "embedded-backend" not in {thread.name for thread in threading.enumerate()}:
        await asyncio.sleep(0)
    await model.stop()
    replies = await asyncio.wait_for(asyncio.gather(*waiting), 300)
    assert {reply.status for reply in replies} <= {200, 500}
    assert "embedded-backend" not in {thread.name for thread in threading.enumerate()}
    assert (await policies.post("/v1/responses", {"input": HI})).status == 500
    assert "embedded-backend" not in {thread.name for thread in threading.enumerate()}
    assert set_blas_threads(threads or 1) == threads


async def test_a_failed_step_fails_who_waits_and_no_one_after(
    policies: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = policies.start(temperature=0)
    fine = text_of(await policies.ask())

    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("gymnast.builtin.responses_api_models.embedded_model.transformer.Transformer.forward", fail)
        failed = await policies.post("/v1/responses", {"input": HI})
    assert failed.status == 500
    assert "no room" in str(failed.failure)
    assert text_of(await policies.ask()) == fine
    await model.stop()


# --- weights ---------------------------------------------------------------------------------------------------------


async def test_weights_may_come_from_a_folder(policies: Policies, tmp_path: Path) -> None:
    folder = copied_policy(tmp_path / "mine")
    assert policies.start(weights=str(folder)).model_name == "mine"
    assert (await policies.ask())["model"] == "mine"
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors missing"):
        policies.start(weights=str(folder))


def copied_policy(folder: Path, **config: Any) -> Path:
    """The shipped policy with its first norm halved: other weights, hence another version."""
    folder.mkdir()
    for file in SHIPPED.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    tensors = read_tensors(folder / "model.safetensors")
    write_tensors(folder / "model.safetensors", {**tensors, "model.norm.weight": tensors["model.norm.weight"] / 2})
    shape = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**shape, **config}))
    return folder


async def test_other_weights_are_loaded_between_two_tokens_and_the_spans_say_where(
    policies: Policies, tmp_path: Path
) -> None:
    before, after = shipped_policy(), read_policy(copied_policy(tmp_path / "step-1"))
    backend = policies.start(return_token_id_information=True).backend

    def generation(most: int) -> asyncio.Task[GeneratedTokens]:
        sampling = Sampling(max_tokens=most, stop_token_ids=(), temperature=1.0)
        return asyncio.create_task(backend.generate([1, 5, 9], sampling, ModelCall(Request("POST", "/v1/responses"))))

    long, short = generation(300), generation(20)
    await short
    reply = await policies.post("/load_weights", {"path": str(tmp_path / "step-1")})
    assert reply.body == {"version": after.version}
    old, new = (await long).weight_versions
    assert (old.version, old.start) == (before.version, 0)
    assert (new.version, new.start, new.end) == (after.version, old.end, 300)
    assert old.end >= 20
    assert [span.version for span in (await generation(5)).weight_versions] == [after.version]


async def test_weights_that_do_not_fit_are_refused_and_the_old_ones_stay(policies: Policies, tmp_path: Path) -> None:
    other = copied_policy(tmp_path / "larger", max_position_embeddings=512)
    policies.start()
    for path, said in ((tmp_path / "none", "not the weights of an embedded policy"), (other, "a different shape")):
        reply = await policies.post("/load_weights", {"path": str(path)})
        assert reply.status == 400
        assert said in reply.body["detail"]
    assert (await policies.ask())["status"] in {"completed", "incomplete"}


async def test_smollm2_that_is_not_installed_is_an_error(policies: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="SmolLM2 is not installed"):
        policies.start(weights="smollm2")


RENDERER = make_renderer(shipped_policy())


@given(text=st.text(max_size=60))
def test_spans_say_the_character_in_which_each_token_begins(text: str) -> None:
    tokenizer = shipped_policy().tokenizer
    spans = tokenizer.encode_spans(text)
    assert [index for index, _ in spans] == tokenizer.encode(text)
    assert all(0 <= start < len(text) for _, start in spans)
    assert [start for _, start in spans] == sorted(start for _, start in spans)


@given(text=st.text(min_size=1, max_size=60))
def test_prompts_of_any_script_are_rendered_with_their_sources(text: str) -> None:
    rendered = RENDERER.prompt([{"role": "user", "content": text}], [], {})
    assert sum(count for _, count in rendered.sources) == len(rendered.ids)
