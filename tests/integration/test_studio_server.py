"""The studio's server: what its API answers, whom it refuses, and runs that change while someone looks."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from gymnast.rollouts.control import ControlServer
from gymnast.rollouts.prepare import new_manifest
from gymnast.rollouts.snapshot import InFlight, Snapshot
from gymnast.store.annotations import annotations_path, read_annotations
from gymnast.store.lock import RunLock
from gymnast.store.manifest import write_manifest
from gymnast.store.paths import RunPaths
from gymnast.studio.access import Access
from gymnast.studio.export import export_site
from gymnast.studio.library import Library
from gymnast.studio.pages import tasks
from gymnast.studio.runs import RunFolders
from gymnast.studio.script_bundle import bundle_modules
from gymnast.studio.server import StudioApp
from tests.helpers.chunked_runs import small_run
from tests.helpers.report_runs import failed, grid, hostile_records, record, write_run

TOKEN = "the-token"
OWN = {"host": "127.0.0.1:7777", "authorization": f"Bearer {TOKEN}"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Studio:
    """A studio, called in memory."""

    app: StudioApp
    library: Library

    async def send(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b"", query: str = ""
    ) -> Answer:
        sent: list[Any] = []
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in (headers or OWN).items()]
        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": pairs}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        got = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        data = sent[1]["body"]
        return Answer(sent[0]["status"], got, gzip.decompress(data) if "content-encoding" in got else data)

    async def get(self, path: str, **params: Any) -> Any:
        answer = await self.send(f"/api/{path}", query=urlencode(params, doseq=True))
        assert answer.status == 200, answer.body
        return answer.json

    async def status(self, path: str, **params: Any) -> int:
        answer = await self.send(f"/api/{path}", query=urlencode(params, doseq=True))
        assert answer.status != 200 or answer.json is not None
        return answer.status

    async def post(self, path: str, body: Any) -> Answer:
        headers = {**OWN, "content-type": "application/json", "origin": "http://127.0.0.1:7777"}
        return await self.send(f"/api/{path}", "POST", headers, json.dumps(body).encode())


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages wait for the whole index, however slow the machine is."""
    monkeypatch.setattr("gymnast.studio.library.FIRST_LINES_S", 60.0)


@asynccontextmanager
async def studio(*targets: Path, read_only: bool = False, cache: Path | None = None) -> AsyncIterator[Studio]:
    async with Library(RunFolders(targets), cache) as library:
        await library.poll()
        yield Studio(StudioApp(library, Access(TOKEN), read_only=read_only), library)


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


def remove_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def make_live(output: Path) -> Snapshot:
    """The files of a running collection, and what it says."""
    paths = RunPaths(output)
    plan = {"rows": 6, "tasks": 3, "agents": {"agent": 6}}
    write_manifest(paths.manifest, new_manifest(paths, source={}, plan=plan, settings={}, instances=(), requested=6))
    return Snapshot(
        run="run",
        state="running",
        requested=6,
        scored=2,
        failed={},
        owed=4,
        in_flight=1,
        waiting_retries=0,
        stages={"model": 1},
        limit=4,
        per_second=1.5,
        eta_s=3.0,
        agents={},
        retried={"model_timeout": 1},
        oldest=[InFlight("2:1", "agent", 1, "model", "policy", 7.0, 6.0)],
        out_of_reach_s={},
        given_up={},
        loop_lag_s=0.0,
        longest_lag_s=0.0,
        model_calls=5,
        rejections=0,
        seconds=9.0,
    )


# --- the API ---------------------------------------------------------------------------------------------------------


