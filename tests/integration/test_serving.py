"""`gymnast serve` and `gymnast status`: ports, tokens, children, deaths, venvs.

Serves run as a command where that process is the point, in this one otherwise; children are always processes.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import zipfile
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import yaml

from tests.helpers.commands import DEMO_POLICY, Outcome, Served
from tests.helpers.jsonl import example_rows
from tests.helpers.local_serve import LocalServe
from tests.helpers.waiting import wait_until

Run = Callable[..., Outcome]
Serve = Callable[..., Served]
ServeHere = Callable[..., LocalServe]

MCQA = ("-e", "mcqa", "-c", DEMO_POLICY)
IN_CHILD = "++mcqa.resources_servers.mcqa.runs_in=child"
MCQA_HERE: dict[str, Any] = {"environments": ["mcqa"], "config_paths": [DEMO_POLICY]}
LONG_S = 60.0
"""Longer than anything takes on a slow and busy machine."""


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


@pytest.mark.usefixtures("own_registry")
def test_status_counts_what_is_healthy(run: Run, invoke: Run, serve: Serve) -> None:
    none = invoke("gymnast", "status")
    assert none.code == 2
    assert "no gymnast serve is running" in none.err
    served = serve(*MCQA)
    for command in (("gymnast", "status"), ("ng_status",)):
        result = run(*command)
        assert result.code == 0, result.err
        assert "3 healthy, 0 unhealthy" in result.out
    told = get_status(invoke)
    assert (told["healthy"], told["unhealthy"]) == (3, 0)
    assert [serve["head"] for serve in told["serves"]] == [served.head]
    names = {entry["name"] for entry in told["serves"][0]["instances"]}
    assert names == {"mcqa", "mcqa_simple_agent", "policy_model"}


@pytest.mark.usefixtures("own_registry")
def test_a_killed_child_is_noticed_reported_and_started_again(invoke: Run, serve: Serve) -> None:
    served = serve(*MCQA, IN_CHILD)
    child = served.pid("mcqa")
    assert child != served.process.pid
    assert served.pid("policy_model") == served.process.pid
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: "was killed by SIGKILL" in served.talk.read_text())
    assert f"mcqa (pid {child})" in served.talk.read_text()
    assert "last lines of" in served.talk.read_text()
    wait_until(lambda: get_status(invoke)["healthy"] == 3)
    again = child_status(invoke)
    assert again["pid"] != child
    assert again["url"] == served.url("mcqa")
    assert "restarted 1 time(s): mcqa" in again["said"]
    assert get(f"{served.url('mcqa_simple_agent')}/run", method="POST", body=example_rows("mcqa")[0])[0] == 200


@pytest.mark.usefixtures("own_registry")
def test_a_child_that_keeps_dying_is_given_up_and_unhealthy(
    invoke: Run, serve_here: ServeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymnast.runtime.children._FIRST_PAUSE_S", 0.01)
    served = serve_here(IN_CHILD, **MCQA_HERE)
    for death in range(1, 5):
        os.kill(child_status(invoke)["pid"], signal.SIGKILL)
        wait_until(lambda seen=death: "".join(served.messages).count("was killed by SIGKILL") == seen)  # type: ignore[misc]
        if death < 4:
            wait_until(lambda: get_status(invoke)["healthy"] == 3)
    status = invoke("gymnast", "status")
    assert status.code == 1
    assert "2 healthy, 1 unhealthy" in status.out
    assert "was killed by SIGKILL" in " ".join(status.out.split())


def get_status(invoke: Run) -> Any:
    return invoke("gymnast", "status", "--json").json()


def child_status(invoke: Run) -> Any:
    return next(entry for entry in get_status(invoke)["serves"][0]["instances"] if entry["name"] == "mcqa")


def test_killing_the_parent_leaves_no_child_and_nothing_that_one_started(tmp_path: Path, serve: Serve) -> None:
    """Not even a child whose event loop is blocked."""
    write_server(
        tmp_path,
        "blocker",
        """
import time
from pathlib import Path
from gymnast.kit import Environment, Task, tool

