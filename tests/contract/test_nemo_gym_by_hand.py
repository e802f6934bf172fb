"""Servers that nobody hosts: started as `python app.py`, by a person or by a launcher; and their tests by `ng_test`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymnast.wire.http_client import HttpClient, header_items, parse_target
from tests.contract.nemo_gym_policy import CHECKOUT
from tests.helpers.command_functions import invoke_command
from tests.helpers.commands import DEMO_POLICY
from tests.helpers.jsonl import read_jsonl

INSTANCE = {
    "entrypoint": "app.py",
    "domain": "other",
    "host": "127.0.0.1",
    "factors": {"feet": "${feet}"},
}


@dataclass(frozen=True)
class Program:
    """A running `python app.py`."""

    url: str
    process: subprocess.Popen[str]

    def interrupt(self) -> str:
        """Press Ctrl-C, and wait for its end; what it says meanwhile."""
        assert self.process.stderr is not None
        self.process.send_signal(signal.SIGINT)
        said = self.process.stderr.read()
        self.process.wait()
        return said


@contextmanager
def running(app: str, *arguments: str, cwd: Path, env: dict[str, str] | None = None) -> Iterator[Program]:
    """`python app.py`, as soon as it listens."""
    process = subprocess.Popen(
        [sys.executable, str(CHECKOUT / app), *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said, url = "", ""
        for line in process.stderr:
            said += line
            match = re.search(r"serving \S+ at (http://\S+)", line)
            url = match[1] if match else url
            if url and "startup complete" in line:
                yield Program(url, process)
                return
        pytest.fail(said)
    finally:
        process.terminate()
        process.wait(timeout=60)
        if process.stderr is not None:
            process.stderr.close()


async def post(http: HttpClient, url: str, body: Any) -> Any:
    headers = header_items({"content-type": "application/json"})
    answer = await http.request("POST", parse_target(url), headers, json.dumps(body).encode())
    return answer.status, json.loads(answer.body)


ROW = {
    "responses_create_params": {"input": "how many?"},
    "response": {
        "id": "r",
        "created_at": 0,
        "model": "m",
        "object": "response",
        "output": [
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "3.28", "annotations": []}],
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
    "metres": 1.0,
    "unit": "feet",
}


async def test_a_launcher_says_which_instance_of_which_configuration_and_ends_it_by_an_interrupt(
    http: HttpClient, tmp_path: Path
) -> None:
    config = {"feet": 3.28084, "converter": {"resources_servers": {"unit_converter": INSTANCE}}}
    told = {"NEMO_GYM_CONFIG_DICT": yaml.safe_dump(config), "NEMO_GYM_CONFIG_PATH": "converter"}
    with running("resources_servers/unit_converter/app.py", cwd=tmp_path, env=told) as program:
        url = program.url
        status, row = await post(http, f"{url}/verify", ROW)
        assert (status, row["reward"]) == (200, 1.0)
        status, said = await post(http, f"{url}/verify", {**ROW, "unit": "parsecs"})
        assert (status, said) == (500, "KeyError('parsecs')")
        status, said = await post(http, f"{url}/ng-rollout/1-0/verify", {})
        assert (status, said["detail"][0]["loc"]) == (422, ["body", "responses_create_params"])
        _, mark, ending = (await asyncio.to_thread(program.interrupt)).partition("Shutting down")
        assert mark
        assert "Traceback" not in ending
        assert program.process.returncode == 0


async def test_by_hand_with_a_configuration_on_the_command_line(http: HttpClient, tmp_path: Path) -> None:
    config = "+config_paths=[resources_servers/weather_desk/configs/weather_desk.yaml]"
    policy = "++policy_model.responses_api_models.scripted_model={entrypoint: app.py, replies: [x]}"
    env = {"NEMO_GYM_EXTRA_ROOTS": str(CHECKOUT)}
    with running("resources_servers/weather_desk/app.py", config, policy, cwd=tmp_path, env=env) as program:
        assert (await post(http, f"{program.url}/get_weather", {"city": "Rome"}))[1][
            "weather"
        ] == "It is sunny in Rome."


async def test_servers_started_one_by_one_reach_each_other_over_http(http: HttpClient, tmp_path: Path) -> None:
    from gymnast.compat.nemo_gym.global_config import find_open_port

    here = {"entrypoint": "app.py", "host": "127.0.0.1"}
    ports = {name: find_open_port() for name in ("bee", "echo", "agent")}
    refs = {
        "resources_server": {"type": "resources_servers", "name": "bee"},
        "model_server": {"type": "responses_api_models", "name": "echo"},
    }
    config = {
        "bee": {"resources_servers": {"spelling_bee": {**here, "domain": "other", "port": ports["bee"]}}},
        "echo": {"responses_api_models": {"echo_model": {**here, "shout": False, "port": ports["echo"]}}},
        "agent": {"responses_api_agents": {"two_try_agent": {**here, **refs, "port": ports["agent"]}}},
    }
    apps = {
        "bee": "resources_servers/spelling_bee/app.py",
        "echo": "responses_api_models/echo_model/app.py",
        "agent": "responses_api_agents/two_try_agent/app.py",
    }
    from contextlib import ExitStack

    with ExitStack() as stack:
        urls = {}
        for name, app in apps.items():
            told = {"NEMO_GYM_CONFIG_DICT": yaml.safe_dump(config), "NEMO_GYM_CONFIG_PATH": name}
            urls[name] = stack.enter_context(running(app, cwd=tmp_path, env=told)).url
        row = {"responses_create_params": {"input": "Spell cat"}, "word": "cat"}
        status, record = await post(http, f"{urls['agent']}/run", row)
        assert (status, record["reward"], record["tries"]) == (200, 1.0, 1)


def test_by_hand_without_a_configuration_it_says_what_it_needs() -> None:
    folder = CHECKOUT / "resources_servers" / "weather_desk"
    done = subprocess.run([sys.executable, "app.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "python app.py '+config_paths=[resources_servers/weather_desk/configs/" in done.stderr


@pytest.mark.parametrize("way", ["search dir", "extra root", "current folder"])
def test_a_checkout_is_found(way: str, tmp_path: Path) -> None:
    words = ["collect", "-e", "weather_desk", "-c", DEMO_POLICY, "-o", str(tmp_path / "out.jsonl")]
    words += ["-i", "resources_servers/weather_desk/data/example.jsonl"]
    words += ["--search-dir", str(CHECKOUT)] if way == "search dir" else []
    env = {"NEMO_GYM_EXTRA_ROOTS": str(CHECKOUT)} if way == "extra root" else {}
    done = invoke_command(CHECKOUT if way == "current folder" else tmp_path, "gymnast", *words, env=env)
    assert done.code == 0, done.err
    assert [row["reward"] for row in read_jsonl(tmp_path / "out.jsonl")] == [1.0] * 5


def test_the_tests_of_a_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    env = {"NEMO_GYM_EXTRA_ROOTS": str(CHECKOUT)}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"}  # others are slow to load
    done = invoke_command(tmp_path, "ng_test", "+entrypoint=resources_servers/weather_desk", env=env)
    printed = capfd.readouterr().out
    assert done.code == 0, printed + done.err
    assert "5 passed" in printed
    assert invoke_command(tmp_path, "ng_test", "+entrypoint=resources_servers/nowhere", env=env).code == 1


def test_the_tests_of_a_server_directly() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--confcutdir", ".", "-p", "no:cacheprovider"]
    folder = CHECKOUT / "resources_servers" / "tally_counter"
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they need none
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