async def test_a_folder_of_runs(tmp_path: Path) -> None:
    write_run(tmp_path, grid(3, 4), name="a", failures=[failed(9, 0)])
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write_run(tmp_path / "deep" / "er", grid(3, 4, 2), name="b")
    small_run(tmp_path / "chunks", tasks=2, repeats=2, chunk_rows=2)
    (tmp_path / "trained").mkdir()
    points = [{"step": step, "seconds": 1.0 * step, "reward": step / 10, "parts": {"x": 0.1}} for step in range(3)]
    (tmp_path / "trained" / "curve.json").write_text(json.dumps({"name": "n", "points": points}))
    async with studio(tmp_path) as own:
        runs = {row["id"]: row for row in (await own.get("runs"))["runs"]}
        assert set(runs) == {"a", "deep/er/b", "chunks/x", "trained/training"}
        assert runs["chunks/x"]["kind"] == "chunked"
        assert runs["chunks/x"]["requested"] == 4
        assert runs["trained/training"]["mean_reward"]["value"] == 0.2
        assert len((await own.get("run/training", run="trained/training"))["held_out"]) == 3
        page = await own.get("run", run="a")
        assert page["headline"]["scored"] == 12
        assert page["headline"]["failed"] == {"model_timeout": 1}
        assert page["run"]["mean_reward"]["low"] is not None
        plots = await own.get("run/plots", run=["a", "deep/er/b"])
        assert [sum(counts) for counts in plots["rewards"]["counts"]] == [12, 12]
        assert plots["pass_rates"][0]["tasks"] == 3
        chunks = (await own.get("run/live", run="chunks/x"))["chunks"]
        assert chunks["states"]["free"] == 2


async def test_tables_and_search(tmp_path: Path) -> None:
    records = [
        record(task, rollout, float(task == rollout), f"Answer {task} of Zebra{rollout}, “Ünï”", level=task)
        for task in range(5)
        for rollout in range(3)
    ]
    write_run(tmp_path, records, failures=[failed(8, 0, "agent_error")])
    async with studio(tmp_path) as own:
        page = await own.get("rollouts", run="run", sort="reward", desc="1", size=2, page=1)
        assert page["total"] == 16
        assert [(row["task"], row["rollout"]) for row in page["rows"]] == [(2, 2), (0, 1)]
        assert page["rows"][0]["values"]["level"] == 2
        assert page["rows"][0]["answer"].startswith("Answer 2")
        found = await own.get("rollouts", run="run", q='zebra1 "answer 3"')
        assert [(row["task"], row["rollout"]) for row in found["rows"]] == [(3, 1)]
        assert "Zebra1" in found["rows"][0]["match"]
        assert (await own.get("rollouts", run="run", q="ünï", size=1))["total"] == 15
        assert (await own.get("rollouts", run="run", q="role"))["total"] == 0, "that is JSON, not text"
        assert (await own.get("rollouts", run="run", q="nowhere"))["rows"] == []
        tasks = await own.get("tasks", run="run", f="mean>0", sort="mean", desc="1")
        assert [row["task"] for row in tasks["rows"]] == [0, 1, 2]
        assert tasks["rows"][0]["rewards"] == [1, 0, 0]
        assert [row["task"] for row in (await own.get("tasks", run="run", q="zebra0 “Ünï” 4"))["rows"]] == [4]
        columns = await own.get("columns", run="run")
        level = next(column for column in columns["rollouts"] if column["name"] == "level")
        assert (level["type"], level["min"], level["max"]) == ("number", 0, 4)
        assert await own.status("rollouts", run="run", f="leve=1") == 400


async def test_one_rollout(tmp_path: Path) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "seen"}
    records = [record(0, 0, 1.0, items=[call, result], verdict="right"), record(0, 1, 0.0)]
    write_run(tmp_path, records, failures=[failed(0, 1, "model_error", started_at=5.0, seconds=2.0), failed(3, 0)])
    async with studio(tmp_path) as own:
        page = await own.get("rollout", run="run", task=0, rollout=0)
        assert page["items"][0]["result"]["text"] == "seen"
        assert page["facts"]["verdict"] == "right"
        assert page["neighbours"]["next"] == [0, 1]
        assert page["row"]["tool_calls"] == 1
        assert (await own.get("rollout", run="run", task=0, rollout=1))["attempts"][0]["kind"] == "model_error"
        lost = await own.get("rollout", run="run", task=3, rollout=0)
        assert lost["state"] == "failed"
        assert lost["failure"]["kind"] == "model_timeout"
        raw = await own.send("/api/rollout/raw", query="run=run&task=0&rollout=0")
        assert raw.json["verdict"] == "right"
        assert raw.headers["content-type"].startswith("text/plain")
        for task, rollout in ((77, 0), (2**39, 0)):
            assert await own.status("rollout", run="run", task=task, rollout=rollout) == 404