class Blocker(Environment[Task, None]):
    @tool
    async def block(self) -> str:
        "Block the loop."
        Path(__file__).with_name("blocked").touch()
        time.sleep(600)
        return ""

    async def verify(self, attempt):
        return 1.0
""",
    )
    write_server(
        tmp_path,
        "parent",
        """
import subprocess
from gymnast.kit import Environment, Task

HELPER = subprocess.Popen(["sleep", "600"])

class Parent(Environment[Task, None]):
    async def verify(self, attempt):
        return 1.0
""",
    )
    served = serve("-c", "blocker.yaml", "-c", "parent.yaml")
    family = psutil.Process(served.process.pid).children(recursive=True)
    assert {served.pid("blocker"), served.pid("parent")} <= {process.pid for process in family}
    assert [process.name() for process in family].count("sleep") == 1
    assert len(family) == 3
    address = urlsplit(served.url("blocker"))
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(b"POST /block HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        wait_until((tmp_path / "resources_servers" / "blocker" / "blocked").exists)
        served.process.kill()
        gone, alive = psutil.wait_procs(family, timeout=LONG_S)
    assert not alive
    assert len(gone) == 3


def test_sigterm_stops_everything_promptly_and_unregisters(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMNAST_RUNTIME_DIR", str(tmp_path / "runtime"))
    served = serve(*MCQA, IN_CHILD)
    assert len(list((tmp_path / "runtime").glob("serve-*.json"))) == 1
    children = psutil.Process(served.process.pid).children(recursive=True)
    served.process.terminate()
    assert served.process.wait(timeout=LONG_S) == 0
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


@pytest.mark.usefixtures("own_registry")
def test_beyond_loopback_a_token_is_required(serve_here: ServeHere, invoke: Run) -> None:
    served = serve_here(IN_CHILD, host="0.0.0.0", **MCQA_HERE)
    assert served.token
    for url in (served.head, served.url("mcqa"), served.url("policy_model")):
        port = urlsplit(url).port
        assert get(f"http://127.0.0.1:{port}/")[0] == 401
        assert get(f"http://127.0.0.1:{port}/", {"authorization": "Bearer wrong"})[0] == 401
        assert get(f"http://127.0.0.1:{port}/", {"authorization": f"Bearer {served.token}"})[0] == 200
    assert invoke("gymnast", "status", "--head", served.head).code == 0  # the registry knows the token
    row = example_rows("mcqa")[0]
    agent = f"http://127.0.0.1:{urlsplit(served.url('mcqa_simple_agent')).port}/run"
    status, body = get(agent, {"authorization": f"Bearer {served.token}"}, "POST", row)
    assert status == 200, body  # parent and child know the token of each other


def test_pages_of_other_sites_are_refused(serve_here: ServeHere) -> None:
    served = serve_here(**MCQA_HERE)
    host = urlsplit(served.url("mcqa")).netloc
    assert get(served.url("mcqa"), {"origin": "https://evil.example"})[0] == 403
    assert get(served.url("mcqa"), {"origin": f"http://{host}"})[0] == 200


@pytest.mark.usefixtures("own_registry")
def test_a_second_serve_says_who_holds_the_head_port(serve: Serve, serve_here: ServeHere, invoke: Run) -> None:
    first = serve_here(**MCQA_HERE)
    port = str(urlsplit(first.head).port)
    second = invoke("gymnast", "serve", "--head-port", port, *MCQA)
    assert second.code == 2
    assert f"another gymnast serve (pid {os.getpid()}" in second.err
    assert "--head-port auto" in second.err
    assert "Traceback" not in second.err
    third = serve(*MCQA)  # takes a free one, and is found
    assert third.head != first.head
    result = invoke("gymnast", "status", "--head", third.head)
    assert result.code == 0
    both = invoke("gymnast", "status")
    assert both.code == 0
    assert first.head in both.out
    assert third.head in both.out
    assert "6 healthy, 0 unhealthy" in both.out
    arguments = ("-a", "mcqa_simple_agent", "-i", "resources_servers/mcqa/data/example.jsonl", "-o", "x.jsonl")
    ambiguous = invoke("gymnast", "collect", "--no-serve", *arguments)
    assert ambiguous.code == 2
    assert "2 serves are running" in ambiguous.err
    assert first.head in ambiguous.err
    assert invoke("gymnast", "collect", "--head", third.head, *arguments).code == 0


def test_a_stranger_on_the_head_port_is_not_mistaken_for_us(invoke: Run) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        taken = invoke("gymnast", "serve", "--head-port", str(port), *MCQA)
        assert taken.code == 2
        assert f"port {port} is already used by python" in taken.err or f"port {port} is already used by" in taken.err
        assert f"(pid {os.getpid()})" in taken.err


def test_a_foreign_web_server_is_not_a_head(invoke: Run) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler) as stranger:
        thread = threading.Thread(target=stranger.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            result = invoke("gymnast", "status", "--head", f"http://127.0.0.1:{stranger.server_port}")
        finally:
            stranger.shutdown()
            thread.join()
    assert result.code == 2
    assert "is not a head server" in result.err


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Says nothing."""


