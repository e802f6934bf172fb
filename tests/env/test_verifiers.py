"""Environments of the package verifiers: conversations as messages, and episodes at a rollout's own URL. And the other
way round: its taskset for servers of NeMo Gym, with which prime-rl trains, against environments served here.

The package is not part of Gymnast: the first test that needs it has it installed into an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import gymnast
from gymnast import check_environment
from gymnast.builtin.resources_servers.verifiers.episodes import Episodes, IndexedTasks, to_messages
from gymnast.config import read_environ
from gymnast.config.roots import BUILTIN
from gymnast.errors import MissingRolloutsError, UserError
from gymnast.runtime.venvs import ensure_venv
from tests.helpers.commands import serving
from tests.helpers.environments import called, said
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

SCRIPTED = "policy_model.responses_api_models.scripted_model"


def test_a_conversation_as_messages() -> None:
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    output = {"type": "function_call_output", "call_id": "c", "output": "7"}
    items = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": "Add."}]
    found = to_messages(
        [*items, thought, said("Let me see."), called("add", {"a": 3}), output, said("7"), said("Yes.")]
    )
    assert found == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Add."},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "name": "add", "arguments": '{"a": 3}'}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "7"},
        {"role": "assistant", "content": "7"},
        {"role": "assistant", "content": "Yes."},
    ]


def test_a_taskset_that_loads_slowly_is_loaded_once_for_rollouts_that_begin_together() -> None:
    def load() -> Iterator[int]:
        for number in range(4):
            time.sleep(0.02)
            yield number

    tasks = IndexedTasks(load())
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(tasks.at, [3, 0, 2, 1, 3, 2, 0, 1])) == [3, 0, 2, 1, 3, 2, 0, 1]
    with pytest.raises(ValueError, match="no task at index 9: the taskset has 4 tasks"):
        tasks.at(9)


def test_without_the_package_it_is_named() -> None:
    try:
        import verifiers  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match="needs the package verifiers"):
            Episodes({"taskset": {"id": "example_sums"}})


STAND_IN = '''
from dataclasses import dataclass
from gymnast.kit import Environment, Task
from gymnast.wire.http_client import header_items, parse_target
from gymnast.wire.server import HttpError
import orjson

class T(Task):
    answer: str

@dataclass
class S:
    said: str = ""

class StandIn(Environment[T, S]):
    """Plays an episode as the package's harness does: one chat completion at the URL it is given."""
    def __init__(self, name, settings, context):
        super().__init__(name, settings, context)
        self.route("POST", "/run_episode", self.run_episode)

    async def open(self, task):
        return S()

    async def run_episode(self, request):
        asked = request.body
        headers = {"authorization": "Bearer EMPTY", "x-gymnast-key": asked["api_key"]}
        body = {"model": asked["model"], "messages": [{"role": "user", "content": "What is 3 + 4?"}]}
        target = parse_target(asked["base_url"] + "/chat/completions")
        reply = await self.context.http.request("POST", target, header_items(headers), orjson.dumps(body))
        if reply.status != 200:
            raise HttpError(500, "the harness gave up")
        async with self.sessions.use(request.session_id, exclusive=True) as session:
            session.said = orjson.loads(reply.body)["choices"][0]["message"]["content"]
        return {"ok": True}

    async def verify(self, attempt):
        return float(attempt.task.answer in attempt.session.said)
