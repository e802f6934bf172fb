"""`gymnast serve` and `gymnast status` with real processes: ports, tokens, children, deaths, venvs."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import yaml

from tests.support import DEMO_POLICY, Outcome, Served, example_rows

Run = Callable[..., Outcome]
Serve = Callable[..., Served]

MCQA = ("-e", "mcqa", "-c", DEMO_POLICY)
MCQA_CHILD = (*MCQA, "++mcqa.resources_servers.mcqa.runs_in=child")


def get(url: str, headers: dict[str, str] | None = None, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    try:
        connection.request(method, parts.path or "/", json.dumps(body) if body is not None else None, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith(("{", "[", '"')) else text
    finally:
        connection.close()


def wait_until(check: Callable[[], bool], within_s: float = 5.0) -> float:
    started = time.monotonic()
    while not check():
        assert time.monotonic() - started < within_s, "it did not happen in time"
        time.sleep(0.02)
    return time.monotonic() - started


@pytest.mark.usefixtures("own_registry")
def test_status_counts_what_is_healthy(run: Run, serve: Serve) -> None:
    none = run("gymnast", "status")
    assert none.code == 2
    assert "no serve is running" in none.err
    served = serve(*MCQA)
    for command in (("gymnast", "status"), ("ng_status",)):
        found = run(*command)
        assert found.code == 0, found.err
        assert "3 healthy, 0 unhealthy" in found.out
    told = run("gymnast", "status", "--json").json()
    assert (told["healthy"], told["unhealthy"]) == (3, 0)
    assert [serve["head"] for serve in told["serves"]] == [served.head]
    names = {entry["name"] for entry in told["serves"][0]["instances"]}
    assert names == {"mcqa", "mcqa_simple_agent", "policy_model"}


@pytest.mark.usefixtures("own_registry")
def test_a_killed_child_is_noticed_reported_and_started_again(run: Run, serve: Serve) -> None:
    served = serve(*MCQA_CHILD)
    child = served.pid("mcqa")
    assert child != served.process.pid
    assert served.pid("policy_model") == served.process.pid
    os.kill(child, signal.SIGKILL)
    assert wait_until(lambda: "was killed by SIGKILL" in served.talk.read_text()) < 2.0
    assert f"mcqa (pid {child})" in served.talk.read_text()
    assert "last lines of" in served.talk.read_text()
    wait_until(lambda: get_status(run)["healthy"] == 3, within_s=10)
    again = next(entry for entry in get_status(run)["serves"][0]["instances"] if entry["name"] == "mcqa")
    assert again["pid"] != child
    assert again["url"] == served.url("mcqa")
    assert "started again 1 time(s): mcqa" in again["said"]
    assert get(f"{served.url('mcqa_simple_agent')}/run", method="POST", body=example_rows("mcqa")[0])[0] == 200


@pytest.mark.usefixtures("own_registry")
def test_a_child_that_keeps_dying_is_given_up_and_unhealthy(run: Run, serve: Serve) -> None:
    served = serve(*MCQA_CHILD)
    for death in range(1, 5):
        pids = [entry["pid"] for entry in get_status(run)["serves"][0]["instances"] if entry["name"] == "mcqa"]
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda seen=death: served.talk.read_text().count("was killed by SIGKILL") == seen)  # type: ignore[misc]
        if death < 4:
            wait_until(lambda: get_status(run)["healthy"] == 3, within_s=10)
    status = run("gymnast", "status")
    assert status.code == 1
    assert "2 healthy, 1 unhealthy" in status.out
    assert "was killed by SIGKILL" in " ".join(status.out.split())


def get_status(run: Run) -> Any:
    return run("gymnast", "status", "--json").json()


def test_killing_the_parent_leaves_no_child(serve: Serve) -> None:
    served = serve(*MCQA_CHILD, "++mcqa_simple_agent.responses_api_agents.simple_agent.runs_in=child")
    children = psutil.Process(served.process.pid).children(recursive=True)
    assert len(children) == 2
    served.process.kill()
    gone, alive = psutil.wait_procs(children, timeout=3)
    assert not alive
    assert len(gone) == 2


def test_a_child_whose_loop_is_blocked_still_dies_with_its_parent(tmp_path: Path, serve: Serve) -> None:
    write_server(
        tmp_path,
        "blocker",
        """
import time
from gymnast.kit import Environment, Task, tool

class Blocker(Environment[Task, None]):
    @tool
    async def block(self) -> str:
        "Block the loop."
        time.sleep(60)
        return ""

    async def verify(self, attempt):
        return 1.0
