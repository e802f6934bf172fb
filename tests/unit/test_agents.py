"""The shipped agents over scripted policies: the tool loop, its limits, what fails an attempt and what does not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gymnast.builtin.responses_api_agents.gymnasium_agent.app import GymnasiumAgent, GymnasiumAgentSettings
from gymnast.builtin.responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentSettings
from gymnast.builtin.responses_api_models.scripted_model.app import ScriptedModel, ScriptedModelSettings
from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    ModelRef,
    ResourcesRef,
    Step,
    StepEnvironment,
    Task,
    tool,
)
from gymnast.types.responses import sum_usage
from gymnast.wire.calls import Calls, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import InProcessTransport


class Log:
    def __init__(self) -> None:
        self.events: list[str] = []


class Lab(Environment[Task, Log]):
    """An environment that writes down what happens to it."""

    seen: list[Log]
    running = 0
    most_at_once = 0
    meeting = 1
    """How many calls of `slow` wait for each other."""

    async def open(self, task: Task) -> Log:
        self.seen = [*getattr(self, "seen", []), Log()]
        return self.seen[-1]

    async def close(self, session: Log) -> None:
        session.events.append("closed")

    @tool
    async def note(self, session: Log, text: str) -> str:
        """Write it down."""
        session.events.append(text)
        return f"noted {text}"

    @tool
    async def slow(self, session: Log) -> str:
        """Take a moment."""
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        while self.most_at_once < self.meeting:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        self.running -= 1
        return "slept"

    @tool
    async def crash(self, session: Log) -> str:
        """Fail."""
        raise RuntimeError("the lab burns")

    @tool
    async def hang(self, session: Log) -> str:
        """Never answer."""
        await asyncio.Event().wait()
        return ""

    async def verify(self, attempt: Attempt[Task, Log]) -> float:
        attempt.session.events.append("verified")
        return float(len(attempt.session.events))


class ParallelLab(Lab):
    parallel_tools = True
    meeting = 2


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


TOOLS: list[Any] = [
    {"type": "function", "name": name, "parameters": {}, "strict": None} for name in ("note", "slow", "crash", "hang")
]
ROW = {"responses_create_params": {"input": "go", "tools": TOOLS}, "_ng_task_index": 1, "_ng_rollout_index": 2}


class World:
    """A lab, a scripted policy and an agent in one process."""

    def __init__(self, replies: list[Any], *, lab: type[Lab] = Lab, **settings: Any) -> None:
        transports: dict[str, Transport] = {}
        self.calls = Calls(transports)
        context = ServerContext(self.calls, HttpClient())
        self.lab = lab("lab", EnvironmentSettings(), context)
        self.model = ScriptedModel("policy", ScriptedModelSettings(replies=replies), context)
        refs = {"resources_server": ResourcesRef(name="lab"), "model_server": ModelRef(name="policy")}
        self.agent = SimpleAgent("agent", SimpleAgentSettings(**refs, **settings), context)
        for server in (self.lab, self.model, self.agent):
            transports[server.name] = InProcessTransport(server)

    async def run(self, row: Any = ROW) -> Reply:
        return await self.calls.call("agent", "/run", row)

    def outputs(self, reply: Reply) -> list[str]:
        return [item["output"] for item in reply.body["response"]["output"] if item["type"] == "function_call_output"]


async def test_the_loop_calls_tools_until_the_model_answers() -> None:
    world = World([{"tool_calls": [call("note", text="a")]}, {"tool_calls": [call("note", text="b")]}, "done"])
    reply = await world.run()
    assert reply.status == 200
    assert world.lab.seen[0].events == ["a", "b", "verified", "closed"]
    kinds = [item["type"] for item in reply.body["response"]["output"]]
    assert kinds == ["function_call", "function_call_output", "function_call", "function_call_output", "message"]
    assert world.outputs(reply) == ["noted a", "noted b"]
    assert reply.body["reward"] == 3.0


async def test_usage_is_summed_over_turns() -> None:
    usage = {"input_tokens": 10, "output_tokens": 3}
    world = World([{"tool_calls": [call("note", text="a")], "usage": usage}, {"text": "x", "usage": usage}])
    found = (await world.run()).body["response"]["usage"]
    assert (found["input_tokens"], found["output_tokens"], found["total_tokens"]) == (20, 6, 26)
    known = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 1}
    full: Any = {**known, "output_tokens_details": {"reasoning_tokens": None}, "total_tokens": 2}
    total = sum_usage(full, full)
    assert total is not None
    assert total["input_tokens_details"]["cached_tokens"] == 2
    assert total["output_tokens_details"]["reasoning_tokens"] is None


@pytest.mark.parametrize(
    "name", ["verify", "seed_session", "aggregate_metrics", "close_session", "undeclared", "../x", ""]
)
async def test_a_model_reaches_declared_tools_only(name: str) -> None:
    world = World([{"tool_calls": [call(name)]}, "done"])
    reply = await world.run()
    assert reply.status == 200
    assert "There is no tool" in world.outputs(reply)[0]
    assert world.lab.seen[0].events == ["verified", "closed"]


@pytest.mark.parametrize(("tools", "reachable"), [([], "none"), (TOOLS[1:], "crash, hang, slow")])
async def test_a_row_can_restrict_or_refuse_the_environments_tools(tools: list[Any], reachable: str) -> None:
    world = World([{"tool_calls": [call("note", text="a")]}, "done"])
    reply = await world.run({**ROW, "responses_create_params": {"input": "go", "tools": tools}})
    assert f"Tools you may call: {reachable}" in world.outputs(reply)[0]


async def test_the_environments_tools_are_offered_if_the_row_names_none() -> None:
    world = World([{"tool_calls": [call("note", text="a")]}, "done"])
    row = {**ROW, "responses_create_params": {"input": "go"}}
    reply = await world.run(row)
    assert world.outputs(reply) == ["noted a"]
    offered = [tool["name"] for tool in reply.body["responses_create_params"]["tools"]]
    assert offered == sorted(world.lab.tools)  # the record says what was offered
    assert row["responses_create_params"] == {"input": "go"}


async def test_an_agent_that_offers_only_what_rows_declare() -> None:
    world = World([{"tool_calls": [call("note", text="a")]}, "done"], tools="row")
    reply = await world.run({**ROW, "responses_create_params": {"input": "go"}})
    assert "Tools you may call: none" in world.outputs(reply)[0]


@pytest.mark.parametrize("status", [404, 405])
async def test_an_environment_that_lists_no_tools_is_left_alone(status: int) -> None:
    world = World(["done"])
    send = world.lab.handle

    async def handle(request: Request) -> Reply:
        return Reply(status, {"detail": "Not Found"}) if request.path == "/tools" else await send(request)

    world.lab.handle = handle  # type: ignore[method-assign]
    reply = await world.run({**ROW, "responses_create_params": {"input": "go"}})
    assert reply.status == 200
    assert reply.body["responses_create_params"]["tools"] == []


async def test_a_failure_to_list_tools_fails_the_attempt_and_is_not_remembered() -> None:
    world = World(["done"])
    send, broken = world.lab.handle, True

    async def handle(request: Request) -> Reply:
        return Reply(503, "busy") if request.path == "/tools" and broken else await send(request)

    world.lab.handle = handle  # type: ignore[method-assign]
    row = {**ROW, "responses_create_params": {"input": "go"}}
    assert (await world.run(row)).status == 500
    broken = False
    reply = await world.run(row)
    assert len(reply.body["responses_create_params"]["tools"]) == len(world.lab.tools)


@pytest.mark.parametrize("arguments", ["{broken", "[1]", '"text"', "null"])
async def test_unparseable_arguments_are_reported_to_the_model(arguments: str) -> None:
    world = World([{"tool_calls": [{"name": "note", "arguments": arguments}]}, "done"])
    assert "Invalid tool call arguments" in world.outputs(await world.run())[0]


async def test_wrong_arguments_are_reported_to_the_model_as_the_server_said_it() -> None:
    world = World([{"tool_calls": [call("note", wrong=1)]}, "done"])
    detail = json.loads(world.outputs(await world.run())[0])["detail"]
    assert detail[0]["loc"] == ["body", "text"]


async def test_a_crashing_tool_fails_the_attempt_and_frees_the_session() -> None:
    world = World([{"tool_calls": [call("crash")]}, "done"])
    reply = await world.run()
    assert reply.status == 500
    assert reply.failure is not None
    assert (reply.failure.kind, reply.failure.stage, reply.failure.instance) == ("tool_error", "tool", "lab")
    assert "the lab burns" in reply.failure.message
    assert world.lab.seen[0].events == ["closed"]


async def test_a_hanging_tool_meets_its_deadline() -> None:
    world = World([{"tool_calls": [call("hang")]}, "done"], tool_timeout_s=0.1)
    reply = await world.run()
    assert reply.failure is not None
    assert reply.failure.kind == "tool_timeout"
    assert world.lab.seen[0].events == ["closed"]


async def test_a_hanging_model_meets_its_deadline() -> None:
    reply = await World([{"hang": True}], model_timeout_s=0.1).run()
    assert reply.failure is not None
    assert reply.failure.kind == "model_timeout"


async def test_tools_run_at_once_where_the_environment_allows_and_in_order_where_not() -> None:
    turn = {"tool_calls": [call("slow"), call("note", text="x"), call("slow")]}
    together = World([turn, "done"], lab=ParallelLab)
    assert together.outputs(await together.run()) == ["slept", "noted x", "slept"]
    assert together.lab.most_at_once == 2
    apart = World([turn, "done"])
    assert apart.outputs(await apart.run()) == ["slept", "noted x", "slept"]
    assert apart.lab.most_at_once == 1


async def test_one_of_several_parallel_tools_crashing_fails_the_attempt_once() -> None:
    world = World([{"tool_calls": [call("slow"), call("crash"), call("slow")]}, "done"], lab=ParallelLab)
    reply = await world.run()
    assert reply.failure is not None
    assert reply.failure.kind == "tool_error"


async def test_max_steps_ends_an_endless_loop_and_the_attempt_is_scored() -> None:
    world = World([{"tool_calls": [call("note", text="again")]}], max_steps=4)
    reply = await world.run()
    assert reply.status == 200
    assert world.lab.seen[0].events.count("again") == 3
    assert SimpleAgentSettings(resources_server={"name": "a"}, model_server={"name": "b"}).max_steps == 64


async def test_a_turn_of_reasoning_alone_is_not_an_answer() -> None:
    reply = await World([{"reasoning": "hm"}, "done"]).run()
    assert [item["type"] for item in reply.body["response"]["output"]] == ["reasoning", "message"]


async def test_a_cut_off_turn_ends_the_loop() -> None:
    reply = await World([{"tool_calls": [call("note", text="a")], "finish": "length"}, "never"]).run()
    assert reply.body["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert reply.body["reward"] == 1.0  # the tool was not called


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ({"status": 500}, "model_error"),
        ({"status": 429}, "model_rate_limited"),
        ({"status": 401, "body": "bad key"}, "model_auth"),
        ({"raw": "<html>"}, "model_bad_reply"),
        ({"raw": "[]"}, "model_bad_reply"),
    ],
)
async def test_a_failing_model_is_a_failure_and_never_a_reward(reply: Any, kind: str) -> None:
    found = await World([reply]).run()
    assert found.status == 500
    assert found.failure is not None
    assert found.failure.kind == kind
    assert found.failure.stage == "model"


async def test_skip_verification() -> None:
    reply = await World(["x"], skip_verification=True, skip_verification_reward=0.25).run()
    assert (reply.body["reward"], reply.body["verification_skipped"]) == (0.25, True)


async def test_a_row_that_does_not_fit_is_422_before_anything_happens() -> None:
    world = World(["x"])
    bad: list[Any] = [{}, {"responses_create_params": {}}, {"responses_create_params": {"input": 3}}]
    for row in bad:
        assert (await world.run(row)).status == 422
    assert not hasattr(world.lab, "seen")


async def test_responses_alone_neither_seeds_nor_verifies() -> None:
    world = World(["hello"])
    reply = await world.calls.call("agent", "/v1/responses", {"input": "hi"})
    assert reply.body["output"][0]["content"][0]["text"] == "hello"
    assert not hasattr(world.lab, "seen")


async def test_cancelling_an_attempt_frees_its_session() -> None:
    world = World([{"tool_calls": [call("hang")]}])
    task = asyncio.create_task(world.run())
    while not hasattr(world.lab, "seen"):
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert world.lab.seen[0].events == ["closed"]


# --- the step loop ---------------------------------------------------------------------------------------------------


class Guess(StepEnvironment[Task, list[int]]):
    """Rewards 0.25 for each turn; the third ends it. `closed` counts closings."""

    closed = 0
    steps_seen: list[Any]

    async def reset(self, task: Task) -> tuple[list[int], str | None]:
        return [], "guess a number"

    async def step(self, turn: Attempt[Task, list[int]]) -> Step:
        turn.session.append(1)
        over = len(turn.session) == 3
        return Step(observation=f"turn {len(turn.session)}", reward=0.25, terminated=over)

    async def close(self, session: list[int]) -> None:
        self.closed += 1


def game(replies: list[Any], environment: Any = Guess, **settings: Any) -> tuple[Any, Calls]:
    transports: dict[str, Transport] = {}
    calls = Calls(transports)
    context = ServerContext(calls, HttpClient())
    guess = environment("game", EnvironmentSettings(), context)
    refs = {"resources_server": ResourcesRef(name="game"), "model_server": ModelRef(name="policy")}
    agent = GymnasiumAgent("agent", GymnasiumAgentSettings(**refs, **settings), context)
    model = ScriptedModel("policy", ScriptedModelSettings(replies=replies), context)
    transports |= {
        "game": InProcessTransport(guess),
        "agent": InProcessTransport(agent),
        "policy": InProcessTransport(model),
    }
    return guess, calls


async def test_an_episode_sums_its_rewards_and_keeps_its_observations() -> None:
    guess, calls = game(["one", "two", "three"])
    body = (await calls.call("agent", "/run", ROW)).body
    assert (body["reward"], body["num_steps"], body["terminated"], body["truncated"]) == (0.75, 3, True, False)
    roles = [item.get("role") for item in body["response"]["output"]]
    assert roles == ["assistant", "user", "assistant", "user", "assistant"]
    assert body["responses_create_params"]["input"][-1]["content"] == "guess a number"
    assert guess.closed == 1


async def test_an_episode_is_truncated_at_max_steps_and_closed() -> None:
    guess, calls = game(["x"], max_steps=2)
    body = (await calls.call("agent", "/run", ROW)).body
    assert (body["num_steps"], body["terminated"], body["truncated"], body["reward"]) == (2, False, True, 0.5)
    assert body["response"]["output"][-1]["content"] == "turn 2"
    assert guess.closed == 1


async def test_the_last_step_is_kept_as_the_environment_told_it() -> None:
    class Told(Guess):
        async def reset(self, task: Task) -> tuple[list[int], str | None]:
            return [], ""

        async def step(self, turn: Attempt[Task, list[int]]) -> Step:
            return Step(reward=0.1, terminated=True, truncated=True, info={"result": "win"})

    _, calls = game(["x"], environment=Told)
    body = (await calls.call("agent", "/run", ROW)).body
    assert (body["terminated"], body["truncated"], body["info"]) == (True, True, {"result": "win"})
    assert [item["content"] for item in body["responses_create_params"]["input"]] == ["go"]


async def test_a_failing_policy_closes_the_episode() -> None:
    guess, calls = game([{"status": 503}])
    reply = await calls.call("agent", "/run", ROW)
    assert reply.failure is not None
    assert reply.failure.kind == "model_overloaded"
    assert guess.closed == 1


async def test_step_ids_are_sent_to_environments_that_want_them_and_tool_outputs_come_back() -> None:
    seen: list[dict[str, Any]] = []

    class Foreign(Guess):
        async def handle(self, request: Request) -> Reply:
            if request.path == "/reset":
                return Reply(200, {"observation": None, "info": {"supports_step_idempotency": True}})
            seen.append(request.body)
            info = {"tool_outputs": [{"call_id": "c1", "output": "42"}]}
            return Reply(
                200, {"observation": None, "reward": 1, "terminated": len(seen) == 2, "truncated": False, "info": info}
            )

    _, calls = game([{"tool_calls": [{"name": "f", "call_id": "c1"}]}, "done"], environment=Foreign)
    body = (await calls.call("agent", "/run", ROW)).body
    assert len({step["_ng_step_request_id"] for step in seen}) == 2
    assert {"type": "function_call_output", "call_id": "c1", "output": "42"} in body["response"]["output"]
    assert body["reward"] == 2.0


async def test_a_step_without_a_finite_reward_is_a_failure() -> None:
    class Broken(Guess):
        async def handle(self, request: Request) -> Reply:
            if request.path == "/step":
                return Reply(200, {"observation": None, "reward": None, "terminated": True})
            return await super().handle(request)

    _, calls = game(["x"], environment=Broken)
    reply = await calls.call("agent", "/run", ROW)
    assert reply.failure is not None
    assert reply.failure.kind == "verifier_bad_reply"