async def test_comparison(tmp_path: Path) -> None:
    prompts = [f"question {task}" for task in range(6)]
    for name, good in (("a", 1), ("b", 3), ("c", 2)):
        records = [
            record(task, rollout, float(rollout < good), prompt=prompts[task])
            for task in range(6)
            for rollout in range(4)
        ]
        write_run(tmp_path, records, name=name)
    async with studio(tmp_path) as own:
        page = await own.get("compare", run=["a", "b", "c"])
        assert [pair["verdict"] for pair in page["pairs"]] == ["better", "better"]
        assert page["pairs"][0]["sentence"].startswith("B is better than A by 0.500")
        assert page["rows"][0]["differences"] == [None, 0.5, 0.25]
        assert page["rows"][0]["prompt"] == "question 0"
        assert await own.status("compare", run=["a"]) == 400
        assert await own.status("compare", run=["a", "nothing"]) == 404
        assert await own.get("task/same", run="a", task=0, other="b") == {"task": 0}
        assert await own.get("task/same", run="a", task=999, other="b") == {"task": None}
        assert await own.status("task/same", run="a", task=0, other="nothing") == 404


async def test_doctor_links_to_rollouts(tmp_path: Path) -> None:
    write_run(tmp_path, grid(3, 4), failures=[failed(9, rollout) for rollout in range(4)])
    async with studio(tmp_path) as own:
        page = await own.get("doctor", run="run")
        assert not page["healthy"]
        assert any(finding["rollouts"] or finding["filter"] for finding in page["findings"])


async def test_downloads(tmp_path: Path) -> None:
    write_run(tmp_path, [record(task, 0, 1.0, formula="=1+1") for task in range(600)])
    async with studio(tmp_path) as own:
        answer = await own.send("/api/download", query="run=run&format=csv&f=task<550")
        rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
        assert len(rows) == 550
        assert rows[0]["formula"] == "'=1+1", "a spreadsheet must not run it"
        assert "attachment" in answer.headers["content-disposition"]
        lines = (await own.send("/api/download", query="run=run&format=jsonl&table=tasks")).body.splitlines()
        assert len(lines) == 600
        assert await own.status("download", run="run", format="exe") == 400