""",
    )
    served = serve("-c", "blocker.yaml")
    child = psutil.Process(served.pid("blocker"))
    connection = socket.create_connection(urlsplit(served.url("blocker")).netloc.split(":"))  # type: ignore[arg-type]
    connection.sendall(b"POST /block HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
    time.sleep(0.3)
    served.process.kill()
    child.wait(timeout=3)
    connection.close()


def test_everything_a_child_started_goes_with_it(tmp_path: Path, serve: Serve) -> None:
    write_server(
        tmp_path,
        "parent",
        """
import subprocess
from gymnast.kit import Environment, Task

HELPER = subprocess.Popen(["sleep", "300"])

class Parent(Environment[Task, None]):
    async def verify(self, attempt):
        return 1.0
""",
    )
    served = serve("-c", "parent.yaml")
    family = psutil.Process(served.process.pid).children(recursive=True)
    assert "sleep" in {process.name() for process in family}
    served.process.kill()
    _, alive = psutil.wait_procs(family, timeout=3)
    assert not alive


def test_sigterm_stops_everything_promptly_and_unregisters(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMNAST_RUNTIME_DIR", str(tmp_path / "runtime"))
    served = serve(*MCQA_CHILD)
    assert len(list((tmp_path / "runtime").glob("serve-*.json"))) == 1
    children = psutil.Process(served.process.pid).children(recursive=True)
    served.process.terminate()
    assert served.process.wait(timeout=5) == 0
    assert not list((tmp_path / "runtime").glob("serve-*.json"))
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_no_secret_is_on_a_command_line_in_the_head_or_in_the_logs(serve: Serve, tmp_path: Path) -> None:
    secret = "sk-very-secret-value"
    served = serve(
        "-e",
        "mcqa",
        "-c",
        "responses_api_models/vllm_model/configs/vllm_model.yaml",
        "--endpoint-timeout",
        "0",
        "--log-dir",
        str(tmp_path / "logs"),
        "++policy_model.responses_api_models.vllm_model.runs_in=child",
        "++policy_model.responses_api_models.vllm_model.max_attempts=1",
        "++policy_api_key=${oc.env:MY_KEY}",
        "++policy_base_url=http://127.0.0.1:9/v1",
        "++policy_model_name=m",
        "++global_aiohttp_client_request_debug=true",
        env={"MY_KEY": secret},
    )
    for process in [psutil.Process(served.process.pid), *psutil.Process(served.process.pid).children(recursive=True)]:
        assert secret not in " ".join(process.cmdline())
    status, text = get(f"{served.head}/global_config_dict_yaml")
    assert status == 200
    config = yaml.safe_load(text)
    assert config["policy_api_key"] == "****"
    assert secret not in text
    get(f"{served.url('mcqa_simple_agent')}/run", method="POST", body=example_rows("mcqa")[0])
    assert secret not in served.talk.read_text()
    for log in (tmp_path / "logs").glob("*"):
        assert secret not in log.read_text()


def test_beyond_loopback_a_token_is_required(serve: Serve, run: Run) -> None:
    served = serve("--host", "0.0.0.0", *MCQA_CHILD)
    assert served.token
    for url in (served.head, served.url("mcqa"), served.url("policy_model")):
        port = urlsplit(url).port
        assert get(f"http://127.0.0.1:{port}/")[0] == 401
        assert get(f"http://127.0.0.1:{port}/", {"authorization": "Bearer wrong"})[0] == 401
        assert get(f"http://127.0.0.1:{port}/", {"authorization": f"Bearer {served.token}"})[0] == 200
    assert run("gymnast", "status", "--head", served.head).code == 0  # the registry knows the token
    row = example_rows("mcqa")[0]
    agent = f"http://127.0.0.1:{urlsplit(served.url('mcqa_simple_agent')).port}/run"
    status, body = get(agent, {"authorization": f"Bearer {served.token}"}, "POST", row)
    assert status == 200, body  # parent and child know the token of each other


def test_pages_of_other_sites_are_refused(serve: Serve) -> None:
    served = serve(*MCQA)
    host = urlsplit(served.url("mcqa")).netloc
    assert get(served.url("mcqa"), {"origin": "https://evil.example"})[0] == 403
    assert get(served.url("mcqa"), {"origin": f"http://{host}"})[0] == 200


@pytest.mark.usefixtures("own_registry")
def test_a_second_serve_says_who_holds_the_head_port(serve: Serve, run: Run) -> None:
    first = serve(*MCQA)
    port = str(urlsplit(first.head).port)
    second = run("gymnast", "serve", "--head-port", port, *MCQA)
    assert second.code == 2
    assert f"another gymnast serve (pid {first.process.pid}" in second.err
    assert "--head-port auto" in second.err
    assert "Traceback" not in second.err
    third = serve(*MCQA)  # takes a free one, and is found
    assert third.head != first.head
    found = run("gymnast", "status", "--head", third.head)
    assert found.code == 0
    both = run("gymnast", "status")
    assert both.code == 0
    assert first.head in both.out
    assert third.head in both.out
    assert "6 healthy, 0 unhealthy" in both.out
    arguments = ("-a", "mcqa_simple_agent", "-i", "resources_servers/mcqa/data/example.jsonl", "-o", "x.jsonl")
    ambiguous = run("gymnast", "collect", "--no-serve", *arguments)
    assert ambiguous.code == 2
    assert "2 serves are running" in ambiguous.err
    assert first.head in ambiguous.err
    assert run("gymnast", "collect", "--head", third.head, *arguments).code == 0


def test_a_stranger_on_the_head_port_is_not_mistaken_for_us(run: Run) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        taken = run("gymnast", "serve", "--head-port", str(port), *MCQA)
        assert taken.code == 2
        assert f"port {port} is already used by python" in taken.err or f"port {port} is already used by" in taken.err
        assert f"(pid {os.getpid()})" in taken.err


def test_a_foreign_web_server_is_no_head(run: Run, tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().split("port ")[1].split(" ")[0]
        found = run("gymnast", "status", "--head", f"http://127.0.0.1:{port}")
        assert found.code == 2
        assert "is no head server" in found.err
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_configured_port_that_is_taken_names_its_instance(run: Run) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        taken = run("gymnast", "serve", "--head-port", "auto", *MCQA, f"++mcqa.resources_servers.mcqa.port={port}")
    assert taken.code == 2
    assert f"mcqa on 127.0.0.1:{port}" in taken.err


def test_a_configured_port_is_used(serve: Serve) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    served = serve(*MCQA_CHILD, f"++mcqa.resources_servers.mcqa.port={port}")
    assert served.url("mcqa") == f"http://127.0.0.1:{port}"


def test_a_dead_endpoint_stops_the_start_within_its_deadline(run: Run) -> None:
    found = run(
        *("gymnast", "serve", "--head-port", "auto", "-e", "mcqa", "--model-url", "http://127.0.0.1:9/v1", "-m", "m"),
        *("--endpoint-timeout", "0.5"),
    )
    assert found.code == 2
    assert "waiting up to 0.5 s for http://127.0.0.1:9/v1/models" in found.err
    assert "the endpoint of 'policy_model' did not become ready within 0.5 s" in found.err


def test_an_endpoint_that_refuses_the_key_is_a_config_error_at_once(serve: Serve, run: Run) -> None:
    locked = serve("--host", "0.0.0.0", "-c", DEMO_POLICY)
    url = f"http://127.0.0.1:{urlsplit(locked.url('policy_model')).port}/v1"
    found = run("gymnast", "serve", "--head-port", "auto", "-e", "mcqa", "--model-url", url, "-m", "m")
    assert found.code == 2
    assert "refuses our key (401)" in found.err


def test_instances_elsewhere_are_used_by_url(serve: Serve, run: Run, tmp_path: Path) -> None:
    remote = serve("-e", "mcqa", "-c", DEMO_POLICY)
    (tmp_path / "mixed.yaml").write_text(
        yaml.safe_dump(
            {
                "mcqa": {"resources_servers": {"mcqa": {"url": remote.url("mcqa"), "domain": "knowledge"}}},
                "policy_model": {"responses_api_models": {"openai_model": {"url": remote.url("policy_model")}}},
                "agent": {
                    "responses_api_agents": {
                        "simple_agent": {
                            "entrypoint": "app.py",
                            "resources_server": {"type": "resources_servers", "name": "mcqa"},
                            "model_server": {"type": "responses_api_models", "name": "policy_model"},
                        }
                    }
                },
            }
        )
    )
    source = "resources_servers/mcqa/data/example.jsonl"
    found = run("gymnast", "collect", "-c", "mixed.yaml", "-i", source, "-o", "x.jsonl")
    assert found.code == 0, found.err
    local = serve("-c", "mixed.yaml")
    assert run("gymnast", "status", "--head", local.head).code == 0
    remote.process.kill()
    remote.process.wait()
    status = run("gymnast", "status", "--head", local.head)
    assert status.code == 1
    assert "1 healthy, 2 unhealthy" in status.out


# --- servers of the user's own ---------------------------------------------------------------------------------------


def write_server(
    folder: Path, name: str, code: str, *, runs_in: str = "child", requirements: str | None = None
) -> None:
    """A resources server in the user's folder, and a config for it."""
    home = folder / "resources_servers" / name
    home.mkdir(parents=True, exist_ok=True)
    (home / "app.py").write_text(code)
    if requirements is not None:
        (home / "requirements.txt").write_text(requirements)
    block = {"entrypoint": "app.py", "domain": "other", "runs_in": runs_in}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({name: {"resources_servers": {name: block}}}))


