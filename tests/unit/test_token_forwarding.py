"""The tokens of the last turn go back to the engine: conversations stay as they were sampled, whatever it renders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson
import pytest

from gymnast.tokens.export import read_ledger
from gymnast.types.failure import Stage
from gymnast.types.tokens import LEDGER, ForkReason
from gymnast.wire.calls import Scope
from tests.helpers.drifting_engine import EOS, FIELDS, DriftingEngine, sample_ids, text_of
from tests.helpers.model_bench import Bench, chat

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": None}
Items = list[dict[str, Any]]
Change = Callable[[Items], Items]


def same(items: Items) -> Items:
    return items


def without_reasoning(items: Items) -> Items:
    return [item for item in items if item.get("type") != "reasoning"]


def without_tokens(items: Items) -> Items:
    return [{key: value for key, value in item.items() if key not in {*FIELDS, "token_call"}} for item in items]


def reformatted(items: Items) -> Items:
    """Another spelling of the same arguments, and ids of its own."""
    done = []
    for item in without_tokens(items):
        changed = dict(item)
        if item.get("type") == "function_call":
            changed["arguments"] = orjson.dumps(orjson.loads(item["arguments"]), option=orjson.OPT_INDENT_2).decode()
        if "call_id" in item:
            changed["call_id"] = "own_" + item["call_id"]
        done.append(changed)
    return done


def through_chat(items: Items) -> Items:
    """What is left of items after a client that only knows roles and texts."""
    return [
        {"role": item["role"], "content": item["content"][0]["text"]} if item.get("role") == "assistant" else item
        for item in items
    ]


@dataclass(frozen=True)
class History:
    """What the engine samples, and what the agent adds after each turn."""

    name: str
    texts: tuple[str, ...]
    added: tuple[Items, ...]
    change: Change = same
    instructions: str | None = None
    tools: bool = True
    via_tokenize: bool = False
    more: dict[str, Any] = field(default_factory=dict)


def output(text: str, nth: int = 0) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{nth}", "output": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


TEXT = {"type": "output_text", "text": "Hello", "annotations": []}
TURN = {"type": "message", "role": "assistant", "content": [TEXT], "id": "m", "status": "completed"}
BUNDLE = dict(zip(FIELDS, ([7, 8], [9, EOS], [-0.1, -0.2]), strict=True))
LOOK, LOOK_A = "<call>look {}</call>", '<call>look { "a" : 1 }</call>'
IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]}
HISTORIES = (
    History("chat", ("Hello there", "Fine thanks", "Goodbye"), ([user("how")], [user("bye")]), tools=False),
    History("tools", (LOOK, LOOK, "done"), ([output("one")], [output("two")])),
    History("parallel calls", (LOOK + LOOK, "ok"), ([output("a"), output("b", 1)],)),
    History("unicode", ("Grüße — 你好 🙂é", "日本語\u200dできる"), ([user("ぜひ")],), tools=False),
    History("thinking", ("<think>let me see</think>Well", "<think>again</think>So"), ([user("and")],), tools=False),
    History("thinking before a call", ("<think> hm </think>\n" + LOOK, "yes"), ([output("x")],)),
    History("reasoning not sent back", ("<think>secret</think>Well", "So"), ([user("and")],), without_reasoning),
    History("parser drops whitespace", ("  spaced out \n\n", "\tmore \n"), ([user("x")],), tools=False),
    History("whitespace in arguments", ('\n<call>look  { "a" :  1 } </call>\n', "ok"), ([output("x")],)),
    History("arguments spelled again", (LOOK_A, "ok", "no"), ([output("x")], [user("y")]), reformatted),
    History("truncated turn", ("this is cut…", "goes on"), ([user("go on")],), tools=False),
    History("reasoning alone", ("<think>only this</think>", "Answer", "End"), ([], [user("more")]), tools=False),
    History("agent drops the tokens", (LOOK, "ok", "end"), ([output("x")], [user("y")]), without_tokens),
    History("chat client", ("Hello there", "Fine thanks"), ([user("how")],), through_chat, tools=False),
    History("instructions", ("Hello there", "Fine thanks"), ([user("how")],), instructions="Be brief", tools=False),
    History("prompt from /tokenize", (LOOK, "ok"), ([output("x")],), via_tokenize=True),
    History("images", ("I see it", "Fine thanks"), ([user("how")],), tools=False, more={"input": [IMAGE]}),
    History("required tool", (LOOK, LOOK), ([output("x")],), more={"tool_choice": "required"}),
)


async def run(bench: Bench, history: History, **settings: Any) -> tuple[DriftingEngine, Items]:
    """Let an agent run the history; returns the engine and all items of the rollout."""
    engine = DriftingEngine(*history.texts, via_tokenize=history.via_tokenize)
    bench.vllm(f"{await bench.listen(engine)}/v1", return_token_id_information=True, **settings)
    params: dict[str, Any] = {"input": [user("hi")], **history.more}
    params |= {"tools": [TOOL]} if history.tools else {}
    params |= {"instructions": history.instructions} if history.instructions else {}
    scope = Scope()
    produced: Items = []
    for added in (*history.added, None):
        reply = await bench.ask(scope, **{**params, "input": params["input"] + history.change(produced)})
        assert reply.ok, reply.body
        produced += reply.body["output"]
        produced += added or []
    return engine, produced


def mismatches(engine: DriftingEngine, items: Items) -> int:
    """Turns whose prompt does not start with everything before it: what NeMo RL stops for; and tokens not sampled."""
    calls = [item for item in items if item.get("generation_token_ids")]
    count: int = sum(call["prompt_token_ids"] != prompt for call, prompt in zip(calls, engine.prompts, strict=True))
    for before, after in pairwise(calls):
        known = before["prompt_token_ids"] + before["generation_token_ids"]
        count += bool(after["prompt_token_ids"][: len(known)] != known)
    return count


@pytest.mark.parametrize("history", HISTORIES, ids=lambda one: one.name)
async def test_a_drifting_engine_is_repaired(bench: Bench, history: History) -> None:
    engine, items = await run(bench, history)
    assert engine.carried == [False, *[True] * len(history.added)]
    assert mismatches(engine, items) == 0
    calls = [item for item in items if item.get("generation_token_ids")]
    assert len(calls) == len(history.texts)
    for call, text in zip(calls, history.texts, strict=True):
        assert call["generation_token_ids"] == sample_ids(text) + ([] if text.endswith("…") else [EOS])


async def test_without_them_it_drifts(bench: Bench) -> None:
    engine, items = await run(bench, HISTORIES[1], forward_token_ids=False)
    assert not any(engine.carried)
    assert mismatches(engine, items) == 2


def shortened(items: Items) -> Items:
    """A compaction: a summary in place of all but the last turn."""
    return [user("what happened so far: nothing"), *items[-2:]] if len(items) > 2 else items


def edited(items: Items) -> Items:
    if len(items) < 3:
        return items
    return [{**item, "output": "censored"} if item.get("type") == "function_call_output" else item for item in items]


def answered_for(items: Items) -> Items:
    """An assistant message that no call produced."""
    return [*items, {"role": "assistant", "content": "said by the agent"}, user("go on")] if items else items


@pytest.mark.parametrize("change", [shortened, edited, answered_for])
async def test_a_changed_history_is_sent_as_it_is_and_forks(bench: Bench, change: Change) -> None:
    """Tokens of an earlier turn would bring back what the agent took out."""
    texts = ("<call>look {}</call>", "<call>look {}</call>", "end")
    history = History("changed", texts, ([output("secret")], [output("more")]), change)
    engine, items = await run(bench, history)
    assert engine.carried[-1] is False
    sent = text_of(engine.prompts[-1])
    assert ("secret" in sent) is (change is answered_for)
    assert mismatches(engine, items) > 0


async def test_a_compacted_history_is_continued_again_afterwards(bench: Bench) -> None:
    def once(items: Items) -> Items:
        return [user("so far: nothing"), *items[3:]] if len(items) > 3 else items

    texts = ("<call>look {}</call>", "one", "two", "three")
    history = History("compacted", texts, ([output("x")], [user("a")], [user("b")]), once)
    engine, _ = await run(bench, history)
    assert engine.carried == [False, True, False, True]


async def test_changed_tools_are_rendered_again(bench: Bench) -> None:
    engine = DriftingEngine("Hello there", "Fine")
    bench.vllm(f"{await bench.listen(engine)}/v1", return_token_id_information=True)
    scope = Scope()
    first = (await bench.ask(scope, input=[user("hi")], tools=[TOOL])).body["output"]
    await bench.ask(scope, input=[user("hi"), *first, user("on")], tools=[{**TOOL, "name": "other"}])
    assert engine.carried == [False, False]


async def test_a_collector_that_takes_the_ledger_gets_no_drift(bench: Bench) -> None:
    """Items then only refer to the ledger: the tokens come from there."""
    engine = DriftingEngine("<call>look {}</call>", "ok")
    bench.vllm(f"{await bench.listen(engine)}/v1", return_token_id_information=True)
    scope = Scope("r-1")
    await bench.calls.call("policy", "/token_ledger/open", {}, scope, stage=Stage.MODEL)
    first = (await bench.ask(scope, input=[user("hi")], tools=[TOOL])).body["output"]
    assert FIELDS[0] not in first[-1]
    await bench.ask(scope, input=[user("hi"), *first, output("x")], tools=[TOOL])
    taken = await bench.calls.call("policy", "/token_ledger/take", {}, scope, stage=Stage.MODEL)
    ledger = read_ledger({LEDGER: taken.body})
    assert ledger is not None
    assert engine.carried == [False, True]
    assert [call.reason for call in ledger.calls] == [ForkReason.FIRST, ForkReason.EXTENDS]


async def test_a_server_that_does_not_know_the_conversation_sends_what_the_client_has(bench: Bench) -> None:
    """After a restart, or on another replica."""
    engine = DriftingEngine("ok", "ok")
    bench.vllm(f"{await bench.listen(engine)}/v1", return_token_id_information=True)
    await bench.ask(Scope(), input=[user("hi"), {**TURN, **BUNDLE}, user("on")])
    assert engine.prompts[0][:4] == [7, 8, 9, EOS]
    chat_body = {"messages": [user("hi"), {"role": "assistant", "content": "Hello", **BUNDLE}, user("on")]}
    await bench.calls.call("policy", "/v1/chat/completions", chat_body, Scope(), stage=Stage.MODEL)
    assert engine.prompts[1][:4] == [7, 8, 9, EOS]


@pytest.mark.parametrize("kind", ["vllm", "openai"])
async def test_an_endpoint_that_is_not_asked_for_tokens_gets_none(bench: Bench, kind: str) -> None:
    """Plain OpenAI refuses fields it does not know."""
    endpoint = await bench.endpoint(chat())
    bench.vllm(endpoint.url) if kind == "vllm" else bench.openai(endpoint.url)
    await bench.ask(Scope(), input=[user("hi"), {**TURN, **BUNDLE}, user("on")])
    assert "token_ids" not in orjson.dumps(endpoint.asked[-1].get("messages", [])).decode()
