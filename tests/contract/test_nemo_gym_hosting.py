"""How a server written for NeMo Gym lives in a cell: sessions, isolation, failures, peers, ports, its own packages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymnast.config import Config, read_environ
from gymnast.errors import StartError
from gymnast.runtime.cell import Cell, make_cell_options, resolve_placement
from gymnast.runtime.remote import check_health, read_head
from gymnast.types.failure import Stage
from gymnast.wire.calls import Calls, Scope
from gymnast.wire.http_client import HttpClient
from gymnast.wire.progress import AttemptProgress
from gymnast.wire.transports import HttpTransport
from tests.contract.nemo_gym_policy import CHECKOUT, policy
from tests.helpers.local_serve import serving_here
from tests.integration.test_serving import tiny_wheel

Configure = Callable[..., Config]
RESPONSE = {
    "id": "r",
    "created_at": 0.0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
APP = """
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig, BaseSeedSessionRequest, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)
from nemo_gym.server_utils import get_response_json, get_server_url, raise_for_status
from pydantic import BaseModel, ConfigDict


class Row(BaseSeedSessionRequest):
    model_config = ConfigDict(extra="allow")
    note: dict[str, Any] = {}


class Ask(BaseModel):
    server: str
    path: str
    body: dict[str, Any] = {}


