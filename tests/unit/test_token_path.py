"""Model calls as token ids: exactness over turns, aborts, bad bundles, refusals, ledgers of rollouts."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gymnast.endpoints.ledgers import OPEN_ROUTE, TAKE_ROUTE, TokenLedgers
from gymnast.endpoints.token_path import TokenOptions, join_generations, parse_sampling
from gymnast.errors import CallError
from gymnast.rollouts.attempt import Scored, attempt
from gymnast.tokens.audit import audit
from gymnast.tokens.backend import ContextOverflow, GeneratedTokens, WeightSpan
from gymnast.tokens.export import add_training_fields, read_ledger
from gymnast.types.failure import Stage
from gymnast.types.tokens import LEDGER, TOKEN_CALL, RecordedTokens
from gymnast.wire.calls import Scope
from gymnast.wire.message import Reply
from gymnast.wire.transports import InProcessTransport
from tests.helpers.caller import Caller
from tests.helpers.character_tokens import CLOSE, Answer, LetterModel, Letters, ListedBackend, sampled
from tests.helpers.model_bench import Bench

TOOL: dict[str, Any] = {"type": "function", "name": "look", "parameters": {}, "strict": None}
USER = {"role": "user", "content": "hi"}


def policy(bench: Bench, *answers: Answer, options: TokenOptions | None = None, **renderer: bool) -> ListedBackend:
    backend = ListedBackend(answers)
    model = LetterModel(bench.context, backend, options, Letters(**renderer))
    bench.transports["policy"] = InProcessTransport(model)
    return backend


async def ask(bench: Bench, items: list[Any], scope: Scope | None = None, **params: Any) -> Any:
    reply = await bench.calls.expect(
        "policy", "/v1/responses", {"input": items, **params}, scope or Scope("0-0"), stage=Stage.MODEL
    )
    items += reply["output"]
    return reply


async def test_items_carry_whole_prompts_where_nobody_takes_the_ledger(bench: Bench) -> None:
    backend = policy(bench, sampled("!look"), sampled("blue"))
    items: list[Any] = [USER]
    first = await ask(bench, items, tools=[TOOL], max_output_tokens=9)
    items.append({"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "sky"})
    second = await ask(bench, items, tools=[TOOL])
    assert [text for text, _ in backend.asked] == ["t<uhi><a", "t<uhi><a!look><tsky><a"]
    assert backend.asked[0][1].max_tokens == 9
    bundle = second["output"][-1]
    assert (
        bundle["prompt_token_ids"][: len(first["output"][-1]["prompt_token_ids"])]
        == (first["output"][-1]["prompt_token_ids"])
    )
    assert bundle["generation_token_ids"] == [*map(ord, "blue"), CLOSE]
    assert second["usage"]["input_tokens"] == len(bundle["prompt_token_ids"])
    assert second["usage"]["output_tokens"] == 5


async def test_a_collector_opens_takes_and_closes_the_ledger_of_a_rollout(bench: Bench) -> None:
    policy(bench, sampled("a"), sampled("b"))
    scope = Scope("7-1")
    await bench.calls.expect("policy", OPEN_ROUTE, {}, scope, stage=Stage.MODEL)
    items: list[Any] = [USER]
    await ask(bench, items, scope)
    items.append({"role": "user", "content": "and"})
    reply = await ask(bench, items, scope)
    assert reply["output"][-1][TOKEN_CALL] == 1
    assert "prompt_token_ids" not in reply["output"][-1]
    packed = await bench.calls.expect("policy", TAKE_ROUTE, {}, scope, stage=Stage.MODEL)
    ledger = read_ledger({LEDGER: packed})
    assert ledger is not None
    assert [call.reason for call in ledger.calls] == ["first", "extends"]
    assert await bench.calls.expect("policy", TAKE_ROUTE, {}, scope, stage=Stage.MODEL) == {}
    refused = await bench.calls.call("policy", OPEN_ROUTE, {}, stage=Stage.MODEL)
    assert refused.status == 422


async def test_an_aborted_generation_is_continued_with_the_weights_distinguished(bench: Bench) -> None:
    cut = GeneratedTokens([ord("a"), ord("b")], [-1, -2], "abort", weight_versions=(WeightSpan("v1", 0, 2),))
    nothing = GeneratedTokens([], [], "abort")
    spans = (WeightSpan("v1", 0, 1), WeightSpan("v2", 1, 3))
    rest = GeneratedTokens([ord("c"), ord("d"), CLOSE], [-3, -4, -5], "stop", weight_versions=spans)
    backend = policy(bench, cut, nothing, rest)
    scope = Scope("0-0")
    await bench.calls.expect("policy", OPEN_ROUTE, {}, scope, stage=Stage.MODEL)
    reply = await ask(bench, [USER], scope, max_output_tokens=10)
    assert reply["output"][0]["content"][0]["text"] == "abcd"
    assert [text for text, _ in backend.asked] == ["<uhi><a", "<uhi><aab", "<uhi><aab"]
    assert [sampling.max_tokens for _, sampling in backend.asked] == [10, 8, 8]
    ledger = read_ledger({LEDGER: await bench.calls.expect("policy", TAKE_ROUTE, {}, scope, stage=Stage.MODEL)})
    assert ledger is not None
    assert ledger.calls[0].logprobs == [-1, -2, -3, -4, -5]
    assert audit(ledger).weight_versions == {"v1": 3, "v2": 2}


async def test_logprobs_that_stay_unusable_mask_the_call_and_the_rollout_goes_on(bench: Bench) -> None:
    broken = GeneratedTokens([ord("x"), CLOSE], [float("nan"), -1.0], "stop")
    backend = policy(bench, broken, broken, broken, sampled("y"))
    scope = Scope("0-0")
    await bench.calls.expect("policy", OPEN_ROUTE, {}, scope, stage=Stage.MODEL)
    items: list[Any] = [USER]
    await ask(bench, items, scope)
    items.append({"role": "user", "content": "and"})
    await ask(bench, items, scope)
    assert len(backend.asked) == 4
    packed = await bench.calls.expect("policy", TAKE_ROUTE, {}, scope, stage=Stage.MODEL)
    ledger = read_ledger({LEDGER: packed})
    assert ledger is not None
    audit_result = audit(ledger)
    assert audit_result.masked == {"bad_logprobs": 2}
    assert [each.trained for each in audit_result.segments] == [2]
    exported = add_training_fields({LEDGER: packed, "response": {"output": items[1:2] + items[3:]}})["response"][
        "output"
    ]
    assert ["generation_token_ids" in item for item in exported] == [False, True]


async def test_a_bad_bundle_is_asked_for_again_and_then_a_failure(bench: Bench) -> None:
    backend = policy(bench, GeneratedTokens([], [], "stop"), sampled("ok"))
    assert (await ask(bench, [USER]))["status"] == "completed"
    assert len(backend.asked) == 2
    policy(bench, *[GeneratedTokens([], [], "stop")] * 3)
    with pytest.raises(CallError, match="nothing was sampled") as caught:
        await ask(bench, [USER])
    assert caught.value.detail.kind == "model_bad_reply"


async def test_a_prompt_that_no_longer_fits_is_an_outcome(bench: Bench) -> None:
    policy(bench, ContextOverflow("full"))
    reply = await ask(bench, [USER])
    assert reply["incomplete_details"] == {"reason": "max_output_tokens"}
    assert "prompt_token_ids" not in reply["output"][-1]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"input": [{"role": "developer", "content": "x"}]}, "no role 'developer'"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice 'required'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]}, "image_url"),
        ({"metadata": {"extra_body": "[]"}}, "metadata.extra_body"),
    ],
)
async def test_what_a_prompt_of_ids_cannot_say_is_refused(bench: Bench, params: dict[str, Any], said: str) -> None:
    policy(bench, sampled("x"), options=TokenOptions(developer_role="developer"))
    reply = await bench.calls.call("policy", "/v1/responses", {"input": "q", **params}, stage=Stage.MODEL)
    assert reply.status == 422
    assert said in reply.text()


async def test_formats_that_cannot_be_enforced_are_named(bench: Bench) -> None:
    policy(bench, sampled("x"))
    text = {"format": {"type": "json_object"}}
    reply = await bench.calls.call("policy", "/v1/responses", {"input": "q", "text": text}, stage=Stage.MODEL)
    assert reply.ok
    assert "response_format" in reply.headers["x-gymnast-ignored"]


async def test_chat_completions_carry_the_same_ids(bench: Bench) -> None:
    policy(bench, sampled("x"))
    reply = await bench.calls.expect(
        "policy", "/v1/chat/completions", {"messages": [USER], "top_k": 3}, stage=Stage.MODEL
    )
    message = reply["choices"][0]["message"]
    assert message["generation_token_ids"] == [ord("x"), CLOSE]


def test_sampling_comes_from_the_request_and_its_extra_body() -> None:
    made = parse_sampling({"temperature": 0, "max_output_tokens": 5}, {"top_k": 4, "seed": 0, "ignore_eos": True})
    assert (made.temperature, made.max_tokens, made.top_k, made.seed) == (0.0, 5, 4, 0)
    assert dict(made.extra) == {"ignore_eos": True}


def test_spans_of_parts_that_continue_each_other_are_one() -> None:
    parts = [
        GeneratedTokens([1], [-1], "abort", weight_versions=(WeightSpan("a", 0, 1),)),
        GeneratedTokens([2, 3], [-1, -1], "stop", weight_versions=(WeightSpan("a", 0, 2),)),
    ]
    assert join_generations(parts, "stop").weight_versions == (WeightSpan("a", 0, 3),)


def test_forgotten_sessions_are_dropped() -> None:
    time = [0.0]
    ledgers = TokenLedgers(Letters(), "m", clock=lambda: time[0])
    for number in range(5):
        ledgers.entry_for(Caller(rollout_id=f"{number}-0"))
    assert len(ledgers) == 5
    time[0] = 1e6
    ledgers.entry_for(Caller(rollout_id="9-0"))
    assert len(ledgers) == 1


class Asking:
    """An agent that asks the policy twice and answers with a verify row."""

    address = "in-process"

    def __init__(self, bench: Bench, *, fails: bool = False) -> None:
        self.bench = bench
        self.fails = fails

    async def send(self, request: Any) -> Any:
        scope = Scope(request.rollout_id)
        items: list[Any] = [USER]
        await ask(self.bench, items, scope)
        items.append({"role": "user", "content": "and"})
        reply = await ask(self.bench, items, scope)
        if self.fails:
            return Reply(500, {"detail": "broken"})
        return Reply(200, {"reward": 1.0, "response": {**reply, "output": items[1:]}})


ROW = orjson.dumps(
    {
        "responses_create_params": {"input": "q"},
        "agent_ref": {"name": "agent"},
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
    }
)


async def test_the_record_of_an_attempt_has_the_ledger_and_failed_ones_leave_nothing_behind(bench: Bench) -> None:
    policy(bench, sampled("a"), sampled("b"), sampled("c"), sampled("d"))
    bench.transports["agent"] = Asking(bench)
    outcome = await attempt(bench.calls, ROW, 0, 10.0, tokens=RecordedTokens(("policy",)))
    assert isinstance(outcome, Scored)
    record = orjson.loads(outcome.line)
    ledger = read_ledger(record)
    assert ledger is not None
    assert (audit(ledger).is_exact, len(ledger.calls)) == (True, 2)
    bench.transports["agent"] = Asking(bench, fails=True)
    assert not isinstance(await attempt(bench.calls, ROW, 1, 10.0, tokens=RecordedTokens(("policy",))), Scored)
    server: Any = bench.transports["policy"]
    assert len(server._server.path.ledgers) == 0