def test_a_configured_port_that_is_taken_names_its_instance(invoke: Run) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        taken = invoke("gymnast", "serve", "--head-port", "auto", *MCQA, f"++mcqa.resources_servers.mcqa.port={port}")
    assert taken.code == 2
    assert f"mcqa on 127.0.0.1:{port}" in taken.err


def test_a_configured_port_is_used(serve_here: ServeHere) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    served = serve_here(IN_CHILD, f"++mcqa.resources_servers.mcqa.port={port}", **MCQA_HERE)
    assert served.url("mcqa") == f"http://127.0.0.1:{port}"


def test_a_dead_endpoint_stops_the_start_within_its_deadline(invoke: Run) -> None:
    result = invoke(
        *("gymnast", "serve", "--head-port", "auto", "-e", "mcqa", "--model-url", "http://127.0.0.1:9/v1", "-m", "m"),
        *("--endpoint-timeout", "0.2"),
    )
    assert result.code == 2
    assert "waiting up to 0.2 s for http://127.0.0.1:9/v1/models" in result.err
    assert "the endpoint of 'policy_model' did not become ready within 0.2 s" in result.err


def test_an_endpoint_that_refuses_the_key_is_a_config_error_at_once(serve_here: ServeHere, invoke: Run) -> None:
    locked = serve_here(host="0.0.0.0", config_paths=[DEMO_POLICY])
    url = f"http://127.0.0.1:{urlsplit(locked.url('policy_model')).port}/v1"
    result = invoke("gymnast", "serve", "--head-port", "auto", "-e", "mcqa", "--model-url", url, "-m", "m")
    assert result.code == 2
    assert "needs a key, and none is set (401)" in result.err


def test_instances_elsewhere_are_used_by_url(serve_here: ServeHere, invoke: Run, tmp_path: Path) -> None:
    remote = serve_here(**MCQA_HERE)
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
    result = invoke("gymnast", "collect", "-c", "mixed.yaml", "-i", source, "-o", "x.jsonl")
    assert result.code == 0, result.err
    local = serve_here(config_paths=["mixed.yaml"])
    assert invoke("gymnast", "status", "--head", local.head).code == 0
    remote.close()
    status = invoke("gymnast", "status", "--head", local.head)
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


def test_a_child_that_cannot_start_is_named_with_its_log(invoke: Run, tmp_path: Path) -> None:
    write_server(tmp_path, "broken", "import sys\nprint('about to fail', flush=True)\nraise SystemExit(7)\n")
    result = invoke("gymnast", "serve", "--head-port", "auto", "-c", "broken.yaml")
    assert result.code == 2
    assert "broken" in result.err
    assert "about to fail" in result.err
    write_server(tmp_path, "broken", "raise ValueError('my own mistake')\n")
    result = invoke("gymnast", "serve", "--head-port", "auto", "-c", "broken.yaml")
    assert result.code == 2
    assert "my own mistake" in result.err
    assert "Traceback (most recent call last)" not in result.err