async def test_a_download_waits_for_the_whole_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a run was being indexed, its file silently had the rows so far, or none."""
    write_run(tmp_path, [record(task, 0, 1.0) for task in range(30)])
    async with studio(tmp_path) as own:
        async with own.library._index_slot:  # as while another run is indexed
            download = asyncio.create_task(own.send("/api/download", query="run=run&format=jsonl"))
            await until(lambda: own.library.entry("run").is_being_indexed, "it is being indexed")
            monkeypatch.setattr("gymnast.studio.routes._DOWNLOAD_WAIT_S", 0.0)
            assert await own.status("download", run="run", format="jsonl") == 409
            assert not download.done()
        assert len((await download).body.splitlines()) == 30


async def test_annotations(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(2, 2))
    async with studio(tmp_path) as own:
        body = {"run": "run", "task": 1, "rollout": 0, "label": "reward hack", "note": "looks it up"}
        assert (await own.post("annotations", body)).status == 200
        assert (await own.post("annotations", {**body, "rollout": None, "label": "bad task"})).status == 200
        assert [row["task"] for row in (await own.get("rollouts", run="run", f="label=reward hack"))["rows"]] == [1]
        assert (await own.get("tasks", run="run", f="label!="))["rows"][0]["label"] == "bad task"
        with annotations_path(output).open("a") as out:
            out.write('{"torn": ')  # another program died here
        assert (await own.post("annotations", {**body, "label": None, "note": ""})).status == 200
        left = (await own.get("annotations", run="run"))["annotations"]
        assert [(own["task"], own["rollout"]) for own in left] == [(1, None)]
        for bad in ({"task": "x"}, {"task": -1}, {"label": "x" * 100}, {"note": "x" * 20_000}, {"rollout": 2**40}):
            assert (await own.post("annotations", {**body, **bad})).status == 400
        assert (await own.post("annotations", [])).status == 400
    assert len(read_annotations(annotations_path(output))) == 1


async def test_a_read_only_studio_changes_nothing(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(2, 2))
    async with studio(tmp_path, read_only=True) as own:
        assert (await own.get("session"))["read_only"]
        assert (await own.post("annotations", {"run": "run", "task": 1, "label": "bad"})).status == 403
        assert (await own.post("control", {"run": "run", "command": "stop"})).status == 403
    assert not annotations_path(output).exists()


# --- live ------------------------------------------------------------------------------------------------------------


async def test_a_live_run_is_watched_and_steered(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(1, 2), missing=[(1, 0), (1, 1), (2, 0), (2, 1)])
    snapshot, asked = make_live(output), list[Any]()

    async def handle(request: dict[str, Any]) -> Any:
        asked.append(request)
        if request["command"] == "status":
            return msgspec.to_builtins(snapshot)
        return [] if request["command"] == "stacks" else "done"

    paths = RunPaths(output)
    with RunLock(paths.lock):
        async with ControlServer(paths.socket, handle), studio(tmp_path) as own:
            live = await own.get("run/live", run="run")
            assert live["is_live"]
            assert live["now"]["oldest"][0]["task"] == 2
            assert live["history"][0]["failures"] == {"model_timeout": 1}
            row = (await own.get("runs"))["runs"][0]
            assert (row["state"], row["is_live"], row["in_flight"]) == ("running", True, 1)
            assert (await own.post("control", {"run": "run", "command": "cancel", "argument": "2:1"})).json == {
                "result": "done"
            }
            assert {"command": "cancel", "argument": "2:1"} in asked
            assert (await own.post("control", {"run": "run", "command": "stacks"})).status == 400
            with output.open("a") as out:
                out.write(json.dumps(record(1, 0, 1.0)) + "\n")
            assert (await own.get("rollouts", run="run"))["total"] == 3
    async with studio(tmp_path) as own:
        assert (await own.get("runs"))["runs"][0]["state"] == "interrupted"
        assert (await own.post("control", {"run": "run", "command": "pause"})).status == 404


async def test_events(tmp_path: Path) -> None:
    write_run(tmp_path, grid(1, 2), name="a")
    async with studio(tmp_path) as own:
        await own.get("runs")
        chunks: list[bytes] = []
        gone = asyncio.Event()
        scope = {"type": "http", "method": "GET", "path": "/api/events", "query_string": b"run=a"}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in OWN.items()]

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            chunks.append(message.get("body", b""))

        stream = asyncio.create_task(own.app(scope, receive, send))
        try:
            await until(lambda: any(b"event: hello" in chunk for chunk in chunks), "hello")
            write_run(tmp_path, grid(2, 2), name="b")
            await until(lambda: any(b'"id":"b"' in chunk for chunk in chunks), "a new run")
            shutil.move(tmp_path / "a.jsonl", tmp_path / "gone")
            for name in ("a_failures.jsonl", "a_materialized_inputs.jsonl"):
                (tmp_path / name).unlink()
            await until(lambda: any(b'"removed":["a"]' in chunk for chunk in chunks), "a removed run")
            await own.post("annotations", {"run": "b", "task": 0, "label": "good"})
            await until(lambda: any(b"event: annotations" in chunk for chunk in chunks), "an annotation")
            own.app.end_streams()
            await until(stream.done, "the end of the stream")
        finally:
            gone.set()
            await stream
        assert not own.library.listeners


async def test_a_run_that_is_removed_while_it_is_read(tmp_path: Path) -> None:
    output = write_run(tmp_path, grid(3, 3))
    async with studio(tmp_path) as own:
        assert (await own.get("rollouts", run="run"))["total"] == 9
        output.unlink()
        for path in ("rollouts", "tasks", "run", "columns", "doctor", "run/plots", "annotations"):
            assert await own.status(path, run="run") in (200, 400, 404), path
        assert await own.status("rollout", run="run", task=0, rollout=0) == 404
        remove_files(tmp_path)
        own.library._scanned_at = -1e9
        await own.library.poll()
        assert await own.status("rollouts", run="run") == 404
        write_run(tmp_path, grid(1, 1))
        own.library._scanned_at = -1e9
        await own.library.poll()
        assert (await own.get("rollouts", run="run"))["total"] == 1


async def test_odd_records_do_not_break_a_page(tmp_path: Path) -> None:
    records = [
        *hostile_records(),
        record(100, 0, float("nan"), score=float("inf"), big=10**400),
        record(101, 0, 1.0, "\ud800 alone", answer="\ud800"),
        {**record(102, 0, 1.0), "response": [[]], "responses_create_params": 3, "agent_ref": "x"},
    ]
    output = write_run(tmp_path, records)
    deep = b'{"_ng_task_index":103,"_ng_rollout_index":0,"reward":1,"deep":' + b"[" * 900 + b"]" * 900 + b"}\n"
    with output.open("ab") as out:
        out.write(deep + b"not json\n" + b'{"_ng_task_index":104,"_ng_rollout_index":0,"rew')
    async with studio(tmp_path) as own:
        page = await own.get("rollouts", run="run", size=500)
        keys = [(row["task"], row["rollout"]) for row in page["rows"]]
        assert {(100, 0), (101, 0), (102, 0), (103, 0)} <= set(keys)
        assert (104, 0) not in keys
        for task, rollout in keys:
            assert await own.status("rollout", run="run", task=task, rollout=rollout) == 200
        for path in ("tasks", "columns", "run", "run/plots", "doctor"):
            assert await own.status(path, run="run") in (200, 400), path
        for word in ("pwned", "日本", "\ud800".encode("utf-8", "replace").decode(), '"', "\\", "%00", "[[["):
            assert await own.status("rollouts", run="run", q=word) == 200


# --- safety ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "127.0.0.1"},
        {**OWN, "authorization": "Bearer wrong"},
        {**OWN, "authorization": "Bearer "},
        {**OWN, "authorization": "Basic the-token"},
        {**OWN, "host": "evil.example"},
        {**OWN, "host": "127.0.0.1.evil.example:80"},
        {**OWN, "host": "localhost@evil.example"},
        {**OWN, "host": ""},
        {**OWN, "host": "127.0.0.1:80:80"},
        {**OWN, "host": "0.0.0.0"},
        {**OWN, "origin": "http://evil.example"},
        {**OWN, "origin": "null"},
        {**OWN, "origin": "http://127.0.0.1:1"},
        {**OWN, "origin": "http://[bad"},
        {**OWN, "sec-fetch-site": "cross-site"},
        {**OWN, "sec-fetch-site": "same-site"},
        {"host": "127.0.0.1", "cookie": "gymnast_studio_x=the-token"},
        {"host": "127.0.0.1", "cookie": "\xff=\xff"},
    ],
)
async def test_requests_from_elsewhere_get_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    write_run(tmp_path, grid(1, 1))
    async with studio(tmp_path) as own:
        for path in ("/api/runs", "/api/rollouts", "/api/events"):
            answer = await own.send(path, headers=headers or {"x": "y"}, query="run=run")
            assert answer.status == 403
            assert b"reward" not in answer.body
        body = json.dumps({"run": "run", "task": 0, "label": "bad"}).encode()
        posted = await own.send(
            "/api/annotations", "POST", {**(headers or {"x": "y"}), "content-type": "application/json"}, body
        )
        assert posted.status == 403
    assert not (tmp_path / "run_annotations.jsonl").exists()


async def test_the_url_gives_a_cookie_and_hides_the_token(tmp_path: Path) -> None:
    async with studio(tmp_path) as own:
        first = await own.send("/", headers={"host": "localhost:1"}, query=f"token={TOKEN}")
        assert (first.status, first.headers["location"]) == (303, "/")
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite" in cookie
        headers = {"host": "localhost:1", "cookie": f"a=b; {cookie.partition(';')[0]}"}
        assert (await own.send("/api/session", headers=headers)).status == 200
        for wrong in ("token=x", "token=", f"token={TOKEN}x", "token=%FF", "token=" + "x" * 9000):
            assert (await own.send("/", headers={"host": "localhost:1"}, query=wrong)).status == 403
        rebound = await own.send("/", headers={"host": "evil.example"}, query=f"token={TOKEN}")
        assert rebound.status == 403
        assert "set-cookie" not in rebound.headers


@pytest.mark.parametrize(
    "path",
    [
        "/web/../server.py",
        "/web/..%2fserver.py",
        "/web//etc/passwd",
        "/web/%2e%2e/server.py",
        "/web/.",
        "/web/",
        "/web/index.html/..",
        "/etc/passwd",
        "//etc/passwd",
        "/web/\x00.js",
        "/web/a\\..\\b.js",
        "/server.py",
    ],
)
async def test_no_file_outside_of_the_application(tmp_path: Path, path: str) -> None:
    async with studio(tmp_path) as own:
        assert (await own.send(path)).status == 404


@pytest.mark.parametrize("run", ["../secret/run", "/etc/passwd", "run.jsonl", "run\x00", "", "%2e%2e/secret/run", "."])
async def test_runs_have_ids_not_paths(tmp_path: Path, run: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "shown").mkdir()
    write_run(tmp_path / "secret", grid(1, 1))
    write_run(tmp_path / "shown", grid(1, 1))
    async with studio(tmp_path / "shown") as own:
        for path in ("run", "rollouts", "run/live", "doctor", "annotations", "download"):
            assert await own.status(path, run=run) in (400, 404)


async def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    secret, shown = tmp_path / "secret", tmp_path / "shown"
    secret.mkdir()
    shown.mkdir()
    output = write_run(secret, grid(1, 1))
    (shown / "link").symlink_to(secret)
    write_run(shown, grid(1, 1), name="a")
    (shown / "b.jsonl").symlink_to(output)
    (shown / "b_materialized_inputs.jsonl").write_text("")
    (shown / "c.jsonl").symlink_to(shown / "a.jsonl")
    (shown / "c_materialized_inputs.jsonl").write_text("")
    async with studio(shown) as own:
        page = await own.get("runs")
        assert [row["id"] for row in page["runs"]] == ["a", "c"]
        assert page["left_out"] == 1
        (shown / "a_annotations.jsonl").symlink_to(secret / "stolen")
        assert (await own.post("annotations", {"run": "a", "task": 0, "label": "x"})).status == 400
    assert not (secret / "stolen").exists()


async def test_every_answer_has_the_security_headers(tmp_path: Path) -> None:
    async with studio(tmp_path) as own:
        for path in ("/", "/api/session", "/nowhere", "/api/nowhere"):
            headers = (await own.send(path)).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"


async def test_oversized_and_malformed_requests_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, grid(1, 1))
    posted = {**OWN, "content-type": "application/json"}
    async with studio(tmp_path) as own:
        assert (await own.send("/api/runs", query="a" * 20_000)).status == 414
        assert (await own.send("/api/rollouts", query="&".join(["f=reward>0"] * 500))).status == 400
        assert (await own.send("/api/rollouts", query="run=run&page=" + "9" * 100)).status == 400
        assert (await own.send("/api/rollouts", query="run=run&f=%F0%28%8C")).status == 400
        assert (await own.send("/api/annotations", "POST", posted, b"x" * 100_000)).status == 413
        assert (await own.send("/api/annotations", "POST", posted, b"{")).status == 400
        assert (await own.send("/api/annotations", "POST", posted, b"[" * 5000)).status == 400
        assert (await own.send("/api/annotations", "POST", {**OWN, "content-type": "text/plain"}, b"{}")).status == 415
        assert (await own.send("/api/runs", "POST", posted, b"{}")).status == 405
        assert (await own.send("/api/runs", "DELETE")).status == 405


async def test_a_bug_is_an_answer_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, grid(1, 1))

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(tasks, "tasks_page", broken)
    async with studio(tmp_path) as own:
        assert await own.status("tasks", run="run") == 500
        assert await own.status("rollouts", run="run") == 200


# --- static sites ----------------------------------------------------------------------------------------------------


def site_data(folder: Path, name: str) -> Any:
    """What a script of a static site hands to its page."""
    text = (folder / f"{name}.js").read_text()
    return json.loads(json.loads(f"[{text.removeprefix('studioData(').removesuffix(');' + chr(10))}]")[1])


def test_modules_that_cannot_be_bundled_are_refused() -> None:
    modules = {
        "b.js": 'import { a } from "./a.js";\nexport function b() {\n  return a;\n}\n',
        "a.js": "export const a = 1;\n",
    }
    bundle = bundle_modules(modules)
    assert bundle.index('studioModules["a.js"] =') < bundle.index('studioModules["b.js"] =')
    assert "export" not in bundle
    for text in ("export default 1;\n", 'import * as a from "./a.js";\n', "export let a = 1;\n"):
        with pytest.raises(ValueError, match="cannot bundle"):
            bundle_modules({"c.js": text, "a.js": modules["a.js"]})


async def test_a_static_site_says_what_it_leaves_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path, grid(3, 4), name=name)
    site = await export_site([tmp_path], tmp_path / "site", max_transcripts=5)
    data = tmp_path / "site" / "data"
    assert site_data(data, "session")["files"] == {"a": "0", "b": "1"}
    assert "7 transcripts of a" in site_data(data, "session")["left_out"]
    assert len(list((data / "0" / "rollout").iterdir())) == 5
    assert site_data(data, "0/rollouts")["total"] == 12
    assert site_data(data, "0/compare-1")["pairs"][0]["ties"] == 3
    page = (tmp_path / "site" / "index.html").read_text()
    assert 'data-mode="static"' in page
    assert "Content-Security-Policy" in page
    assert "module" not in page
    assert str(tmp_path) not in "".join(path.read_text() for path in data.rglob("*.js"))
    assert site.runs == 2
    assert not any(os.fspath(path).endswith(".py") for path in (tmp_path / "site").rglob("*"))


async def test_a_failed_rollout_has_neighbours_and_a_file_of_another_tool_has_counts(tmp_path: Path) -> None:
    output = write_run(tmp_path, [record(1, 0, 1.0), record(2, 0, 1.0)], failures=[failed(0, 0)], inputs=False)
    async with studio(output) as own:
        page = await own.get("rollout", run="run", task=0, rollout=0)
        assert page["neighbours"]["next"] == [1, 0]
        assert page["neighbours"]["next_task"] == 1
        await own.get("run", run="run")
        row = (await own.get("runs"))["runs"][0]
        assert (row["scored"], row["failed"], row["tasks"], row["models"]) == (2, 1, 3, ["mock"])