def test_a_child_that_cannot_start_is_named_with_its_log(run: Run, tmp_path: Path) -> None:
    write_server(tmp_path, "broken", "import sys\nprint('about to fail', flush=True)\nraise SystemExit(7)\n")
    found = run("gymnast", "serve", "--head-port", "auto", "-c", "broken.yaml")
    assert found.code == 2
    assert "broken" in found.err
    assert "about to fail" in found.err
    write_server(tmp_path, "broken", "raise ValueError('my own mistake')\n")
    found = run("gymnast", "serve", "--head-port", "auto", "-c", "broken.yaml")
    assert found.code == 2
    assert "my own mistake" in found.err
    assert "Traceback (most recent call last)" not in found.err


def test_servers_with_siblings_of_the_same_name_do_not_mix(serve: Serve, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_server(
            tmp_path,
            name,
            "from gymnast.kit import Environment, Task\nfrom helper import NAME\nfrom . import helper as relative\n\n"
            "class Env(Environment[Task, None]):\n"
            "    async def verify(self, attempt):\n"
            "        return 1.0 if NAME == relative.NAME == self.name else 0.0\n",
            runs_in="process",
        )
        (tmp_path / "resources_servers" / name / "helper.py").write_text(f"NAME = {name!r}\n")
    served = serve("-c", "one.yaml", "-c", "two.yaml")
    response = {
        "id": "r",
        "created_at": 1,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    body = {"responses_create_params": {"input": "x"}, "response": response}
    for name in ("one", "two"):
        assert get(f"{served.url(name)}/verify", method="POST", body=body)[1]["reward"] == 1.0


@pytest.mark.parametrize("runs_in", ["process", "child"])
def test_a_fastapi_application_is_hosted_as_it_is(serve: Serve, tmp_path: Path, runs_in: str) -> None:
    write_server(
        tmp_path,
        "foreign",
        "from contextlib import asynccontextmanager\nfrom fastapi import FastAPI\n\nSTATE = {}\n\n"
        "@asynccontextmanager\nasync def lifespan(app):\n    STATE['up'] = True\n    yield\n\n"
        "app = FastAPI(lifespan=lifespan)\n\n"
        "@app.get('/')\nasync def live():\n    return {'status': 'ok', 'up': STATE.get('up')}\n",
        runs_in=runs_in,
    )
    served = serve("-c", "foreign.yaml")
    assert get(served.url("foreign"))[1] == {"status": "ok", "up": True}


def tiny_wheel(folder: Path) -> Path:
    """A package that nobody has, as a wheel made by hand: installing it needs no network."""
    path = folder / "tinything-1.0-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    names = ("tinything/__init__.py", "tinything-1.0.dist-info/METADATA", "tinything-1.0.dist-info/WHEEL")
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in zip(names, ("VALUE = 42\n", metadata, wheel), strict=True):
            archive.writestr(name, text)
        record = "tinything-1.0.dist-info/RECORD"
        archive.writestr(record, "".join(f"{name},,\n" for name in (*names, record)))
    return path


def test_an_instance_gets_its_own_packages_once(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A requirement we lack puts the instance into a child with a venv of its own: built once, mended if broken."""
    monkeypatch.setenv("GYMNAST_CACHE_DIR", str(tmp_path / "cache"))
    wheel = tiny_wheel(tmp_path)
    code = (
        "import tinything\nfrom gymnast.kit import Environment, Task, tool\n\n"
        "class Env(Environment[Task, None]):\n"
        "    @tool\n    async def value(self) -> int:\n        'Value.'\n        return tinything.VALUE\n\n"
        "    async def verify(self, attempt):\n        return 1.0\n"
    )
    write_server(
        tmp_path, "special", code, runs_in="auto", requirements=f"-e ../..\nnemo-gym\ntinything @ file://{wheel}\n"
    )
    first = serve("-c", "special.yaml")
    assert first.pid("special") != first.process.pid
    assert get(f"{first.url('special')}/value", method="POST", body={}) == (200, "42")
    venvs = [path for path in (tmp_path / "cache" / "venvs").iterdir() if path.is_dir()]
    assert len(venvs) == 1
    marker = venvs[0] / "gymnast-complete"
    built = marker.stat().st_mtime_ns
    serve("-c", "special.yaml")
    assert marker.stat().st_mtime_ns == built  # used again
    (venvs[0] / "bin" / "python").unlink()
    third = serve("-c", "special.yaml")  # broken: rebuilt
    assert get(f"{third.url('special')}/value", method="POST", body={}) == (200, "42")
    assert marker.stat().st_mtime_ns != built
