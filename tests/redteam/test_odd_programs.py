"""Programs that misbehave as agents: never a hang, a wrong 0, a leaked secret or a process left behind."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gymnast.builtin.responses_api_agents.command_agent.app import CommandAgentSettings
from gymnast.builtin.responses_api_agents.command_agent.program import check_program
from gymnast.errors import UserError
from tests.helpers.command_worlds import Worlds, make_worlds, running

ADD = {"tool_calls": [{"name": "add", "arguments": {"number": 4}}]}
MCP_LOOP = """
import subprocess
def mcp(method, **params):
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.loads(send(os.environ["GYMNAST_MCP_URL"], request))["result"]
def functions(prefix=""):
    return [{"type": "function", "function": {"name": prefix + t["name"], "parameters": t["inputSchema"]}}
            for t in mcp("tools/list")["tools"]]
"""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Worlds]:
    async with make_worlds(tmp_path) as worlds:
        yield worlds


@pytest.fixture
def nap() -> str:
    """How long a process sleeps: an argument that no other process has."""
    return f"9{secrets.randbelow(10**6):06}.5"


# --- processes -------------------------------------------------------------------------------------------------------


async def test_a_program_that_ignores_sigterm(world: Worlds, nap: str) -> None:
    program = f"""
    import signal, subprocess, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    chat([user("x")])
    subprocess.Popen(["sleep", "{nap}"], preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    time.sleep(99)
    """
    assert (await world(program, ["a"], timeout_s=1.0).failure()).kind == "agent_timeout"
    assert not running(nap)


async def test_a_program_that_stops_itself(world: Worlds) -> None:
    program = "import signal; chat([user('x')]); os.kill(os.getpid(), signal.SIGSTOP)"
    assert (await world(program, ["a"], timeout_s=1.0).failure()).kind == "agent_timeout"


@pytest.mark.parametrize("ending", ["", "import time; time.sleep(99)", "os._exit(3)"], ids=["exit", "hang", "fail"])
async def test_a_daemon_without_our_variables(world: Worlds, nap: str, ending: str) -> None:
    program = f"""
    chat([user("x")])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvpe("sleep", ["sleep", "{nap}"], {{"PATH": os.environ["PATH"]}})
        os._exit(0)
    os.wait()
    {ending}
    """
    await world(program, ["a"], timeout_s=1.5).run()
    assert not running(nap)


async def test_processes_that_keep_forking(world: Worlds, nap: str) -> None:
    program = f"""
    chat([user("x")])
    import subprocess, time
    end = time.time() + 120
    for _ in range(4):
        if os.fork() == 0:
            os.setsid()
            while time.time() < end:  # a test that fails must not leave them for ever
                if os.fork():
                    time.sleep(0.02)
                    os._exit(0)
                os.setsid()
    subprocess.Popen(["sleep", "{nap}"], start_new_session=True, env={{}})
    """
    await world(program, ["a"]).record()
    assert not running(nap)
    assert not running("program.py")


async def test_a_program_that_kills_its_own_group(world: Worlds) -> None:
    failure = await world("import signal; chat([user('x')]); os.killpg(0, signal.SIGKILL)", ["a"]).failure()
    assert failure.kind in {"agent_exited", "out_of_memory"}
    assert "SIGKILL" in failure.message


async def test_a_child_that_keeps_the_output_open(world: Worlds, nap: str) -> None:
    program = (
        f"chat([user('x')])\nimport subprocess; subprocess.Popen(['sleep', '{nap}'], start_new_session=True, env={{}})"
    )
    await world(program, ["a"], answer_from="stdout").record()
    assert not running(nap)


# --- endings ---------------------------------------------------------------------------------------------------------


async def test_exit_0_without_doing_anything(world: Worlds) -> None:
    assert (await world("", ["a"]).failure()).kind == "agent_no_model_call"


async def test_exit_0_after_a_swallowed_error_of_the_policy(world: Worlds) -> None:
    program = "try: chat([user('x')])\nexcept Exception: pass"
    assert (await world(program, [{"status": 503}]).failure()).kind == "model_overloaded"


async def test_a_failing_exit_after_the_answer_is_not_a_score(world: Worlds) -> None:
    failure = await world("chat([user('x')]); sys.exit(3)", ["a"]).failure()
    assert (failure.kind, "code 3" in failure.message) == ("agent_exited", True)


async def test_a_program_that_gives_up_on_a_slow_policy(world: Worlds) -> None:
    program = """
    import socket
    socket.setdefaulttimeout(0.3)
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "messages": [user("x")]}).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    try: urllib.request.urlopen(request, timeout=0.3)
    except Exception: print("no answer")
    """
    failure = await world(program, [{"text": "a", "latency_s": 5}]).failure()
    assert failure.kind == "agent_no_model_call"


async def test_a_program_that_leaves_in_the_middle_of_a_stream(world: Worlds) -> None:
    program = """
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "stream": True, "messages": [user("x")]}).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    urllib.request.urlopen(request).read(5)
    os._exit(0)
    """
    record = await world(program, ["word " * 2000]).record()
    assert record["response"]["usage"]["output_tokens"] == 2000


# --- tools -----------------------------------------------------------------------------------------------------------


async def test_a_policy_that_is_asked_before_the_tools_are_connected_is_not_scored(world: Worlds) -> None:
    program = MCP_LOOP + "chat([user('x')]); mcp('tools/list')"
    failure = await world(program, ["no tools here"], offers_tools=True).failure()
    assert failure.kind == "agent_no_tools"
    assert "add" in failure.message


async def test_tools_that_are_offered_late_are_fine(world: Worlds) -> None:
    program = MCP_LOOP + "message = chat([user('x')])\nchat([user('x'), message, user('y')], tools=functions())"
    assert (await world(program, ["a", "b"], offers_tools=True).record())["reward"] == 0.0


async def test_verifiers_see_the_environments_names_of_tools(world: Worlds) -> None:
    program = MCP_LOOP + "chat([user('x')], tools=functions('mcp__gymnast__'))"
    replies = [{"tool_calls": [{"name": "mcp__gymnast__add", "arguments": {"number": 4}}]}]
    record = await world(program, replies, offers_tools=True).record()
    assert record["response"]["output"][0]["name"] == "add"
    assert record["ng_model_call_capture"]["messages"][1][0]["name"] == "mcp__gymnast__add"


async def test_tools_over_stdio(world: Worlds) -> None:
    program = """
    import subprocess
    server = subprocess.Popen([os.environ["P"], "-I", os.environ["BRIDGE"]], stdin=-1, stdout=-1, text=True)
    def ask(method, number=1, **params):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())
    ask("initialize")
    server.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\\n')
    assert ask("tools/list", 2)["result"]["tools"][0]["name"] == "add"
    assert ask("nonsense", 3)["error"]
    server.stdin.write("not json\\n")
    server.stdin.flush()
    assert json.loads(server.stdout.readline())["error"]
    ask("tools/call", 4, name="add", arguments={"number": 4})
    chat([user("x")])
    """
    record = await world(program, ["a"], environment={"P": "{python}", "BRIDGE": "{mcp_stdio}"}).record()
    assert record["reward"] == 4.0


async def test_tools_in_a_shell(world: Worlds) -> None:
    program = """
    import subprocess
    prompt = sys.stdin.read()
    assert "- add:" in prompt and "tool NAME" in prompt
    def tool(*words):
        return subprocess.run(["tool", *words], capture_output=True, text=True)
    assert tool().returncode == 0
    assert tool("add", '{"number": 4}').stdout == "sum 4\\n"
    assert "422" in tool("add", '{"number": "many"}').stderr
    assert "not JSON" in tool("add", "{").stderr
    assert "404" in tool("nothing").stderr
    chat([user("x")])
    """
    assert (await world(program, ["a"], tools_in_prompt=True).record())["reward"] == 4.0


# --- files and texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "os.mkfifo(answer)",
        "os.symlink('/dev/zero', answer)",
        "os.symlink(answer, answer)",
        "os.mkdir(answer)",
        "os.chmod(os.path.dirname(answer), 0)",
    ],
    ids=["pipe", "device", "loop", "folder", "locked"],
)
async def test_an_answer_that_is_not_a_file(world: Worlds, statement: str) -> None:
    program = f"chat([user('x')]); answer = os.environ['GYMNAST_ANSWER_FILE']; {statement}"
    found = world(program, ["the policy's words"], answer_from="file")
    await found.record()
    assert found.sums.last_text == "the policy's words"
    assert not list(found.scratch.iterdir())


async def test_an_enormous_answer_is_cut(world: Worlds) -> None:
    program = (
        "chat([user('x')]); os.truncate(os.open(os.environ['GYMNAST_ANSWER_FILE'], os.O_CREAT | os.O_RDWR), 10**11)"
    )
    found = world(program, ["a"], answer_from="file", max_output_bytes=1000)
    await found.record()
    assert len(found.sums.last_text) <= 1000


async def test_secrets_that_a_program_prints_are_not_in_its_record(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_TOKEN", "hunter2-hunter2-77")
    program = "chat([user('x')]); print(dict(os.environ)); print(dict(os.environ), file=sys.stderr); "
    settings: Any = {"inherit_environment": ["PATH", "CLOUD_TOKEN"], "environment": {"DB_PASSWORD": "swordfish-1234"}}
    for ending in ("", "sys.exit(1)"):
        reply = await world(program + ending, ["a"], **settings).run()
        text = json.dumps(reply.body, default=str) + str(reply.failure)
        for secret in ("hunter2", "swordfish", "sk-gymnast-"):
            assert secret not in text


async def test_a_folder_that_resists_removal(world: Worlds) -> None:
    program = """
    chat([user("x")])
    here = os.getcwd()
    for _ in range(1500):
        os.mkdir("d"); os.chdir("d")
    os.chdir(here)
    os.mkdir("locked"); open("locked/file", "w").close(); os.chmod("locked", 0)
    """
    found = world(program, ["a"])
    await found.record()
    assert not list(found.scratch.iterdir())


async def test_a_program_that_removes_its_own_folder(world: Worlds) -> None:
    program = "import shutil; chat([user('x')]); shutil.rmtree(os.path.dirname(os.environ['GYMNAST_TASK_FILE']))"
    found = world(program, ["a"], answer_from="file")
    await found.record()
    assert not list(found.scratch.iterdir())


@pytest.mark.parametrize(("text", "reason"), [("x" * 300_000, "too long"), ("a\0b", "NUL")], ids=["long", "nul"])
async def test_a_prompt_that_cannot_be_an_argument(world: Worlds, text: str, reason: str) -> None:
    failure = await world("chat([user('x')])", ["a"], prompt_via="argument").failure(text=text)
    assert reason in failure.message
    assert "prompt_via" in failure.message
    assert (await world("chat([user(sys.stdin.read())])", ["a"]).record(text=text))["reward"] == 0.0


async def test_a_home_that_cannot_be_written(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc/no-home")
    program = "open(os.path.expanduser('~/settings'), 'w').close(); chat([user('x')])"
    await world(program, ["a"], own_home=True).record()
    assert (await world(program, ["a"]).failure()).kind == "agent_exited"


@pytest.mark.parametrize(
    ("contents", "mode", "reason"),
    [(None, 0, "was not found"), ("#!/bin/sh\n", 0o644, "not executable"), ("#!/no/such/sh\n", 0o755, "/no/such/sh")],
    ids=["missing", "not_executable", "no_interpreter"],
)
async def test_a_program_that_cannot_start(tmp_path: Path, contents: str | None, mode: int, reason: str) -> None:
    path = tmp_path / "agent"
    if contents is not None:
        path.write_text(contents)
        path.chmod(mode)
    refs: Any = {
        "resources_server": {"type": "resources_servers", "name": "e"},
        "model_server": {"type": "responses_api_models", "name": "m"},
    }
    settings = CommandAgentSettings(command=[str(path)], install="make install", **refs)
    with pytest.raises(UserError, match=reason):
        check_program(settings, "agent")


async def test_a_script_relative_to_where_gymnast_started(
    world: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    for command in ([sys.executable, "program.py"], ["./python", "./program.py"]):
        await world("chat([user('x')])", ["a"], command=command).record()
