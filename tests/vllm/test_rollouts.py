"""Whole rollouts on real vLLM in training mode: many turns, and every prompt extends what was sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from gymnast import Collector
from gymnast.tokens.audit import TokenAudit, audit
from gymnast.tokens.export import Segment, ids_of, read_ledger, segments
from gymnast.tokens.load import load_renderer
from gymnast.types.tokens import TokenLedger
from gymnast.wire.http_client import HttpClient
from tests.helpers.jsonl import example_rows
from tests.vllm.asking import Asking, all_of
from tests.vllm.conftest import Model
from tests.vllm.policies import end_of_turn, policy, with_params

pytestmark = pytest.mark.timeout(600)
CITY = '"[a-z ]{4,20}"'
QWEN_CALL = r'<tool_call>\n\{"name": "get_weather", "arguments": \{"city": ' + CITY + r"\}\}\n</tool_call>"
SMOLLM_CALL = r'<tool_call>\[\{"name": "get_weather", "arguments": \{"city": ' + CITY + r"\}\}\]</tool_call>"


async def ledgers_of(collector: Collector, rows: list[dict[str, Any]]) -> list[TokenLedger]:
    """Run rows; every one must come back scored, with its ledger."""
    found = []
    async for _, record in collector.run(rows, concurrency=64):
        ledger = read_ledger(record.data)
        assert ledger is not None
        found.append(ledger)
    assert len(found) == len(rows)
    return found


async def tool_rollouts(folder: Path, model: Model, call: str, number: int, turns: int) -> list[TokenLedger]:
    """Rollouts in which every turn calls a tool: a grammar sees to the form, chance to the rest."""
    control = load_renderer(model.folder).tokenizer.control_tokens
    wanted = ("<tool_call>", "</tool_call>", "<|im_end|>")  # the grammar lets any spelling and any end token through
    tags = {str(control[tag]): 50 for tag in wanted if tag in control}
    extra: dict[str, Any] = {"structured_outputs": {"regex": call}, **({"logit_bias": tags} if tags else {})}
    rows = [with_params(row, max_output_tokens=90, temperature=1.0) for row in example_rows("example_single_tool_call")]
    agent = "example_single_tool_call_simple_agent.responses_api_agents.simple_agent"
    async with Collector(
        environments=["example_single_tool_call"],
        config_paths=[policy(folder, model, extra_body=extra)],
        overrides=[f"++{agent}.max_steps={turns}"],
    ) as collector:
        return await ledgers_of(collector, [rows[place % len(rows)] for place in range(number)])


def histories(ledgers: list[TokenLedger]) -> list[list[int]]:
    """Every prompt with what was sampled after it."""
    return [ids_of(ledger.calls, number) for ledger in ledgers for number in range(len(ledger.calls))]


def retokenised_differently(model: Model, found: list[list[int]]) -> int:
    """How many histories come back as other ids when they are decoded and encoded, as a chat endpoint does it."""
    plain = Tokenizer.from_file(str(model.folder / "tokenizer.json"))
    texts = [plain.decode(ids, skip_special_tokens=False) for ids in found]
    return sum(plain.encode(text, add_special_tokens=False).ids != ids for text, ids in zip(texts, found, strict=True))


def totals(found: list[TokenAudit]) -> dict[str, int]:
    return {
        "rollouts": len(found),
        "drift": sum(each.drift for each in found),
        "segments": sum(len(each.segments) for each in found),
        "masked": sum(sum(each.masked.values()) for each in found),
        "not_sent_as_ids": sum(each.calls - each.ids_sent for each in found),
    }


@pytest.mark.parametrize(
    ("name", "call", "number", "turns"),
    [("tiny", QWEN_CALL, 100, 4), ("smollm2", SMOLLM_CALL, 36, 3)],
    ids=["tiny", "smollm2"],
)
async def test_tool_rollouts_do_not_drift_where_retokenising_would(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    figures: Callable[..., None],
    name: str,
    call: str,
    number: int,
    turns: int,
) -> None:
    model: Model = request.getfixturevalue(name)
    ledgers = await tool_rollouts(tmp_path, model, call, number, turns)
    found = histories(ledgers)
    account = totals([audit(ledger) for ledger in ledgers])
    differently = retokenised_differently(model, found)
    assert retokenised_differently(model, [ledger.calls[0].delta for ledger in ledgers]) == 0  # what nobody sampled
    figures(**account, histories=len(found), retokenised_differently=differently)
    assert len(found) == number * turns
    assert (account["drift"], account["not_sent_as_ids"], account["masked"]) == (0, 0, 0)
    assert account["segments"] == number  # nothing forked: every turn extends the one before
    assert differently > 0


async def test_logprobs_of_whole_conversations_are_those_of_prefilling(
    tiny: Model, tmp_path: Path, http: HttpClient, figures: Callable[..., None]
) -> None:
    """The ledger's ids are the ids the engine saw: given again as one prompt, they have the same logprobs."""
    rows = [with_params(row, max_output_tokens=200) for row in example_rows("example_multi_turn_gymnasium")]
    ending = {"logit_bias": {str(end_of_turn(tiny)): 5}}  # turns of some 30 tokens; raw logprobs do not know of it
    async with Collector(
        environments=["example_multi_turn_gymnasium"], config_paths=[policy(tmp_path, tiny, extra_body=ending)]
    ) as collector:
        ledgers = await ledgers_of(collector, rows * 8)
    asking = Asking(tiny, http)

    async def worst(ledger: TokenLedger) -> float:
        found = segments(ledger)  # more than one where a turn ended on the other stop token
        assert sum(len(call.sampled) for call in ledger.calls) == sum(sum(segment.mask) for segment in found)
        return max([await difference(segment) for segment in found])

    async def difference(segment: Segment) -> float:
        again = await asking.prefilled(segment.ids[:1], segment.ids[1:])
        trained = [place for place, mask in enumerate(segment.mask) if mask]
        return max(abs(segment.logprobs[place] - again[place - 1]) for place in trained)

    differences = await all_of(*(worst(ledger) for ledger in ledgers))
    turns = sum(len(ledger.calls) for ledger in ledgers)
    differently = retokenised_differently(tiny, histories(ledgers))
    figures(
        conversations=len(ledgers),
        turns=turns,
        retokenised_differently=differently,
        worst_logprob_difference=max(differences),
    )
    assert max(differences) < 1e-3
    assert max(len(ledger.calls) for ledger in ledgers) > 2