class Odd(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/ask")(self.ask)
        app.post("/where")(self.where)
        app.post("/cookie")(self.cookie)
        app.post("/teapot")(self.teapot)
        return app

    async def seed_session(self, body: Row):
        body.note["spoiled"] = True
        return {}

    async def ask(self, body: Ask) -> dict[str, Any]:
        reply = await self.server_client.post(body.server, body.path, json=body.body)
        await raise_for_status(reply)
        return {"answer": await get_response_json(reply)}

    async def where(self, request: Request) -> dict[str, Any]:
        url = get_server_url(self.config.name)
        return {"url": url, "state": request.state.rollout_id, "path": request.path_params.get("rollout_id")}

    async def cookie(self, response: Response) -> dict[str, Any]:
        response.set_cookie("flavour", "oat")
        return {}

    async def teapot(self) -> None:
        raise HTTPException(status_code=418, detail={"kind": "teapot"})

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
"""


def block(implementation: str, **settings: Any) -> dict[str, Any]:
    return {"resources_servers": {implementation: {"entrypoint": "app.py", "domain": "other", **settings}}}


def written(folder: Path, name: str = "odd", text: str = APP, requirements: str = "") -> None:
    home = folder / "resources_servers" / name
    home.mkdir(parents=True)
    (home / "app.py").write_text(text)
    (home / "requirements.txt").write_text(requirements)


@asynccontextmanager
async def living(config: Config, **options: Any) -> AsyncIterator[Cell]:
    instances = list(config.require_valid().instances.values())
    async with Cell(instances, make_cell_options(config, read_environ(), **options)) as cell:
        yield cell


@pytest.fixture
async def odd(configure: Configure, tmp_path: Path) -> AsyncIterator[Cell]:
    written(tmp_path)
    async with living(configure(initial={"odd": block("odd"), **policy(["hello"])})) as cell:
        yield cell


async def test_a_session_started_in_memory_goes_on_over_the_port(configure: Configure, http: HttpClient) -> None:
    path = "resources_servers/tally_counter/configs/tally_counter.yaml"
    config = configure(config_paths=[path], search_dirs=[CHECKOUT], initial=policy(["x"]))
    async with living(config) as cell:
        scope = Scope()
        await cell.calls.call("tally_counter", "/seed_session", {"initial_count": 3}, scope)
        assert list(scope.jars["tally_counter"]) == ["TallyCounter___tally_counter"]
        outside = Calls({"tally_counter": HttpTransport(cell.addresses["tally_counter"].url, http)})
        assert (await outside.call("tally_counter", "/add", {"count": 4}, scope)).body == {"success": True}
        assert (await cell.calls.call("tally_counter", "/get_count", {}, scope)).body == {"count": 7}
        stranger = await cell.calls.call("tally_counter", "/add", {"count": 1})
        assert (stranger.status, stranger.body[:9]) == (500, "KeyError(")
        forged = Scope(inherited={"TallyCounter___tally_counter": "nonsense"})
        assert (await cell.calls.call("tally_counter", "/get_count", {}, forged)).status == 500


async def test_sessions_do_not_see_each_other(configure: Configure) -> None:
    path = "resources_servers/tally_counter/configs/tally_counter.yaml"
    config = configure(config_paths=[path], search_dirs=[CHECKOUT], initial=policy(["x"]))
    async with living(config) as cell:

        async def play(start: int) -> int:
            scope = Scope()
            await cell.calls.call("tally_counter", "/seed_session", {"initial_count": start}, scope)
            await cell.calls.call("tally_counter", "/add", {"count": 1000}, scope)
            found: int = (await cell.calls.call("tally_counter", "/get_count", {}, scope)).body["count"]
            return found

        assert await asyncio.gather(*(play(start) for start in range(50))) == [1000 + start for start in range(50)]


async def test_in_memory_and_over_the_port_the_answers_are_the_same(odd: Cell, http: HttpClient) -> None:
    outside = Calls({"odd": HttpTransport(odd.addresses["odd"].url, http)})
    row = {"responses_create_params": {"input": "x"}, "response": RESPONSE}
    asked: list[tuple[str, Any]] = [
        ("/verify", row),
        ("/verify", {}),
        ("/verify", {**row, "response": {**RESPONSE, "output": [{"type": "message"}]}}),
        ("/verify", [1]),
        ("/verify", None),
        ("/teapot", None),
        ("/nowhere", {}),
        ("/ask", {"server": "odd", "path": "/teapot"}),
        ("/ask", {"server": "nobody", "path": "/x"}),
        ("/aggregate_metrics", {"verify_responses": [{"reward": 1.0, "_ng_task_index": 0}]}),
    ]
    for path, body in asked:
        inside, over_port = await odd.calls.call("odd", path, body), await outside.call("odd", path, body)
        assert (inside.status, inside.body) == (over_port.status, over_port.body), path
        assert inside.failure == over_port.failure


async def test_a_verdict_of_later_versions_keeps_its_mask_and_reason(
    configure: Configure, tmp_path: Path, http: HttpClient
) -> None:
    """A server that set `mask_sample` or `failure_reason`, which 0.5.1 does not declare, lost them."""
    verdict = 'reward=1.0, mask_sample=True, failure_kind="judge", failure_reason="the judge is down"'
    written(tmp_path, "later", APP.replace("reward=1.0", verdict))
    written(tmp_path, "plain")
    row = {"responses_create_params": {"input": "x"}, "response": RESPONSE}
    config = configure(initial={"later": block("later"), "plain": block("plain"), **policy(["hello"])})
    async with living(config) as cell:
        for name, expected in (("later", [True, "judge", "the judge is down"]), ("plain", [])):
            outside = Calls({name: HttpTransport(cell.addresses[name].url, http)})
            for calls in (cell.calls, outside):
                body = (await calls.call(name, "/verify", row)).body
                found = [body[key] for key in ("mask_sample", "failure_kind", "failure_reason") if key in body]
                assert found == expected


async def test_what_a_handler_does_to_its_body_reaches_nobody(odd: Cell) -> None:
    row = {"note": {"kept": 1}}
    await odd.calls.call("odd", "/seed_session", row)
    assert row == {"note": {"kept": 1}}


async def test_peers_are_called_in_the_name_of_the_attempt(odd: Cell) -> None:
    body = {"server": "policy_model", "path": "/v1/responses", "body": {"input": "hi"}}
    from gymnast.wire.progress import AttemptProgress

    progress = AttemptProgress()
    reply = await odd.calls.call("odd", "/ask", body, Scope("4-2", progress), stage=Stage.TOOL)
    assert reply.body["answer"]["output"][0]["content"][0]["text"] == "hello"
    assert progress.usage_counter is not None
    assert progress.usage_counter.calls == 1


async def test_an_inner_failure_keeps_its_kind(odd: Cell) -> None:
    body = {"server": "policy_model", "path": "/v1/responses", "body": {"inputs": "hi"}}
    reply = await odd.calls.call("odd", "/ask", body)
    assert reply.status == 500
    assert reply.body.startswith('Hit an exception in Odd___odd calling an inner server: b\'{"detail":')
    assert reply.failure is not None
    assert "422" in reply.failure.message
    assert '"input"' in reply.failure.message
    lost = await odd.calls.call("odd", "/ask", {"server": "nobody", "path": "/x"})
    assert lost.status == 500
    assert "nobody" in lost.body


async def test_addresses_and_prefixes(odd: Cell, http: HttpClient) -> None:
    outside = Calls({"odd": HttpTransport(odd.addresses["odd"].url, http)})
    for calls in (odd.calls, outside):
        found = await calls.call("odd", "/ng-rollout/7-3/training-token-capture/where", {})
        assert found.body == {"url": odd.addresses["odd"].url, "state": "7-3", "path": "7-3"}


async def test_model_calls_in_this_process_are_captured(configure: Configure, tmp_path: Path) -> None:
    path = "responses_api_models/echo_model/configs/echo_model.yaml"
    told = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path / "captures")}
    async with living(configure(config_paths=[path], search_dirs=[CHECKOUT], initial=told)) as cell:
        await cell.calls.call("policy_model", "/ng-rollout/4-1/v1/responses", {"input": "hi"})
        await cell.calls.call("policy_model", "/v1/responses", {"input": "hi"}, Scope("5-0"))
        await cell.calls.call("policy_model", "/v1/responses", {"input": "nobody's"})
    assert sorted(file.name for file in (tmp_path / "captures").iterdir()) == [
        "4-1.capture.jsonl",
        "5-0.capture.jsonl",
    ]


async def test_cookies_that_a_handler_sets(odd: Cell) -> None:
    reply = await odd.calls.call("odd", "/cookie", {})
    assert reply.cookies["flavour"] == "oat"


async def test_middleware_of_its_own_is_run(configure: Configure, tmp_path: Path) -> None:
    own = "        @app.middleware('http')\n        async def mark(request: Request, call_next: Any) -> Any:\n"
    own += "            reply = await call_next(request)\n            reply.headers['x-marked'] = 'yes'\n"
    own += "            return reply\n\n        return app\n"
    written(tmp_path, text=APP.replace("        return app\n", own))
    async with living(configure(initial={"odd": block("odd")})) as cell:
        reply = await cell.calls.call("odd", "/teapot", None)
        assert (reply.status, reply.headers["x-marked"]) == (418, "yes")


async def test_a_server_that_cannot_be_made_is_reported(configure: Configure, tmp_path: Path) -> None:
    broken = "    def model_post_init(self, context: Any) -> None:\n        raise OSError('no such model')\n\n"
    written(tmp_path, text=APP.replace("    def setup_webserver", broken + "    def setup_webserver"))
    with pytest.raises(StartError, match="odd could not be created: OSError: no such model"):
        async with living(configure(initial={"odd": block("odd")})):
            pass


async def test_a_server_is_created_in_its_own_folder(configure: Configure, tmp_path: Path) -> None:
    reads = "    def model_post_init(self, context: Any) -> None:\n        open('prompt.txt').close()\n\n"
    written(tmp_path, text=APP.replace("    def setup_webserver", reads + "    def setup_webserver"))
    (tmp_path / "resources_servers" / "odd" / "prompt.txt").write_text("judge this")
    before = Path.cwd()
    async with living(configure(initial={"odd": block("odd"), **policy(["hello"])})) as cell:
        assert (await cell.calls.call("odd", "/where", {})).status == 200
        assert Path.cwd() == before


async def test_an_entry_file_is_imported_in_its_own_folder(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, text=APP + "\nfrom pathlib import Path\n\nWORDS = Path('words.txt').read_text()\n")
    (tmp_path / "resources_servers" / "odd" / "words.txt").write_text("yes")
    monkeypatch.chdir(tmp_path)
    config = configure(initial={"odd": block("odd"), **policy(["x"])}, search_dirs=[Path()])
    async with living(config) as cell:
        assert (await cell.calls.call("odd", "/teapot", {}, Scope())).status == 418
    assert Path.cwd() == tmp_path


async def test_requests_see_what_the_startup_yields(configure: Configure, tmp_path: Path, http: HttpClient) -> None:
    text = APP.replace(
        "        return app\n",
        """        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(app):
            async with inner(app) as state:
                yield {**(state or {}), "shared": "yes"}

        app.router.lifespan_context = lifespan
        app.post("/shared")(self.shared)
        app.get("/shared/{word}")(self.shared)
        return app

    async def shared(self, request: Request) -> dict[str, Any]:
        return {"shared": request.state.shared}
""",
        1,
    )
    written(tmp_path, text="from contextlib import asynccontextmanager\n" + text)
    async with living(configure(initial={"odd": block("odd"), **policy(["x"])})) as cell:
        calls = Calls({"odd": HttpTransport(cell.addresses["odd"].url, http)})
        for reached in (cell.calls, calls):
            assert (await reached.call("odd", "/shared", {}, Scope())).body == {"shared": "yes"}
            assert (await reached.call("odd", "/shared/x", None, Scope(), method="GET")).body == {"shared": "yes"}


async def test_an_inner_error_is_told_as_that_of_the_http_client(odd: Cell) -> None:
    asked = {"server": "odd", "path": "/teapot"}
    reply = await odd.calls.call("odd", "/ask", asked, Scope())
    assert reply.status == 500
    assert reply.failure is not None
    assert "ClientResponseError" in reply.failure.message
    unknown = await odd.calls.call("odd", "/ask", {"server": "nowhere", "path": "/"}, Scope())
    assert "no instance 'nowhere'" in str(unknown.body)


def test_of_several_classes_the_one_that_is_served_is_meant(configure: Configure, tmp_path: Path) -> None:
    from gymnast.runtime.loader import load_entry

    more = "\n\nclass Odder(Odd):\n    pass\n\n\nif __name__ == '__main__':\n    Odd.run_webserver()\n"
    written(tmp_path, text=APP + more)
    entry: Any = load_entry(configure(initial={"odd": block("odd")}).instance("odd"))
    assert entry.__name__ == "Odd"


def test_a_server_that_waits_for_its_peers_gets_a_process_of_its_own(configure: Configure, tmp_path: Path) -> None:
    written(tmp_path)
    instance = configure(initial={"odd": block("odd")}).instance("odd")
    assert resolve_placement(instance).runs_in == "process"
    entry = tmp_path / "resources_servers" / "odd" / "app.py"
    entry.write_text(APP + "\n\ndef wait(client: Any) -> None:\n    client.poll_for_status('judge')\n")
    assert resolve_placement(instance).runs_in == "child"


@pytest.mark.parametrize(
    ("line", "placement"),
    [
        ("open('words.txt').read()", "child"),
        ("Path('data/more.json').read_text()", "child"),
        ("(Path(__file__).parent / 'words.txt').read_text()", "process"),
        ("open('absent.txt')", "process"),
        ("open('/words.txt')", "process"),
    ],
)
def test_a_server_that_opens_files_of_its_folder_gets_a_process_there(
    configure: Configure, tmp_path: Path, line: str, placement: str
) -> None:
    text = APP.replace("        raise HTTPException", f"        {line}\n        raise HTTPException")
    written(tmp_path, text="from pathlib import Path\n" + text)
    home = tmp_path / "resources_servers" / "odd"
    (home / "words.txt").write_text("yes")
    (home / "data").mkdir()
    (home / "data" / "more.json").write_text("{}")
    instance = configure(initial={"odd": block("odd")}).instance("odd")
    assert resolve_placement(instance).runs_in == placement
    module_level = f"from pathlib import Path\nimport helper\n{APP}\n\ndef setup_webserver():\n    {line}\n"
    (home / "app.py").write_text(module_level)
    assert resolve_placement(instance).runs_in == "process"
    (home / "helper.py").write_text(f"from pathlib import Path\n\n\ndef read():\n    return {line}\n")
    assert resolve_placement(instance).runs_in == placement


async def test_requirements_that_are_not_met_put_it_into_a_process_of_its_own(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMNAST_CACHE_DIR", str(tmp_path / "cache"))
    requirements = f"-e nemo-gym[dev] @ ../../\ntinything @ {tiny_wheel(tmp_path).as_uri()}\n"
    written(tmp_path, requirements=requirements, text=APP + "import tinything\n")
    config = configure(initial={"odd": block("odd"), **policy(["hello"])})
    async with living(config, log_dir=tmp_path / "logs") as cell:
        assert cell.children["odd"].is_up
        body = {"server": "policy_model", "path": "/v1/responses", "body": {"input": "hi"}}
        assert (await cell.calls.call("odd", "/ask", body)).body["answer"]["model"] == "scripted"


@pytest.mark.parametrize("runs_in", ["process", "child"])
async def test_the_model_calls_of_a_server_are_counted_wherever_it_runs(
    configure: Configure, tmp_path: Path, runs_in: str
) -> None:
    written(tmp_path)
    config = configure(initial={"odd": block("odd", runs_in=runs_in), **policy(["hello"])})
    progress = AttemptProgress()
    async with living(config, log_dir=tmp_path / "logs") as cell:
        body = {"server": "policy_model", "path": "/v1/responses", "body": {"input": "hi"}}
        for _ in range(2):
            assert (await cell.calls.call("odd", "/ask", body, Scope("0-0", progress))).ok
    assert progress.ensure_usage_counter().usage().calls == 2


async def test_a_server_without_a_page_at_its_root_is_served_and_healthy(tmp_path: Path) -> None:
    """As NeMo Gym's step servers: what answers is up, also with 404."""
    without_root = APP.replace("app = super().setup_webserver()", "app = FastAPI()")
    written(tmp_path, text=without_root)
    with serving_here(tmp_path, "++odd.resources_servers.odd={entrypoint: app.py, domain: other}") as serve:
        async with HttpClient() as client:
            (health,) = await check_health(client, await read_head(client, serve.head, serve.token))
    assert (health.name, health.status, health.said) == ("odd", "success", "")
