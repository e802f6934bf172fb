"""Several trained policies in one episode: real model servers, one ledger, a group for each policy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gymnast
from gymnast.config import compose, read_environ
from gymnast.tokens.audit import audit
from gymnast.tokens.export import read_ledger
from gymnast.train import (
    BatchOptions,
    PolicyVersions,
    SampleOptions,
    StreamOptions,
    collect_batch,
    split_agents,
    stream,
)
from tests.helpers.jsonl import example_rows

DEBATE = '''
from gymnast.builtin.responses_api_agents.environment_agent import EnvironmentAgent, EnvironmentAgentSettings
from gymnast.kit import ModelRef, input_items, request_verdict


class DebateSettings(EnvironmentAgentSettings):
    reviewer: ModelRef
    says_who: bool = True


class DebateAgent(EnvironmentAgent):
    """One policy proposes, the other reviews, the first one answers."""

    settings: DebateSettings

    async def run(self, row, params, scope):
        author, reviewer = self.settings.model_server.name, self.settings.reviewer.name
        question = input_items(params)
        first = await self.call_model(author, {**params, "input": question}, scope)
        review = await self.call_model(reviewer, {**params, "input": [*question, *first["output"], USER]}, scope)
        history = [*question, *first["output"], USER]
        last = await self.call_model(author, {**params, "input": history}, scope)
        verdict = await request_verdict(
            self.calls, self.settings.resources_server.name, row, last, scope, self.settings
        )
        verdict["review"] = review
        verdict["first"] = first
        calls = {name: [turn["output"][-1]["token_call"] for turn in turns]
                 for name, turns in (("author", [first, last]), ("reviewer", [review]))}
        if self.settings.says_who:
            verdict["episode_agents"] = {
                "author": {"reward": verdict["reward"], "calls": calls["author"]},
                "reviewer": {"reward": 1.0 - verdict["reward"], "calls": calls["reviewer"]},
            }
        return verdict


USER = {"role": "user", "content": "Work it out again. End with 'Answer: ' and the number."}
'''
MODEL = {"entrypoint": "app.py", "return_token_id_information": True}


def config_in(folder: Path, **settings: Any) -> Any:
    home = folder / "responses_api_agents" / "debate_agent"
    home.mkdir(parents=True)
    (home / "app.py").write_text(DEBATE)
    debate = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "arithmetic_resources_server"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "reviewer": {"type": "responses_api_models", "name": "reviewer_model"},
        **settings,
    }
    blocks = {
        "policy_model": {"responses_api_models": {"embedded_model": MODEL}},
        "reviewer_model": {"responses_api_models": {"embedded_model": MODEL}},
        "debate": {"responses_api_agents": {"debate_agent": debate}},
    }
    path = folder / "debate.yaml"
    path.write_text(json.dumps(blocks))
    return compose(read_environ(), environments=["arithmetic"], config_paths=[str(path)], search_dirs=[folder])


@pytest.fixture
async def collector(tmp_path: Path) -> AsyncIterator[gymnast.Collector]:
    async with gymnast.Collector(config=config_in(tmp_path)) as one:
        yield one


def tasks(agent: str = "debate") -> list[dict[str, Any]]:
    return [{**row, "agent_ref": {"name": agent}} for row in example_rows("arithmetic")[:2]]


async def test_an_episode_is_a_sample_for_each_policy(collector: gymnast.Collector) -> None:
    options = BatchOptions(sample=SampleOptions(keep_line=True))
    batch = await collect_batch(collector, tasks(), generations=2, options=options)
    for group in batch.groups:
        author, reviewer = split_agents(group)
        assert [(part.agent, part.policy) for part in (author, reviewer)] == [
            ("author", "policy_model"),
            ("reviewer", "reviewer_model"),
        ]
        for whole, own, other in zip(group.samples, author.samples, reviewer.samples, strict=True):
            record = whole.record or {}
            assert (own.policies, other.policies) == (("policy_model",), ("reviewer_model",))
            assert (own.turns, other.turns) == (2, 1)
            used = [record[name]["usage"]["output_tokens"] for name in ("first", "response")]
            assert own.trained == sum(used)
            assert other.trained == record["review"]["usage"]["output_tokens"]
            assert (own.reward, other.reward) == (whole.reward, 1.0 - (whole.reward or 0.0))
            ledger = read_ledger(record)
            assert ledger is not None
            assert audit(ledger).drift == 0
            items = [record[name]["output"][-1]["token_call"] for name in ("first", "review", "response")]
            assert [ledger.calls[number].policy for number in items] == [
                "policy_model",
                "reviewer_model",
                "policy_model",
            ]


async def test_policies_with_their_own_weights_in_one_stream(collector: gymnast.Collector) -> None:
    versions = {name: PolicyVersions([f"{name}-0"]) for name in ("policy_model", "reviewer_model")}
    options = StreamOptions(groups_in_flight=2, max_age=0)
    async with stream(collector, tasks(), generations=2, options=options, versions=versions) as groups:
        found = [(group.agent, group.policy) async for group in groups]
        figures = groups.figures()
    assert sorted(found) == [("author", "policy_model")] * 2 + [("reviewer", "reviewer_model")] * 2
    assert figures["policy/policy_model/samples"] == figures["policy/reviewer_model/samples"] == 4
    assert figures["policy/policy_model/weight_updates"] == 1


async def test_a_rollout_of_one_policy_among_several(collector: gymnast.Collector) -> None:
    batch = await collect_batch(collector, tasks("arithmetic_simple_agent"), generations=2)
    parts = [part for group in batch.groups for part in split_agents(group)]
    assert [(part.agent, part.policy, part.trainable) for part in parts] == [("", "policy_model", [True, True])] * 2


async def test_tokens_of_several_models_that_were_not_distinguished_are_a_failure(tmp_path: Path) -> None:
    async with gymnast.Collector(config=config_in(tmp_path, says_who=False)) as collector:
        records = [record async for _, record in collector.run(tasks()[:1], max_failed="100%", max_attempts=1)]
    assert [record.failure_kind for record in records] == ["model_bad_reply"]
    assert b"episode_agents" in records[0].line
