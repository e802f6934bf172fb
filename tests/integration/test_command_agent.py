"""Programs as agents: real processes that speak to the policy through the gateway, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gymnast.types.failure import Stage
from tests.helpers.command_worlds import CLIENT, Worlds, make_worlds, running
from tests.helpers.commands import BIN
from tests.helpers.jsonl import read_jsonl
from tests.helpers.waiting import eventually

ASKS_ONCE = "print(chat([user(sys.stdin.read())])['content'])"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Worlds]:
    async with make_worlds(tmp_path) as worlds:
        yield worlds


def outputs(record: Any) -> list[str]:
    return [str(item["type"]) for item in record["response"]["output"]]


# --- what works ------------------------------------------------------------------------------------------------------


async def test_a_program_that_asks_once(world: Worlds) -> None:
    found = world(ASKS_ONCE, ["the answer"])
    record = await found.record()
    assert found.sums.last_text == "the answer"
    assert outputs(record) == ["message"]
    assert record["response"]["usage"]["output_tokens"] == 2
    capture = record["ng_model_call_capture"]
    assert (capture["rollout_id"], capture["metrics"]["num_calls"]) == ("1-0", 1)
    (invocation,) = record["ng_agent_observations"]["records"]
    assert (invocation["exit_code"], invocation["stdout_tail"]) == (0, "the answer\n")
    assert not list(found.scratch.iterdir())
    assert found.sums.closed == 1


async def test_tools_are_called_by_the_program_in_the_rollouts_session(world: Worlds) -> None:
    program = """
    messages = [user(sys.stdin.read())]
    while True:
        said = chat(messages)
        messages.append(said)
        if not said.get("tool_calls"):
            break
        for call in said["tool_calls"]:
            url = os.environ["GYMNAST_TOOLS_URL"] + "/" + call["function"]["name"]
            output = send(url, json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    """
    add = {"tool_calls": [{"name": "add", "arguments": {"number": 4}}, {"name": "add", "arguments": {"number": 3}}]}
    record = await world(program, [add, add, "done"]).record()
    assert record["reward"] == 14.0
    assert outputs(record) == [*(["function_call"] * 2 + ["function_call_output"] * 2) * 2, "message"]
    kinds = [found["kind"] for found in record["ng_agent_observations"]["records"]]
    assert kinds == ["agent_invocation"] + ["tool_call"] * 4


async def test_sub_agents_and_compaction_are_segments(world: Worlds) -> None:
    program = """
    system = {"role": "system", "content": "main"}
    history = [system, user("the task")]
    for step in range(3):
        said = chat(history)
        task = json.loads(said["tool_calls"][0]["function"]["arguments"])["task"]
        answer = chat([{"role": "system", "content": f"helper {step}"}, user(task)])["content"]
        history += [said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": answer}]
    summary = chat(history + [user("summarize")])["content"]
    history = [system, user("the task; so far: " + summary)]
    print(chat(history)["content"])
    """
    delegate = {"tool_calls": [{"name": "delegate", "arguments": {"task": "count the moons of Mars"}}]}
    replies = [
        {"when": "count the moons", "replies": ["There are two."]},
        {"when": "^summarize", "replies": ["Three helpers found two moons."]},
        {"when": "so far", "replies": ["It is two."]},
        {"replies": [delegate]},
    ]
    found = world(program, replies)
    record = await found.record()
    capture = record["ng_model_call_capture"]
    segments = [(one["reason"], one["main"], len(one["calls"])) for one in capture["segments"]]
    assert segments == [("first", True, 4), *[("sub_agent", False, 1)] * 3, ("compacted", True, 1)]
    assert found.sums.last_text == "It is two."
    assert outputs(record)[:2] == ["function_call", "function_call_output"]
    assert any(one["kind"] == "context_compaction" for one in record["ng_agent_observations"]["records"])


@pytest.mark.parametrize(
    ("settings", "program"),
    [
        ({"prompt_via": "file"}, "chat([user(open(os.environ['GYMNAST_PROMPT_FILE']).read())])"),
        ({"prompt_via": "argument"}, "chat([user(sys.argv[1])])"),
        ({"environment": {"P": "{prompt}"}}, "chat([user(os.environ['P'])])"),
    ],
)
async def test_the_prompt_arrives(world: Worlds, settings: dict[str, Any], program: str) -> None:
    text = 'it\'s "$HOME" {prompt} `x`\n'
    found = world(program, ["x"], **settings)
    record = await found.record(text=text, instructions="Be brief.")
    assert record["ng_model_call_capture"]["messages"][0][0]["content"] == f"Be brief.\n\n{text}"


async def test_a_shell_command_is_given_the_prompt_as_its_argument(world: Worlds, tmp_path: Path) -> None:
    shell = f'{{python}} "{tmp_path}/program.py" "$1" > "$GYMNAST_ANSWER_FILE"; test {{rollout_id}} = 1-0'
    found = world("print(chat([user(sys.argv[1])])['content'].upper())", ["yes"], command=shell)
    found.agent.settings = found.agent.settings.model_copy(update={"prompt_via": "argument", "answer_from": "file"})
    record = await found.record(text="a; b 'c'")
    assert record["ng_model_call_capture"]["messages"][0][0]["content"] == "a; b 'c'"
    assert found.sums.last_text == "YES\n"


async def test_the_answer_may_be_what_the_program_prints(world: Worlds) -> None:
    found = world("chat([user('x')]); print('forty-two')", ["something"], answer_from="stdout")
    record = await found.record()
    assert found.sums.last_text == "forty-two\n"
    assert outputs(record) == ["message", "message"]


async def test_the_task_file_does_not_give_the_answer_away(world: Worlds) -> None:
    program = "chat([user(json.dumps(sorted(json.load(open(os.environ['GYMNAST_TASK_FILE'])))))])"
    seen = [(await world(program, ["x"], task_fields=fields).record()) for fields in ([], ["secret"])]
    contents = [one["ng_model_call_capture"]["messages"][0][0]["content"] for one in seen]
    assert contents[0] == '["responses_create_params", "rollout_id"]'
    assert "secret" in contents[1]


async def test_programs_do_not_see_our_variables(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_TOKEN", "hidden")
    record = await world("chat([user(str('CLOUD_TOKEN' in os.environ))])", ["x"]).record()
    assert record["ng_model_call_capture"]["messages"][0][0]["content"] == "False"


async def test_many_rollouts_at_once_do_not_mix(world: Worlds) -> None:
    program = """
    me = os.environ["GYMNAST_ROLLOUT_ID"]
    history = [user(me)]
    for _ in range(3):
        history.append(chat(history))
        history.append(user(me))
    """
    found = world(program, [{"text": "ok", "latency_s": 0.01}], timeout_s=100)
    replies = await asyncio.gather(*(found.run(rollout=number) for number in range(16)))
    for number, reply in enumerate(replies):
        assert reply.ok, reply.failure
        capture = reply.body["ng_model_call_capture"]
        assert [call["reason"] for call in capture["calls"]] == ["first", "extends", "extends"]
        asked = {item["content"] for entry in capture["messages"] for item in entry if item["role"] == "user"}
        assert asked == {f"1-{number}"}


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_a_used_up_turn_budget_is_an_outcome(world: Worlds) -> None:
    program = """
    history = [user("x")]
    while True:
        history += [chat(history), user("more")]
    """
    record = await world(program, ["a"], max_model_calls=3).record()
    assert record["response"]["incomplete_details"] == {"reason": "max_model_calls"}
    assert record["ng_model_call_capture"]["metrics"]["num_calls"] == 3
    (invocation,) = record["ng_agent_observations"]["records"]
    assert (invocation["ended_by"], invocation["exit_code"]) == ("max_model_calls", 1)
    assert "used its 3 model calls" not in invocation["stdout_tail"]


async def test_an_answer_that_was_cut_off_is_an_outcome_even_if_the_program_gives_up(world: Worlds) -> None:
    cut = {"text": "", "finish": "length"}
    record = await world("chat([user('x')]); sys.exit('no answer')", [cut]).record()
    assert record["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_a_program_that_hangs_is_killed_with_all_it_started(world: Worlds) -> None:
    program = """
    import subprocess, time
    chat([user("x")])
    mark = dict(os.environ, HERE="1")
    children = [subprocess.Popen(["sleep", "98.7"]), subprocess.Popen(["sleep", "98.7"], start_new_session=True)]
    time.sleep(99)
    """
    failure = await world(program, ["a"], timeout_s=5.0).failure()
    assert (failure.kind, failure.stage) == ("agent_timeout", Stage.AGENT)
    assert "after 1 answered model calls" in failure.message
    assert not running("98.7")


async def test_a_timeout_can_be_scored(world: Worlds) -> None:
    record = await world(
        "chat([user('x')])\nimport time; time.sleep(99)", ["a"], timeout_s=1.0, on_timeout="score"
    ).record()
    assert record["response"]["incomplete_details"] == {"reason": "timeout"}


async def test_what_a_program_leaves_running_is_ended(world: Worlds) -> None:
    program = """
    import subprocess
    chat([user("x")])
    subprocess.Popen(["sleep", "97.6"], start_new_session=True)
    subprocess.Popen(["sleep", "97.6"])
    """
    await world(program, ["a"]).record()
    assert not running("97.6")


async def test_a_cancelled_rollout_leaves_nothing(world: Worlds) -> None:
    found = world("import subprocess; subprocess.run(['sleep', '96.5'])", ["a"])
    rollout = asyncio.create_task(found.run())
    await eventually(lambda: bool(running("96.5")), within_s=60)
    rollout.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rollout
    assert not running("96.5")
    assert not list(found.scratch.iterdir())
    assert found.sums.closed == 1


async def test_output_is_bounded(world: Worlds) -> None:
    program = "chat([user('x')]); print('y' * 3_000_000); print('the end')"
    found = world(program, ["a"], max_output_bytes=1000, answer_from="stdout")
    record = await found.record()
    assert len(found.sums.last_text) == 1000
    assert found.sums.last_text.endswith("the end\n")
    assert record["ng_agent_observations"]["records"][0]["dropped_output_bytes"] > 2_000_000


# --- failures --------------------------------------------------------------------------------------------------------


async def test_an_exit_code_is_a_failure_with_the_end_of_the_output(world: Worlds, tmp_path: Path) -> None:
    found = world("chat([user('x')]); print('so far'); sys.exit('boom')", ["a"], keep_working_dir="on_failure")
    failure = await found.failure()
    assert (failure.kind, failure.instance) == ("agent_exited", "agent")
    assert failure.message.endswith("exited with code 1 after 1 answered model calls: boom")
    assert "so far" in failure.body
    (kept,) = found.scratch.iterdir()
    assert {"trace.json", "stderr.txt", "task.json"} <= {path.name for path in kept.iterdir()}


async def test_accepted_exit_codes_are_none(world: Worlds) -> None:
    assert (await world("chat([user('x')]); sys.exit(3)", ["a"], accept_exit_codes=[0, 3]).record())["reward"] == 0


async def test_a_killed_program_says_so(world: Worlds, tmp_path: Path) -> None:
    up = tmp_path / "up"
    found = world(f"chat([user('x')]); import time; open({str(up)!r}, 'w'); time.sleep(99)", ["a"])
    rollout = asyncio.create_task(found.failure())
    program = str(next(iter(found.agent.settings.command[1:])))
    await eventually(up.exists, within_s=60)
    for process in running(program):
        process.send_signal(signal.SIGKILL)
    assert "was killed by SIGKILL" in (await rollout).message


async def test_a_program_that_does_not_exist(world: Worlds) -> None:
    failure = await world("", ["a"], command=["no-such-program"]).failure()
    assert failure.kind == "agent_exited"
    assert "not found" in failure.message


async def test_a_program_that_never_asks_is_a_failure_with_a_hint(world: Worlds) -> None:
    assert (await world("print('42')", ["a"]).failure()).kind == "agent_no_model_call"


async def test_a_swallowed_model_failure_is_not_a_reward_of_zero(world: Worlds) -> None:
    program = """
    try:
        chat([user("x")])
    except Exception:
        print("never mind")
    """
    failure = await world(program, [{"status": 503}]).failure()
    assert (failure.kind, failure.stage) == ("model_overloaded", Stage.MODEL)
    assert failure.chain[-1] == "agent command"


async def test_a_model_failure_that_was_made_good_is_none(world: Worlds) -> None:
    program = """
    try:
        chat([user("first")])
    except Exception:
        chat([user("second")])
    """
    replies = [{"when": "first", "replies": [{"status": 503}]}, {"replies": ["fine"]}]
    record = await world(program, replies).record()
    assert record["ng_model_call_capture"]["metrics"]["failed_calls"] == 1


async def test_a_process_of_an_ended_rollout_cannot_write_into_another(world: Worlds, tmp_path: Path) -> None:
    program = "chat([user('x')]); print(os.environ['OPENAI_BASE_URL'], os.environ['OPENAI_API_KEY'])"
    found = world(program, ["a"], answer_from="stdout")
    await found.record()
    url, key = found.sums.last_text.split()
    late = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT + "chat([user('late')])"),
        env={**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": key},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await late.communicate()
    assert b"HTTP Error 404" in said
    record = await found.record(rollout=1)
    assert record["ng_model_call_capture"]["metrics"]["num_calls"] == 1


# --- the end of our own process --------------------------------------------------------------------------------------


async def test_programs_end_with_us_even_when_we_are_killed(tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from gymnast.runtime.command import CommandSpec, run_locally
command, variables = ("sh", "-c", "sleep 95.4 & sleep 95.4"), {{"PATH": {os.environ["PATH"]!r}}}
asyncio.run(run_locally(CommandSpec(command, variables, Path({str(tmp_path)!r}), "mark")))
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    await eventually(lambda: len(running("95.4")) >= 2, within_s=60)
    process.kill()
    await process.wait()
    await eventually(lambda: not running("95.4"), within_s=60)


# --- programs of others ----------------------------------------------------------------------------------------------

PYDANTIC_AI = """
import importlib
from pydantic_ai import Agent

module, _, name = sys.argv[1].partition(":")
model = getattr(importlib.import_module("pydantic_ai.models." + module), name)
agent = Agent(model(os.environ["OPENAI_MODEL"]), system_prompt="Use the tool.")

@agent.tool_plain
def add(number: int) -> str:
    '''Add a number.'''
    return send(os.environ["GYMNAST_TOOLS_URL"] + "/add", {"number": number})

print(agent.run_sync(sys.stdin.read()).output)
"""


@pytest.mark.parametrize(
    ("dialect", "model"),
    [
        ("chat", "openai:OpenAIChatModel"),
        ("responses", "openai:OpenAIResponsesModel"),
        ("messages", "anthropic:AnthropicModel"),
    ],
)
async def test_an_agent_loop_of_others_in_each_dialect(world: Worlds, tmp_path: Path, dialect: str, model: str) -> None:
    command = ["{python}", str(tmp_path / "program.py"), model]
    add = {"reasoning": "hm", "text": "I add.", "tool_calls": [{"name": "add", "arguments": {"number": 4}}]}
    record = await world(PYDANTIC_AI, [add, add, "done"], command=command, timeout_s=60).record()
    assert record["reward"] == 8.0
    turn = ["reasoning", "message", "function_call", "function_call_output"]
    assert outputs(record) == [*turn, *turn, "message"]
    calls = record["ng_model_call_capture"]["calls"]
    assert {call["dialect"] for call in calls} == {dialect}
    assert [call["reason"] for call in calls] == ["first", "extends", "extends"]
    assert record["ng_agent_observations"]["records"][0]["stdout_tail"] == "done\n"


def test_the_harness_of_the_how_to_works(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "any-harness.md"
    program, config, command = re.findall(r"^```\w+\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "harness.py").write_text(program)
    (tmp_path / "harness.yaml").write_text(config)
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", f"{command.strip()} --limit 2"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = read_jsonl(tmp_path / "out" / "weather.jsonl")
    assert [outputs(record) for record in records] == [["function_call", "function_call_output", "message"]] * 2