async def test_weights_that_change_between_and_within_calls_are_distinguished(
    tiny: Model, tmp_path: Path, http: HttpClient
) -> None:
    """Pause, new weights, resume, while rollouts run: aborted generations go on, and each token knows its weights."""
    asking = Asking(tiny, http)
    await asking.post("/update_weight_version", {"new_version": "before"})
    rows = [with_params(row, max_output_tokens=400) for row in example_rows("example_multi_turn_gymnasium")]
    async with Collector(
        environments=["example_multi_turn_gymnasium"], config_paths=[policy(tmp_path, tiny)]
    ) as collector:
        running = asyncio.create_task(ledgers_of(collector, rows))
        await asyncio.sleep(2.0)
        async with asking.paused("abort"):
            await asking.post("/update_weight_version", {"new_version": "after"})
        ledgers = await running
    calls = [call for ledger in ledgers for call in ledger.calls]
    assert all(call.weights[0].start == 0 and call.weights[-1].end == len(call.sampled) for call in calls)
    assert {call.finish for call in calls} <= {"length", "stop"}
    assert all(len(call.sampled) == 400 for call in calls if call.finish == "length")
    mixed = [call for call in calls if [span.version for span in call.weights] == ["before", "after"]]
    assert mixed
    for ledger in ledgers:
        versions = [span.version for call in ledger.calls for span in call.weights]
        assert versions == sorted(versions, reverse=True)  # once "after", never "before" again
