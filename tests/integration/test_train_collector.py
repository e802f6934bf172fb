"""Batches and streams over real servers: tokens of rollouts that overlap in time belong to their own records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import gymnast
from gymnast.train import BatchOptions, Group, SampleOptions, StreamOptions, collect_batch, stream
from tests.helpers.jsonl import example_rows

POLICY = "++policy_model.responses_api_models.embedded_model.return_token_id_information=true"
KEEPING = BatchOptions(concurrency=8, sample=SampleOptions(keep_line=True))


@pytest.fixture
async def collector() -> AsyncIterator[gymnast.Collector]:
    async with gymnast.Collector(environments=["shop_lookup"], model_type="embedded_model", overrides=[POLICY]) as one:
        yield one


def is_its_own(group: Group) -> bool:
    """Whether all begin with the same prompt, and trained tokens are those that the record says were sampled."""
    prompts = {tuple(sample.segments[0].ids[: sample.segments[0].prompt_length].tolist()) for sample in group.samples}
    records = [(sample, sample.record or {}) for sample in group.samples]
    return len(prompts) == 1 and all(
        sample.trained == record["response"]["usage"]["output_tokens"] for sample, record in records
    )


async def test_batches_at_the_same_time_do_not_mix(collector: gymnast.Collector) -> None:
    rows = example_rows("shop_lookup")
    halves = [rows[:2], rows[2:4]]
    one, other = await asyncio.gather(
        *(collect_batch(collector, half, generations=3, options=KEEPING) for half in halves)
    )
    assert all(is_its_own(group) for batch in (one, other) for group in batch.groups)
    prompts = {
        tuple(group.samples[0].segments[0].ids.tolist()[:40]) for batch in (one, other) for group in batch.groups
    }
    assert len(prompts) == 4


async def test_a_stream_of_groups_from_real_servers(collector: gymnast.Collector) -> None:
    options = StreamOptions(KEEPING, groups_in_flight=3)
    async with stream(collector, example_rows("shop_lookup"), generations=3, options=options) as groups:
        found = [group async for group in groups]
        figures = groups.figures()
    assert sorted(group.task for group in found) == [0, 1, 2, 3, 4]
    assert all(is_its_own(group) for group in found)
    assert (figures["samples"], figures["versions_per_rollout/mean"], figures["drift_rate"]) == (15, 1.0, 0.0)