'''


def stand_in(folder: Path) -> list[str]:
    home = folder / "resources_servers" / "stand_in"
    home.mkdir(parents=True)
    (home / "app.py").write_text(STAND_IN)
    config = (BUILTIN / "resources_servers" / "verifiers" / "configs" / "verifiers.yaml").read_text()
    agent = config[config.index("verifiers_agent:") : config.index("      datasets:")].replace(
        "name: verifiers", "name: s"
    )
    text = "s:\n  resources_servers:\n    stand_in: {entrypoint: app.py, domain: other}\n" + agent
    (folder / "stand_in.yaml").write_text(text)
    return [str(folder / "stand_in.yaml")]


async def collected(folder: Path, reply: str, **options: Any) -> list[Any]:
    row = {"responses_create_params": {"input": "What is 3 + 4?", "temperature": 0.5}, "answer": "7"}
    records = gymnast.collect(
        write_jsonl(folder / "in.jsonl", [row]),
        folder / "out.jsonl",
        config_paths=stand_in(folder),
        model_type="scripted_model",
        overrides=[f"++{SCRIPTED}.replies=[{reply}]"],
        search_dirs=[folder],
        max_attempts=1,
        **options,
    )
    return [record async for record in records]


async def test_an_episode_at_the_rollouts_own_url(tmp_path: Path) -> None:
    (record,) = await collected(tmp_path, "'It is 7.'")
    assert record.reward == 1.0
    (kept,) = read_jsonl(tmp_path / "out.jsonl")
    assert kept["response"]["output"][-1]["content"][0]["text"] == "It is 7."
    (call,) = kept["ng_model_call_capture"]["calls"]
    assert call["dialect"] == "chat"


async def test_a_policy_that_is_down_is_not_a_reward(tmp_path: Path) -> None:
    with pytest.raises(MissingRolloutsError):
        await collected(tmp_path, "{status: 503}")
    (failed,) = read_jsonl(tmp_path / "out_failures.jsonl")
    assert failed["failure"]["layer"] == "model_serving"


async def test_a_taskset_of_the_package(tmp_path: Path) -> None:
    records = gymnast.collect(
        write_jsonl(tmp_path / "in.jsonl", example_rows("verifiers")),
        tmp_path / "out.jsonl",
        environments=["verifiers"],
        model_type="scripted_model",
        overrides=[f"++{SCRIPTED}.replies=['It is 7.']"],
    )
    found = sorted([record async for record in records], key=lambda record: record.key)
    assert [record.reward for record in found] == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert read_jsonl(tmp_path / "out.jsonl")[0]["stop_condition"] == "agent_completed"


async def test_it_conforms() -> None:
    report = await check_environment("verifiers")
    assert report.ok, str(report)


PLAY = """
import asyncio, json, sys
import verifiers.v1 as vf
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.graph import MessageNode
from verifiers.v1.tasksets.nemo_gym import NeMoGymConfig
from verifiers.v1.tasksets.nemo_gym.toolset import NeMoGymState
from verifiers.v1.trace import AgentInfo, Trace, TraceTask

async def play(task, calls, answer):
    about = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    agent = AgentInfo(config=AgentConfig(runtime={"type": "subprocess"}))
    trace = Trace(task=about, agent=agent, state=NeMoGymState())
    await task.setup(trace, None)
    messages = list(task.data.prompt)
    for number, (name, arguments) in enumerate(calls):
        call = {"id": f"c{number}", "type": "function", "name": name, "arguments": json.dumps(arguments)}
        reply = await trace.state.post(name, arguments)  # as its toolset does
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": reply.text})
    messages.append({"role": "assistant", "content": answer})
    roles = [m["role"] if isinstance(m, dict) else m.role for m in messages]
    trace.nodes = [
        MessageNode(parent=i - 1 if i else None, message=m, sampled=roles[i] == "assistant")
        for i, m in enumerate(messages)
    ]
    await task.score(trace)
    return [trace.reward, trace.metrics]

async def main():
    url, dataset, plays = sys.argv[1:]
    config = NeMoGymConfig(id="nemo_gym", dataset=dataset, task={"resources_url": url})
    tasks = list(vf.load_taskset(config))
    print(json.dumps([await play(task, *one) for task, one in zip(tasks, json.loads(plays))]))

asyncio.run(main())
"""


def test_the_packages_taskset_scores_with_an_environment_served_here(tmp_path: Path) -> None:
    folder = BUILTIN / "resources_servers" / "verifiers"
    python = asyncio.run(ensure_venv(folder, read_environ().cache_dir, tmp_path / "install.log"))
    rows = example_rows("shop_lookup")[:2]
    dataset = write_jsonl(tmp_path / "rows.jsonl", rows)
    item = next(iter(rows[0]["prices"]))
    plays = [[[["get_price", {"item": item}]], f"Answer: {rows[0]['expected_answer']}"], [[], "I do not know."]]
    arguments = ("-e", "shop_lookup", "--model-url", "http://127.0.0.1:9/v1", "-m", "m", "--endpoint-timeout", "0")
    with serving(tmp_path, *arguments) as served:
        url = served.url("shop_lookup_resources_server")
        done = subprocess.run(
            [python, "-c", PLAY, url, str(dataset), json.dumps(plays)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert (first[0], first[1]["lookups"]) == (1.0, 1.0)
    assert (second[0], second[1]["lookups"]) == (0.0, 0.0)