VERIFY_BODY = {
    "responses_create_params": {"input": "x"},
    "response": {
        "id": "r",
        "created_at": 1,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
}


@pytest.mark.parametrize("files", [["words.py"], ["words.py", "__init__.py"]])
def test_servers_with_packages_of_the_same_name_do_not_mix(
    serve_here: ServeHere, tmp_path: Path, files: list[str]
) -> None:
    for name in ("one", "two"):
        write_server(
            tmp_path,
            name,
            "from gymnast.kit import Environment, Task\nimport helpers.words\nfrom helpers.words import NAME\n\n"
            "class Env(Environment[Task, None]):\n"
            "    async def verify(self, attempt):\n"
            "        return 1.0 if NAME == helpers.words.NAME == self.name else 0.0\n",
            runs_in="process",
        )
        package = tmp_path / "resources_servers" / name / "helpers"
        package.mkdir()
        for file in files:
            (package / file).write_text(f"NAME = {name!r}\n")
    served = serve_here(config_paths=["one.yaml", "two.yaml"])
    for name in ("one", "two"):
        assert get(f"{served.url(name)}/verify", method="POST", body=VERIFY_BODY)[1]["reward"] == 1.0


def test_a_server_may_import_its_packages_in_functions(serve_here: ServeHere, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_server(
            tmp_path,
            name,
            "from gymnast.kit import Environment, Task\nfrom helpers.words import Word, first\n\n"
            "class Env(Environment[Task, None]):\n"
            "    async def verify(self, attempt):\n"
            "        import helpers.words\n"
            "        return float(helpers.words.NAME == self.name and isinstance(first(), helpers.words.Word))\n",
            runs_in="auto",
        )
        package = tmp_path / "resources_servers" / name / "helpers"
        package.mkdir()
        (package / "__init__.py").touch()
        code = "class Word: ...\n\ndef first():\n    from helpers import words\n    return words.Word()\n"
        (package / "words.py").write_text(f"NAME = {name!r}\n\n{code}")
    served = serve_here(config_paths=["one.yaml", "two.yaml"])
    for name in ("one", "two"):
        assert get(f"{served.url(name)}/verify", method="POST", body=VERIFY_BODY)[1]["reward"] == 1.0


def test_servers_with_siblings_of_the_same_name_do_not_mix(serve_here: ServeHere, tmp_path: Path) -> None:
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
    served = serve_here(config_paths=["one.yaml", "two.yaml"])
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
def test_a_fastapi_application_is_hosted_as_it_is(serve_here: ServeHere, tmp_path: Path, runs_in: str) -> None:
    write_server(
        tmp_path,
        "foreign",
        "from contextlib import asynccontextmanager\nfrom fastapi import FastAPI\n\nSTATE = {}\n\n"
        "@asynccontextmanager\nasync def lifespan(app):\n    STATE['up'] = True\n    yield\n\n"
        "app = FastAPI(lifespan=lifespan)\n\n"
        "@app.get('/')\nasync def live():\n    return {'status': 'ok', 'up': STATE.get('up')}\n",
        runs_in=runs_in,
    )
    served = serve_here(config_paths=["foreign.yaml"])
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


def test_an_instance_gets_its_own_packages_once(
    serve_here: ServeHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        tmp_path, "special", code, runs_in="auto", requirements=f"-e ../..\nnemo-gym\ntinything @ {wheel.as_uri()}\n"
    )
    first = serve_here(config_paths=["special.yaml"])
    assert first.pid("special") != os.getpid()
    assert any("installing the packages that special requires" in message for message in first.messages)
    assert get(f"{first.url('special')}/value", method="POST", body={}) == (200, "42")
    venvs = [path for path in (tmp_path / "cache" / "venvs").iterdir() if path.is_dir()]
    assert len(venvs) == 1
    marker = venvs[0] / "gymnast-complete"
    built = marker.stat().st_mtime_ns
    second = serve_here(config_paths=["special.yaml"])
    assert marker.stat().st_mtime_ns == built  # used again
    assert not any("installing" in message for message in second.messages)
    (venvs[0] / "bin" / "python").unlink()
    third = serve_here(config_paths=["special.yaml"])  # broken: rebuilt
    assert get(f"{third.url('special')}/value", method="POST", body={}) == (200, "42")
    assert marker.stat().st_mtime_ns != built
