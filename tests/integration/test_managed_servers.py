"""Engines as supervised children, with a real program: ports, readiness, deaths, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from gymnast.builtin.responses_api_models.local_vllm_model.app import LocalVLLMModel, LocalVLLMModelSettings
from gymnast.builtin.responses_api_models.local_vllm_model.serve_command import (
    custom_command,
    environment,
    option,
    served_name,
    vllm_command,
)
from gymnast.builtin.responses_api_models.local_vllm_model_proxy.app import (
    LocalVLLMModelProxy,
    LocalVLLMModelProxySettings,
)
from gymnast.errors import StartError
from gymnast.runtime.guard import descendants
from gymnast.runtime.listening_ports import listening_pids
from gymnast.runtime.managed_servers import ManagedServer, ManagedServerSpec
from gymnast.runtime.ports import bind_socket
from gymnast.wire.calls import Calls, Transport
from gymnast.wire.http_client import HttpClient
from gymnast.wire.message import Reply, Request
from gymnast.wire.server import ServerContext
from gymnast.wire.transports import InProcessTransport
from tests.helpers.commands import Served
from tests.helpers.waiting import eventually

PROGRAM = Path(__file__).parents[1] / "helpers" / "openai_server.py"


def order(*arguments: str, **options: Any) -> ManagedServerSpec:
    def command(port: int) -> list[str]:
        return [sys.executable, str(PROGRAM), "--port", str(port), *arguments]

    return replace(ManagedServerSpec(command, ready_timeout_s=20.0, first_pause_s=0.05), **options)


class Shop:
    """Makes engines and model servers, and stops them."""

    def __init__(self, stack: AsyncExitStack, http: HttpClient, folder: Path) -> None:
        self._stack = stack
        self.said: list[str] = []
        self.folder = folder
        self.http = http
        self.transports: dict[str, Transport] = {}
        self.context = ServerContext(Calls(self.transports), http, log_dir=folder)

    def engine(self, *arguments: str, **options: Any) -> ManagedServer:
        made = ManagedServer(
            "engine", order(*arguments, **options), self.folder / "engine.log", self.http, self.said.append
        )
        self._stack.push_async_callback(made.stop)
        return made

    async def model(self, *arguments: str, **settings: Any) -> LocalVLLMModel:
        command = [sys.executable, str(PROGRAM), "--port", "{port}", *arguments]
        asked = LocalVLLMModelSettings(**{"model": "small", "command": command, **settings})
        made = LocalVLLMModel("policy", asked, self.context)
        await made.start()
        self._stack.push_async_callback(made.stop)
        self.transports["policy"] = InProcessTransport(made)
        return made


@pytest.fixture
async def shop(http: HttpClient, tmp_path: Path) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        yield Shop(stack, http, tmp_path)


def ask(text: str = "hello") -> Request:
    return Request("POST", "/v1/responses", {"input": text})


def said(reply: Reply) -> str:
    assert reply.ok, reply
    return str(reply.body["output"][-1]["content"][0]["text"])


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def running_engines() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile
            if "openai_server" in " ".join(child.cmdline()):
                found.append(child)
    return found


async def offspring(record: Path) -> list[int]:
    await eventually(lambda: record.exists() and record.read_text().endswith("]"))
    return [int(pid) for pid in json.loads(record.read_text())]  # noqa: ASYNC240 - a few bytes


# --- one engine ------------------------------------------------------------------------------------------------------


async def test_an_engine_is_ready_when_it_answers_and_leaves_nothing_behind(shop: Shop) -> None:
    record = shop.folder / "pids"
    engine = shop.engine("--offspring", str(record), "--say", "hello")
    await engine.start()
    port = int(engine.url.rpartition(":")[2])
    pids = await offspring(record)
    assert pids[0] in listening_pids(port)  # another address of this host may have the same port
    assert engine.pid is not None
    assert set(pids) <= set(descendants(engine.pid))
    await engine.stop()
    assert not alive([*pids, engine.pid])
    assert "hello" in (shop.folder / "engine.log").read_text()


async def test_an_engine_that_does_not_listen_to_reason_is_killed(shop: Shop) -> None:
    engine = shop.engine("--deaf", "--offspring", str(shop.folder / "pids"), stop_s=0.2)
    await engine.start()
    pids = await offspring(shop.folder / "pids")
    await engine.stop()
    assert not alive(pids)


async def test_a_crash_while_starting_tells_the_end_of_its_log(shop: Shop) -> None:
    engine = shop.engine("--crash", "--offspring", str(shop.folder / "pids"))
    with pytest.raises(StartError, match="ended while starting \\(exit code 1\\)") as caught:
        await engine.start()
    assert "the weights are gone" in str(caught.value)
    assert str(shop.folder / "engine.log") in str(caught.value)
    assert not alive(await offspring(shop.folder / "pids"))


async def test_an_engine_that_never_becomes_ready_is_ended_at_the_deadline(shop: Shop) -> None:
    engine = shop.engine("--never-ready", "--offspring", str(shop.folder / "pids"), ready_timeout_s=1.0)
    with pytest.raises(StartError, match="not ready within 1 s"):
        await engine.start()
    if (shop.folder / "pids").exists():  # on a busy machine it is ended before it has begun
        assert not alive(await offspring(shop.folder / "pids"))


async def test_a_program_that_is_not_there_is_an_error_with_its_name(shop: Shop) -> None:
    engine = shop.engine(command=lambda port: ["/no/such/program", str(port)])
    with pytest.raises(StartError, match="exit code 127") as caught:
        await engine.start()
    assert "cannot run /no/such/program" in str(caught.value)


async def test_a_program_that_cannot_share_the_reserved_port_gets_another(shop: Shop) -> None:
    engine = shop.engine("--no-reuse")
    await engine.start()
    assert engine.state == "up"
    assert any("is taken; trying another" in text for text in shop.said)


async def test_a_stranger_on_the_port_is_not_taken_for_the_engine(shop: Shop) -> None:
    """Somebody else may listen there first and answer well: the engine itself fails and gets another port."""
    strangers: list[asyncio.Server] = []
    ports: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    loop = asyncio.get_running_loop()

    def command(port: int) -> list[str]:
        ports.append(port)
        if len(ports) == 1:
            sock = bind_socket("127.0.0.1", port, what="stranger", hint="")
            task = loop.create_task(asyncio.start_server(answer, sock=sock))
            task.add_done_callback(lambda done: strangers.append(done.result()))
        return [sys.executable, str(PROGRAM), "--port", str(port), "--slow-start-s", "0.5"]

    engine = shop.engine(command=command)
    await engine.start()
    assert len(ports) == 2
    assert engine.url.endswith(str(ports[1]))
    strangers[0].close()


async def test_a_killed_engine_comes_back_at_its_address(shop: Shop) -> None:
    engine = shop.engine("--offspring", str(shop.folder / "pids"))
    await engine.start()
    url, before = engine.url, await offspring(shop.folder / "pids")
    os.kill(before[0], signal.SIGKILL)
    await eventually(lambda: engine.state == "restarting")
    assert engine.last_death is not None
    assert "was killed by SIGKILL" in engine.last_death
    await eventually(lambda: engine.state == "up")
    assert (engine.url, engine.restarts) == (url, 1)
    assert not alive(before)


async def test_restarts_are_bounded(shop: Shop) -> None:
    engine = shop.engine("--crash-again", str(shop.folder / "mark"), max_restarts=2)
    await engine.start()
    assert engine.pid is not None
    os.kill(descendants(engine.pid)[0], signal.SIGKILL)
    await eventually(lambda: engine.state == "gone")
    assert engine.restarts == 2
    assert "could not be restarted" in (engine.last_death or "")


async def test_when_the_guard_is_killed_the_engine_dies_and_comes_back(shop: Shop) -> None:
    engine = shop.engine("--offspring", str(shop.folder / "pids"))
    await engine.start()
    before = await offspring(shop.folder / "pids")
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    await eventually(lambda: engine.restarts == 1 and engine.state == "up")
    assert not alive(before[:2])
    for pid in alive(before):  # had left the session: nobody is left who knows of it
        os.kill(pid, signal.SIGKILL)


async def test_engines_die_with_a_parent_that_is_killed(serve: Callable[..., Served], tmp_path: Path) -> None:
    command = json.dumps([sys.executable, str(PROGRAM), "--port", "{port}", "--offspring", str(tmp_path / "pids")])
    config = tmp_path / "model.yaml"
    config.write_text(
        "policy_model:\n  responses_api_models:\n    local_vllm_model:\n"
        f"      entrypoint: app.py\n      model: small\n      command: {command}\n"
    )
    served = serve("--config", str(config))
    pids = await offspring(tmp_path / "pids")
    tree = [child.pid for child in psutil.Process(served.process.pid).children(recursive=True)]
    assert set(pids) <= set(tree)
    served.process.kill()
    await eventually(lambda: not alive(tree))


# --- the model server ------------------------------------------------------------------------------------------------


async def test_the_model_server_answers_in_front_of_its_engines(shop: Shop) -> None:
    model = await shop.model(replicas=2, replica_env=[{"GPU": 0}, {"GPU": "1"}], api_key="key")
    replies = [said(await model.handle(ask())) for _ in range(8)]
    assert {reply.split()[-1] for reply in replies} == {"0", "1"}
    config = (await model.handle(Request("GET", "/get_inner_vllm_config"))).body
    assert config["api_key"] == "key"
    assert config["model"] == "small"
    assert model.server_group is not None
    assert config["base_url"] == [f"{engine.url}/v1" for engine in model.server_group.servers]
    assert (shop.folder / "policy.server0.log").exists()
    assert (shop.folder / "policy.server1.log").exists()


async def test_a_request_in_flight_fails_with_the_death_and_later_ones_wait_for_the_restart(shop: Shop) -> None:
    model = await shop.model("--slow-start-s", "0.3", max_attempts=2)
    assert model.server_group is not None
    (engine,) = model.server_group.servers
    hanging = asyncio.create_task(model.handle(ask("slowly")))
    await asyncio.sleep(0.2)
    assert engine.pid is not None
    os.kill(descendants(engine.pid)[0], signal.SIGKILL)
    await eventually(lambda: engine.state == "restarting")
    assert "gpu" in said(await model.handle(ask()))
    assert (engine.state, engine.restarts) == ("up", 1)
    hanging.cancel()


async def test_without_retries_a_request_in_flight_has_a_typed_failure(shop: Shop) -> None:
    model = await shop.model(max_attempts=2, max_restarts=0)
    assert model.server_group is not None
    (engine,) = model.server_group.servers
    hanging = asyncio.create_task(model.handle(ask("slowly")))
    await asyncio.sleep(0.2)
    assert engine.pid is not None
    os.kill(descendants(engine.pid)[0], signal.SIGKILL)
    reply = await hanging
    assert reply.failure is not None
    assert reply.failure.kind == "instance_died"
    assert "was killed by SIGKILL" in reply.failure.message
    late = await model.handle(ask())
    assert late.failure is not None
    assert late.failure.kind == "instance_died"
    assert "no inference server left" in late.failure.message


async def test_if_one_replica_cannot_start_none_is_left(shop: Shop) -> None:
    with pytest.raises(StartError, match="server 1 of policy ended while starting"):
        await shop.model(
            replicas=2,
            command=["sh", "-c", f"exec '{sys.executable}' '{PROGRAM}' --port {{port}} $BAD"],
            replica_env=[{}, {"BAD": "--crash"}],
        )
    await eventually(lambda: not running_engines())


async def test_a_proxy_uses_the_engines_of_another_server(shop: Shop) -> None:
    model = await shop.model()
    settings = LocalVLLMModelProxySettings.model_validate({"model_server": {"name": "policy"}, "extra_body": {"a": 1}})
    proxy = LocalVLLMModelProxy("judge", settings, shop.context)
    assert said(await proxy.handle(ask())) == said(await model.handle(ask()))
    await proxy.stop()


async def test_with_a_base_url_it_starts_nothing(shop: Shop) -> None:
    engine = shop.engine()
    await engine.start()
    model = await shop.model(base_url=f"{engine.url}/v1", command=None)
    assert model.server_group is None
    assert "gpu" in said(await model.handle(ask()))


async def test_a_missing_vllm_says_what_to_do(shop: Shop) -> None:
    with pytest.raises(StartError, match="cannot find the program 'no-vllm-here'") as caught:
        await shop.model(command=None, vllm_executable="no-vllm-here")
    assert "vllm_executable" in str(caught.value)


# --- from settings to commands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_model_len", 4096, ["--max-model-len", "4096"]),
        ("enable_prefix_caching", False, ["--no-enable-prefix-caching"]),
        ("trust_remote_code", True, ["--trust-remote-code"]),
        ("seed", None, []),
        ("hf_overrides", {"a": [1]}, ["--hf-overrides", '{"a": [1]}']),
        ("served_model_name", ["a", "b"], ["--served-model-name", "a", "b"]),
    ],
)
def test_options_of_vllm_serve(name: str, value: Any, words: list[str]) -> None:
    assert option(name, value) == words


def test_the_whole_command() -> None:
    command = vllm_command("vllm", "m", "127.0.0.1", 5, {"dtype": "float32"})
    assert command == ["vllm", "serve", "m", "--host", "127.0.0.1", "--port", "5", "--dtype", "float32"]
    words = ["run", "{model}@{host}:{port}", '{"json": 1}']
    assert custom_command(words, "m", "h", 5) == ["run", "m@h:5", '{"json": 1}']


def test_environment_and_served_name() -> None:
    variables = {"A": True, "B": 2, "VLLM_RAY_DP_PACK_STRATEGY": "strict"}
    assert environment(variables, {"B": 3}) == {"A": "1", "B": "3"}
    assert served_name("m", {}) == "m"
    assert served_name("m", {"served_model_name": ["x", "m"]}) == "m"
    assert served_name("m", {"served_model_name": "x"}) == "x"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"vllm_serve_kwargs": {"port": 1}}, "must not set port"),
        ({"replicas": 2, "replica_env": [{}]}, "1 entries for 2 replicas"),
        ({"command": ["serve"]}, "must contain {port}"),
    ],
)
def test_settings_that_do_not_fit(settings: Any, text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        LocalVLLMModelSettings.model_validate({"model": "m", **settings})


def test_settings_of_other_launchers_are_accepted() -> None:
    settings = LocalVLLMModelSettings.model_validate({
        "model": "m", "base_url": None, "ray_worker_py_executable": "python", "hf_home": "/hf", "debug": True,
        "vllm_serve_env_vars": {"VLLM_RAY_DP_PACK_STRATEGY": "strict"}, "show_vllm_engine_stats": True,
        "vllm_serve_kwargs": {"data_parallel_size": 1, "tensor_parallel_size": 1, "pipeline_parallel_size": 1},
    })  # fmt: skip
    assert settings.base_url == ""
